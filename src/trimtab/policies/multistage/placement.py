"""Where new subscribers go: to the nearest broker, a random one, each in turn, or the least loaded.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, stage "initial placement". Nothing is
known of a new subscriber's subscriptions, for it has none yet; only `nearest` asks where it is, only `least-loaded`
what brokers have to do.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from random import Random

import numpy as np

from trimtab.policies.multistage.instance import Floats, Places


def place_nearest(positions: Floats, sites: Floats) -> Places:
    """The broker nearest to each position; both are rows of coordinates, of equals the first broker.

    >>> place_nearest(np.array([[0.0, 0.0], [9.0, 9.0]]), np.array([[1.0, 0.0], [10.0, 10.0]])).tolist()
    [0, 1]
    """
    nearest = np.zeros(len(positions), dtype=np.int64)
    least = np.full(len(positions), np.inf)
    for broker, site in enumerate(sites):
        distances = ((positions - site) ** 2).sum(axis=1)
        closer = distances < least
        nearest[closer] = broker
        least[closer] = distances[closer]
    return nearest


def place_randomly(subscribers_count: int, brokers_count: int, rng: Random) -> Places:
    """A broker for each subscriber, each broker as likely as another."""
    return np.array([rng.randrange(brokers_count) for _ in range(subscribers_count)], dtype=np.int64)


def place_least_loaded(subscribers_count: int, loads: Floats, expected_load_bytes_per_s: float) -> Places:
    """Each subscriber to the broker with the least load, of equals the first.

    A new subscriber brings no load that is known; it counts with what is expected of one, so that those who come
    together do not all go to the same broker.

    >>> place_least_loaded(3, np.array([5.0, 0.0]), 3.0).tolist()
    [1, 1, 0]
    """
    heap = [(float(load), broker) for broker, load in enumerate(loads)]
    heapify(heap)
    chosen = np.empty(subscribers_count, dtype=np.int64)
    for subscriber in range(subscribers_count):
        load, broker = heap[0]
        chosen[subscriber] = broker
        heapreplace(heap, (load + max(expected_load_bytes_per_s, 1e-9), broker))
    return chosen
