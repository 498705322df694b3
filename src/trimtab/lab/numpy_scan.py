"""A plain columnar scan with NumPy: what one would write without an index, as the measure for the matcher.

Every attribute has its column: two arrays of bounds for numbers, with infinities where a filter does not ask, or one
array of integer codes for strings, with -1 where it does not. One publication is compared with all filters at once,
column by column. Strict bounds are stored as the next representable number, so that each side is one comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trimtab.language import Filter, Value
from trimtab.language.constraints import Numbers, Strings

_NOT_ASKED = -1
_UNKNOWN_TEXT = -2


class NumpyScan:
    """All filters as columns; a match is a list of their positions.

    >>> scan = NumpyScan([Filter.parse("[class,eq,'STOCK'],[volume,>,5]"), Filter.parse("[class,eq,'STOCK']")])
    >>> scan.match({"class": "STOCK", "volume": 5}).tolist(), scan.match({"class": "STOCK", "volume": 6}).tolist()
    ([1], [0, 1])
    """

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters_count = len(filters)
        self._numbers: dict[str, _NumberColumn] = {}
        self._texts: dict[str, _TextColumn] = {}
        for position, filter in enumerate(filters):
            for name, constraint in filter.constraints.items():
                match constraint:
                    case Numbers(excluded=()):
                        if name not in self._numbers:
                            self._numbers[name] = _NumberColumn(len(filters))
                        self._numbers[name].put(position, constraint)
                    case Strings(equal=str(text)):
                        if name not in self._texts:
                            self._texts[name] = _TextColumn(len(filters))
                        self._texts[name].put(position, text)
                    case _:
                        raise ValueError(f"the scan knows numeric bounds and string equalities only, not {filter}")

    def match(self, publication: Mapping[str, Value]) -> npt.NDArray[np.intp]:
        """The ascending positions of the filters that the publication satisfies."""
        alive = np.ones(self._filters_count, dtype=np.bool_)
        for name, texts in self._texts.items():
            alive &= texts.admits(publication.get(name))
        for name, numbers in self._numbers.items():
            alive &= numbers.admits(publication.get(name))
        return np.nonzero(alive)[0]


class _NumberColumn:
    """The bounds that all filters put on one attribute."""

    def __init__(self, count: int) -> None:
        self._low = np.full(count, -np.inf)
        self._high = np.full(count, np.inf)
        self._asked = np.zeros(count, dtype=np.bool_)

    def put(self, position: int, constraint: Numbers) -> None:
        self._asked[position] = True
        if constraint.low is not None:
            low = _exact_float(constraint.low)
            self._low[position] = math.nextafter(low, math.inf) if constraint.low_open else low
        if constraint.high is not None:
            high = _exact_float(constraint.high)
            self._high[position] = math.nextafter(high, -math.inf) if constraint.high_open else high

    def admits(self, value: Value | None) -> npt.NDArray[np.bool_]:
        if value is None or isinstance(value, (str, bool)):
            return ~self._asked
        number = _exact_float(value)
        return (self._low <= number) & (number <= self._high)


class _TextColumn:
    """The texts that all filters want one attribute to equal, as numbers."""

    def __init__(self, count: int) -> None:
        self._codes = np.full(count, _NOT_ASKED, dtype=np.int32)
        self._code_of: dict[str, int] = {}

    def put(self, position: int, text: str) -> None:
        self._codes[position] = self._code_of.setdefault(text, len(self._code_of))

    def admits(self, value: Value | None) -> npt.NDArray[np.bool_]:
        code = self._code_of.get(value, _UNKNOWN_TEXT) if isinstance(value, str) else _UNKNOWN_TEXT
        admitted: npt.NDArray[np.bool_] = (self._codes == code) | (self._codes == _NOT_ASKED)
        return admitted


def _exact_float(number: float) -> float:
    as_float = float(number)
    if as_float != number:
        raise ValueError(f"{number} has no exact decimal form of 64 bits, so the scan cannot compare it")
    return as_float
