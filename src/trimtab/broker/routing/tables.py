"""Routing tables: which advertisements and subscriptions came from where, and what must be said to whom about them.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 2.1.3.

Advertisements flood; a subscription follows the reverse path of the advertisements that it intersects; a publication
follows the reverse path of the subscriptions that it matches. A neighbour is not told of a subscription that another
one it was told of covers; when the covering one leaves, what it covered is told before its end is.

A filter is known by its id, from one or more directions: while its client moves it comes from the old broker and from
the new one. A neighbour is told of it once, as long as it comes from any direction but that neighbour's. So a move
changes the tables along its path and nowhere else, and nothing has to be renamed or turned.

Deviations: advertisements may be covered too (an advertisement covers another if it announces all that the other does).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, cast

import msgspec

from trimtab.broker.routing.forwarding import (
    CoveredAdvertisements,
    CoveredSubscriptions,
    Everything,
    ForwardingSet,
)
from trimtab.language import Filter, Value
from trimtab.matching import CoveringChange, Matcher
from trimtab.protocol.messages import CONTROL_CLASSES, Advertise, AnyMessage, Subscribe, Unadvertise, Unsubscribe

_CONTROL_ONLY: Final = tuple(Filter.where({"class": each}).constraints["class"] for each in CONTROL_CLASSES)


class Route:
    """A filter in a routing table and the neighbours, clients and agents that it came from."""

    __slots__ = ("filter", "hops", "id", "numbers")

    def __init__(self, id: str, filter: Filter) -> None:
        self.id = id
        self.filter = filter
        self.hops: dict[str, int] = {}
        """The directions, each with the link epoch in which it was told last."""
        self.numbers: dict[str, int] = {}
        """The number under which each direction has told it last, if it gave one."""

    def comes_from_other_than(self, hop: str) -> bool:
        """Whether it has a direction besides this one."""
        return len(self.hops) > 1 or hop not in self.hops


class Say(msgspec.Struct, frozen=True):
    """A message for a neighbour."""

    to: str
    message: AnyMessage


class RoutingTables:
    """One broker's tables: advertisements (for routing subscriptions) and subscriptions (for routing publications)."""

    def __init__(self, *, subscription_covering: bool = True, advertisement_covering: bool = True) -> None:
        self._subscription_covering = subscription_covering
        self._advertisement_covering = advertisement_covering
        self.advertisements: dict[str, Route] = {}
        self.subscriptions: dict[str, Route] = {}
        self.neighbours: dict[str, int] = {}
        """Each with the epoch of the link to it."""
        self._matcher: Matcher = Matcher()
        self._control: Matcher = Matcher()
        """Subscriptions that only control publications can satisfy, so that others are not matched against them."""
        self._control_ids: set[str] = set()
        self._told_advertisements: dict[str, ForwardingSet] = {}
        self._told_subscriptions: dict[str, ForwardingSet] = {}
        self._told_number = 0
        self._twins: dict[str, str] = {}
        """Assistants: each is told what the neighbour that it assists is told, or if it assists us, of our clients."""

    # ---- neighbours ----

    def add_neighbour(self, name: str, epoch: int = 1) -> list[Say]:
        """A link to a neighbour appears, or a new epoch of it begins: it is told every advertisement that it must know.

        What came from it in earlier epochs stays until its end, but pulls nothing before it is told again.
        """
        self.neighbours[name] = epoch
        self._told_advertisements[name] = CoveredAdvertisements() if self._advertisement_covering else Everything()
        self._told_subscriptions[name] = CoveredSubscriptions() if self._subscription_covering else Everything()
        said: list[Say] = []
        for route in self.advertisements.values():
            said.extend(self._tell_advertisement(name, route))
        return said

    def add_twin(self, name: str, assisted: str) -> list[Say]:
        """A link to an assistant of a neighbour, or of this broker itself (""), appears: it is told all at once."""
        self._twins[name] = assisted
        said = self.add_neighbour(name)
        for route in list(self.subscriptions.values()):
            if self._is_wanted(name, route):
                said.extend(self._tell_subscription(name, route))
        return said

    def _twins_of(self, hop: str) -> list[str]:
        """A neighbour and its assistant."""
        return [hop, *(name for name, assisted in self._twins.items() if assisted == hop)]

    def cut_neighbour(self, name: str) -> None:
        """Tell a neighbour nothing more; what came from it stays until `remove_all_from`."""
        del self.neighbours[name]
        self._twins.pop(name, None)
        del self._told_advertisements[name]
        del self._told_subscriptions[name]

    def remove_all_from(self, hop: str) -> list[Say]:
        """All that came from a neighbour or client ends."""
        return self._remove(hop, self.ids_from(self.subscriptions, hop), self.ids_from(self.advertisements, hop))

    @staticmethod
    def told_before(table: Mapping[str, Route], hop: str, epoch: int) -> list[str]:
        """The ids of what a direction has told before an epoch, and not since."""
        return [route.id for route in table.values() if route.hops.get(hop, epoch) < epoch]

    def _remove(self, hop: str, subscriptions: Iterable[str], advertisements: Iterable[str]) -> list[Say]:
        said: list[Say] = []
        for id in subscriptions:
            said.extend(self.remove_subscription(id, hop))
        for id in advertisements:
            said.extend(self.remove_advertisement(id, hop))
        return said

    @staticmethod
    def ids_from(table: Mapping[str, Route], hop: str) -> list[str]:
        """The ids of what came from a direction."""
        return [route.id for route in table.values() if hop in route.hops]

    # ---- advertisements ----

    def add_advertisement(self, id: str, filter: Filter, hop: str, epoch: int = 1, number: int = 0) -> list[Say]:
        """Note that an advertisement comes from there, pass it on, and pull the subscriptions that it intersects."""
        route = self.advertisements.get(id)
        if route is None:
            route = self.advertisements[id] = Route(id, filter)
        route.hops[hop] = epoch
        route.numbers[hop] = number
        said: list[Say] = []
        for neighbour in self.neighbours:
            said.extend(self._tell_advertisement(neighbour, route))
        return [*said, *self._pull(route, hop)]

    def remove_advertisement(self, id: str, hop: str) -> list[Say]:
        """An advertisement comes from there no more; subscriptions that no other one pulls there end there."""
        route = self.advertisements[id]
        del route.hops[hop]
        route.numbers.pop(hop, None)
        if not route.hops:
            del self.advertisements[id]
        said: list[Say] = []
        for neighbour, told in self._told_advertisements.items():
            if id in told and not self._is_to_tell(neighbour, route):
                said.extend(self._say_advertisements(neighbour, told.remove(id)))
        return [*said, *self._push_back(hop)]

    def _pull(self, route: Route, hop: str) -> list[Say]:
        """Tell the neighbour that an advertisement comes from of the subscriptions that it intersects."""
        said: list[Say] = []
        if hop in self.neighbours:
            for subscription in list(self.subscriptions.values()):
                if route.filter.intersects(subscription.filter):
                    for neighbour in self._twins_of(hop):
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

    # ---- subscriptions ----

    def add_subscription(self, id: str, filter: Filter, hop: str, epoch: int = 1, number: int = 0) -> list[Say]:
        """Note that a subscription comes from there, and pass it towards the advertisements that it intersects."""
        route = self.subscriptions.get(id)
        if route is None:
            route = self.subscriptions[id] = Route(id, filter)
            if filter.constraints.get("class") in _CONTROL_ONLY:
                self._control_ids.add(id)
        if hop not in route.hops:
            self._index_of(id).add((id, hop), filter, hop)
        route.hops[hop] = epoch
        route.numbers[hop] = number
        said: list[Say] = []
        for neighbour in self.neighbours:
            if self._is_wanted(neighbour, route):
                said.extend(self._tell_subscription(neighbour, route))
        return said

    def remove_subscription(self, id: str, hop: str) -> list[Say]:
        """A subscription comes from there no more; what it covered is told before its end is."""
        route = self.subscriptions[id]
        del route.hops[hop]
        route.numbers.pop(hop, None)
        self._index_of(id).remove((id, hop))
        if not route.hops:
            del self.subscriptions[id]
            self._control_ids.discard(id)
        said: list[Say] = []
        for neighbour, told in self._told_subscriptions.items():
            if id in told and not (route.hops and self._is_wanted(neighbour, route)):
                said.extend(self._say_subscriptions(neighbour, told.remove(id)))
        return said

    # ---- questions ----

    def matching_from(self, hop: str, values: Mapping[str, Value]) -> list[str]:
        """The subscriptions of a neighbour that a publication satisfies."""
        keys = cast(Iterable[tuple[str, str]], self._matcher.match(values))
        if values.get("class") in CONTROL_CLASSES:
            keys = [*keys, *cast(Iterable[tuple[str, str]], self._control.match(values))]
        return [id for id, came_from in keys if came_from == hop]

    def hops_for(self, values: Mapping[str, Value]) -> list[str]:
        """The neighbours and clients that want a publication, each once, in a defined order."""
        hops = cast(list[str], self._matcher.match_groups(values))
        if values.get("class") in CONTROL_CLASSES:
            others = cast(list[str], self._control.match_groups(values))
            return list(dict.fromkeys([*others, *hops]))
        return hops

    @property
    def matched_count(self) -> int:
        """The subscriptions that a client's publication is matched against: all but those to control publications."""
        return len(self.subscriptions) - len(self._control_ids)

    def _index_of(self, id: str) -> Matcher:
        return self._control if id in self._control_ids else self._matcher

    def subscription_representatives(self, key: tuple[str, str]) -> list[tuple[str, str]]:
        """For each neighbour that must know of a direction's subscription: it, and the id told in its place."""
        id, hop = key
        told = self._told_subscriptions
        return [(name, each.representative(id)) for name, each in told.items() if id in each and name != hop]

    def advertisement_representatives(self, key: tuple[str, str]) -> list[tuple[str, str]]:
        """For each neighbour that must know of a direction's advertisement: it, and the id told in its place."""
        id, hop = key
        told = self._told_advertisements
        return [(name, each.representative(id)) for name, each in told.items() if id in each and name != hop]

    def told_to(self, neighbour: str) -> tuple[list[str], list[str]]:
        """The advertisements and the subscriptions that a neighbour was told."""
        return self._told_advertisements[neighbour].told(), self._told_subscriptions[neighbour].told()

    def is_advertisement_told(self, neighbour: str, id: str) -> bool:
        """Whether a neighbour was told of this very advertisement, and not of one that covers it."""
        told = self._told_advertisements[neighbour]
        return id in told and told.representative(id) == id

    # ---- who is told what ----

    def _is_to_tell(self, neighbour: str, route: Route) -> bool:
        """Whether a neighbour must know of an advertisement: it comes from another direction than from there."""
        if not self._twins:
            return bool(route.hops) and route.comes_from_other_than(neighbour)
        assisted = self._twins.get(neighbour, neighbour)
        return bool(assisted) and any(hop not in (assisted, neighbour) for hop in route.hops)

    def _is_wanted(self, neighbour: str, subscription: Route) -> bool:
        if not self._comes_from_elsewhere(neighbour, subscription):
            return False
        if self._twins:
            neighbour = self._twins.get(neighbour, neighbour)
            if not neighbour:
                return True
        epoch = self.neighbours.get(neighbour)
        return any(
            advertisement.hops.get(neighbour) == epoch and advertisement.filter.intersects(subscription.filter)
            for advertisement in self.advertisements.values()
        )

    def _comes_from_elsewhere(self, neighbour: str, subscription: Route) -> bool:
        """Whether a subscription comes from another direction than a neighbour's, or for our assistant from clients."""
        if not self._twins:
            return subscription.comes_from_other_than(neighbour)
        assisted = self._twins.get(neighbour, neighbour)
        if not assisted:
            return any(hop not in self.neighbours for hop in subscription.hops)
        return any(hop not in (neighbour, assisted) for hop in subscription.hops)

    def _tell_advertisement(self, neighbour: str, route: Route) -> list[Say]:
        told = self._told_advertisements[neighbour]
        if route.id in told or not self._is_to_tell(neighbour, route):
            return []
        return self._say_advertisements(neighbour, told.add(route.id, route.filter))

    def _tell_subscription(self, neighbour: str, route: Route) -> list[Say]:
        told = self._told_subscriptions[neighbour]
        if route.id in told or not self._comes_from_elsewhere(neighbour, route):
            return []
        return self._say_subscriptions(neighbour, told.add(route.id, route.filter))

    def _say_advertisements(self, neighbour: str, change: CoveringChange) -> list[Say]:
        said = [self._say_advertisement(neighbour, self.advertisements[id]) for id in _ids(change.entered)]
        return [*said, *(Say(neighbour, Unadvertise(id=id, number=self._told_number)) for id in _ids(change.left))]

    def _say_advertisement(self, neighbour: str, route: Route) -> Say:
        self._told_number += 1
        return Say(neighbour, Advertise(id=route.id, filter=route.filter, number=self._told_number))

    def _say_subscription(self, neighbour: str, route: Route) -> Say:
        self._told_number += 1
        return Say(neighbour, Subscribe(id=route.id, filter=route.filter, number=self._told_number))

    def _say_subscriptions(self, neighbour: str, change: CoveringChange) -> list[Say]:
        said = [self._say_subscription(neighbour, self.subscriptions[id]) for id in _ids(change.entered)]
        return [*said, *(Say(neighbour, Unsubscribe(id=id)) for id in _ids(change.left))]


def _ids(keys: Iterable[Hashable]) -> list[str]:
    return [str(key) for key in keys]
