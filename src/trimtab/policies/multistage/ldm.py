"""Load-based dynamic migration (LDM): subscribers of the most loaded broker go to the least loaded one.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slide on dynamic migration, lines 11
to 13; `migration.py` has the loop and the deviations.

Each move narrows the widest gap, so few moves level the load; what subscribers share is not looked at, so brokers come
to fetch more than they did.
"""

from __future__ import annotations

import numpy as np

from trimtab.policies.multistage.config import MultistageConfig
from trimtab.policies.multistage.instance import Instance, Places
from trimtab.policies.multistage.migration import Migration, migrate
from trimtab.policies.multistage.standing import Standing


def least_loaded(standing: Standing, subscriber: int, source: int) -> int:
    """The broker with the least load, of equals the first."""
    return int(np.argmin(standing.loads))


def plan_ldm(instance: Instance, assignment: Places, brokers_count: int, config: MultistageConfig) -> Migration:
    """One round of load-based migration.

    >>> everybody = Instance.of([[0], [1], [2], [3]], [400.0] * 4)
    >>> plan_ldm(everybody, np.zeros(4, dtype=np.int64), 2, MultistageConfig()).assignment.tolist()
    [1, 1, 0, 0]
    """
    return migrate(instance, assignment, brokers_count, config, least_loaded)
