"""Routing tables: which advertisements and subscriptions came from where, and what must be said to whom about them.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 2.1.3.

Advertisements flood; a subscription follows the reverse path of the advertisements that it intersects; a publication
follows the reverse path of the subscriptions that it matches. A neighbour is not told of a subscription that another
one it was told of covers; when the covering one leaves, what it covered is told before its end is.

Deviations: advertisements may be covered too (an advertisement covers another if it announces all that the other does).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Protocol, cast

import msgspec

from trimtab.language import Filter, Value
from trimtab.matching import CoveringChange, CoveringSet, Matcher
from trimtab.protocol.messages import Advertise, AnyMessage, Subscribe, Unadvertise, Unsubscribe


class Entry(msgspec.Struct, frozen=True):
    """A filter in a routing table and the neighbour or client it came from."""

    id: str
    filter: Filter
    hop: str


class Say(msgspec.Struct, frozen=True):
    """A message for a neighbour."""

    to: str
    message: AnyMessage


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
            if announces_all(told, filter):
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


def announces_all(outer: Filter, inner: Filter) -> bool:
    """Whether the outer advertisement allows every publication that the inner one allows.

    >>> announces_all(Filter.parse("[a,>,0],[b,isPresent,0]"), Filter.parse("[a,>,5]"))
    True
    """
    return all(
        name in outer.constraints and outer.constraints[name].covers(constraint)
        for name, constraint in inner.constraints.items()
    )


class RoutingTables:
    """One broker's tables: advertisements (for routing subscriptions) and subscriptions (for routing publications)."""

    def __init__(self, *, subscription_covering: bool = True, advertisement_covering: bool = True) -> None:
        self._subscription_covering = subscription_covering
        self._advertisement_covering = advertisement_covering
        self.advertisements: dict[str, Entry] = {}
        self.subscriptions: dict[str, Entry] = {}
        self.neighbours: dict[str, None] = {}
        self._matcher: Matcher = Matcher()
        self._told_advertisements: dict[str, ForwardingSet] = {}
        self._told_subscriptions: dict[str, ForwardingSet] = {}

    def add_neighbour(self, name: str) -> list[Say]:
        """A link to a neighbour appears: it is told every advertisement that it must know."""
        self.neighbours[name] = None
        self._told_advertisements[name] = CoveredAdvertisements() if self._advertisement_covering else Everything()
        self._told_subscriptions[name] = CoveredSubscriptions() if self._subscription_covering else Everything()
        said: list[Say] = []
        for entry in self.advertisements.values():
            said.extend(self._tell_advertisement(name, entry))
        return said

    def remove_neighbour(self, name: str) -> list[Say]:
        """A link is gone for good: all that came over it ends."""
        del self.neighbours[name]
        del self._told_advertisements[name]
        del self._told_subscriptions[name]
        return self.remove_all_from(name)

    def remove_all_from(self, hop: str) -> list[Say]:
        """All that came from a neighbour or client ends."""
        said: list[Say] = []
        for id in [entry.id for entry in self.subscriptions.values() if entry.hop == hop]:
            said.extend(self.remove_subscription(id))
        for id in [entry.id for entry in self.advertisements.values() if entry.hop == hop]:
            said.extend(self.remove_advertisement(id))
        return said

    def add_advertisement(self, entry: Entry) -> list[Say]:
        """Note an advertisement, pass it on, and pull the subscriptions that it intersects."""
        self.advertisements[entry.id] = entry
        said: list[Say] = []
        for neighbour in self.neighbours:
            said.extend(self._tell_advertisement(neighbour, entry))
        if entry.hop in self.neighbours:
            for subscription in list(self.subscriptions.values()):
                if entry.filter.intersects(subscription.filter):
                    said.extend(self._tell_subscription(entry.hop, subscription))
        return said

    def remove_advertisement(self, id: str) -> list[Say]:
        """Forget an advertisement; subscriptions that no other one pulls to its neighbour end there."""
        entry = self.advertisements.pop(id)
        said: list[Say] = []
        for neighbour, told in self._told_advertisements.items():
            if id in told:
                said.extend(self._say_advertisements(neighbour, told.remove(id)))
        subscriptions = self._told_subscriptions.get(entry.hop)
        if subscriptions is not None:
            for subscription in list(self.subscriptions.values()):
                if subscription.id in subscriptions and not self._is_wanted(entry.hop, subscription):
                    said.extend(self._say_subscriptions(entry.hop, subscriptions.remove(subscription.id)))
        return said

    def add_subscription(self, entry: Entry) -> list[Say]:
        """Note a subscription and pass it towards the advertisements that it intersects."""
        self.subscriptions[entry.id] = entry
        self._matcher.add(entry.id, entry.filter, entry.hop)
        said: list[Say] = []
        for neighbour in self.neighbours:
            if self._is_wanted(neighbour, entry):
                said.extend(self._tell_subscription(neighbour, entry))
        return said

    def remove_subscription(self, id: str) -> list[Say]:
        """Forget a subscription; what it covered is told before its end is."""
        entry = self.subscriptions.pop(id)
        self._matcher.remove(entry.id)
        said: list[Say] = []
        for neighbour, told in self._told_subscriptions.items():
            if id in told:
                said.extend(self._say_subscriptions(neighbour, told.remove(id)))
        return said

    def hops_for(self, values: Mapping[str, Value]) -> list[str]:
        """The neighbours and clients that want a publication, each once, in a defined order."""
        return cast(list[str], self._matcher.match_groups(values))

    def subscription_representatives(self, id: str) -> list[tuple[str, str]]:
        """For each neighbour that must know of a subscription: the neighbour and the one told in its place."""
        return [(name, told.representative(id)) for name, told in self._told_subscriptions.items() if id in told]

    def advertisement_representatives(self, id: str) -> list[tuple[str, str]]:
        """For each neighbour that must know of an advertisement: the neighbour and the one told in its place."""
        return [(name, told.representative(id)) for name, told in self._told_advertisements.items() if id in told]

    def told_to(self, neighbour: str) -> tuple[list[str], list[str]]:
        """The advertisements and the subscriptions that a neighbour was told."""
        return self._told_advertisements[neighbour].told(), self._told_subscriptions[neighbour].told()

    def _is_wanted(self, neighbour: str, subscription: Entry) -> bool:
        if subscription.hop == neighbour:
            return False
        return any(
            advertisement.hop == neighbour and advertisement.filter.intersects(subscription.filter)
            for advertisement in self.advertisements.values()
        )

    def _tell_advertisement(self, neighbour: str, entry: Entry) -> list[Say]:
        if entry.hop == neighbour:
            return []
        return self._say_advertisements(neighbour, self._told_advertisements[neighbour].add(entry.id, entry.filter))

    def _tell_subscription(self, neighbour: str, entry: Entry) -> list[Say]:
        told = self._told_subscriptions[neighbour]
        if entry.hop == neighbour or entry.id in told:
            return []
        return self._say_subscriptions(neighbour, told.add(entry.id, entry.filter))

    def _say_advertisements(self, neighbour: str, change: CoveringChange) -> list[Say]:
        entered = _ids(change.entered)
        said = [Say(neighbour, Advertise(id=id, filter=self.advertisements[id].filter)) for id in entered]
        return [*said, *(Say(neighbour, Unadvertise(id=id)) for id in _ids(change.left))]

    def _say_subscriptions(self, neighbour: str, change: CoveringChange) -> list[Say]:
        entered = _ids(change.entered)
        said = [Say(neighbour, Subscribe(id=id, filter=self.subscriptions[id].filter)) for id in entered]
        return [*said, *(Say(neighbour, Unsubscribe(id=id)) for id in _ids(change.left))]


def _ids(keys: Iterable[Hashable]) -> list[str]:
    return [str(key) for key in keys]
