"""What the rivals' ways of deciding see and say: loads of brokers, clients with their rates, and who is to move where.

In each of these systems one node, a coordinator or leader, decides for all. Here every broker tells its load to all,
and decides what the leader would decide about its own clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeAlias

import msgspec

from trimtab.language import Filter
from trimtab.policies.padres.snapshot import BrokerLoad


class ServedClient(msgspec.Struct, frozen=True):
    """A client of the deciding broker."""

    name: str
    filters: tuple[Filter, ...]
    rate_per_s: float
    """Publications that it is sent, over the time since the last decision; 0 for ways that do not ask for it."""


Moves: TypeAlias = list[tuple[str, str]]
"""Clients, each with the broker that it is to move to."""


class Deciding(Protocol):
    """A rival's way of deciding."""

    every_s: float
    """How often it decides."""

    wants_rates: bool
    """Whether it must know what each client is sent."""

    def decide(
        self, ours: BrokerLoad, others: Sequence[BrokerLoad], clients: Sequence[ServedClient], rng: Random, now_s: float
    ) -> Moves:
        """Which of our clients are to move, and where; the others are in the order of their names."""
        ...


def message_rate_per_s(load: BrokerLoad) -> float:
    """Publications that come in and go out."""
    return load.input_rate_per_s + load.output_rate_per_s


def usage(load: BrokerLoad) -> float:
    """The largest share of a resource that is in use: matching, processor or bandwidth."""
    return max(load.input_utilization_ratio, load.cpu_utilization_ratio, load.output_utilization_ratio)
