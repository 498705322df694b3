"""How often each ingredient occurs in random runs: one table, which all that draws plans reads.

A weight of a yes-or-no ingredient is its probability. Where one of several is chosen, weights are relative to each
other. An ingredient with weight 0 does not occur.

Whoever looks for one kind of failure draws runs with other weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.broker.replication.config import Protocol

Aim: TypeAlias = Literal["publishing", "moving", "leaving", "cut", "any"]
"""What is under way when a broker dies: publications, a client between two brokers, a publisher that leaves (or ends an
advertisement) with a backlog, a link or broker that is cut off, or nothing in particular."""

Failing: TypeAlias = Literal["crash", "hang", "restart", "asked"]
"""A broker dies and is replaced, hangs and is replaced, dies and is started again on its machine, or is asked to end
and is started again there."""

Feature: TypeAlias = Literal["balancing", "coordinator", "relocation", "channels", "guests"]
"""What a network may have besides brokers and clients: agents, channels, and brokers that join it."""

FaultKind: TypeAlias = Literal["drop", "duplicate", "delay", "reorder", "partition", "pause", "cut"]
"""What goes wrong without anybody's death."""

DiskFaultKind: TypeAlias = Literal["flip-bit", "full-disk", "slow-disk"]
"""What goes wrong with a disk; that what is being written is lost or torn comes with deaths."""

_Choice = TypeVar("_Choice", bound=str)


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The weight of each ingredient."""

    # ---- every run ----
    slow_brokers: float = 0.3
    balancing: float = 0.25
    coordinator: float = 0.25
    """Of the runs without balancing."""
    relocation: float = 0.5
    """Of the runs without a coordinator: agents move publishers."""
    channels: float = 0.4
    subscription_covering: float = 0.75
    advertisement_covering: float = 0.6
    guest_leaves: float = 0.6
    """Of brokers that join: they leave again. Not where brokers die: a replica would wait for them for ever."""
    publisher: float = 0.6
    subscriber: float = 0.7
    """Of clients, which may be both."""
    advertise_again: float = 0.06
    unadvertise: float = 0.06
    """Of what a publisher does; the rest are publications."""
    move: float = 0.3
    unsubscribe: float = 0.2
    """Of what a subscriber does; the rest are more subscriptions."""
    leave: float = 0.15
    """Of clients."""
    publishers_move: float = 0.5
    """Of the runs: publishers move by themselves."""
    fault: Mapping[FaultKind, int] = MappingProxyType(
        {"drop": 1, "duplicate": 1, "delay": 1, "reorder": 1, "partition": 1, "pause": 1, "cut": 2}
    )
    """Whole numbers. Where brokers die, cuts, partitions and pauses are too short to look like death."""
    fault_everywhere: float = 0.3
    """Of faults of frames: on all links instead of one."""

    # ---- runs in which brokers die ----
    acknowledges: Mapping[Acknowledges, float] = MappingProxyType({"received": 0.4, "safe": 0.35, "durable": 0.25})
    protocol: Mapping[Protocol, float] = MappingProxyType(
        {"basic": 0.15, "synchronous": 0.3, "incremental": 0.25, "incremental-ordered": 0.3}
    )
    """Where `received` is acknowledged; the other levels are for the synchronous protocol."""
    feature_kept: Mapping[Feature, float] = MappingProxyType(
        {"balancing": 0.5, "coordinator": 0.5, "relocation": 0.5, "channels": 0.5, "guests": 0.5}
    )
    """Probabilities with which these stay from the plan without deaths. With all of them in every run most runs would
    be about agents."""
    moves_kept: float = 0.7
    """Of the runs: clients move by themselves."""
    failing: Mapping[Failing, float] = MappingProxyType({"crash": 0.6, "hang": 0.2, "restart": 0.1, "asked": 0.1})
    aim: Mapping[Aim, float] = MappingProxyType(
        {"publishing": 0.35, "moving": 0.25, "leaving": 0.2, "cut": 0.1, "any": 0.1}
    )
    false_suspicion: float = 0.06
    """Of the runs: a broker pauses for so long that it is taken for dead, ended and replaced."""
    adjacent_deaths: float = 0.3
    """Of the runs with `durable`, which promises to survive it: a neighbour dies right after a broker,
    while that one is replaced if deaths overlap."""
    rolling_restart: float = 0.08
    """Of the runs: all brokers are asked to end and are started again, one after the other, and none dies."""
    overlapping_deaths: float = 0.5
    """Of the runs with `durable`: failures do not wait for the end of takeovers before them."""
    separation: float = 0.3
    """Of the runs with `safe`: instead of deaths two halves cannot reach each other, and majorities decide."""
    assistant: float = 0.15
    """A slow broker gets an assistant."""
    deaths_with_assistant: float = 0.6
    """Of those with an assistant: brokers die as well."""
    deaths_near_assistant: float = 0.7
    """Of these deaths: the assistant dies, the broker that it assists, or a neighbour of both."""
    unsynced_death: float = 0.3
    """Of the runs with `durable`: a broker that nobody can reach dies while its slow disk writes publications."""
    disk_faults: float = 0.6
    """Of the runs with `durable`: disks are full, slow or lose bits, besides what deaths cost them."""
    disk_fault: Mapping[DiskFaultKind, float] = MappingProxyType(
        {"flip-bit": 0.5, "full-disk": 0.25, "slow-disk": 0.25}
    )
    leave_with_backlog: float = 0.3
    unadvertise_with_backlog: float = 0.2
    """Of the runs: a publisher does so right after its last publication was acknowledged or said, while a broker is
    slow or paused."""


WEIGHTS: Final = Weights()
"""The weights that runs are drawn with: everything that the network must withstand."""


def choose(rng: Random, weights: Mapping[_Choice, float]) -> _Choice:
    """One of several, each as often as its weight says.

    >>> choose(Random(1), {"a": 0.0, "b": 2.0})
    'b'
    """
    return rng.choices(list(weights), list(weights.values()))[0]
