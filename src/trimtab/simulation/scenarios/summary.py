"""What a run showed, in one shape for every kind of scenario and for both worlds.

What all have in common stands on top; what only a kind has stands in `details`, whose class is the kind's own. A grid,
or several seeds, is a list of such runs (`GridSummary`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from trimtab.simulation.checkers.deliveries import DeliveryChecker, Violation

Details = TypeVar("Details")


class Summary(msgspec.Struct, Generic[Details], frozen=True, kw_only=True):
    """One run; what a kind does not simulate, or not count, is null."""

    scenario: str
    kind: str
    """The kind of scenario; `details` is as this kind says."""
    world: Literal["sim", "tcp"] = "sim"
    """sim: in virtual time, in one process; tcp: brokers are processes."""
    seed: int
    policy: str
    """Who moved subscribers or publishers."""
    simulated_s: float
    """How long it took in the scenario's time, until all had come to rest."""
    brokers: int | None = None
    clients: int | None = None
    """At the end."""
    publications: int | None = None
    """Accepted from publishers."""
    deliveries: int | None = None
    """Handed to subscribers."""
    lost: int | None = None
    """Deliveries that had to happen and did not."""
    duplicated: int | None = None
    """Deliveries that happened twice."""
    reordered: int | None = None
    """Deliveries that were not in their publisher's order."""
    moves: int
    """Moves of clients that were completed."""
    violations: list[Violation] = []
    """Promises that were broken; the kind says which are promised."""
    trace_hash: str = ""
    """The same for the same scenario and seed, if nothing has changed; empty for a run in processes."""
    cpu_s: float = 0.0
    """What the run took of a processor, where that was measured."""
    details: Details
    """What only this kind has."""


class GridSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a grid showed, in its order, the seeds of a point together."""

    scenario: str
    kind: str
    varied: list[str]
    """The keys that differ between points."""
    points: list[dict[str, Any]]
    """Of each run the values of these keys."""
    runs: list[Summary[Any]]


def grid_of(run: Summary[Any]) -> GridSummary:
    """A run alone, as a grid of one."""
    return GridSummary(scenario=run.scenario, kind=run.kind, varied=[], points=[{}], runs=[run])


def counted(checker: DeliveryChecker) -> Mapping[str, Any]:
    """The keys of a summary that a checker of deliveries knows."""
    kinds = [violation.kind for violation in checker.violations]
    return {
        "publications": checker.accepted_count,
        "deliveries": checker.deliveries_count,
        "lost": kinds.count("missing"),
        "duplicated": kinds.count("delivered twice"),
        "reordered": kinds.count("out of order"),
    }
