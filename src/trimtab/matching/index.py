"""What every matching engine offers, whether compiled or written in Python."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from trimtab.language import Filter, Publication, Value

K = TypeVar("K", bound=Hashable)
K_co = TypeVar("K_co", bound=Hashable, covariant=True)


class Matches(Protocol[K_co]):
    """The keys whose filters a publication satisfies: to iterate over, to count, or to ask whether there is any.

    They are not written out before somebody reads them. Adding or removing a filter ends their validity: to count them
    or to begin to read them afterwards raises a RuntimeError. A loop that has begun is not disturbed.
    """

    def __iter__(self) -> Iterator[K_co]: ...

    def __len__(self) -> int: ...


class FilterIndex(Protocol[K]):
    """Filters under keys, arranged so that the ones that concern a publication or another filter are found quickly.

    Filters that are equal (in normal form) are stored once, whatever the number of their keys. A key may be anything
    hashable; None is better avoided, for it also says "nothing found".
    """

    def add(self, key: K, filter: Filter, group: Hashable | None = None, /) -> None:
        """Store a filter; a KeyError says that the key is in use. Keys of one group are asked about together."""
        ...

    def remove(self, key: K) -> None:
        """Forget a filter; a KeyError says that there is none under the key."""
        ...

    def match(self, publication: Publication | Mapping[str, Value]) -> Matches[K]:
        """The keys of all filters that the publication satisfies.

        In a plain mapping, attributes that some filter asks for are checked: what is not of a kind of value raises a
        TypeError; NaN, an infinity and an integer beyond 64 bits raise a ValueError.
        """
        ...

    def match_groups(self, publication: Publication | Mapping[str, Value]) -> list[Hashable]:
        """The groups of which some filter matches, each once; cheaper than to list all keys and look at their groups.

        In the order in which the groups got their first key; a place that became free is taken by the next new group.
        """
        ...

    def match_many(self, publications: Sequence[Publication | Mapping[str, Value]]) -> Sequence[Matches[K]]:
        """What `match` says of each publication."""
        ...

    def find_covering(self, filter: Filter, /, exclude: K | None = None) -> K | None:
        """A key of some stored filter that covers the given one, of a specific one where that is cheap to tell.

        The filter stored under the key `exclude` is left out, whatever its other keys.
        """
        ...

    def find_covered(self, filter: Filter, /, exclude: K | None = None) -> list[K]:
        """The keys of all stored filters that the given one covers, equal ones included.

        The filter stored under the key `exclude` is left out, whatever its other keys.
        """
        ...

    def __len__(self) -> int:
        """The number of keys."""
        ...

    def __contains__(self, key: object) -> bool:
        """Whether a filter is stored under the key."""
        ...
