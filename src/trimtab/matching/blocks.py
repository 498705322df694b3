"""Blocks of filters with one bitmap for each attribute and cell of values: most filters are ruled out unread.

The values of an attribute are divided into cells: absent, false, true, any string, and intervals of numbers. The cells
are ordered so that what a constraint can admit is always a run of neighbouring cells. For each cell a bitmap (a Python
integer) tells which filters of the block no value in that cell satisfies. A publication has one cell per attribute;
what none of their bitmaps rules out is a candidate, to be verified. Covering is pruned in the same way: a filter's run
of cells lies inside the runs of all filters that cover it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

from trimtab.language import Value
from trimtab.language.constraints import AnyValue, Booleans, Constraint, Number, Numbers, Strings

T = TypeVar("T")

PLACES_PER_BLOCK: Final = 4096
"""A bitmap of 512 bytes: large enough to pay for a look-up, small enough to be copied at every change."""

_CELLS_OF_NUMBERS: Final = 32
_REFINE_AT_COUNTS: Final = (64, 1024)
"""Filters that constrain an attribute when its cells are cut (again), by the bounds that they give."""

_ABSENT, _FALSE, _TRUE, _STRING, _NUMBERS = range(5)


class Block(Generic[T]):
    """Up to `PLACES_PER_BLOCK` items, each with its constraints by attribute."""

    __slots__ = ("_columns", "_free", "_live", "_stored")

    def __init__(self) -> None:
        self._stored: list[tuple[T, Mapping[str, Constraint]] | None] = []
        self._free: list[int] = []
        self._live = 0
        self._columns: dict[str, _Column] = {}

    @property
    def full(self) -> bool:
        """Whether no place is left."""
        return not self._free and len(self._stored) == PLACES_PER_BLOCK

    @property
    def empty(self) -> bool:
        """Whether no item is stored."""
        return self._live == 0

    def add(self, item: T, constraints: Mapping[str, Constraint]) -> int:
        """Store an item; the returned place serves to remove it."""
        if self._free:
            place = self._free.pop()
            self._stored[place] = (item, constraints)
        else:
            place = len(self._stored)
            self._stored.append((item, constraints))
        self._live |= 1 << place
        for name, constraint in constraints.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column()
            column.add(place, constraint)
            if column.wants_refinement:
                self._refine(name, column)
        return place

    def remove(self, place: int) -> None:
        """Forget the item at a place."""
        stored = self._stored[place]
        assert stored is not None
        for name, constraint in stored[1].items():
            column = self._columns[name]
            column.remove(place, constraint)
            if not column.count:
                del self._columns[name]
        self._stored[place] = None
        self._free.append(place)
        self._live ^= 1 << place

    def candidates(self, values: Mapping[str, Value]) -> Iterator[T]:
        """Every item whose constraints the values may satisfy, and perhaps others."""
        failed = 0
        for name, column in self._columns.items():
            failed |= column.rows[column.cell_of(values.get(name))]
        return self._at(self._live & ~failed)

    def may_cover(self, constraints: Mapping[str, Constraint]) -> Iterator[T]:
        """Every item whose constraints cover the given ones, and perhaps others."""
        failed = 0
        for name, column in self._columns.items():
            first, last = column.run_of(constraints.get(name))
            failed |= column.rows[first] | column.rows[last]
        return self._at(self._live & ~failed)

    def may_be_covered(self, constraints: Mapping[str, Constraint]) -> Iterator[T]:
        """Every item whose constraints the given ones cover, and perhaps others."""
        left = self._live
        for name, constraint in constraints.items():
            column = self._columns.get(name)
            if column is None:
                return iter(())
            first, last = column.run_of(constraint)
            left &= column.rows[first - 1]
            if last + 1 < len(column.rows):
                left &= column.rows[last + 1]
        return self._at(left)

    def __iter__(self) -> Iterator[T]:
        return (stored[0] for stored in self._stored if stored is not None)

    def _at(self, places: int) -> Iterator[T]:
        if not places:
            return
        digits = bin(places)[:1:-1]
        place = digits.find("1")
        while place >= 0:
            stored = self._stored[place]
            assert stored is not None
            yield stored[0]
            place = digits.find("1", place + 1)

    def _refine(self, name: str, column: _Column) -> None:
        users = [
            (place, stored[1][name])
            for place, stored in enumerate(self._stored)
            if stored is not None and name in stored[1]
        ]
        column.refine(users)


class _Column:
    """One attribute in a block: its cells and, for each, the bitmap of the filters that no value in it satisfies."""

    __slots__ = ("_cuts", "_refinements", "count", "rows")

    def __init__(self) -> None:
        self._cuts: list[Number] = []
        self._refinements = 0
        self.count = 0
        self.rows = [0] * (_NUMBERS + 1)

    def cell_of(self, value: Value | None) -> int:
        """The cell of one value; None means that the attribute is absent."""
        if value is None:
            return _ABSENT
        if isinstance(value, str):
            return _STRING
        if isinstance(value, bool):
            return _TRUE if value else _FALSE
        return _NUMBERS + bisect_right(self._cuts, value)

    def run_of(self, constraint: Constraint | None) -> tuple[int, int]:
        """The first and the last cell with a value that the constraint may admit; None admits absence only."""
        match constraint:
            case Numbers(low=low, high=high):
                first = 0 if low is None else bisect_right(self._cuts, low)
                last = len(self._cuts) if high is None else bisect_right(self._cuts, high)
                return _NUMBERS + first, _NUMBERS + last
            case Strings():
                return _STRING, _STRING
            case Booleans(true=true, false=false):
                return (_FALSE if false else _TRUE), (_TRUE if true else _FALSE)
            case AnyValue():
                return _FALSE, len(self.rows) - 1
            case _:
                return _ABSENT, _ABSENT

    def add(self, place: int, constraint: Constraint) -> None:
        self._flip(place, constraint)
        self.count += 1

    def remove(self, place: int, constraint: Constraint) -> None:
        self._flip(place, constraint)
        self.count -= 1

    def _flip(self, place: int, constraint: Constraint) -> None:
        """Change the filter's bit in the bitmaps of all cells outside its run."""
        bit = 1 << place
        rows = self.rows
        first, last = self.run_of(constraint)
        for cell in range(first):
            rows[cell] ^= bit
        for cell in range(last + 1, len(rows)):
            rows[cell] ^= bit

    @property
    def wants_refinement(self) -> bool:
        return self._refinements < len(_REFINE_AT_COUNTS) and self.count >= _REFINE_AT_COUNTS[self._refinements]

    def refine(self, users: list[tuple[int, Constraint]]) -> None:
        """Cut the cells of numbers so that each holds about as many of the filters' bounds as any other."""
        self._refinements += 1
        bounds: list[Number] = []
        for _, constraint in users:
            if isinstance(constraint, Numbers):
                bounds.extend(bound for bound in (constraint.low, constraint.high) if bound is not None)
        bounds.sort()
        picked = (
            [bounds[len(bounds) * cut // _CELLS_OF_NUMBERS] for cut in range(1, _CELLS_OF_NUMBERS)] if bounds else []
        )
        self._cuts = sorted(set(picked))
        self.rows = [0] * (_NUMBERS + 1 + len(self._cuts))
        for place, constraint in users:
            self._flip(place, constraint)
