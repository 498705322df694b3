"""What a broker does that replaces an earlier life of itself, until all have found their way to it.

Routing state that no neighbour has told again belongs to clients of the earlier life, or ended with it. It stays in
force for a while under a name that is no client's; a client that returns claims what is its own. Publications that
pass meanwhile are kept, for a client gets them when it has said all it wants, in their order and before all others.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Final

from trimtab.broker.peers import Peer
from trimtab.broker.routing import Entry
from trimtab.protocol.effects import Effect
from trimtab.protocol.frames import Hello
from trimtab.protocol.link import Link
from trimtab.protocol.messages import (
    Advertise,
    KnownFilter,
    Publish,
    Unadvertise,
    Unclaimed,
    Unsubscribe,
    one_hop_further,
)
from trimtab.replication.config import ReplicationConfig
from trimtab.replication.kept import KeptPublications

if TYPE_CHECKING:
    from trimtab.broker.core import Broker
    from trimtab.language import Filter

ABSENT: Final = "#absent"
"""Where routes of clients lead that have not returned; no peer can have this name."""


class ReplicaDuties:
    """A replica's duties towards clients of the broker that it replaces, and towards late subscriptions."""

    def __init__(self, broker: Broker, config: ReplicationConfig) -> None:
        self._broker = broker
        self._config = config
        self._kept = KeptPublications(config.kept_max_count)
        self._returning: dict[str, None] = {}
        self._held_back: dict[str, None] = {}
        self._unclaimed: dict[KnownFilter, list[str]] = {}
        """Subscriptions that nobody has told, and the neighbours that know them."""
        self._unclaimed_due: dict[str, None] = {}
        """Neighbours that have yet to say what nobody has told."""
        self._ends_s: float | None = None
        self._waits_for_those_who_came = False
        self.is_complete = False
        """Whether all neighbours have told what they know."""
        self.is_over = False
        """Whether all who may return have had the time for it."""
        absent = Peer(ABSENT, "agent", broker.config.session, Link(broker.config.link), sys.maxsize)
        absent.queue = deque(maxlen=0)
        broker.peers[ABSENT] = absent
        self._route = broker.on_publication
        broker.on_publication = self._publication
        self._told_all: dict[str, None] = {}
        """Neighbours that have told all their subscriptions."""
        if broker.config.replica == "incremental-ordered":
            broker.choose_hops = self._add_those_who_may_want_it
        if broker.safe is not None:
            broker.safe.expect(self._is_wanted_by_absent)

    @property
    def kept_count(self) -> int:
        """Publications that are kept."""
        return len(self._kept)

    # ---- publications ----

    def _publication(self, source: str, message: Publish, now_s: float) -> list[Effect]:
        """Route a publication as ever, and keep it."""
        broker = self._broker
        before_count = broker.counters.publications_in_count
        hops = broker.tables.hops_for(message.values)
        if broker.choose_hops is not None:
            hops = broker.choose_hops(source, hops)
        effects = self._route(source, message, now_s)
        is_kept = self.is_complete or broker.config.replica != "basic"
        if is_kept and broker.counters.publications_in_count > before_count:
            self._kept.add(message, source, hops)
        return effects

    def _is_wanted_by_absent(self, message: Publish) -> bool:
        """Whether a client may want a publication that has yet to come back, or to say all it wants."""
        if self.is_over:
            return False
        if not self.is_complete or self._unclaimed_due:
            return True  # what absent clients want is not known yet
        hops = self._broker.tables.hops_for(message.values)
        return any(hop == ABSENT or hop in self._returning for hop in hops)

    def _add_those_who_may_want_it(self, source: str, hops: list[str]) -> list[str]:
        """A neighbour that has not told all its subscriptions gets everything: it knows who wants what behind it."""
        return [
            *hops,
            *(
                name
                for name in self._broker.tables.neighbours
                if name not in self._told_all and name != source and name not in hops
            ),
        ]

    def neighbour_came(self, peer: Peer) -> None:
        """A neighbour is there: if it gets everything, it gets what has passed before it came."""
        if self._broker.choose_hops is not None:
            for message in self._kept.for_neighbour_all(peer.name):
                peer.queue.append(one_hop_further(message))
                self._broker.touch(peer.name)

    def neighbour_told_all(self, name: str) -> None:
        """A neighbour has told all its subscriptions."""
        self._told_all[name] = None

    def neighbour_subscribed(self, peer: Peer, filter: Filter, *, is_claim: bool, now_s: float) -> None:
        """A neighbour's subscription came late: it gets what has passed, if that was promised."""
        if is_claim or (not self.is_complete and self._broker.config.replica == "incremental"):
            missed = self._kept.for_neighbour(peer.name, filter)
            if self._broker.safe is not None:
                self._broker.safe.give(peer, missed)
            for message in missed:
                peer.queue.append(one_hop_further(message))
                self._broker.touch(peer.name)
            self._absent_changed()

    # ---- what nobody has told again ----

    def completed(self, now_s: float) -> None:
        """All neighbours have told what they know; clients have this long to return."""
        self.is_complete = True
        self._broker.choose_hops = None
        self._unclaimed_due = dict.fromkeys(self._broker.tables.neighbours)
        if self._ends_s is None:
            self._ends_s = now_s + self._config.clients_return_within_s

    def unclaimed(self, peer: Peer, message: Unclaimed, now_s: float) -> None:
        """A neighbour knows of filters that nobody has told this broker: they are those of absent clients."""
        broker, tables = self._broker, self._broker.tables
        for known in message.advertisements:
            if known.id not in tables.advertisements and not self.is_over:
                broker.interests.install_advertisement(Entry(known.id, known.filter, ABSENT), now_s)
        for known in message.advertisements:
            if known.id not in tables.advertisements:
                broker.send(peer.name, Unadvertise(id=known.id), now_s)
            elif tables.note_advertisement_told(peer.name, known.id):  # it may be covered here, but it is known there
                broker.send(peer.name, Advertise(id=known.id, filter=known.filter), now_s)
                broker.interests.confirm_advertisement_again(known.id, now_s)
        for known in message.subscriptions:
            self._unclaimed.setdefault(known, []).append(peer.name)
        self.unclaimed_by_none(peer.name, now_s)

    def unclaimed_by_none(self, neighbour: str, now_s: float) -> None:
        """A neighbour knows of nothing more that nobody has told: when that is true of all, keep what they know."""
        self._unclaimed_due.pop(neighbour, None)
        if self._unclaimed_due:
            return
        unclaimed, self._unclaimed = self._unclaimed, {}
        tables = self._broker.tables
        for known, knowing in unclaimed.items():
            if known.id.partition(ABSENT)[0] not in tables.subscriptions and not self.is_over:
                self._keep(known, knowing, now_s)
        for known, knowing in unclaimed.items():
            for name in knowing:
                if name in tables.neighbours and not tables.is_subscription_told(name, known.id):
                    self._broker.send(name, Unsubscribe(id=known.id), now_s)
        self._absent_changed()

    def _absent_changed(self) -> None:
        if self._broker.safe is not None:
            self._broker.safe.absent_changed()

    def _keep(self, known: KnownFilter, knowing: list[str], now_s: float) -> None:
        """Keep a subscription in force for an absent client.

        It may not be one's: another broker may have stopped telling it, because a wider one covers it, while there was
        no broker here to pass that on. So neighbours that do not know it are told of it, if they must be, under a name
        that it meets nowhere.
        """
        broker, tables = self._broker, self._broker.tables
        if ABSENT not in known.id:
            tables.only_for(known.id, knowing)
            broker.interests.install_subscription(Entry(known.id, known.filter, ABSENT), now_s)
        kept_id = self._kept_id(known.id)
        is_known_to_all = ABSENT not in known.id and all(name in knowing for name in tables.neighbours)
        if kept_id not in tables.subscriptions and not is_known_to_all:
            broker.interests.install_subscription(Entry(kept_id, known.filter, ABSENT), now_s)

    def _kept_id(self, id: str) -> str:
        """The name of a subscription that is kept for an absent client, for neighbours that do not know it."""
        return f"{id.partition(ABSENT)[0]}{ABSENT}:{self._broker.name}"

    def claimed(self, id: str, now_s: float) -> bool:
        """Somebody tells a subscription; whether it was kept for an absent client, which it is no more."""
        kept_id = self._kept_id(id)
        if kept_id not in self._broker.tables.subscriptions:
            return False
        self._broker.interests.end_subscription(self._broker.peers[ABSENT], kept_id, now_s)
        return True

    def holds_back(self, entry: Entry) -> bool:
        """Whether the confirmation of a neighbour's advertisement waits until all clients have had time to return.

        What the broker before had confirmed stays so. Of what is new to it no absent client's neighbour can know.
        """
        if self.is_over or entry.hop not in self._broker.tables.neighbours:
            return False
        self._held_back[entry.id] = None
        return True

    # ---- clients that return ----

    def client_came(self, peer: Peer, hello: Hello) -> None:
        """A client that knows an earlier life tells all it wants before it gets anything."""
        if hello.resumes and not self.is_over:
            self._returning[peer.name] = None
            peer.queue = deque()

    def client_returned(self, peer: Peer, now_s: float) -> None:
        """A client has told all it wants: it gets what has passed since this broker began, in its order."""
        if self._returning.pop(peer.name, 0) is not None:
            return
        self._give(peer)
        if self._waits_for_those_who_came and not self._returning:
            self._end(now_s)

    def _give(self, peer: Peer) -> None:
        tables = self._broker.tables
        filters = [tables.subscriptions[id].filter for id in peer.subscriptions if id in tables.subscriptions]
        behind = [message for message in peer.queue if not isinstance(message, Publish | bytes)]
        peer.queue = peer.link.data
        missed = self._kept.for_client(filters)
        if self._broker.safe is not None:
            self._broker.safe.give(peer, missed)
        peer.queue.extend(one_hop_further(message) for message in missed)
        peer.queue.extend(behind)
        self._broker.touch(peer.name)
        self._absent_changed()

    # ---- time ----

    def wake_at_s(self) -> float | None:
        """When the time to return ends."""
        return None if self.is_over else self._ends_s

    def wake(self, now_s: float) -> None:
        """The time is over for those who have not come; those who came and have not said all have a lease's time."""
        if self._ends_s is None or now_s < self._ends_s or self.is_over:
            return
        if not self._waits_for_those_who_came and any(name in self._broker.peers for name in self._returning):
            self._waits_for_those_who_came = True
            self._ends_s += self._broker.config.client_lease_s
        else:
            self._end(now_s)

    def _end(self, now_s: float) -> None:
        """End what was in force for those who have not returned."""
        self.is_over = True
        broker = self._broker
        for name in self._returning:
            if name in broker.peers:
                self._give(broker.peers[name])
        self._returning.clear()
        kept = [entry.id for entry in broker.tables.subscriptions.values() if entry.hop == ABSENT]
        for id in [id for id in kept if ABSENT in id]:  # before those under their own names, which cover them
            broker.interests.end_subscription(broker.peers[ABSENT], id, now_s)
        broker.interests.end_all_from(ABSENT, now_s)
        del broker.peers[ABSENT]
        broker.on_publication = self._route
        self._kept = KeptPublications(1)
        self._absent_changed()
        for id in self._held_back:
            if id in broker.tables.advertisements:
                broker.interests.confirm_advertisement_again(id, now_s)
