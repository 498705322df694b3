"""A client's own filters: for which of its subscriptions is a publication that arrives?"""

from __future__ import annotations

from typing import Final

from trimtab.language import Filter, Value
from trimtab.matching import Matcher

ASKED_ONE_BY_ONE_MAX_COUNT: Final = 4
"""So few filters are asked one after the other; an engine of its own costs a client more memory than it saves time."""


class OwnFilters:
    """Filters by id.

    A broker sends a client what some filter of it matches. With one filter since the beginning that is the one; with
    more, or when one has ended while something for it was under way, they are asked.

    >>> mine = OwnFilters()
    >>> mine.add("s1", Filter.parse("a > 5")), mine.add("s2", Filter.parse("a > 7"))
    (None, None)
    >>> mine.matching({"a": 6}), mine.matching({"a": 8}), mine.matching({"b": 8})
    (('s1',), ('s1', 's2'), ())
    """

    __slots__ = ("_filters", "_is_first", "_matcher", "single")

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {}
        self._is_first = True
        self._matcher: Matcher | None = None
        self.single: tuple[str, ...] | None = None
        """The id of the only filter that there has ever been: whatever the broker sends is for it."""

    def add(self, id: str, filter: Filter) -> None:
        """One more."""
        self._filters[id] = filter
        if self._matcher is not None:
            self._matcher.add(id, filter)
        elif len(self._filters) > ASKED_ONE_BY_ONE_MAX_COUNT:
            self._matcher = Matcher()
            for each, known in self._filters.items():
                self._matcher.add(each, known)
        self.single = (id,) if self._is_first else None
        self._is_first = False

    def remove(self, id: str) -> None:
        """One less."""
        del self._filters[id]
        if self._matcher is not None:
            self._matcher.remove(id)
        self.single = None

    def matching(self, values: dict[str, Value]) -> tuple[str, ...]:
        """The ids of all filters that the values satisfy, in ascending order."""
        if self.single is not None:
            return self.single
        if self._matcher is not None:
            return tuple(sorted(map(str, self._matcher.match(values))))
        return tuple(sorted([id for id, filter in self._filters.items() if filter.matches(values)]))
