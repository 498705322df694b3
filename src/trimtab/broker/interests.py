"""Advertisements and subscriptions come into force and end; their senders are told when they are in force everywhere.

The routing tables say to which neighbours each goes; here it is decided who may have one, what waits for whom, and when
it is confirmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from trimtab.broker.confirmations import Confirmations
from trimtab.broker.early import EarlyAdvertisements
from trimtab.broker.peers import Peer
from trimtab.broker.routing import Entry, Say
from trimtab.load.agents import ClientAdvertised, ClientSubscribed
from trimtab.matching.announcements import Announcements
from trimtab.protocol.messages import Advertise, Confirmed, Subscribe, Synced, Unadvertise, Unsubscribe

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Interests:
    """The filters of a broker's peers: what they announce and what they want."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        tables = broker.tables
        self._subscription_confirmations = Confirmations(tables.subscription_representatives)
        self._advertisement_confirmations = Confirmations(tables.advertisement_representatives)
        self._early = EarlyAdvertisements()
        self._unsynced: dict[str, None] = dict.fromkeys(broker.config.neighbours)
        """Neighbours that have not told all they know; nothing is in force as long as their publishers are unknown."""
        self._sync_told: dict[str, None] = {}
        self._held_confirmations: list[tuple[str, str]] = []

    def advertise(self, peer: Peer, message: Advertise, now_s: float) -> None:
        """A neighbour, client or agent advertises."""
        is_known = message.id in self._broker.tables.advertisements
        if self._broker.replacement is not None:
            self._broker.replacement.advertised(peer, message.filter, now_s)
            if is_known and self._broker.replacement.advertises_again(peer, message, now_s):
                return
        if is_known and peer.role == "broker":
            self._early.wait(peer.name, message)
            return
        if not self.may_add(peer, message.id, is_known, now_s):
            return
        self.install_advertisement(Entry(message.id, message.filter, peer.name), now_s)

    def install_advertisement(self, entry: Entry, now_s: float) -> None:
        """Put an advertisement into the tables and pass it on."""
        self._own_advertisement(entry, now_s)
        self.say(self._broker.tables.add_advertisement(entry), now_s)
        if self._broker.config.assists or self._advertisement_confirmations.begin(entry.id):
            self._confirm_advertisements([entry.id], now_s)

    def _own_advertisement(self, entry: Entry, now_s: float) -> None:
        peer = self._broker.peers[entry.hop]
        if peer.role == "client":
            peer.advertisements[entry.id] = None
            if peer.announcements is None:
                peer.announcements = Announcements()
            peer.announcements.add(entry.id, entry.filter)
            self._broker.tell_agents(ClientAdvertised(peer.name), now_s)

    def subscribe(self, peer: Peer, message: Subscribe, now_s: float) -> None:
        """A neighbour, client or agent subscribes."""
        if self._broker.replacement is not None and self._broker.replacement.subscribes_again(peer, message, now_s):
            return
        if not self.may_add(peer, message.id, message.id in self._broker.tables.subscriptions, now_s):
            return
        if peer.role == "client":
            peer.subscriptions[message.id] = message.within_s
        self.install_subscription(Entry(message.id, message.filter, peer.name), now_s)
        if self._broker.replacement is not None:
            self._broker.replacement.subscribed(peer, message, now_s)
        if peer.role == "client":
            self._broker.tell_agents(ClientSubscribed(peer.name), now_s)

    def install_subscription(self, entry: Entry, now_s: float) -> None:
        """Put a subscription into the tables and pass it on."""
        self.say(self._broker.tables.add_subscription(entry), now_s)
        if self._broker.config.assists or self._subscription_confirmations.begin(entry.id):
            self._confirm_subscriptions([entry.id], now_s)

    def unadvertise(self, peer: Peer, id: str, now_s: float) -> None:
        """A neighbour, client or agent ends an advertisement of its own."""
        if self._broker.replacement is not None:
            if self._broker.replacement.assistance.defers_end(peer, id):
                return
            self._broker.replacement.ended(peer, id)
        if self._owns(peer, self._broker.tables.advertisements.get(id), id, now_s):
            peer.advertisements.pop(id, None)
            if peer.announcements is not None:
                peer.announcements.discard(id)
            self.end_advertisement(id, now_s)
        else:
            self._early.withdraw(peer.name, id)

    def unsubscribe(self, peer: Peer, id: str, now_s: float) -> None:
        """A neighbour, client or agent ends a subscription of its own."""
        if self._broker.replacement is not None:
            self._broker.replacement.ended(peer, id)
        if self._owns(peer, self._broker.tables.subscriptions.get(id), id, now_s):
            self.end_subscription(peer, id, now_s)

    def end_advertisement(self, id: str, now_s: float) -> None:
        """An advertisement ends."""
        self._advertisement_confirmations.forget(id)
        entry = self._broker.tables.advertisements[id]
        self._say_ends([entry], self._broker.tables.remove_advertisement(id), now_s)
        self._advertise_early([id], now_s)

    def _say_ends(self, ended: Iterable[Entry], said: Sequence[Say], now_s: float) -> None:
        """Send that advertisements end, and remember for neighbours' replicas what they were."""
        self.say(said, now_s)
        if self._broker.replacement is not None:
            filters = {entry.id: entry.filter for entry in ended}
            for each in said:
                if isinstance(each.message, Unadvertise):
                    id = each.message.id
                    self._broker.replacement.withdrew(each.to, id, filters[id])

    def _advertise_early(self, ended_ids: Iterable[str], now_s: float) -> None:
        for neighbour, message in self._early.take(ended_ids):
            self.advertise(self._broker.peers[neighbour], message, now_s)

    def advertisement_turned(self, entry: Entry, came_from: str, now_s: float) -> None:
        """An advertisement in force comes from another side: it is in force behind the old one, and not told there."""
        confirmations = self._advertisement_confirmations
        if came_from in self._broker.tables.neighbours:
            self._confirm_advertisements(confirmations.confirm(came_from, entry.id), now_s)
        if entry.hop in self._broker.tables.neighbours:
            self._confirm_advertisements(confirmations.withdrawn(entry.hop, entry.id), now_s)

    def end_subscription(self, peer: Peer, id: str, now_s: float) -> None:
        """A subscription ends."""
        peer.subscriptions.pop(id, None)
        self._subscription_confirmations.forget(id)
        self.say(self._broker.tables.remove_subscription(id), now_s)

    def end_all_from(self, hop: str, now_s: float) -> None:
        """All that is in force for somebody ends."""
        tables = self._broker.tables
        for id in [entry.id for entry in tables.subscriptions.values() if entry.hop == hop]:
            self._subscription_confirmations.forget(id)
        ended = [entry for entry in tables.advertisements.values() if entry.hop == hop]
        for entry in ended:
            self._advertisement_confirmations.forget(entry.id)
        self._say_ends(ended, tables.remove_all_from(hop), now_s)
        self._advertise_early([entry.id for entry in ended], now_s)

    def may_add(self, peer: Peer, id: str, known: bool, now_s: float) -> bool:
        """Whether a peer may have another filter; it is told if not."""
        if known:
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

    def _owns(self, peer: Peer, entry: Entry | None, id: str, now_s: float) -> bool:
        if entry is not None and entry.hop == peer.name:
            return True
        if peer.role == "client":
            self._broker.refuse(peer, id, f"{id} is not an id of this client", now_s)
        return False

    # ---- what neighbours say of it ----

    def confirmed(self, neighbour: str, id: str, now_s: float) -> None:
        """An advertisement or subscription is in force at a neighbour and behind it."""
        self._confirm_advertisements(self._advertisement_confirmations.confirm(neighbour, id), now_s)
        self._confirm_subscriptions(self._subscription_confirmations.confirm(neighbour, id), now_s)

    def synced(self, neighbour: str, now_s: float) -> None:
        """A neighbour has told all it knows."""
        self._unsynced.pop(neighbour, None)
        self._sync(now_s)

    def neighbour_cut(self, neighbour: str, now_s: float) -> None:
        """A neighbour is gone with all it said: nothing waits for it any more."""
        self._broker.tables.cut_neighbour(neighbour)
        self.end_all_from(neighbour, now_s)
        self._confirm_advertisements(self._advertisement_confirmations.forget_neighbour(neighbour), now_s)
        self._confirm_subscriptions(self._subscription_confirmations.forget_neighbour(neighbour), now_s)

    def awaits_no_more(self, neighbour: str, now_s: float) -> None:
        """Nobody waits to be told what a neighbour that is gone knew."""
        self._unsynced.pop(neighbour, None)
        self._sync_told.pop(neighbour, None)
        self._sync(now_s)

    def forget_early(self, neighbour: str) -> None:
        """What a neighbour has advertised before its turn is void."""
        self._early.forget(neighbour)

    def _confirm_advertisements(self, ids: Iterable[str], now_s: float) -> None:
        for id in ids:
            entry = self._broker.tables.advertisements[id]
            if self._broker.replacement is None or not self._broker.replacement.holds_back(entry):
                self._confirm(entry, now_s)

    def _confirm_subscriptions(self, ids: Iterable[str], now_s: float) -> None:
        for id in ids:
            self._confirm(self._broker.tables.subscriptions[id], now_s)

    def _confirm(self, entry: Entry, now_s: float) -> None:
        """Tell the sender that it is in force; a neighbour that owes us its own part is not made to wait for itself.

        An assistant says what it knows itself; behind it those are asked whom the broker that it assists asks. To a
        replica it is said after it has told it again: routes for it are told in between.
        """
        if self._broker.replacement is not None and self._broker.replacement.is_unclaimed(entry):
            return
        if self._awaited_besides(entry.hop) and not self._broker.config.assists:
            self._held_confirmations.append((entry.hop, entry.id))
        else:
            self._broker.send(entry.hop, Confirmed(id=entry.id), now_s)

    def wait_for_sync(self, neighbour: str, now_s: float) -> None:
        """A neighbour has yet to tell all it knows, and to be told."""
        self._unsynced[neighbour] = None
        self._sync_told.pop(neighbour, None)
        self._sync(now_s)

    def _sync(self, now_s: float) -> None:
        """Tell each neighbour when all others have told what they know, and confirm what waited for that."""
        for peer in self._broker.peers.values():
            if peer.role == "broker" and peer.name not in self._sync_told and not self._awaited_besides(peer.name):
                self._sync_told[peer.name] = None
                self._broker.send(peer.name, Synced(), now_s)
        tables = self._broker.tables
        held, self._held_confirmations = self._held_confirmations, []
        for hop, id in held:  # asked anew, for a neighbour may have been told of them meanwhile
            subscription, advertisement = tables.subscriptions.get(id), tables.advertisements.get(id)
            if subscription is not None and subscription.hop == hop and self._subscription_confirmations.begin(id):
                self._confirm(subscription, now_s)
            if advertisement is not None and advertisement.hop == hop and self._advertisement_confirmations.begin(id):
                self._confirm(advertisement, now_s)

    def _awaited_besides(self, neighbour: str) -> bool:
        return any(name != neighbour for name in self._unsynced)

    def say(self, said: Iterable[Say], now_s: float) -> None:
        """Send what the routing tables say; what ends at a neighbour may settle what waited for it there."""
        for each in said:
            self._broker.send(each.to, each.message, now_s)
            if isinstance(each.message, Unsubscribe):
                settled = self._subscription_confirmations.withdrawn(each.to, each.message.id)
                self._confirm_subscriptions(settled, now_s)
            elif isinstance(each.message, Unadvertise):
                settled = self._advertisement_confirmations.withdrawn(each.to, each.message.id)
                self._confirm_advertisements(settled, now_s)

    # ---- earlier lives of neighbours and of this broker ----

    def confirm_advertisement_again(self, id: str, now_s: float) -> None:
        """A neighbour tells again what it told before: say whether it is in force."""
        self._advertisement_confirmations.forget(id)
        if self._advertisement_confirmations.begin(id):
            self._confirm_advertisements([id], now_s)

    def confirm_subscription_again(self, id: str, now_s: float) -> None:
        """A neighbour tells again what it told before: say whether it is in force."""
        self._subscription_confirmations.forget(id)
        if self._subscription_confirmations.begin(id):
            self._confirm_subscriptions([id], now_s)

    def claim_advertisement(self, entry: Entry, peer: Peer, now_s: float) -> None:
        """An advertisement that was kept in force belongs to this peer."""
        claimed = msgspec.structs.replace(entry, hop=peer.name)
        self.say(self._broker.tables.turn(claimed, entry.hop, ""), now_s)
        self._own_advertisement(claimed, now_s)
        if entry.hop in self._broker.tables.neighbours:  # which keeps it for the absent, until it hears where they are
            self._broker.send(entry.hop, Advertise(id=entry.id, filter=entry.filter), now_s)
        if peer.role == "broker":
            self._confirm_advertisements(self._advertisement_confirmations.withdrawn(peer.name, entry.id), now_s)
        self.confirm_advertisement_again(entry.id, now_s)

    def claim_subscription(self, entry: Entry, peer: Peer, message: Subscribe, now_s: float) -> None:
        """A subscription that was kept in force belongs to this peer."""
        if peer.role == "client":
            peer.subscriptions[entry.id] = message.within_s
        self.say(self._broker.tables.claim_subscription(msgspec.structs.replace(entry, hop=peer.name)), now_s)
        self.confirm_subscription_again(entry.id, now_s)
