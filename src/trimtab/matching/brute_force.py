"""The plainest matcher there is: every filter asked in turn. It is the oracle that the engines are tested against."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from trimtab.language import Filter, Publication, Value


class BruteForceMatcher:
    """Filters in a dictionary.

    >>> matcher = BruteForceMatcher()
    >>> matcher.add("alice", Filter.parse("[volume,>,300000]"))
    >>> list(matcher.match({"volume": 300001}))
    ['alice']
    """

    def __init__(self) -> None:
        self._filters: dict[Hashable, Filter] = {}

    def add(self, key: Hashable, filter: Filter) -> None:
        """Store a filter; a KeyError says that the key is in use."""
        if key in self._filters:
            raise KeyError(f"the key {key!r} is already in use")
        self._filters[key] = filter

    def remove(self, key: Hashable) -> None:
        """Forget a filter; a KeyError says that there is none under the key."""
        if key not in self._filters:
            raise KeyError(f"unknown key {key!r}")
        del self._filters[key]

    def match(self, publication: Publication | Mapping[str, Value]) -> list[Hashable]:
        """The keys of all filters that the publication satisfies, in the order in which they were added."""
        if not isinstance(publication, Mapping):
            raise TypeError(f"a publication maps names to values; {type(publication).__name__} does not")
        return [key for key, filter in self._filters.items() if filter.matches(publication)]

    def match_many(self, publications: Sequence[Publication | Mapping[str, Value]]) -> list[list[Hashable]]:
        """What `match` says of each publication."""
        return [self.match(publication) for publication in publications]

    def find_covering(self, filter: Filter, exclude: Hashable | None = None) -> Hashable | None:
        """A key of some stored filter that covers the given one and is not the one under the key `exclude`."""
        found = [key for key in self._all_but(exclude) if self._filters[key].covers(filter)]
        return max(found, key=lambda key: len(self._filters[key].constraints), default=None)

    def find_covered(self, filter: Filter, exclude: Hashable | None = None) -> list[Hashable]:
        """The keys of all stored filters that the given one covers, without the one under the key `exclude`."""
        return [key for key in self._all_but(exclude) if filter.covers(self._filters[key])]

    def _all_but(self, exclude: Hashable | None) -> list[Hashable]:
        left_out = None if exclude is None else self._filters.get(exclude)
        return [key for key, filter in self._filters.items() if filter != left_out]

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._filters)

    def __contains__(self, key: object) -> bool:
        """Whether a filter is stored under the key."""
        return key in self._filters
