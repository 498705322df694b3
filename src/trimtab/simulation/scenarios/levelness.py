"""Figures of a summary of balance: how far apart loads were over time, how near they came to being level, and how far
estimates were off.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006): differences
over time as in Figures 5.17 to 5.19, errors as in Figures 5.14 and 5.35, in points of utilisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import msgspec


class DifferenceFigures(msgspec.Struct, frozen=True):
    """The largest difference of two brokers or clusters at each moment, over a time."""

    mean: float
    p95: float
    """Below it in 95 % of the time."""
    most: float


class ErrorFigures(msgspec.Struct, frozen=True):
    """How far observations were above estimates: in points of utilisation, 0.01 of a ratio each, or for matching delays
    in points of their difference by equation 3.5."""

    count: int
    mean_points: float
    sd_points: float


class NearestFigures(msgspec.Struct, frozen=True):
    """How near loads came to being level for as long as that takes: 1 is the threshold."""

    ratio: float
    """The largest difference during the best such time, as a share of its threshold."""

    from_s: float


def differences(values: Sequence[float]) -> DifferenceFigures | None:
    """The figures of differences at steady times.

    >>> differences([0.1] * 99 + [0.3])
    DifferenceFigures(mean=0.102, p95=0.1, most=0.3)
    """
    if not values:
        return None
    ordered = sorted(values)
    p95 = ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
    return DifferenceFigures(round(fmean(values), 6), p95, ordered[-1])


def errors(pairs: Sequence[tuple[float | None, float | None]], point: float) -> ErrorFigures | None:
    """The errors of estimates, each with what was observed where anybody observed it.

    >>> errors([(0.5, 0.53), (0.4, 0.39), (0.3, None)], point=0.01)
    ErrorFigures(count=2, mean_points=1.0, sd_points=2.0)
    """
    points = [(seen - guess) / point for guess, seen in pairs if seen is not None and guess is not None]
    return ErrorFigures(len(points), round(fmean(points), 6), round(pstdev(points), 6)) if points else None


def nearest(shares: Sequence[tuple[float, float]], for_s: float) -> NearestFigures | None:
    """The time of this length in which the largest share of a threshold was least; moments with their shares.

    >>> nearest([(0.0, 3.0), (10.0, 1.5), (20.0, 1.2), (30.0, 2.0)], for_s=10.0)
    NearestFigures(ratio=1.5, from_s=10.0)
    """
    best: NearestFigures | None = None
    for first, (begin_s, _) in enumerate(shares):
        worst = 0.0
        for at_s, share in shares[first:]:
            worst = max(worst, share)
            if at_s - begin_s >= for_s or (best is not None and worst >= best.ratio):
                break
        else:
            break
        if best is None or worst < best.ratio:
            best = NearestFigures(worst, begin_s)
    return best


def share_above_mean(loads: Sequence[tuple[float, float]]) -> float:
    """By how much the largest of some loads is above what all would have if the work were divided among them, as a
    share of that; each load with what it is divided by.

    Work is conserved when clients move, so nobody can bring the largest load below that mean.

    >>> share_above_mean([(0.6, 1.0), (0.5, 9.0)]), share_above_mean([(0.5, 1.0), (0.5, 4.0)])
    (0.17647058823529416, 0.0)
    """
    capacity = sum(size for _, size in loads)
    work = sum(load * size for load, size in loads)
    if capacity <= 0 or work <= 0:
        return 0.0
    return max(load for load, _ in loads) / (work / capacity) - 1
