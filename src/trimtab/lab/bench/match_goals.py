"""The goals for matching, and whether a run of the benchmark meets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from trimtab.lab.bench.match import MatchFigures, WorkloadFigures
from trimtab.lab.bench.workloads import WorkloadName

FILTERS_COUNT: Final = 100_000
"""The number of filters that the goals are set for."""

_TIMES_FASTER_MIN: Final = {WorkloadName.STOCK: 1_000.0, WorkloadName.RANGES: 250.0}
_COST_RATIO_MAX: Final = {WorkloadName.STOCK: 2.0, WorkloadName.RANGES: 12.0}
"""Ten times the filters. For stock the cost is to be independent of their number; 2 allows for caches and noise."""

_MEMORY_MAX_BYTES: Final = {WorkloadName.STOCK: 120.0, WorkloadName.RANGES: 350.0}
_ADD_AND_CHECK_P99_MAX_US: Final = 50.0
_REMOVE_P99_MAX_US: Final = 20.0
_PAUSE_MAX_US: Final = 5_000.0
_IMPORT_MAX_MS: Final = 150.0


class Goal(msgspec.Struct, frozen=True):
    """A goal, what was measured, and whether that is good enough."""

    workload: WorkloadName | None
    name: str
    measured: float
    bound: str
    limit: float
    unit: str
    met: bool


def at_least(workload: WorkloadName, name: str, measured: float, limit: float, unit: str) -> Goal:
    """A goal that more is better for.

    >>> at_least(WorkloadName.STOCK, "faster than the scan", 900.0, 1000.0, "x").met
    False
    """
    return Goal(workload, name, measured, ">=", limit, unit, measured >= limit)


def at_most(workload: WorkloadName | None, name: str, measured: float, limit: float, unit: str) -> Goal:
    """A goal that less is better for.

    >>> at_most(None, "import trimtab", 90.0, 150.0, "ms").met
    True
    """
    return Goal(workload, name, measured, "<=", limit, unit, measured <= limit)


def judge(figures: MatchFigures) -> list[Goal]:
    """Every goal that the run has measured."""
    goals = [goal for workload in figures.workloads for goal in _judge_workload(workload)]
    goals.append(at_most(None, "import trimtab", figures.trimtab_import_ms, _IMPORT_MAX_MS, "ms"))
    return goals


def _judge_workload(figures: WorkloadFigures) -> Iterator[Goal]:
    name = figures.workload
    yield at_least(
        name, "faster than the NumPy scan", figures.times_faster_than_numpy_scan, _TIMES_FASTER_MIN[name], "x"
    )
    if figures.scale is not None:
        yield at_most(name, "cost at 10 times the filters", figures.scale.cost_ratio, _COST_RATIO_MAX[name], "x")
    yield at_most(name, "add + covering check, p99", figures.add_and_check.p99_us, _ADD_AND_CHECK_P99_MAX_US, "us")
    yield at_most(name, "remove from the covering set, p99", figures.covering_remove.p99_us, _REMOVE_P99_MAX_US, "us")
    yield at_most(name, "remove from the matcher, p99", figures.remove.p99_us, _REMOVE_P99_MAX_US, "us")
    longest_us = max(figures.add.max_us, figures.remove.max_us, figures.match_between_changes.max_us)
    yield at_most(name, "longest pause of the matcher", longest_us, _PAUSE_MAX_US, "us")
    yield at_most(name, "memory per filter", figures.memory_bytes_per_filter, _MEMORY_MAX_BYTES[name], "bytes")
