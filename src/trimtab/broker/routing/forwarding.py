"""Forwarding sets: what a neighbour should know of, and what it must be told of that, with covering or without."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from trimtab.language import Filter
from trimtab.matching import CoveringChange, CoveringSet


class ForwardingSet(Protocol):
    """What one neighbour should know of, reduced to what it must be told."""

    def add(self, key: Hashable, filter: Filter) -> CoveringChange: ...

    def remove(self, key: Hashable) -> CoveringChange: ...

    def __contains__(self, key: object) -> bool: ...

    def representative(self, key: str) -> str:
        """The key that stands for this one at the neighbour: itself or one that covers it and was told."""
        ...

    def told(self) -> list[str]:
        """The keys that the neighbour was told."""
        ...


class Everything:
    """A forwarding set without covering: the neighbour is told everything."""

    def __init__(self) -> None:
        self._filters: dict[Hashable, Filter] = {}

    def add(self, key: Hashable, filter: Filter) -> CoveringChange:
        """Note and tell."""
        self._filters[key] = filter
        return CoveringChange(entered=(key,))

    def remove(self, key: Hashable) -> CoveringChange:
        """Forget and tell."""
        del self._filters[key]
        return CoveringChange(left=(key,))

    def __contains__(self, key: object) -> bool:
        return key in self._filters

    def representative(self, key: str) -> str:
        """Each key stands for itself."""
        return key

    def told(self) -> list[str]:
        """All keys."""
        return [str(key) for key in self._filters]


class CoveredSubscriptions(CoveringSet):
    """A forwarding set of subscriptions with covering."""

    def representative(self, key: str) -> str:
        """Follow the witnesses up to one that was told."""
        while (witness := self.covered_by(key)) is not None:
            key = str(witness)
        return key

    def told(self) -> list[str]:
        """The covering set."""
        return [str(key) for key in self.covering()]


class CoveredAdvertisements:
    """A forwarding set of advertisements with covering; advertisements are few, so each is compared with all told."""

    def __init__(self) -> None:
        self._told: dict[str, Filter] = {}
        self._covered: dict[str, tuple[Filter, str]] = {}

    def add(self, key: Hashable, filter: Filter) -> CoveringChange:
        """Note; tell unless an advertisement that was told announces as much."""
        name = str(key)
        for other, told in self._told.items():
            if told.announces_all(filter):
                self._covered[name] = (filter, other)
                return CoveringChange()
        self._told[name] = filter
        return CoveringChange(entered=(name,))

    def remove(self, key: Hashable) -> CoveringChange:
        """Forget; what only this one covered is told."""
        name = str(key)
        if self._covered.pop(name, None) is not None:
            return CoveringChange()
        del self._told[name]
        orphans = [(other, filter) for other, (filter, witness) in self._covered.items() if witness == name]
        entered: list[Hashable] = []
        for other, filter in orphans:
            del self._covered[other]
            entered.extend(self.add(other, filter).entered)
        return CoveringChange(entered=tuple(entered), left=(name,))

    def __contains__(self, key: object) -> bool:
        return key in self._told or key in self._covered

    def representative(self, key: str) -> str:
        """The advertisement itself or the one that covers it."""
        return self._covered[key][1] if key in self._covered else key

    def told(self) -> list[str]:
        """The advertisements that were told."""
        return list(self._told)
