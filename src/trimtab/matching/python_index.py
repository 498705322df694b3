"""The matching engine in Python: the fallback where the kernel is not built, and a readable account of what it does.

All equalities of a filter are hashed together, with one table for each distinct set of attributes, so that a
publication meets only filters whose equalities hold. Filters with the same equalities form a cluster. In a cluster,
filters that have one one-sided range of numbers left stand in sorted lists: what matches is a slice, found by bisection
and not looked at. All others are in blocks of bitmaps, which leave few to verify.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeAlias

from trimtab.language import Filter, LanguageError, Publication, Value
from trimtab.language.constraints import Booleans, Constraint, Number, Numbers, Strings
from trimtab.language.patterns import Shape
from trimtab.language.string_sets import Bound, Condition
from trimtab.language.values import check_value
from trimtab.matching.blocks import Block
from trimtab.matching.index import K

Token: TypeAlias = str | Number | tuple[bool]
"""What stands for a value in a hash table; booleans are wrapped, for Python takes True for 1."""


class PythonIndex(Generic[K]):
    """Filters under keys; see `trimtab.matching.index.FilterIndex`.

    >>> index: PythonIndex[str] = PythonIndex()
    >>> index.add("alice", Filter.parse("[volume,>,300000]"))
    >>> list(index.match({"volume": 300001}))
    ['alice']
    """

    def __init__(self) -> None:
        self._entries: dict[Filter, _Entry[K]] = {}
        self._entry_by_key: dict[K, _Entry[K]] = {}
        self._tables: dict[tuple[str, ...], dict[tuple[Token, ...], _Cluster[K]]] = {}
        self._hidden_equalities: dict[_Entry[K], None] = {}
        self._uses: Counter[str] = Counter()
        self._groups = Groups()
        self._group_by_key: dict[K, int] = {}
        self._version = 0

    def add(self, key: K, filter: Filter, group: Hashable | None = None, /) -> None:
        """Store a filter; a KeyError says that the key is in use. Keys of one group are asked about together."""
        if key in self._entry_by_key:
            raise KeyError(f"the key {key!r} is already in use")
        _check_filter(filter)
        entry = self._entries.get(filter)
        if entry is None:
            entry = self._entries[filter] = self._place(filter)
        entry.keys[key] = None
        self._entry_by_key[key] = entry
        if group is not None:
            self._group_by_key[key] = self._groups.enter(group)
        self._version += 1

    def _place(self, filter: Filter) -> _Entry[K]:
        tokens: dict[str, Token] = {}
        rest: dict[str, Constraint] = {}
        for name, constraint in filter.constraints.items():
            token = _token_of(constraint)
            if token is None:
                rest[name] = constraint
            else:
                tokens[name] = token
        table = self._tables.setdefault(tuple(tokens), {})
        values = tuple(tokens.values())
        cluster = table.get(values)
        if cluster is None:
            cluster = table[values] = _Cluster(tokens, {name: filter.constraints[name] for name in tokens})
        entry = _Entry(filter, cluster, rest)
        cluster.add(entry)
        self._uses.update(filter.constraints.keys())
        if any(_may_be_equality(constraint) for constraint in rest.values()):
            self._hidden_equalities[entry] = None
        return entry

    def remove(self, key: K) -> None:
        """Forget a filter; a KeyError says that there is none under the key."""
        if key not in self._entry_by_key:
            raise KeyError(f"unknown key {key!r}")
        entry = self._entry_by_key.pop(key)
        if key in self._group_by_key:
            self._groups.leave(self._group_by_key.pop(key))
        self._version += 1
        del entry.keys[key]
        if entry.keys:
            return
        del self._entries[entry.filter]
        self._hidden_equalities.pop(entry, None)
        for name in entry.filter.constraints:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]
        cluster = entry.cluster
        cluster.remove(entry)
        if not cluster.count:
            names = tuple(cluster.tokens)
            table = self._tables[names]
            del table[tuple(cluster.tokens.values())]
            if not table:
                del self._tables[names]

    def match_groups(self, publication: Publication | Mapping[str, Value]) -> list[Hashable]:
        """The groups of which some filter matches, each once."""
        groups = {self._group_by_key[key] for key in self.match(publication) if key in self._group_by_key}
        return [self._groups.member(place) for place in sorted(groups)]

    def match(self, publication: Publication | Mapping[str, Value]) -> KeySlices[K]:
        """The keys of all filters that the publication satisfies."""
        values = publication.values_by_name if isinstance(publication, Publication) else self._checked(publication)
        tokens = {name: (value,) if isinstance(value, bool) else value for name, value in values.items()}
        slices: list[_Slice[K]] = []
        for names, table in self._tables.items():
            cluster = table.get(tuple(map(tokens.get, names)))  # type: ignore[arg-type]
            if cluster is not None:
                cluster.match(values, slices)
        return KeySlices(self._current_version, slices)

    def _checked(self, publication: Mapping[str, Value]) -> Mapping[str, Value]:
        if not isinstance(publication, Mapping):
            raise TypeError(f"a publication maps names to values; {type(publication).__name__} does not")
        for name, value in publication.items():
            if self._uses[name] and type(value) is not str:
                _check_value(name, value)
        return publication

    def _current_version(self) -> int:
        return self._version

    def match_many(self, publications: Sequence[Publication | Mapping[str, Value]]) -> list[KeySlices[K]]:
        """What `match` says of each publication."""
        return [self.match(publication) for publication in publications]

    def find_covering(self, filter: Filter, exclude: K | None = None) -> K | None:
        """A key of a stored filter that covers the given one, of those found the one with most attributes."""
        _check_filter(filter)
        left_out = None if exclude is None else self._entry_by_key.get(exclude)
        found = (
            entry
            for cluster in self._clusters_that_may_cover(filter)
            for entry in cluster.covering(filter)
            if entry is not left_out
        )
        best = max(found, key=lambda entry: len(entry.filter.constraints), default=None)
        return None if best is None else next(iter(best.keys))

    def _clusters_that_may_cover(self, filter: Filter) -> Iterator[_Cluster[K]]:
        """Clusters whose equalities the given filter implies."""
        tokens: dict[str, Token] = {}
        hidden: list[str] = []
        for name, constraint in filter.constraints.items():
            token = _token_of(constraint)
            if token is not None:
                tokens[name] = token
            elif _may_be_equality(constraint):
                hidden.append(name)
        for names, table in self._tables.items():
            if all(name in tokens for name in names):
                cluster = table.get(tuple(tokens[name] for name in names))
                if cluster is not None:
                    yield cluster
            elif hidden and all(name in tokens or name in hidden for name in names):
                for cluster in table.values():
                    if all(point.covers(filter.constraints[name]) for name, point in cluster.points.items()):
                        yield cluster

    def find_covered(self, filter: Filter, exclude: K | None = None) -> list[K]:
        """The keys of all stored filters that the given one covers, equal ones included."""
        _check_filter(filter)
        left_out = None if exclude is None else self._entry_by_key.get(exclude)
        equalities = {name: token for name, c in filter.constraints.items() if (token := _token_of(c)) is not None}
        found: list[_Entry[K]] = []
        for names, table in self._tables.items():
            if len(names) == len(equalities) and all(name in equalities for name in names):
                cluster = table.get(tuple(equalities.values()))
                if cluster is not None:
                    found.extend(cluster.covered(filter))
            elif all(name in names for name in equalities):
                for cluster in table.values():
                    found.extend(cluster.covered(filter))
        for entry in self._hidden_equalities:
            if not all(name in entry.cluster.tokens for name in equalities) and filter.covers(entry.filter):
                found.append(entry)
        return [key for entry in found if entry is not left_out for key in entry.keys]

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._entry_by_key)

    def __contains__(self, key: object) -> bool:
        """Whether a filter is stored under the key."""
        return key in self._entry_by_key


class Groups:
    """Groups by place; a place that became free is taken by the next new group.

    >>> groups = Groups()
    >>> groups.enter("alice"), groups.enter("bob"), groups.enter("alice")
    (0, 1, 0)
    >>> groups.leave(1)
    >>> groups.enter("carol")
    1
    """

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}
        self._members: list[Hashable | None] = []
        self._counts: list[int] = []

    def enter(self, group: Hashable) -> int:
        """Count one more key of a group; returns its place."""
        place = self._places.get(group)
        if place is None:
            place = self._counts.index(0) if 0 in self._counts else len(self._counts)
            if place == len(self._counts):
                self._members.append(None)
                self._counts.append(0)
            self._places[group] = place
            self._members[place] = group
        self._counts[place] += 1
        return place

    def leave(self, place: int) -> None:
        """Count one key less of the group at a place."""
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._places[self._members[place]]
            self._members[place] = None

    def member(self, place: int) -> Hashable:
        """The group at a place."""
        return self._members[place]


class KeySlices(Generic[K]):
    """The keys of a match, as slices of the index's own lists; valid until the index changes."""

    __slots__ = ("_current_version", "_slices", "_version")

    def __init__(self, current_version: Callable[[], int], slices: list[_Slice[K]]) -> None:
        self._current_version = current_version
        self._version = current_version()
        self._slices = slices

    def _entries(self) -> Iterator[_Entry[K]]:
        self._check()
        for entries, start, stop in self._slices:
            for place in range(start, stop):
                yield entries[place]

    def _check(self) -> None:
        if self._current_version() != self._version:
            raise RuntimeError("the matcher changed after this match; match again")

    def __iter__(self) -> Iterator[K]:
        return iter([key for entry in self._entries() for key in entry.keys])

    def __len__(self) -> int:
        return sum(len(entry.keys) for entry in self._entries())

    def __bool__(self) -> bool:
        self._check()
        return bool(self._slices)


