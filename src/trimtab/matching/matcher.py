"""The matcher: filters under keys, and which of them a publication satisfies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, Protocol

from trimtab.language import Filter, Publication, Value
from trimtab.matching.engines import Engine, choose_engine, new_index
from trimtab.matching.index import FilterIndex, Matches


class FindCovering(Protocol):
    """The call of `Matcher.find_covering`."""

    def __call__(self, filter: Filter, /, exclude: Hashable | None = None) -> Hashable | None: ...


class FindCovered(Protocol):
    """The call of `Matcher.find_covered`."""

    def __call__(self, filter: Filter, /, exclude: Hashable | None = None) -> list[Hashable]: ...


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
    >>> matcher.find_covering(Filter.parse("[class,eq,'STOCK'],[volume,>,500000]"))
    'alice'
    >>> matcher.find_covered(Filter.parse("[class,eq,'STOCK']"))
    ['alice']

    Questions go straight to the engine: `match`, `match_many`, `find_covering` and `find_covered` are its own methods.
    """

    __slots__ = {
        "_engine": "The engine's name.",
        "_index": "The engine.",
        "find_covered": "The keys of all filters that a filter covers, without the filter under the key `exclude`.",
        "find_covering": "A key whose filter covers a filter, and is not the one under the key `exclude`; or None.",
        "match": "The keys of all filters that a publication satisfies; valid until a filter is added or removed.",
        "match_groups": "The groups of which some filter matches a publication, each once.",
        "match_many": "What `match` says of each publication of a sequence.",
    }

    match: Callable[[Publication | Mapping[str, Value]], Matches[Hashable]]
    """The keys of all filters that a publication satisfies; valid until a filter is added or removed."""

    match_groups: Callable[[Publication | Mapping[str, Value]], list[Hashable]]
    """The groups of which some filter matches a publication, each once."""

    match_many: Callable[[Sequence[Publication | Mapping[str, Value]]], Sequence[Matches[Hashable]]]
    """What `match` says of each publication of a sequence."""

    find_covering: FindCovering
    """A key whose filter covers a filter, and is not the one under the key `exclude`; or None."""

    find_covered: FindCovered
    """The keys of all filters that a filter covers, without the filter under the key `exclude`."""

    def __init__(self, engine: Engine = "auto") -> None:
        self._engine: Literal["kernel", "python"] = choose_engine(engine)
        self._index: FilterIndex[Hashable] = new_index(self._engine)
        self.match = self._index.match
        self.match_groups = self._index.match_groups
        self.match_many = self._index.match_many
        self.find_covering = self._index.find_covering
        self.find_covered = self._index.find_covered

    @property
    def engine(self) -> Literal["kernel", "python"]:
        """The engine that does the work."""
        return self._engine

    def add(self, key: Hashable, filter: Filter, group: Hashable | None = None) -> None:
        """Store a filter under a key that is not in use, otherwise raise a KeyError.

        >>> matcher = Matcher()
        >>> for number in range(3):
        ...     matcher.add(number, Filter.parse(f"[volume,>,{number}]"), "alice")
        >>> matcher.match_groups({"volume": 5})
        ['alice']
        """
        self._index.add(key, filter, group)

    def remove(self, key: Hashable) -> None:
        """Forget the filter under a key, or raise a KeyError if there is none."""
        self._index.remove(key)

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._index)

    def __contains__(self, key: object) -> bool:
        """Whether a filter is stored under the key."""
        return key in self._index
