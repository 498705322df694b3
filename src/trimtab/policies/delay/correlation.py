"""Whether two interests burst together, from when their publications arrived.

Source: R. Tao, S. Poslad, J. Bigham (2013), section IV.A, second principle: highly correlated topics are kept apart,
because together they may increase a broker's load suddenly.

Arrivals are counted in equal slices of time; the correlation of two interests is that of their counts (Pearson).

Deviations: the paper does not say how topics are known to be correlated. Arrivals that are no less regular than
independent ones count as uncorrelated: nothing sudden is in them, and the correlation of regular arrivals is chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def counts_in_slices(times_s: Sequence[float], begin_s: float, end_s: float, slices_count: int) -> list[int]:
    """How many of the times lie in each slice.

    >>> counts_in_slices([0.1, 0.2, 0.9, 1.0], 0.0, 1.0, 2)
    [2, 2]
    """
    counts = [0] * slices_count
    for time_s in times_s:
        if begin_s <= time_s <= end_s and end_s > begin_s:
            counts[min(int((time_s - begin_s) / (end_s - begin_s) * slices_count), slices_count - 1)] += 1
    return counts


def dispersion(counts: Sequence[int]) -> float:
    """The variance of counts as a multiple of their mean: 1 for independent arrivals, 0 for perfectly regular ones.

    >>> dispersion([2, 2, 2, 2]), dispersion([0, 8, 0, 0])
    (0.0, 6.0)
    """
    mean = sum(counts) / len(counts) if counts else 0.0
    return sum((count - mean) ** 2 for count in counts) / len(counts) / mean if mean else 0.0


def correlation(first: Sequence[int], second: Sequence[int], bursty_dispersion: float) -> float:
    """How far two interests burst together, from -1 to 1; 0 unless both are bursty.

    >>> correlation([0, 9, 0, 0], [1, 8, 0, 0], 1.5) > 0.9, correlation([2, 2, 3, 2], [2, 2, 3, 2], 1.5)
    (True, 0.0)
    """
    if dispersion(first) < bursty_dispersion or dispersion(second) < bursty_dispersion:
        return 0.0
    first_mean, second_mean = sum(first) / len(first), sum(second) / len(second)
    product = sum((a - first_mean) * (b - second_mean) for a, b in zip(first, second, strict=True))
    first_square = sum((a - first_mean) ** 2 for a in first)
    second_square = sum((b - second_mean) ** 2 for b in second)
    return product / math.sqrt(first_square * second_square)
