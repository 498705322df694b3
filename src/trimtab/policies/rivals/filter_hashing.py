"""Consistent hashing of filters: a client belongs to the broker that its filter's hash falls to, whatever the load.

Source: D. Karger and others, consistent hashing and random trees (1997); many systems place topics or subscriptions
so. Each broker has many points on a ring, and a filter belongs to the first point behind its own. A broker that comes
or goes changes the place of its share of filters and of no others. Equal filters meet at one broker.

Deviations: a client with several filters goes by the first of them in alphabetical order, since clients move as a
whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import Final

from trimtab.policies.padres.snapshot import BrokerLoad
from trimtab.policies.rivals.decision import Moves, ServedClient

POINTS_COUNT: Final = 100
"""Of each broker; shares then differ by some 10 %."""


def _place(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


class Ring:
    """Brokers on a ring.

    >>> before, after = Ring(["B1", "B2", "B3"]), Ring(["B1", "B2", "B3", "B4"])
    >>> names = [f"filter {number}" for number in range(1_000)]
    >>> moved = [name for name in names if before.broker_of(name) != after.broker_of(name)]
    >>> 150 < len(moved) < 350, {after.broker_of(name) for name in moved}
    (True, {'B4'})
    """

    def __init__(self, brokers: Sequence[str]) -> None:
        points = sorted((_place(f"{name}#{number}"), name) for name in brokers for number in range(POINTS_COUNT))
        self._places = [place for place, _ in points]
        self._names = [name for _, name in points]

    def broker_of(self, text: str) -> str:
        """The broker that a text's hash falls to."""
        return self._names[bisect_left(self._places, _place(text)) % len(self._names)]


class FilterHashing:
    """Sends every client to its broker."""

    every_s = 10.0
    wants_rates = False

    def decide(
        self, ours: BrokerLoad, others: Sequence[BrokerLoad], clients: Sequence[ServedClient], rng: Random, now_s: float
    ) -> Moves:
        """Send away who belongs elsewhere."""
        ring = Ring(sorted([ours.broker, *(load.broker for load in others)]))
        wanted = [(client.name, ring.broker_of(min(map(str, client.filters), default=""))) for client in clients]
        return [(name, broker) for name, broker in wanted if broker != ours.broker]
