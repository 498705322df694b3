"""The three stages together: nothing, migration or a shuffle, as uneven as the load is.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slides on the framework and on the
algorithm's design: cov up to alpha is even enough; between alpha and gamma subscribers migrate; beyond gamma all are
distributed anew; up to a mean load of beta nothing is done. New subscribers are placed by `placement.py`.

The policies `ldm` and `sdm` migrate beyond alpha and never shuffle; `gsh` and `groups` do the one thing that they are
named after, beyond limits of their own.

A shuffle moves nearly everybody and leaves next to nothing to do afterwards; migration moves few and has to go on.
"""

from __future__ import annotations

from trimtab.policies.multistage.config import Balancing, MultistageConfig
from trimtab.policies.multistage.groups import plan_groups
from trimtab.policies.multistage.gsh import plan_gsh
from trimtab.policies.multistage.instance import Instance, Places
from trimtab.policies.multistage.ldm import plan_ldm
from trimtab.policies.multistage.load import broker_loads, cov
from trimtab.policies.multistage.sdm import plan_sdm


def plan_round(
    policy: Balancing, instance: Instance, assignment: Places, brokers_count: int, config: MultistageConfig
) -> Places:
    """Who is to be where after one round of a policy.

    >>> import numpy as np
    >>> everybody = Instance.of([[0], [1], [2], [3]], [400.0] * 4)
    >>> plan_round("multistage", everybody, np.zeros(4, dtype=np.int64), 2, MultistageConfig()).tolist()
    [0, 1, 0, 1]
    """
    if policy == "none" or brokers_count < 2:
        return assignment
    loads = broker_loads(instance, assignment, brokers_count)
    imbalance = cov(loads)
    if loads.mean() <= config.idle_load_bytes_per_s:
        return assignment
    if policy == "groups":
        is_due = imbalance > config.groups_cov
        return plan_groups(instance, assignment, brokers_count, config) if is_due else assignment
    if imbalance <= (config.gsh_cov if policy == "gsh" else config.migrate_cov):
        return assignment
    if policy == "gsh" or (policy == "multistage" and imbalance > config.shuffle_cov):
        return plan_gsh(instance, assignment, brokers_count)
    scheme = config.migration if policy == "multistage" else policy
    plan = plan_sdm if scheme == "sdm" else plan_ldm
    return plan(instance, assignment, brokers_count, config).assignment