class _Entry(Generic[K]):
    """A distinct filter with its keys."""

    __slots__ = ("block", "cluster", "filter", "keys", "place", "rest")

    def __init__(self, filter: Filter, cluster: _Cluster[K], rest: dict[str, Constraint]) -> None:
        self.filter = filter
        self.keys: dict[K, None] = {}
        self.cluster = cluster
        self.rest = rest
        self.block: Block[_Entry[K]] | None = None
        self.place = 0


_Slice: TypeAlias = tuple[list[_Entry[K]], int, int]


class _SortedEntries(Generic[K]):
    """Entries in ascending order of their only bound; no two have the same."""

    __slots__ = ("bounds", "entries")

    def __init__(self) -> None:
        self.bounds: list[tuple[Number, bool]] = []
        self.entries: list[_Entry[K]] = []

    def add(self, bound: tuple[Number, bool], entry: _Entry[K]) -> None:
        place = bisect_left(self.bounds, bound)
        self.bounds.insert(place, bound)
        self.entries.insert(place, entry)

    def remove(self, bound: tuple[Number, bool]) -> None:
        place = bisect_left(self.bounds, bound)
        del self.bounds[place], self.entries[place]


class _Cluster(Generic[K]):
    """Filters with the same equalities.

    A lower bound stands in its list as (bound, excluded), an upper one as (bound, included): so the tuples have the
    order in which values pass the bounds.
    """

    __slots__ = ("_above", "_below", "_blocks", "_whole", "count", "points", "tokens")

    def __init__(self, tokens: dict[str, Token], points: dict[str, Constraint]) -> None:
        self.tokens = tokens
        self.points = points
        self.count = 0
        self._whole: list[_Entry[K]] = []
        self._above: dict[str, _SortedEntries[K]] = {}
        self._below: dict[str, _SortedEntries[K]] = {}
        self._blocks: list[Block[_Entry[K]]] = []

    def add(self, entry: _Entry[K]) -> None:
        self.count += 1
        match _one_sided(entry.rest):
            case (name, "above", bound):
                self._above.setdefault(name, _SortedEntries()).add(bound, entry)
            case (name, "below", bound):
                self._below.setdefault(name, _SortedEntries()).add(bound, entry)
            case _ if not entry.rest:
                self._whole.append(entry)
            case _:
                entry.block = next((block for block in reversed(self._blocks) if not block.full), None)
                if entry.block is None:
                    entry.block = Block()
                    self._blocks.append(entry.block)
                entry.place = entry.block.add(entry, entry.rest)

    def remove(self, entry: _Entry[K]) -> None:
        self.count -= 1
        if entry.block is not None:
            entry.block.remove(entry.place)
            if entry.block.empty:
                self._blocks.remove(entry.block)
            return
        one_sided = _one_sided(entry.rest)
        if one_sided is None:
            self._whole.remove(entry)
            return
        name, side, bound = one_sided
        lists = self._above if side == "above" else self._below
        lists[name].remove(bound)
        if not lists[name].entries:
            del lists[name]

    def match(self, values: Mapping[str, Value], slices: list[_Slice[K]]) -> None:
        """Append what the values match, given that they satisfy the equalities."""
        if self._whole:
            slices.append((self._whole, 0, len(self._whole)))
        for name, sorted_entries in self._above.items():
            value = values.get(name)
            if value is not None and not isinstance(value, (str, bool)):
                stop = bisect_right(sorted_entries.bounds, (value, False))
                if stop:
                    slices.append((sorted_entries.entries, 0, stop))
        for name, sorted_entries in self._below.items():
            value = values.get(name)
            if value is not None and not isinstance(value, (str, bool)):
                start = bisect_left(sorted_entries.bounds, (value, True))
                if start < len(sorted_entries.entries):
                    slices.append((sorted_entries.entries, start, len(sorted_entries.entries)))
        found = [
            entry for block in self._blocks for entry in block.candidates(values) if _satisfies(values, entry.rest)
        ]
        if found:
            slices.append((found, 0, len(found)))

    def covering(self, filter: Filter) -> Iterator[_Entry[K]]:
        """Entries that cover a filter which implies the equalities; of a sorted list the closest two only."""
        for block in self._blocks:
            for entry in block.may_cover(filter.constraints):
                if entry.filter.covers(filter):
                    yield entry
        for name, sorted_entries in self._above.items():
            theirs = filter.constraints.get(name)
            if isinstance(theirs, Numbers) and theirs.low is not None:
                stop = bisect_right(sorted_entries.bounds, (theirs.low, theirs.low_open))
                yield from sorted_entries.entries[max(stop - 2, 0) : stop][::-1]
        for name, sorted_entries in self._below.items():
            theirs = filter.constraints.get(name)
            if isinstance(theirs, Numbers) and theirs.high is not None:
                start = bisect_left(sorted_entries.bounds, (theirs.high, not theirs.high_open))
                yield from sorted_entries.entries[start : start + 2]
        yield from self._whole

    def covered(self, filter: Filter) -> Iterator[_Entry[K]]:
        """Entries that the filter covers."""
        rest: dict[str, Constraint] = {}
        for name, constraint in filter.constraints.items():
            point = self.points.get(name)
            if point is None:
                rest[name] = constraint
            elif not constraint.covers(point):
                return
        if not rest:
            yield from self._whole
        for lists in (self._above, self._below):
            for name, sorted_entries in lists.items():
                if not rest:
                    yield from sorted_entries.entries
                elif len(rest) == 1 and name in rest:
                    yield from (entry for entry in sorted_entries.entries if rest[name].covers(entry.rest[name]))
        for block in self._blocks:
            yield from (entry for entry in block.may_be_covered(rest) if filter.covers(entry.filter))


