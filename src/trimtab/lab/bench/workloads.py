"""The workloads that benchmarks know by name."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Protocol

from trimtab.language import Filter, Publication
from trimtab.simulation.workloads.quotes import generate_quotes, load_quotes
from trimtab.simulation.workloads.ranges import RangesWorkload
from trimtab.simulation.workloads.stock import SYMBOLS_COUNT, StockWorkload

_GENERATED_DAYS_COUNT = 1_250
"""Five years of trading days: about as many quotes per symbol as a real file has."""


class WorkloadName(StrEnum):
    """A workload's name on the command line."""

    STOCK = "stock"
    RANGES = "ranges"


class Workload(Protocol):
    """What a benchmark asks of a workload."""

    def subscriptions(self, count: int) -> Iterator[Filter]:
        """Several subscriptions, made one at a time."""

    def publications(self, count: int) -> Iterator[Publication]:
        """Several publications, made one at a time."""


def open_workload(name: WorkloadName, seed: int, quotes: Path | None = None) -> Workload:
    """A workload that gives the same for the same seed; without a file of quotes, generated ones are used.

    >>> [len(filter.constraints) > 2 for filter in open_workload(WorkloadName.RANGES, seed=1).subscriptions(2)]
    [True, True]
    """
    rng = Random(seed)
    if name is WorkloadName.RANGES:
        return RangesWorkload(rng)
    found = load_quotes(quotes) if quotes is not None else generate_quotes(rng, days_count=_GENERATED_DAYS_COUNT)
    symbols_count = min(SYMBOLS_COUNT, len({quote.symbol for quote in found}))
    return StockWorkload(found, rng, symbols_count=symbols_count)
