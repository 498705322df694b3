"""Which publications do the advertisements of one client announce? Asked for each publication, so answered from memory.

Whether an advertisement allows a publication depends on the names and kinds of its attributes, and on the values only
where a constraint asks for more than a kind. What depends on names and kinds is worked out once for each combination;
of the rest only those values are looked at that matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from trimtab.language import Filter, Value
from trimtab.language.constraints import AnyValue, Booleans, Constraint, Numbers, Strings

SHAPES_MAX_COUNT: Final = 256
"""Combinations of names and kinds that are remembered; publishers have few kinds of publications."""

_WHOLE_KINDS: Final = (AnyValue(), Numbers(), Strings(), Booleans(True, True))

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

    def _choices(self, shape: tuple[object, ...], values: Mapping[str, Value]) -> list[Checks]:
        """For each advertisement that can announce such a publication: what is left to be checked."""
        choices: list[Checks] = []
        for filter in self._filters.values():
            constraints = [(name, filter.constraints.get(name)) for name in values]
            by_kind = [(name, each) for name, each in constraints if each is None or each in _WHOLE_KINDS]
            if all(each is not None and each.admits(values[name]) for name, each in by_kind):
                choices.append(tuple((name, each) for name, each in constraints if each and each not in _WHOLE_KINDS))
        if len(self._shapes) >= SHAPES_MAX_COUNT:
            self._shapes.clear()
        self._shapes[shape] = choices
        return choices
