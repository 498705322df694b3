"""Plain scans with NumPy: what one would write without an index, as the measure for the matcher.

Every attribute has its column: two arrays of bounds for numbers, with infinities where a filter does not ask, or one
array of integer codes for strings, with -1 where it does not. One publication is compared with all filters at once,
column by column. Strict bounds are stored as the next representable number, so that each side is one comparison.

The same bounds as two tables, with one row for each filter, make the shorter program and the slower scan.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from trimtab.language import Filter, Value
from trimtab.language.constraints import Numbers, Strings

_NOT_ASKED = -1
_UNKNOWN_TEXT = -2
_LARGEST = sys.float_info.max


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

    def as_table(self) -> NumpyTableScan:
        """The same filters as rows of a table."""
        return NumpyTableScan(self._filters_count, {**self._texts}, {**self._numbers})


class NumpyTableScan:
    """All filters as rows of two tables, of lower and of upper bounds; one expression compares a publication with all.

    >>> scan = NumpyScan([Filter.parse("[class,eq,'STOCK'],[volume,>,5]"), Filter.parse("[class,eq,'STOCK']")])
    >>> scan.as_table().match({"class": "STOCK", "volume": 6}).tolist(), scan.as_table().match({"volume": 6}).tolist()
    ([0, 1], [])
    """

    def __init__(
        self, filters_count: int, texts: Mapping[str, _TextColumn], numbers: Mapping[str, _NumberColumn]
    ) -> None:
        self._columns: list[tuple[str, _TextColumn | _NumberColumn]] = [*texts.items(), *numbers.items()]
        self._low = np.empty((filters_count, len(self._columns)))
        self._high = np.empty((filters_count, len(self._columns)))
        for place, (_, column) in enumerate(self._columns):
            self._low[:, place], self._high[:, place] = column.bounds()

    def match(self, publication: Mapping[str, Value]) -> npt.NDArray[np.intp]:
        """The ascending positions of the filters that the publication satisfies."""
        point = np.array([column.coordinate(publication.get(name)) for name, column in self._columns])
        return np.nonzero(((self._low <= point) & (point <= self._high)).all(axis=1))[0]


_Bounds: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Finite where a filter asks, infinite where it does not, so that an infinite coordinate satisfies only the latter."""


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

    def bounds(self) -> _Bounds:
        low = np.where(self._asked, np.maximum(self._low, -_LARGEST), -np.inf)
        return low, np.where(self._asked, np.minimum(self._high, _LARGEST), np.inf)

    def coordinate(self, value: Value | None) -> float:
        return math.inf if value is None or isinstance(value, (str, bool)) else _exact_float(value)


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

    def bounds(self) -> _Bounds:
        asked = self._codes != _NOT_ASKED
        return np.where(asked, self._codes, -np.inf), np.where(asked, self._codes, np.inf)

    def coordinate(self, value: Value | None) -> float:
        return self._code_of.get(value, _UNKNOWN_TEXT) if isinstance(value, str) else math.inf


def _exact_float(number: float) -> float:
    as_float = float(number)
    if as_float != number:
        raise ValueError(f"{number} has no exact decimal form of 64 bits, so the scan cannot compare it")
    return as_float
