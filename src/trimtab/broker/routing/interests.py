"""Advertisements and subscriptions come into force and end; their senders are told when they are in force everywhere.

The routing tables say to which neighbours each goes; here it is decided who may have one, what waits for whom, and when
it is confirmed. What is said again, in a new epoch of a link or by a client that moves, counts once and is answered
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from trimtab.broker.peers import ON_DISK, Peer
from trimtab.broker.routing.confirmations import Confirmations, Key
from trimtab.broker.routing.tables import Route, Say
from trimtab.language import Filter
from trimtab.matching.announcements import Announcements
from trimtab.policies.api import ClientAdvertised, ClientSubscribed
from trimtab.protocol.messages import (
    Advertise,
    Confirmed,
    KnownAdvertisement,
    KnownSubscription,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)

if TYPE_CHECKING:
    from trimtab.broker.core import Broker

EARLIER: Final = 0
"""The link epoch of what a client has told an earlier incarnation of this broker."""

_TOLD_OF_MIN_COUNT: Final = 64
"""Ended advertisements are looked through when there are more than this, and twice as many as were left last time."""


class Interests:
    """The filters of a broker's peers: what they announce and what they want."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tables = tables = broker.tables
        self._subscription_confirmations = Confirmations(tables.subscription_representatives)
        self._advertisement_confirmations = Confirmations(tables.advertisement_representatives)
        self._held: dict[tuple[str, Key], None] = {}
        """Confirmations that wait until neighbours have told what they know: their kind and their keys."""
        self._told_of_max_count: dict[str, int] = {}

    # ---- advertisements ----

    def advertise(self, peer: Peer, message: Advertise, now_s: float) -> None:
        """A neighbour, client or agent advertises, perhaps again."""
        if peer.rights is not None:
            permitted = self._broker.entitlements.permitted_advertisement(peer, message, now_s)
            if permitted is None:
                return
            message = permitted
        known = self._tables.advertisements.get(message.id)
        if not self._may_have(peer, message.id, message.filter, known, now_s):
            return
        self.install_advertisement(peer, message.id, message.filter, now_s, message.number)

    def install_advertisement(self, peer: Peer, id: str, filter: Filter, now_s: float, number: int = 0) -> None:
        """Put an advertisement into the tables, pass it on, and answer when it is in force."""
        broker = self._broker
        if peer.role == "client":
            peer.advertisements[id] = None
            if peer.announcements is None:
                peer.announcements = Announcements()
            peer.announcements.add(id, filter)
            broker.records.advertised(peer, KnownAdvertisement(id, filter), now_s)
            broker.agents.tell_all(ClientAdvertised(peer.name), now_s)
        self.say(self._tables.add_advertisement(id, filter, peer.name, peer.epoch, number), now_s)
        if broker.config.assists or self._advertisement_confirmations.begin((id, peer.name)):
            self._confirm("advertisement", (id, peer.name), now_s)

    def unadvertise(self, peer: Peer, message: Unadvertise, now_s: float, *, is_stale: bool = False) -> None:
        """A neighbour, client or agent ends an advertisement of its own, as far as it has told it up to a number.

        What was said in an earlier epoch of the link does not end what was told again since.
        """
        id = message.id
        route = self._tables.advertisements.get(id)
        if not self._owns(peer, route, id, now_s) or route is None:
            return
        if is_stale and route.hops[peer.name] == peer.epoch:
            return
        if not is_stale and route.numbers.get(peer.name, 0) > message.number:
            return
        if not is_stale and self._may_have_forgotten(peer) and not self._broker.takeover.is_synced(peer.name):
            route.hops[peer.name] = EARLIER
        else:
            self.end_advertisement(peer, id, now_s)

    def _may_have_forgotten(self, peer: Peer) -> bool:
        """Whether a neighbour does not know all yet: others of its side may tell it again what it ends now.

        Then what it ends counts as told in an earlier epoch, and ends when it has told all.
        """
        return self._broker.takeover.is_being_told(peer.name)

    def end_advertisement(self, peer: Peer, id: str, now_s: float) -> None:
        """An advertisement comes from a peer no more."""
        if peer.role == "client":
            peer.advertisements.pop(id, None)
            if peer.announcements is not None:
                peer.announcements.discard(id)
            if self._broker.safe is not None and not peer.is_leaving:
                known = KnownAdvertisement(id, self._tables.advertisements[id].filter)
                self._broker.safe.advertisement_ended(peer, known, now_s)
            self._broker.records.ended(peer, id, now_s)
            self._broker.gaps.announces_less(peer.name)
        self._end_advertisement(peer.name, id, now_s)

    def _end_advertisement(self, hop: str, id: str, now_s: float) -> None:
        self._advertisement_confirmations.forget((id, hop))
        filter = self._tables.advertisements[id].filter
        self.say(self._tables.remove_advertisement(id, hop), now_s, filter)

    # ---- subscriptions ----

    def subscribe(self, peer: Peer, message: Subscribe, now_s: float) -> None:
        """A neighbour, client or agent subscribes, perhaps again."""
        if peer.rights is not None:
            permitted = self._broker.entitlements.permitted_subscription(peer, message, now_s)
            if permitted is None:
                return
            message = permitted
        known = self._tables.subscriptions.get(message.id)
        if not self._may_have(peer, message.id, message.filter, known, now_s):
            return
        self._install_subscription(peer, message, now_s)
        self._broker.takeover.subscribed(peer, message.id, message.filter, now_s)
        if peer.role == "client":
            self._broker.agents.tell_all(ClientSubscribed(peer.name), now_s)

    def _install_subscription(self, peer: Peer, message: Subscribe, now_s: float) -> None:
        """Put a subscription into the tables, pass it on, and answer when it is in force."""
        id, filter, within_s = message.id, message.filter, message.within_s
        if peer.role == "client":
            peer.subscriptions[id] = within_s
            self._broker.records.subscribed(peer, KnownSubscription(id, filter, within_s), now_s)
        self.say(self._tables.add_subscription(id, filter, peer.name, peer.epoch, message.number), now_s)
        if self._broker.config.assists or self._subscription_confirmations.begin((id, peer.name)):
            self._confirm("subscription", (id, peer.name), now_s)

    def unsubscribe(self, peer: Peer, id: str, now_s: float) -> None:
        """A neighbour, client or agent ends a subscription of its own."""
        route = self._tables.subscriptions.get(id)
        if not self._owns(peer, route, id, now_s) or route is None:
            return
        if self._may_have_forgotten(peer):
            route.hops[peer.name] = EARLIER
        else:
            self.end_subscription(peer, id, now_s)

    def end_subscription(self, peer: Peer, id: str, now_s: float) -> None:
        """A subscription comes from a peer no more."""
        peer.subscriptions.pop(id, None)
        if peer.role == "client":
            self._broker.records.ended(peer, id, now_s)
        self._end_subscription(peer.name, id, now_s)

    def _end_subscription(self, hop: str, id: str, now_s: float) -> None:
        self._subscription_confirmations.forget((id, hop))
        self.say(self._tables.remove_subscription(id, hop), now_s)

    def is_in_force(self, id: str, hop: str) -> bool:
        """Whether a subscription from there is known, and all neighbours that must know it do."""
        route = self._tables.subscriptions.get(id)
        return route is not None and hop in route.hops and not self._subscription_confirmations.awaits((id, hop))

    # ---- clients of an earlier incarnation ----

    def restore_advertisement(self, peer: Peer, known: KnownAdvertisement, now_s: float) -> None:
        """A client had this advertisement; it tells it again when it comes back, or it ends."""
        route = self._tables.advertisements.get(known.id)
        if route is not None and peer.name in route.hops:
            return
        peer.advertisements[known.id] = None
        if peer.announcements is None:
            peer.announcements = Announcements()
        peer.announcements.add(known.id, known.filter)
        self.say(self._tables.add_advertisement(known.id, known.filter, peer.name, EARLIER), now_s)

    def restore_subscription(self, peer: Peer, known: KnownSubscription, now_s: float) -> None:
        """A client had this subscription; it tells it again when it comes back, or it ends."""
        route = self._tables.subscriptions.get(known.id)
        if route is not None and peer.name in route.hops:
            return
        peer.subscriptions[known.id] = known.within_s
        self.say(self._tables.add_subscription(known.id, known.filter, peer.name, EARLIER), now_s)

    # ---- many at once ----

    def end_all_of(self, peer: Peer, now_s: float) -> None:
        """All that a peer has said ends."""
        for id in self._tables.ids_from(self._tables.subscriptions, peer.name):
            self.end_subscription(peer, id, now_s)
        for id in self._tables.ids_from(self._tables.advertisements, peer.name):
            self.end_advertisement(peer, id, now_s)

    def end_all_from(self, hop: str, now_s: float) -> None:
        """All that came from somebody who is gone ends."""
        for id in self._tables.ids_from(self._tables.subscriptions, hop):
            self._end_subscription(hop, id, now_s)
        for id in self._tables.ids_from(self._tables.advertisements, hop):
            self._end_advertisement(hop, id, now_s)

    def end_from(self, hop: str, id: str, now_s: float) -> None:
        """An advertisement ends that came from somebody who is gone, if it does still."""
        route = self._tables.advertisements.get(id)
        if route is not None and hop in route.hops:
            self._end_advertisement(hop, id, now_s)

    def sweep_subscriptions(self, peer: Peer, now_s: float) -> None:
        """A peer has told all it knows: subscriptions that it told in earlier epochs and not again, end."""
        for id in self._tables.told_before(self._tables.subscriptions, peer.name, peer.epoch):
            self.end_subscription(peer, id, now_s)

    def sweep_advertisements(self, peer: Peer, now_s: float) -> None:
        """The same for advertisements."""
        for id in self._tables.told_before(self._tables.advertisements, peer.name, peer.epoch):
            self.end_advertisement(peer, id, now_s)

    def begin_epoch(self, peer: Peer, now_s: float) -> None:
        """A link to a neighbour has begun, or begins anew: tell it all that it must know, and ask it everything again.

        Advertisements whose end it may not have heard are told as well, for the end stands behind what follows.
        """
        self._advertisement_confirmations.begin_epoch(peer.name)
        self._subscription_confirmations.begin_epoch(peer.name)
        self.say(self._tables.add_neighbour(peer.name, peer.epoch), now_s)
        self._look_through(peer)
        for id, filter in peer.told_of.items():
            if not self._tables.is_advertisement_told(peer.name, id):
                self._broker.send(peer.name, Advertise(id=id, filter=filter), now_s)  # number 0: any end is later
        self._confirm_all("advertisement", self._advertisement_confirmations.forget_neighbour(peer.name), now_s)
        self._confirm_all("subscription", self._subscription_confirmations.forget_neighbour(peer.name), now_s)

    def neighbour_cut(self, neighbour: str, now_s: float) -> None:
        """A neighbour is gone with all it said: nothing waits for it any more."""
        self._tables.cut_neighbour(neighbour)
        self._advertisement_confirmations.begin_epoch(neighbour)
        self._subscription_confirmations.begin_epoch(neighbour)
        self._told_of_max_count.pop(neighbour, None)
        self.end_all_from(neighbour, now_s)
        self._confirm_all("advertisement", self._advertisement_confirmations.forget_neighbour(neighbour), now_s)
        self._confirm_all("subscription", self._subscription_confirmations.forget_neighbour(neighbour), now_s)

    # ---- who may have what ----

    def _may_have(self, peer: Peer, id: str, filter: Filter, known: Route | None, now_s: float) -> bool:
        """Whether a filter is new, or is said again; a client's own filters are not another's."""
        if peer.is_leaving:
            return False
        if known is None:
            return self.may_add(peer, id, False, now_s)
        if peer.name in known.hops:
            return known.filter == filter or self.may_add(peer, id, True, now_s)
        is_others = peer.role != "broker" and any(self._is_anothers(hop, peer) for hop in known.hops)
        return self.may_add(peer, id, is_others or known.filter != filter, now_s)

    def _is_anothers(self, hop: str, peer: Peer) -> bool:
        """Whether a direction is another client's; what is on the disk of this one is its own."""
        known = self._broker.peers.get(hop)
        return known is None or (known.role != "broker" and hop != ON_DISK + peer.name)

    def may_add(self, peer: Peer, id: str, is_taken: bool, now_s: float) -> bool:
        """Whether a peer may have another filter; it is told if not."""
        if is_taken:
            self._broker.refuse(peer, id, f"the id {id} is already in use", now_s)
            return False
        if peer.role == "client":
            count = len(peer.advertisements) + len(peer.subscriptions)
            if self._broker.channels is not None:
                count += self._broker.channels.count_of(peer.name)
            max_count = self._broker.config.filters_per_client_max_count
            if count >= max_count:
                self._broker.refuse(peer, id, f"a client may have at most {max_count:,} filters", now_s)
                return False
        return True

    def _owns(self, peer: Peer, route: Route | None, id: str, now_s: float) -> bool:
        if route is not None and peer.name in route.hops:
            return True
        if peer.role == "client" and not peer.is_leaving:
            self._broker.refuse(peer, id, f"{id} is not an id of this client", now_s)
        return False

    # ---- confirmations ----

    def confirmed(self, neighbour: str, message: Confirmed, now_s: float) -> None:
        """An advertisement or subscription is in force at a neighbour and behind it."""
        for kind, confirmations in (
            ("advertisement", self._advertisement_confirmations),
            ("subscription", self._subscription_confirmations),
        ):
            self._confirm_all(kind, confirmations.confirm(neighbour, message.id, message.number), now_s)

    def _confirm_all(self, kind: str, keys: Iterable[Key], now_s: float) -> None:
        for key in keys:
            self._confirm(kind, key, now_s)

    def _confirm(self, kind: str, key: Key, now_s: float) -> None:
        """Tell the sender that it is in force; a neighbour that owes us its own part is not made to wait for itself.

        What was asked in an earlier epoch of a link is asked again in this one. An assistant says what it knows itself;
        behind it those are asked whom the broker that it assists asks.
        """
        broker = self._broker
        id, hop = key
        table = self._tables.subscriptions if kind == "subscription" else self._tables.advertisements
        peer, route = broker.peers.get(hop), table.get(id)
        if peer is None or route is None or route.hops.get(hop) != peer.epoch:
            return
        if broker.takeover.must_wait_to_confirm(hop) and not broker.config.assists:
            self._held[kind, key] = None
        elif peer.role == "client":
            narrowed = peer.narrowed.get(id)
            broker.records.say(hop, Confirmed(id=id, number=route.numbers.get(hop, 0), narrowed=narrowed), now_s)
        else:
            broker.send(hop, Confirmed(id=id, number=route.numbers.get(hop, 0)), now_s)

    def confirm_held(self, now_s: float) -> None:
        """Neighbours have told more: confirm what waited for that; a neighbour may have been told of it meanwhile."""
        held, self._held = self._held, {}
        for kind, key in held:
            if kind == "subscription":
                is_there = key[0] in self._tables.subscriptions and key[1] in self._tables.subscriptions[key[0]].hops
                confirmations = self._subscription_confirmations
            else:
                is_there = key[0] in self._tables.advertisements and key[1] in self._tables.advertisements[key[0]].hops
                confirmations = self._advertisement_confirmations
            if is_there and confirmations.begin(key):
                self._confirm(kind, key, now_s)

    # ---- what neighbours are told ----

    def say(self, said: Iterable[Say], now_s: float, ended: Filter | None = None) -> None:
        """Send what the routing tables say; what ends at a neighbour may settle what waited for it there."""
        for each in said:
            self._broker.send(each.to, each.message, now_s)
            if isinstance(each.message, Subscribe):
                self._subscription_confirmations.told(each.to, each.message.id, each.message.number)
            elif isinstance(each.message, Advertise):
                self._advertisement_confirmations.told(each.to, each.message.id, each.message.number)
            elif isinstance(each.message, Unsubscribe):
                settled = self._subscription_confirmations.withdrawn(each.to, each.message.id)
                self._confirm_all("subscription", settled, now_s)
            elif isinstance(each.message, Unadvertise):
                self._note_end(each.to, each.message.id, ended)
                settled = self._advertisement_confirmations.withdrawn(each.to, each.message.id)
                self._confirm_all("advertisement", settled, now_s)

    def _note_end(self, neighbour: str, id: str, ended: Filter | None) -> None:
        """Keep the filter of an ended advertisement: the neighbour may lose its memory before it hears of the end."""
        peer, route = self._broker.peers.get(neighbour), self._tables.advertisements.get(id)
        filter = ended if route is None else route.filter
        if peer is None or filter is None:
            return
        peer.told_of[id] = filter
        if len(peer.told_of) > self._told_of_max_count.get(neighbour, _TOLD_OF_MIN_COUNT):
            self._look_through(peer)

    def _look_through(self, peer: Peer) -> None:
        """Forget ended advertisements whose end a neighbour has heard."""
        if not peer.told_of:
            return
        waiting = {each.id for each in (*peer.link.undelivered_data(), *peer.queue) if isinstance(each, Unadvertise)}
        peer.told_of = {id: filter for id, filter in peer.told_of.items() if id in waiting}
        self._told_of_max_count[peer.name] = max(_TOLD_OF_MIN_COUNT, 2 * len(peer.told_of))