def _check_filter(filter: object) -> None:
    if not isinstance(filter, Filter):
        raise TypeError(f"a Filter is needed, not {type(filter).__name__}")


def _check_value(name: str, value: object) -> None:
    """Refuse what is no value; for a publication that is a plain mapping nobody has done so yet."""
    if not isinstance(value, (str, int, float)):
        kind = type(value).__name__
        raise TypeError(f"attribute {name}: {kind} is not a kind of value; use a string, a number or a boolean")
    try:
        check_value(value)
    except LanguageError as error:
        raise ValueError(f"attribute {name}: {error}") from None


def _satisfies(values: Mapping[str, Value], constraints: Mapping[str, Constraint]) -> bool:
    for name, constraint in constraints.items():
        value = values.get(name)
        if value is None or not constraint.admits(value):
            return False
    return True


def _token_of(constraint: Constraint) -> Token | None:
    """What stands for the only value that satisfies the constraint, if it is an equality."""
    match constraint:
        case Numbers():
            return constraint.point
        case Strings(equal=equal):
            return equal
        case Booleans(true=true, false=false) if true is not false:
            return (true,)
        case _:
            return None


def _one_sided(rest: Mapping[str, Constraint]) -> tuple[str, str, tuple[Number, bool]] | None:
    """The name, side and bound of the only constraint left, if it is one bound of a number."""
    if len(rest) == 1:
        ((name, constraint),) = rest.items()
        match constraint:
            case Numbers(low=low, high=None, excluded=()) if low is not None:
                return name, "above", (low, constraint.low_open)
            case Numbers(low=None, high=high, excluded=()) if high is not None:
                return name, "below", (high, not constraint.high_open)
    return None


def _may_be_equality(constraint: Constraint) -> bool:
    """Whether only one text may satisfy the conditions although no equality says so.

    What must only start, end, contain or lie above something can always grow longer; the rest is taken as possible.
    """
    return isinstance(constraint, Strings) and any(map(_bounds_the_length, constraint.conditions))


def _bounds_the_length(condition: Condition) -> bool:
    if isinstance(condition, Bound):
        return condition.below
    shape = condition.pattern.shape
    return shape is Shape.GENERAL if condition.wanted else shape is not Shape.EXACT
