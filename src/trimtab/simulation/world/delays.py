"""Delays of deliveries: exact while they are few, then counted in narrow classes, so that memory stays bounded."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

EXACT_MAX_COUNT: Final = 200_000
"""So many delays are kept as they are."""

_CLASSES_PER_DECADE: Final = 500
"""Classes are 0.46 % wide."""

_SMALLEST_S: Final = 1e-7
_DECADES: Final = 13


class Delays:
    """Delays in the order of delivery, then by class.

    >>> delays = Delays()
    >>> delays.recent_s.extend([3.0, 1.0, 2.0, 4.0])
    >>> delays.count, delays.mean_s, delays.percentile_s(50), delays.percentile_s(100)
    (4, 2.5, 2.0, 4.0)
    >>> delays.fold()
    >>> delays.count, delays.mean_s, round(delays.percentile_s(50), 1), delays.percentile_s(100)
    (4, 2.5, 2.0, 4.0)
    """

    def __init__(self) -> None:
        self.recent_s: list[float] = []
        """Those that are not in classes yet."""
        self._class_counts: npt.NDArray[np.int64] = np.zeros(_CLASSES_PER_DECADE * _DECADES, np.int64)
        self._folded_count = 0
        self._summed_count = 0
        self._total_s = 0.0
        """The sum of those in classes and of so many of the others."""
        self._folded_max_s = 0.0

    @property
    def count(self) -> int:
        """Deliveries."""
        return self._folded_count + len(self.recent_s)

    @property
    def mean_s(self) -> float:
        """The mean, 0 without deliveries."""
        return self.total_s / self.count if self.count else 0.0

    @property
    def total_s(self) -> float:
        """All of them together."""
        if self._summed_count < len(self.recent_s):
            self._total_s += math.fsum(self.recent_s[self._summed_count :])
            self._summed_count = len(self.recent_s)
        return self._total_s

    def percentile_s(self, percent: float) -> float:
        """The delay below or at which that share of deliveries lies; 0 without deliveries."""
        if not self._folded_count:
            ordered = sorted(self.recent_s)
            return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0
        self.fold()
        if percent >= 100:
            return self._folded_max_s
        rank = max(1, math.ceil(self._folded_count * percent / 100))
        number = int(np.searchsorted(np.cumsum(self._class_counts), rank))
        return float(_SMALLEST_S * 10 ** ((number + 0.5) / _CLASSES_PER_DECADE))

    def fold_if_many(self) -> None:
        """Keep memory bounded."""
        if len(self.recent_s) > EXACT_MAX_COUNT:
            self.fold()

    def fold(self) -> None:
        """Count what is kept exactly in classes."""
        if not self.recent_s:
            return
        self._total_s = self.total_s
        delays_s = np.array(self.recent_s)
        numbers = np.log10(np.maximum(delays_s, _SMALLEST_S) / _SMALLEST_S) * _CLASSES_PER_DECADE
        places = np.clip(numbers.astype(np.int64), 0, len(self._class_counts) - 1)
        self._class_counts += np.bincount(places, minlength=len(self._class_counts))
        self._folded_count += len(self.recent_s)
        self._folded_max_s = max(self._folded_max_s, float(delays_s.max()))
        self.recent_s.clear()
        self._summed_count = 0
