"""Which publications do the advertisements of one client announce? Asked for each publication, so answered from memory.

Whether an advertisement allows a publication depends on the names and kinds of its attributes, and on the values only
where a constraint asks for more than a kind. What depends on names and kinds is worked out once for each combination;
of the rest only those values are looked at that matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias

from trimtab.language import Filter, Publication, Value
from trimtab.language.constraints import AnyValue, Booleans, Constraint, Numbers, Strings

SHAPES_MAX_COUNT: Final = 256
"""Combinations of names and kinds that are remembered; publishers have few kinds of publications."""

_WHOLE_KINDS: Final = (AnyValue(), Numbers(), Strings(), Booleans(True, True))

NAMED_MAX_COUNT: Final = 3
LOOKED_AT_MAX_COUNT: Final = 16
VALUE_MAX_CHARS: Final = 60
"""Attributes that a refusal names, advertisements that are compared for it, and how much it says of one value."""

NOT_ANNOUNCED: Final = "no advertisement of this client announces the publication"

Checks: TypeAlias = tuple[tuple[str, Constraint], ...]


class Announcements:
    """Advertisements by id.

    >>> mine = Announcements()
    >>> mine.add("a1", Filter.parse("[class,eq,'STOCK'],[volume,isPresent,0]"))
    >>> [mine.announce(values) for values in ({"class": "STOCK"}, {"volume": 1}, {"class": "BOND"}, {"price": 1})]
    [True, True, False, False]
    """

    __slots__ = ("_filters", "_shapes")

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {}
        self._shapes: dict[tuple[object, ...], list[Checks]] = {}

    def add(self, id: str, filter: Filter) -> None:
        """Note an advertisement."""
        self._filters[id] = filter
        self._shapes.clear()

    def discard(self, id: str) -> None:
        """Forget an advertisement, if it is known."""
        if self._filters.pop(id, None) is not None:
            self._shapes.clear()

    def announce(self, values: Mapping[str, Value]) -> bool:
        """Whether one of them announces a publication with these values; the same as asking each."""
        shape = (*values, *map(type, values.values()))
        choices = self._shapes.get(shape)
        if choices is None:
            choices = self._choices(shape, values)
        for checks in choices:
            for name, constraint in checks:
                if not constraint.admits(values[name]):
                    break
            else:
                return True
        return False

    def objection(self, values: Mapping[str, Value]) -> str:
        """Why a publication with these values is refused; empty if an advertisement announces it."""
        return "" if self.announce(values) else objection_of(self._filters.values(), values)

    def _choices(self, shape: tuple[object, ...], values: Mapping[str, Value]) -> list[Checks]:
        """For each advertisement that can announce such a publication: what is left to be checked."""
        choices: list[Checks] = []
        for filter in self._filters.values():
            constraints = [(name, filter.constraints.get(name)) for name in values]
            if filter.is_open:
                constraints = [(name, each) for name, each in constraints if each is not None]
            by_kind = [(name, each) for name, each in constraints if each is None or each in _WHOLE_KINDS]
            if all(each is not None and each.admits(values[name]) for name, each in by_kind):
                choices.append(tuple((name, each) for name, each in constraints if each and each not in _WHOLE_KINDS))
        if len(self._shapes) >= SHAPES_MAX_COUNT:
            self._shapes.clear()
        self._shapes[shape] = choices
        return choices


def objection_of(advertisements: Iterable[Filter], values: Mapping[str, Value]) -> str:
    """Why no advertisement announces a publication: what is missing in the one that comes nearest.

    >>> quotes = Filter.parse("[class,eq,'STOCK'],[volume,isPresent,0]")
    >>> objection_of([quotes], {"class": "STOCK", "price": 5})
    'no advertisement of this client announces the publication: the attribute price is not announced'
    >>> objection_of([quotes], {"class": "BOND"})
    "no advertisement of this client announces the publication: [class,'BOND'] is not announced"
    >>> objection_of([], {"class": "BOND"})
    'no advertisement of this client announces the publication: it has none'
    """
    nearest: list[str] | None = None
    for filter in islice(advertisements, LOOKED_AT_MAX_COUNT):
        missing = [name for name, value in values.items() if not _allows(filter, name, value)]
        if nearest is None or len(missing) < len(nearest):
            nearest = missing
            unknown = [name for name in missing if name not in filter.constraints]
    if nearest is None:
        return f"{NOT_ANNOUNCED}: it has none"
    if not unknown:
        name = nearest[0]
        return f"{NOT_ANNOUNCED}: {_shortened(str(Publication.trusted({name: values[name]})))} is not announced"
    shown = ", ".join(_shortened(name) for name in unknown[:NAMED_MAX_COUNT])
    more = f" and {len(unknown) - NAMED_MAX_COUNT:,} more" if len(unknown) > NAMED_MAX_COUNT else ""
    one = len(unknown) == 1
    return f"{NOT_ANNOUNCED}: the attribute{'' if one else 's'} {shown}{more} {'is' if one else 'are'} not announced"


def _allows(filter: Filter, name: str, value: Value) -> bool:
    constraint = filter.constraints.get(name)
    return filter.is_open if constraint is None else constraint.admits(value)


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_MAX_CHARS else f"{text[: VALUE_MAX_CHARS - 3]}..."
