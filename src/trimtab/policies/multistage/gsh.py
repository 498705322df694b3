"""Greedy shuffle (GSH): all subscribers are distributed anew, the heaviest first, each to the least loaded broker.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slide on the shuffle algorithm.

It is the rule of longest processing time for machines that share work: once the big ones are placed, small ones fill
what is uneven. Brokers start empty, so what a subscriber adds is what it is sent and those of its subscriptions that
its broker does not fetch yet.

Deviation: the paper leaves open which broker is which afterwards, though brokers are alike; here the brokers' names
are dealt out so that many subscribers stay where they are (the broker that shares most load with an old one keeps its
name), because each move costs.
"""

from __future__ import annotations

from heapq import heapreplace

import numpy as np

from trimtab.policies.multistage.instance import Floats, Instance, Places


def shuffle(instance: Instance, brokers_count: int) -> Places:
    """A broker for each subscriber.

    >>> shuffle(Instance.of([[0], [1], [2]], [4.0, 3.0, 2.0]), 2).tolist()
    [0, 1, 1]
    """
    own_loads = instance.own_loads_bytes_per_s
    order = np.argsort(-own_loads, kind="stable")
    rates: list[float] = instance.rates_bytes_per_s.tolist()
    held = [bytearray(instance.subscriptions_count) for _ in range(brokers_count)]
    heap = [(0.0, broker) for broker in range(brokers_count)]
    starts: list[int] = instance.starts.tolist()
    subscriptions = instance.subscriptions
    chosen = [0] * instance.subscribers_count
    for subscriber, own_load in zip(order.tolist(), own_loads[order].tolist(), strict=True):
        load, broker = heap[0]
        load += own_load
        row = held[broker]
        for each in subscriptions[starts[subscriber] : starts[subscriber + 1]].tolist():
            if not row[each]:
                row[each] = 1
                load += rates[each]
        chosen[subscriber] = broker
        heapreplace(heap, (load, broker))
    return np.array(chosen, dtype=np.int64)


def plan_gsh(instance: Instance, assignment: Places, brokers_count: int) -> Places:
    """The shuffle, with brokers named so that much stays where it is."""
    return renamed(shuffle(instance, brokers_count), assignment, instance.own_loads_bytes_per_s, brokers_count)


def renamed(wanted: Places, present: Places, weights: Floats, brokers_count: int) -> Places:
    """The wanted assignment with brokers' names exchanged: the pair that shares most weight first, and so on.

    >>> renamed(np.array([0, 0, 1]), np.array([1, 1, 0]), np.ones(3), 2).tolist()
    [1, 1, 0]
    """
    shared = np.bincount(wanted * brokers_count + present, weights=weights, minlength=brokers_count**2)
    shared = shared.reshape(brokers_count, brokers_count)
    names = np.full(brokers_count, -1, dtype=np.int64)
    taken = np.zeros(brokers_count, dtype=np.bool_)
    for pair in np.argsort(-shared, axis=None, kind="stable").tolist():
        new, old = divmod(pair, brokers_count)
        if names[new] < 0 and not taken[old]:
            names[new] = old
            taken[old] = True
    return names[wanted]
