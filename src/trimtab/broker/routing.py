"""Routing tables: which advertisements and subscriptions came from where, and what must be said to whom about them.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 2.1.3.

Advertisements flood; a subscription follows the reverse path of the advertisements that it intersects; a publication
follows the reverse path of the subscriptions that it matches. A neighbour is not told of a subscription that another
one it was told of covers; when the covering one leaves, what it covered is told before its end is.

Deviations: advertisements may be covered too (an advertisement covers another if it announces all that the other does).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import cast

import msgspec

from trimtab.broker.forwarding import (
    AdvertisementSet,
    CoveredAdvertisements,
    CoveredSubscriptions,
    Everything,
    ForwardingSet,
)
from trimtab.language import Filter, Value
from trimtab.matching import CoveringChange, Matcher
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


class RoutingTables:
    """One broker's tables: advertisements (for routing subscriptions) and subscriptions (for routing publications)."""

    def __init__(self, *, subscription_covering: bool = True, advertisement_covering: bool = True) -> None:
        self._subscription_covering = subscription_covering
        self._advertisement_covering = advertisement_covering
        self.advertisements: dict[str, Entry] = {}
        self.subscriptions: dict[str, Entry] = {}
        self.neighbours: dict[str, None] = {}
        self._led: dict[str, None] = {}
        """Those of the advertisements that lead subscriptions to where a publisher will be, and that nobody is told."""
        self._matcher: Matcher = Matcher()
        self._told_advertisements: dict[str, AdvertisementSet] = {}
        self._told_subscriptions: dict[str, ForwardingSet] = {}
        self._only_for: dict[str, dict[str, None]] = {}
        """Subscriptions that no other neighbours than these are told of."""
        self._twins: dict[str, str] = {}
        """Assistants: each is told what the neighbour that it assists is told, or if it assists us, of our clients."""

    def add_neighbour(self, name: str) -> list[Say]:
        """A link to a neighbour appears: it is told every advertisement that it must know."""
        self.neighbours[name] = None
        self._told_advertisements[name] = CoveredAdvertisements() if self._advertisement_covering else Everything()
        self._told_subscriptions[name] = CoveredSubscriptions() if self._subscription_covering else Everything()
        said: list[Say] = []
        for entry in self.advertisements.values():
            if entry.id not in self._led:
                said.extend(self._tell_advertisement(name, entry))
        return said

    def add_twin(self, name: str, assisted: str) -> list[Say]:
        """A link to an assistant of a neighbour, or of this broker itself (""), appears: it is told all at once."""
        self._twins[name] = assisted
        said = self.add_neighbour(name)
        for entry in list(self.subscriptions.values()):
            if self._is_wanted(name, entry):
                said.extend(self._tell_subscription(name, entry))
        return said

    def _twins_of(self, hop: str) -> list[str]:
        """A neighbour and its assistant."""
        return [hop, *(name for name, assisted in self._twins.items() if assisted == hop)]

    def remove_neighbour(self, name: str) -> list[Say]:
        """A link is gone for good: all that came over it ends."""
        self.cut_neighbour(name)
        return self.remove_all_from(name)

    def cut_neighbour(self, name: str) -> None:
        """Tell a neighbour nothing more; what came from it stays until `remove_all_from`."""
        del self.neighbours[name]
        self._twins.pop(name, None)
        del self._told_advertisements[name]
        del self._told_subscriptions[name]

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
        return [*said, *self._pull(entry)]

    def remove_advertisement(self, id: str) -> list[Say]:
        """Forget an advertisement; subscriptions that no other one pulls to its neighbour end there."""
        entry = self.advertisements.pop(id)
        self._led.pop(id, None)
        said: list[Say] = []
        for neighbour, told in self._told_advertisements.items():
            if id in told:
                said.extend(self._say_advertisements(neighbour, told.remove(id)))
        return [*said, *self._push_back(entry.hop)]

    def lead(self, entry: Entry) -> list[Say]:
        """Pull subscriptions as an advertisement would that nobody is told of."""
        self.advertisements[entry.id] = entry
        self._led[entry.id] = None
        return self._pull(entry)

    def turn(self, entry: Entry, came_from: str, led_id: str) -> list[Say]:
        """An advertisement comes from another neighbour or client than before, with all that it pulls.

        Both sides turn by themselves: neither the neighbour that it came from nor the one that it comes from is told
        of it. The former knows it from here from now on; the latter is told of what it covered there.
        """
        self.advertisements.pop(led_id, None)
        self._led.pop(led_id, None)
        self.advertisements[entry.id] = entry
        said: list[Say] = []
        for neighbour, told in self._told_advertisements.items():
            if neighbour == entry.hop:
                if entry.id in told:
                    uncovered = CoveringChange(entered=told.remove(entry.id).entered)
                    said.extend(self._say_advertisements(neighbour, uncovered))
            elif neighbour == came_from:
                told.note_told(entry.id, entry.filter)
            elif entry.id not in told:
                said.extend(self._tell_advertisement(neighbour, entry))
        return [*said, *self._pull(entry), *self._push_back(came_from)]

    def _pull(self, entry: Entry) -> list[Say]:
        """Tell the neighbour that an advertisement comes from of the subscriptions that it intersects."""
        said: list[Say] = []
        if entry.hop in self.neighbours:
            for subscription in list(self.subscriptions.values()):
                if entry.filter.intersects(subscription.filter):
                    for neighbour in self._twins_of(entry.hop):
                        said.extend(self._tell_subscription(neighbour, subscription))
        return said

    def _push_back(self, hop: str) -> list[Say]:
        """End the subscriptions at a neighbour that no advertisement pulls there any more."""
        said: list[Say] = []
        for neighbour in self._twins_of(hop):
            told = self._told_subscriptions.get(neighbour)
            for subscription in list(self.subscriptions.values()) if told is not None else ():
                if told is not None and subscription.id in told and not self._is_wanted(neighbour, subscription):
                    said.extend(self._say_subscriptions(neighbour, told.remove(subscription.id)))
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
        self._only_for.pop(id, None)
        said: list[Say] = []
        for neighbour, told in self._told_subscriptions.items():
            if id in told:
                said.extend(self._say_subscriptions(neighbour, told.remove(id)))
        return said

    def only_for(self, id: str, neighbours: Iterable[str]) -> None:
        """Tell a subscription, as long as it does not come from elsewhere, to no other neighbours than these."""
        self._only_for[id] = dict.fromkeys(neighbours)

    def claim_subscription(self, entry: Entry) -> list[Say]:
        """A subscription comes from another neighbour or client than before; a neighbour is not told of its own."""
        self._matcher.remove(entry.id)
        self._matcher.add(entry.id, entry.filter, entry.hop)
        self.subscriptions[entry.id] = entry
        self._only_for.pop(entry.id, None)
        said: list[Say] = []
        for neighbour, told in self._told_subscriptions.items():
            if neighbour == entry.hop and entry.id in told:
                said.extend(self._say_subscriptions(neighbour, told.remove(entry.id)))
            elif self._is_wanted(neighbour, entry):
                said.extend(self._tell_subscription(neighbour, entry))
        return said

    def note_advertisement_told(self, neighbour: str, id: str) -> bool:
        """A neighbour knows an advertisement of others by itself; whether it had not been told."""
        entry, told = self.advertisements[id], self._told_advertisements[neighbour]
        if entry.hop == neighbour or (id in told and told.representative(id) == id):
            return False
        told.note_told(id, entry.filter)
        return True

    def matching_from(self, hop: str, values: Mapping[str, Value]) -> list[str]:
        """The subscriptions of a neighbour that a publication satisfies."""
        return [str(id) for id in self._matcher.match(values) if self.subscriptions[str(id)].hop == hop]

    def is_led(self, advertisement: str) -> bool:
        """Whether an advertisement only leads subscriptions to where a publisher will be."""
        return advertisement in self._led

    def is_subscription_told(self, neighbour: str, id: str) -> bool:
        """Whether a neighbour was told this very subscription, and not one that covers it."""
        told = self._told_subscriptions[neighbour]
        return id in told and told.representative(id) == id

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
        if subscription.hop == neighbour or neighbour not in self._only_for.get(subscription.id, self.neighbours):
            return False
        if self._twins:
            neighbour = self._twins.get(neighbour, neighbour)
            if not neighbour:
                return subscription.hop not in self.neighbours
            if subscription.hop == neighbour:
                return False
        return any(
            advertisement.hop == neighbour and advertisement.filter.intersects(subscription.filter)
            for advertisement in self.advertisements.values()
        )

    def _tell_advertisement(self, neighbour: str, entry: Entry) -> list[Say]:
        if entry.hop == self._twins.get(neighbour, neighbour) or self._twins.get(neighbour) == "":
            return []
        return self._say_advertisements(neighbour, self._told_advertisements[neighbour].add(entry.id, entry.filter))

    def _tell_subscription(self, neighbour: str, entry: Entry) -> list[Say]:
        told = self._told_subscriptions[neighbour]
        if entry.hop == self._twins.get(neighbour, neighbour) or entry.id in told:
            return []
        if neighbour not in self._only_for.get(entry.id, self.neighbours):
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
