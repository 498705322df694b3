"""The load of brokers: what they fetch from the back end and what they send to subscribers, and how uneven that is.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slides on broker load and on the
indicator of imbalance: F_j = I_j + O_j; I_j sums the rates of the back-end subscriptions that some subscriber of the
broker has (z_jk = 1), O_j those of its front-end subscriptions (n_jk); cov = sigma / mu over brokers.

A back-end subscription that several subscribers of a broker share is fetched once and sent to each. So where people
are decides how much is fetched in total, while what is sent in total is always the same.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from trimtab.policies.multistage.instance import Floats, Instance, Places

Counts: TypeAlias = npt.NDArray[np.int64]


def front_end_counts(instance: Instance, assignment: Places, brokers_count: int) -> Counts:
    """How many subscribers of each broker have each back-end subscription (n_jk): a row for each broker."""
    cells = assignment.repeat(np.diff(instance.starts)) * instance.subscriptions_count + instance.subscriptions
    counts = np.bincount(cells, minlength=brokers_count * instance.subscriptions_count)
    return counts.reshape(brokers_count, instance.subscriptions_count)


def incoming_loads(instance: Instance, assignment: Places, brokers_count: int) -> Floats:
    """What each broker fetches (I_j), in bytes/s."""
    held = (front_end_counts(instance, assignment, brokers_count) > 0).astype(np.float64)
    loads: Floats = held @ instance.rates_bytes_per_s
    return loads


def outgoing_loads(instance: Instance, assignment: Places, brokers_count: int) -> Floats:
    """What each broker sends (O_j), in bytes/s."""
    loads = np.bincount(assignment, weights=instance.own_loads_bytes_per_s, minlength=brokers_count)
    return loads.astype(np.float64, copy=False)


def broker_loads(instance: Instance, assignment: Places, brokers_count: int) -> Floats:
    """The load of each broker (F_j), in bytes/s.

    >>> shared = Instance.of([[0], [0], [1]], [10.0, 2.0])
    >>> broker_loads(shared, np.array([0, 0, 1]), 2).tolist(), broker_loads(shared, np.array([0, 1, 1]), 2).tolist()
    ([30.0, 4.0], [20.0, 24.0])
    """
    return incoming_loads(instance, assignment, brokers_count) + outgoing_loads(instance, assignment, brokers_count)


def cov(loads: Floats) -> float:
    """The coefficient of variation: the standard deviation over the mean; 0 where there is no load.

    >>> cov(np.array([1.0, 3.0])), cov(np.zeros(3))
    (0.5, 0.0)
    """
    mean = float(loads.mean()) if len(loads) else 0.0
    return float(loads.std()) / mean if mean > 0 else 0.0
