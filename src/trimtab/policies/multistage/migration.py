"""Dynamic migration: one subscriber after the other leaves the most loaded broker while the load is too uneven.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slide on dynamic migration, lines 6
to 24. Where a subscriber goes is the scheme's (`ldm.py`, `sdm.py`).

The broker with most load gives its heaviest subscriber that fits elsewhere; then the loads are known anew and the next
goes, until the imbalance is at most alpha or the mean load at most beta.

Deviations: a move is made only if it lowers the larger of the two loads, and migration ends when the most loaded broker
has no such move; the printed loop only asks that the target has less load than the source, which can send a subscriber
to and fro without end. (Line 18 also sets the old assignment to 1 where 0 is meant; line 24 has it right.) Each move
makes the loads, sorted downwards, smaller in dictionary order, so that no assignment comes twice. A subscriber that did
not fit is tried again only when no other one of its broker fits: as the loads come closer to each other it fits less.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, Protocol

import msgspec
import numpy as np

from trimtab.policies.multistage.config import MultistageConfig
from trimtab.policies.multistage.instance import Instance, Places
from trimtab.policies.multistage.standing import Standing

SAME_RATIO: Final = 1e-9
"""Loads that differ by less than this share are the same: sums of decimals are not exact."""


class Target(Protocol):
    """A scheme: where a subscriber of the most loaded broker would go, or None."""

    def __call__(self, standing: Standing, subscriber: int, source: int) -> int | None:
        """The broker that the scheme has in mind for this subscriber."""


class Migration(msgspec.Struct, frozen=True):
    """Who is where after a migration."""

    assignment: Places
    steps_count: int
    """Moves that were decided; a subscriber that was moved on counts again, though it travels once."""

    ended: str
    """Why it ended there."""


def improves(standing: Standing, subscriber: int, source: int, target: int) -> bool:
    """Whether a move lowers the larger of the two loads."""
    loads = standing.loads
    before = max(loads[source], loads[target])
    after_source = loads[source] - standing.released(subscriber, source)
    after_target = loads[target] + standing.added(subscriber, target)
    return bool(max(after_source, after_target) < before * (1 - SAME_RATIO))


def migrate(
    instance: Instance, assignment: Places, brokers_count: int, config: MultistageConfig, target_of: Target
) -> Migration:
    """Move subscribers away from the most loaded broker until the load is even enough or no move helps."""
    standing = Standing(instance, assignment, brokers_count)
    order = np.argsort(-instance.own_loads_bytes_per_s, kind="stable")
    subscribers: list[int] = order.tolist()
    queues = [_Queue(subscribers) for _ in range(brokers_count)]
    for rank, broker in enumerate(assignment[order].tolist()):
        queues[broker].waiting.append(rank)
    steps_count = 0
    while True:
        if standing.mean <= config.idle_load_bytes_per_s:
            ended = "little load"
            break
        if standing.cov <= config.migrate_cov:
            ended = "even enough"
            break
        source = int(np.argmax(standing.loads))
        found = queues[source].first_fit(standing, source, target_of)
        if found is None:
            ended = "no move helps"
            break
        rank, target = found
        standing.move(subscribers[rank], source, target)
        heappush(queues[target].waiting, rank)
        steps_count += 1
    return Migration(standing.assignment(), steps_count, ended)


class _Queue:
    """A broker's subscribers by rank, the heaviest first, and those of them that did not fit elsewhere."""

    def __init__(self, subscribers: list[int]) -> None:
        self.waiting: list[int] = []  # a heap; ranks that are added in order are one
        self._unfit: list[int] = []
        self._subscribers = subscribers

    def first_fit(self, standing: Standing, source: int, target_of: Target) -> tuple[int, int] | None:
        """The heaviest subscriber for whom a move helps, taken from the queue, with its target."""
        found = self._search(standing, source, target_of)
        if found is None and self._unfit:
            self.waiting, self._unfit = self._unfit, []
            heapify(self.waiting)
            found = self._search(standing, source, target_of)
        return found

    def _search(self, standing: Standing, source: int, target_of: Target) -> tuple[int, int] | None:
        while self.waiting:
            rank = heappop(self.waiting)
            subscriber = self._subscribers[rank]
            target = target_of(standing, subscriber, source)
            if target is not None and target != source and improves(standing, subscriber, source, target):
                return rank, target
            self._unfit.append(rank)
        return None
