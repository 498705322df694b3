"""The matcher: filters under keys, and which of them a publication satisfies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal

from trimtab.language import Filter, Publication, Value
from trimtab.matching.engines import Engine, choose_engine, new_index
from trimtab.matching.index import FilterIndex, Matches


class Matcher:
    """Filters under keys of your choice, asked with publications.

    >>> matcher = Matcher()
    >>> matcher.add("alice", Filter.parse("[class,eq,'STOCK'],[volume,>,300000]"))
    >>> matcher.add("bob", Filter.parse("[class,eq,'STOCK']"))
    >>> sorted(matcher.match(Publication.parse("[class,'STOCK'],[volume,300001]")))
    ['alice', 'bob']
    >>> matcher.remove("bob")
    >>> [list(keys) for keys in matcher.match_many([{"class": "STOCK"}, {"class": "STOCK", "volume": 300001}])]
    [[], ['alice']]

    Matching goes straight to the engine: `match` and `match_many` are the engine's own methods.
    """

    __slots__ = {
        "_engine": "The engine's name.",
        "_index": "The engine.",
        "match": "The keys of all filters that a publication satisfies; valid until a filter is added or removed.",
        "match_many": "What `match` says of each publication of a sequence.",
    }

    match: Callable[[Publication | Mapping[str, Value]], Matches[Hashable]]
    """The keys of all filters that a publication satisfies; valid until a filter is added or removed."""

    match_many: Callable[[Sequence[Publication | Mapping[str, Value]]], Sequence[Matches[Hashable]]]
    """What `match` says of each publication of a sequence."""

    def __init__(self, engine: Engine = "auto") -> None:
        self._engine: Literal["kernel", "python"] = choose_engine(engine)
        self._index: FilterIndex[Hashable] = new_index(self._engine)
        self.match = self._index.match
        self.match_many = self._index.match_many

    @property
    def engine(self) -> Literal["kernel", "python"]:
        """The engine that does the work."""
        return self._engine

    def add(self, key: Hashable, filter: Filter) -> None:
        """Store a filter under a key that is not in use, otherwise raise a KeyError."""
        self._index.add(key, filter)

    def remove(self, key: Hashable) -> None:
        """Forget the filter under a key, or raise a KeyError if there is none."""
        self._index.remove(key)

    def find_covering(self, filter: Filter, exclude: Hashable | None = None) -> Hashable | None:
        """A key whose filter covers the given one (not the filter under the key `exclude`), or None.

        >>> matcher = Matcher()
        >>> matcher.add("all", Filter.parse("[class,eq,'STOCK']"))
        >>> matcher.find_covering(Filter.parse("[class,eq,'STOCK'],[volume,>,5]"))
        'all'
        """
        return self._index.find_covering(filter, exclude)

    def find_covered(self, filter: Filter, exclude: Hashable | None = None) -> list[Hashable]:
        """The keys of all filters that the given one covers (without the filter under the key `exclude`)."""
        return self._index.find_covered(filter, exclude)

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._index)

    def __contains__(self, key: object) -> bool:
        """Whether a filter is stored under the key."""
        return key in self._index
