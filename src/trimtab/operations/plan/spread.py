"""How far the futures of several seeds are apart: what a plan can promise, and what is a matter of chance.

A policy rests as soon as loads differ by less than its thresholds, and there are many such states. Which of them is
reached depends on small things that nobody knows beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from trimtab.operations.plan.observation import Indices, Outcome


class IndexSpread(msgspec.Struct, frozen=True):
    """The indices of one broker at the end, over all runs."""

    mean: Indices
    low: Indices
    high: Indices


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a plan have come to."""

    runs_count: int
    brokers: dict[str, IndexSpread]
    moves_count: tuple[int, int]
    """The fewest and the most."""
    level_after_s: tuple[float | None, ...]
    """By run; None where the load never became level."""


def spread_of(outcomes: Sequence[Outcome]) -> Spread:
    """Sum up several futures of one network."""
    moves = [each.moves_count for each in outcomes]
    return Spread(
        runs_count=len(outcomes),
        brokers={
            name: IndexSpread(
                _each([one.brokers[name].end for one in outcomes], fmean),
                _each([one.brokers[name].end for one in outcomes], min),
                _each([one.brokers[name].end for one in outcomes], max),
            )
            for name in outcomes[0].brokers
        },
        moves_count=(min(moves), max(moves)),
        level_after_s=tuple(each.level_after_s for each in outcomes),
    )


def _each(ends: Sequence[Indices], of: Callable[[list[float]], float]) -> Indices:
    return Indices(**{name: of([getattr(end, name) for end in ends]) for name in Indices.__struct_fields__})
