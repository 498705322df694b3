"""How the sets of publications that two filters match relate to each other.

A text with OR or IN means several filters, of which any may match; their union is compared, not the filters one by one:
the texts "v < 5 OR v >= 5" and "v isPresent 0" are equal although no single filter of the first covers the second.

Whether a filter lies inside a union is decided by subtraction: what remains of the filter outside each member in turn.
A member is left by breaking one of its conditions, so each subtraction branches over its conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from trimtab.language import limits
from trimtab.language.constraints import AnyValue, Booleans, Constraint, Numbers, Strings
from trimtab.language.errors import ContradictionError, LimitError
from trimtab.language.filters import Filter
from trimtab.language.predicates import Predicate
from trimtab.language.string_sets import Condition, SearchBudget, satisfiable


class Relation(StrEnum):
    """How the first of two sets of publications lies to the second."""

    EQUAL = "equal"
    COVERS = "covers"
    COVERED = "covered"
    INTERSECTS = "intersects"
    DISJOINT = "disjoint"


def relate(first: Filter | Sequence[Filter], second: Filter | Sequence[Filter]) -> Relation:
    """How the publications that match the first filter (or any of several) lie to those that match the second.

    >>> relate(Filter.parse("[volume,>,5]"), Filter.parse("[volume,>,10]")).value
    'covers'
    >>> relate(Filter.parse_all("v < 5 OR v >= 5"), Filter.parse("[v,isPresent,0]")).value
    'equal'
    """
    ours = (first,) if isinstance(first, Filter) else tuple(first)
    theirs = (second,) if isinstance(second, Filter) else tuple(second)
    budget = SearchBudget()
    covers, covered = union_covers(ours, theirs, budget), union_covers(theirs, ours, budget)
    if covers and covered:
        return Relation.EQUAL
    if covers or covered:
        return Relation.COVERS if covers else Relation.COVERED
    overlap = any(mine.overlaps(other, budget) for mine in ours for other in theirs)
    return Relation.INTERSECTS if overlap else Relation.DISJOINT


def union_covers(outer: Sequence[Filter], inner: Sequence[Filter], budget: SearchBudget | None = None) -> bool:
    """Whether every publication that matches some inner filter matches some outer one.

    >>> union_covers(Filter.parse_all("v IN (1, 2, 3)"), Filter.parse_all("v = 1 OR v = 3"))
    True
    """
    budget, steps = budget or SearchBudget(), SearchBudget(limits.RELATION_MAX_STEPS)
    for each in inner:
        if any(member.covers(each, budget) for member in outer):
            continue
        members = [member for member in outer if member.overlaps(each, budget)]
        if len(members) < 2 or _remains(_regions(each), members, budget, steps):
            return False
    return True


class Remainder(msgspec.Struct, frozen=True):
    """Some publications that match one filter and none of others, told so that a person can read it.

    They satisfy the filters, lack the attributes that are absent, and have values of other kinds than asked for.
    """

    filters: tuple[Filter, ...]
    absent: tuple[str, ...] = ()
    other_kinds: tuple[tuple[str, str], ...] = ()


def remainder(
    inner: Filter, outer: Sequence[Filter], budget: SearchBudget | None = None, steps: SearchBudget | None = None
) -> Remainder | None:
    """What of a filter lies outside of all others, None if nothing does; raises `LimitError` if it takes too long.

    Where a search for strings is given up, something may be named that is empty, and never the other way.

    >>> left = remainder(Filter.parse("v > 1"), Filter.parse_all("v < 5 OR v > 9"))
    >>> [str(each) for each in left.filters]
    ['[v,>=,5],[v,<=,9]']
    >>> remainder(Filter.parse("v > 1"), Filter.parse_all("v < 5 OR v >= 5")) is None
    True
    """
    budget, steps = budget or SearchBudget(), steps or SearchBudget(limits.RELATION_MAX_STEPS)
    if any(member.covers(inner, budget) for member in outer):
        return None
    members = [member for member in outer if member.overlaps(inner, budget)]
    waiting = [(_regions(inner), 0)]
    while waiting:
        regions, subtracted_count = waiting.pop()
        if subtracted_count == len(members):
            return _told(inner, regions, budget)
        rest = _without(regions, members[subtracted_count], budget, steps)
        rest.sort(key=_is_odd, reverse=True)  # what a filter can say is found first
        waiting.extend((part, subtracted_count + 1) for part in rest)
    return None


def _is_odd(regions: dict[str, _Region]) -> int:
    return sum(region.only() is None for region in regions.values())


def _told(inner: Filter, regions: dict[str, _Region], budget: SearchBudget) -> Remainder:
    predicates: list[Predicate] = []
    absent: list[str] = []
    other_kinds: list[tuple[str, str]] = []
    for name, region in regions.items():
        if name in inner.constraints and region == _region(inner.constraints[name]):
            predicates += inner.constraints[name].predicates(name)
            continue
        constraint = region.only()
        if constraint is not None:
            predicates += constraint.predicates(name)
        elif region.absent:
            absent.append(name)
        else:
            other_kinds.append((name, region.kinds()))
    try:
        filters = (Filter(predicates, budget),) if predicates else ()
    except (ContradictionError, LimitError):
        filters = (inner,)
    return Remainder(filters, tuple(absent), tuple(other_kinds))


class _Region(msgspec.Struct, frozen=True):
    """What one attribute may still be: absent, some numbers, some booleans, some strings."""

    absent: bool
    numbers: Numbers | None
    booleans: Booleans | None
    strings: tuple[Condition, ...] | None

    def empty(self) -> bool:
        return not self.absent and self.numbers is None and self.booleans is None and self.strings is None

    def only(self) -> Constraint | None:
        """The constraint that says the same, None if no constraint does."""
        kinds = [each for each in (self.numbers, self.booleans, self.strings) if each is not None]
        if self.absent or len(kinds) != 1:
            return None
        return Strings(conditions=self.strings) if self.strings is not None else self.numbers or self.booleans

    def kinds(self) -> str:
        """The kinds of values that are left, for people."""
        named = ((self.numbers, "a number"), (self.booleans, "a boolean"), (self.strings, "a text"))
        return " or ".join(text for value, text in named if value is not None)

    def inside(self, constraint: Constraint, budget: SearchBudget) -> _Region:
        """What of this region satisfies the constraint."""
        numbers, booleans, strings = None, None, None
        if isinstance(constraint, AnyValue):
            return _Region(False, self.numbers, self.booleans, self.strings)
        if isinstance(constraint, Numbers) and self.numbers is not None:
            numbers = self.numbers.intersection(constraint)
        elif isinstance(constraint, Booleans) and self.booleans is not None:
            booleans = _some_booleans(self.booleans.true and constraint.true, self.booleans.false and constraint.false)
        elif isinstance(constraint, Strings) and self.strings is not None:
            strings = _some_strings((*self.strings, *constraint.all_conditions()), budget)
        return _Region(False, numbers, booleans, strings)

    def outside(self, constraint: Constraint, budget: SearchBudget) -> Iterator[_Region]:
        """Regions that together hold what of this one does not satisfy the constraint."""
        if isinstance(constraint, AnyValue):
            yield _Region(self.absent, None, None, None)
            return
        yield _Region(
            self.absent,
            None if isinstance(constraint, Numbers) else self.numbers,
            None if isinstance(constraint, Booleans) else self.booleans,
            None if isinstance(constraint, Strings) else self.strings,
        )
        if isinstance(constraint, Numbers) and self.numbers is not None:
            for piece in constraint.pieces():
                yield _Region(False, self.numbers.intersection(piece.negated()), None, None)
        elif isinstance(constraint, Booleans) and self.booleans is not None:
            true = self.booleans.true and not constraint.true
            false = self.booleans.false and not constraint.false
            yield _Region(False, None, _some_booleans(true, false), None)
        elif isinstance(constraint, Strings) and self.strings is not None:
            for condition in constraint.all_conditions():
                yield _Region(False, None, None, _some_strings((*self.strings, condition.negated()), budget))


def _some_booleans(true: bool, false: bool) -> Booleans | None:
    return Booleans(true, false) if true or false else None


def _some_strings(conditions: tuple[Condition, ...], budget: SearchBudget) -> tuple[Condition, ...] | None:
    distinct = tuple(dict.fromkeys(conditions))
    return None if satisfiable(distinct, budget) is False else distinct


_EVERYTHING = _Region(absent=True, numbers=Numbers(), booleans=Booleans(True, True), strings=())


def _regions(filter: Filter) -> dict[str, _Region]:
    return {name: _region(constraint) for name, constraint in filter.constraints.items()}


def _region(constraint: Constraint) -> _Region:
    match constraint:
        case Numbers():
            return _Region(False, constraint, None, None)
        case Booleans():
            return _Region(False, None, constraint, None)
        case Strings():
            return _Region(False, None, None, constraint.all_conditions())
        case _:
            return _Region(False, _EVERYTHING.numbers, _EVERYTHING.booleans, _EVERYTHING.strings)


def _remains(regions: dict[str, _Region], members: Sequence[Filter], budget: SearchBudget, steps: SearchBudget) -> bool:
    """Whether some publication of the regions matches none of the members."""
    waiting = [(regions, 0)]
    while waiting:
        regions, subtracted_count = waiting.pop()
        if subtracted_count == len(members):
            return True
        rest = _without(regions, members[subtracted_count], budget, steps)
        waiting.extend((part, subtracted_count + 1) for part in rest)
    return False


def _without(
    regions: dict[str, _Region], member: Filter, budget: SearchBudget, steps: SearchBudget
) -> list[dict[str, _Region]]:
    """The regions without what the member matches: each of its constraints in turn is the first that is broken."""
    found: list[dict[str, _Region]] = []
    before = regions
    for name, constraint in member.constraints.items():
        if not steps.spend(1):
            raise LimitError("the two texts have too many alternatives to be compared exactly; compare parts of them")
        region = regions.get(name, _EVERYTHING)
        inside = region.inside(constraint, budget)
        if inside.empty():
            return [regions]
        found.extend({**before, name: part} for part in region.outside(constraint, budget) if not part.empty())
        before = {**before, name: inside}
    return found
