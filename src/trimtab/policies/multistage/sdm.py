"""Similarity-based dynamic migration (SDM): a subscriber of the most loaded broker goes where its subscriptions are.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slide on dynamic migration, lines 10
and 14 to 16: of the brokers below the mean load the one that already fetches most of what the subscriber wants
(sim_j, the rates of the shared back-end subscriptions). `migration.py` has the loop and the deviations.

What is already fetched there costs nothing more, so the total load grows less than with LDM.

Deviation: of brokers that are alike in this, the least loaded is taken; the paper leaves it open.
"""

from __future__ import annotations

import numpy as np

from trimtab.policies.multistage.config import MultistageConfig
from trimtab.policies.multistage.instance import Floats, Instance, Places
from trimtab.policies.multistage.migration import SAME_RATIO, Migration, migrate
from trimtab.policies.multistage.standing import Standing


def similarities(standing: Standing, subscriber: int) -> Floats:
    """The rates of the subscriptions that a subscriber shares with each broker (sim_j)."""
    wanted = standing.instance.of_subscriber(subscriber)
    shared: Floats = standing.instance.rates_bytes_per_s[wanted] @ standing.held[wanted]
    return shared


def most_similar(standing: Standing, subscriber: int, source: int) -> int | None:
    """The most similar broker below the mean load; None if there is none."""
    loads = standing.loads
    least = int(np.argmin(loads))
    if least != source and loads[least] < standing.mean and standing.holds_all(subscriber, least):
        return least  # none is more similar, and of those that are alike none has less load
    shared = similarities(standing, subscriber)
    shared[loads >= standing.mean] = -1.0
    shared[source] = -1.0
    best = float(shared.max())
    if best < 0:
        return None
    alike = np.flatnonzero(shared >= best * (1 - SAME_RATIO))
    return int(alike[np.argmin(loads[alike])])


def plan_sdm(instance: Instance, assignment: Places, brokers_count: int, config: MultistageConfig) -> Migration:
    """One round of similarity-based migration.

    >>> pairs = Instance.of([[0], [0], [1], [1], [0], [1]], [400.0, 300.0])
    >>> plan_sdm(pairs, np.array([0, 0, 0, 0, 1, 2]), 3, MultistageConfig(migrate_cov=0.45)).assignment.tolist()
    [1, 0, 0, 0, 1, 2]
    """
    return migrate(instance, assignment, brokers_count, config, most_similar)
