"""Takeovers: how a broker that has lost its memory, or that is new, learns its routes, and how its neighbours help it.

A replica, a broker that was started again and a link that was made anew are one thing: a new epoch of a link. Both ends
tell what they know, in two waves over the tree: advertisements, then the subscriptions that these pull. A broker's
telling to a neighbour is complete when all its *other* neighbours have completed theirs to it and its clients are known
(`client_records.py`), so nobody waits for himself. Until its own learning is complete a broker processes no data and
confirms nothing. Then it says `Swept`: what its neighbours have from earlier epochs and were not told again, ends.

Routes only grow during a takeover: a neighbour tells what it tells now and every advertisement whose end is still in
what it retains; that comes behind, in its order, and routes shrink as it is processed. Publications of a publisher that
has moved on are held until the end of its old stream has come (`streams.py`).

Source of the protocols other than `synchronous`, which do not wait until everything is known: Y. Yoon, V. Muthusamy,
H.-A. Jacobsen, on-demand replication for highly available content-based publish/subscribe messaging, algorithms 1, 2, 4
and 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.broker.moves.streams import Held, Streams
from trimtab.broker.peers import Peer
from trimtab.broker.replication.retention import RetainingLink
from trimtab.broker.replication.wait_ready import WaitReadyQueue
from trimtab.language import Filter
from trimtab.protocol.codec import decode_publication
from trimtab.protocol.effects import Effect
from trimtab.protocol.events import LeftBehind
from trimtab.protocol.frames import Hello, Sendable
from trimtab.protocol.messages import (
    AnyMessage,
    ClientRecord,
    ClientRecords,
    Complete,
    Passing,
    Publish,
    SubscriptionsTold,
    SubscriptionsWanted,
    Swept,
    Synced,
)
from trimtab.protocol.versions import known

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Takeover:
    """One broker's part in takeovers: its own, and those of its neighbours."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        neighbours = dict.fromkeys(broker.config.neighbours)
        self._unsynced: dict[str, None] = neighbours
        """Neighbours that have not told all advertisements in the present epoch of their link."""
        self._sync_told: dict[str, None] = {}
        """Those that were told all."""
        self.is_learning = bool(neighbours)
        """Whether this broker does not know all its routes yet."""
        self._records_due: dict[str, None] = dict(neighbours)
        self._subscriptions_due: dict[str, None] = dict(neighbours)
        """While it is learning: neighbours that have not told what they keep of its clients, or all subscriptions."""
        self._wanted_from: dict[str, None] = {}
        self._subscriptions_owed: dict[str, None] = {}
        """Neighbours that are learning and want to hear all subscriptions."""
        self._records: ClientRecords = ClientRecords()
        self.holds_clients = self.is_learning and broker.config.replica.startswith("incremental")
        """Whether clients are not heard: a replica that goes on at once must know first who was there before it."""
        self._said_by_clients: list[tuple[str, AnyMessage, int]] = []
        self._learners: dict[str, None] = {}
        """Neighbours in a new epoch that have not said that they have told all."""
        self._wait_ready: dict[str, WaitReadyQueue] = {}
        """Of the protocol `incremental`: what waits for a neighbour until it has told who wants it."""
        self.streams = Streams()
        self.returning: dict[str, int | None] = {}
        """Publishers that the earlier incarnation knew and that have not said again what was not accepted, and
        neighbours whose tails have not come; up to which number that will be, if they have said."""
        self._handovers: list[Held] = []
        self.sweeps: dict[str, int] = {}
        """Peers that have told all, in which epoch of their link; advertisements that they have not told again end as
        soon as all has passed that came before that epoch."""

    # ---- a new epoch of a link ----

    def came(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """A neighbour has come that this broker does not know.

        If it knew an earlier incarnation, this one should have waited for it and was not told: that one died before it
        could say whom it was linked to. So this broker learns again, with that neighbour, and says again when it knows
        all.
        """
        broker = self._broker
        if not self.is_learning and hello.resumes not in ("", broker.config.session):
            self.is_learning = True
            others = (each for each in broker.peers.values() if each.role == "broker" and not each.assists)
            self._subscriptions_due = {each.name: None for each in others}
            self._wanted_from = {}
            self.begin_learning()
        self.begin(peer, now_s)

    def begin(self, peer: Peer, now_s: float) -> None:
        """A link to a neighbour has begun, or begins anew: tell it all, and what it told before stays until it has."""
        broker, name = self._broker, peer.name
        self._unsynced[name] = None
        self._sync_told.pop(name, None)
        self._forget_tail(name, now_s)
        self._wanted_from.pop(name, None)
        self._subscriptions_owed.pop(name, None)
        if self.is_learning:
            self._records_due[name] = self._subscriptions_due[name] = None
        broker.topology.tell_members(peer, now_s)
        tail = [*peer.link.undelivered_data(), *self._waiting_for(name)]
        if broker.replacement is not None:
            broker.replacement.divisions.epoch_began(peer, tail)
        broker.interests.begin_epoch(peer, now_s)
        for message in tail:
            if isinstance(message, Complete) and not message.is_lost:
                broker.send(name, Passing(client=message.client, session=message.session, stay=message.stay), now_s)
        from_disk = [] if broker.safe is None else broker.safe.departed()
        for passing in (*from_disk, *(each for source, each in self.streams.awaited_for_all() if source != name)):
            broker.send(name, passing, now_s)
        broker.send(name, broker.records.kept_for(name), now_s)
        broker.records.look_for_guardian(now_s, lost=name)
        self._go_on(now_s)

    def assistant_came(self, peer: Peer, now_s: float) -> None:
        """An assistant of a neighbour, or of this broker, has been told all: say so."""
        self._sync_told.pop(peer.name, None)
        self._broker.send(peer.name, ClientRecords(), now_s)
        self._go_on(now_s)

    def from_assistant(self, peer: Peer, message: AnyMessage, now_s: float) -> None:
        """An assistant is learning; what it tells is not new."""
        if isinstance(message, SubscriptionsWanted):
            self._subscriptions_owed[peer.name] = None
            self._go_on(now_s)

    def begin_again(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """A neighbour has lost its memory: what it had not done goes to its successor, behind all that is told."""
        broker, name, old = self._broker, peer.name, peer.link
        tail = known([*old.undelivered_data(), *self._waiting_for(name)], peer.version)
        queue = self._wait_ready.pop(name, None)
        if queue is not None:
            queue.end()
        new = broker.output.new_link()
        new.begin_behind(broker.input.data_count_from(name))
        if peer.session != hello.session:
            self._learners[name] = None
        peer.session, peer.incarnation, peer.link = hello.session, hello.epoch, new
        peer.epoch += 1
        peer.queue = new.data
        if hello.replica == "incremental":
            peer.queue = self._wait_ready[name] = WaitReadyQueue(new.data, _Matching(self, name))
        for message in tail:
            peer.queue.append(message)
        peer.again_count = len(tail)
        if broker.safe is not None and isinstance(old, RetainingLink) and isinstance(new, RetainingLink):
            broker.safe.epoch_began(name, old, new)
        self.sweeps.pop(name, None)
        self.streams.epoch_began(name)
        self.begin(peer, now_s)

    def _waiting_for(self, name: str) -> list[Sendable]:
        queue = self._wait_ready.get(name)
        return [] if queue is None else queue.waiting()

    def matching(self, name: str, message: Publish | bytes) -> list[str]:
        """The subscriptions of a neighbour that a publication matches."""
        values = message.values if isinstance(message, Publish) else decode_publication(message).values
        return self._broker.tables.matching_from(name, values)

    def gone(self, name: str, now_s: float) -> list[Effect]:
        """A neighbour was taken away for good, perhaps before it came: nothing is owed to it or by it."""
        for owed in (
            self._unsynced,
            self._sync_told,
            self._records_due,
            self._subscriptions_due,
            self._wanted_from,
            self._subscriptions_owed,
            self._learners,
        ):
            owed.pop(name, None)
        self._wait_ready.pop(name, None)
        self.sweeps.pop(name, None)
        self._forget_tail(name, now_s)
        self.streams.epoch_began(name)
        self._end_streams_for_all(name, now_s)
        self._broker.records.forget(name)
        self._broker.records.look_for_guardian(now_s)
        effects = self._broker.ordering.release(self.streams.gone(name), now_s)
        self._go_on(now_s)
        return effects

    def _end_streams_for_all(self, name: str, now_s: float) -> None:
        """Ends that a neighbour had announced for all, and has not again, will not come: tell the others."""
        for each in self.streams.told_no_more_by(name):
            end = Complete(client=each.client, session=each.session, stay=each.stay, new_broker="")
            self._broker.send_to_others(name, end, now_s)

    def expected(self) -> list[str]:
        """Neighbours that are awaited and have not come yet."""
        return [name for name in self._unsynced if name not in self._broker.peers]

    @property
    def awaits_records(self) -> bool:
        """Whether it is not known yet which clients the earlier incarnation had, and whether their stays went on."""
        return self.is_learning and bool(self._records_due)

    @property
    def is_over(self) -> bool:
        """Whether all is known, and neighbours have said again what only they had: one more death loses nothing."""
        peers = self._broker.peers
        return not self.is_learning and not any(
            name in peers and peers[name].role == "broker" for name in self.returning
        )

    def is_synced(self, name: str) -> bool:
        """Whether a neighbour has told all advertisements in the present epoch of its link."""
        return name not in self._unsynced

    def is_being_told(self, name: str) -> bool:
        """Whether a neighbour has come again as another incarnation that does not know all yet."""
        return name in self._learners

    # ---- messages ----

    def handle(self, peer: Peer, message: AnyMessage, now_s: float) -> bool:
        """A message of a neighbour about what is known; whether it was one."""
        match message:
            case Synced(tail_count=count):
                self._unsynced.pop(peer.name, None)
                self._end_streams_for_all(peer.name, now_s)
                self._broker.later += self._broker.ordering.release(self.streams.told_all(peer.name), now_s)
                if self.is_learning and count:
                    self.returning[peer.name] = count
            case ClientRecords():
                self._records_due.pop(peer.name, None)
                if message.version > self._records.version:
                    self._records = message
                if self.is_learning and not self._records_due:
                    self._adopt(now_s)
            case SubscriptionsWanted():
                self._subscriptions_owed[peer.name] = None
            case SubscriptionsTold():
                self._subscriptions_due.pop(peer.name, None)
                if self._broker.replacement is not None:
                    self._broker.replacement.heard_all_from(peer.name)
            case Passing():
                self.streams.passing(peer.name, message)
                if message.is_for_all:
                    self._broker.send_to_others(peer.name, message, now_s)
            case Swept():
                self._swept(peer, message, now_s)
            case _:
                return False
        self._go_on(now_s)
        return True

    def _swept(self, peer: Peer, message: Swept, now_s: float) -> None:
        """A neighbour, or a client that has come back, has told all it knows."""
        broker = self._broker
        broker.interests.sweep_subscriptions(peer, now_s)
        self.sweeps[peer.name] = peer.epoch
        self.sweep_if_due(peer, now_s)
        if peer.role != "broker":
            peer.has_told_all = True
            peer.accepted_before = max(message.accepted, peer.accepted_before)
            broker.gaps.told_all(peer, now_s)
            self.returning[peer.name] = message.sequence
            self.look_for_returned(now_s)
            return
        self._learners.pop(peer.name, None)
        broker.gaps.neighbour_learned(peer.name, now_s)
        broker.records.look_for_guardian(now_s)
        broker.topology.only_behind(peer, message.names, now_s)
        queue = self._wait_ready.pop(peer.name, None)
        if queue is not None:
            queue.end()
            peer.queue = peer.link.data
        broker.output.touch(peer.name)

    def sweep_if_due(self, peer: Peer, now_s: float) -> None:
        """End advertisements that a peer has not told again, behind all that it said in earlier epochs."""
        broker, name = self._broker, peer.name
        if peer.link.stale_count or self.streams.holds_from(name):
            return
        if broker.replacement is not None and broker.replacement.divisions.holds_from(name):
            return
        if broker.safe is not None and broker.safe.must_wait_for_disk(name):
            return
        if self.sweeps.pop(name, 0) == peer.epoch:
            broker.interests.sweep_advertisements(peer, now_s)

    def sweep_what_is_due(self, now_s: float) -> None:
        """What stood before the ends of advertisements may have passed."""
        for name in list(self.sweeps):
            peer = self._broker.peers.get(name)
            if peer is not None:
                self.sweep_if_due(peer, now_s)

    # ---- the waves ----

    def must_wait_to_confirm(self, hop: str) -> bool:
        """Whether nothing can be said to be in force yet that came from there."""
        if self._broker.fence_problem:
            return True
        return self.is_learning or any(name != hop for name in self._unsynced)

    def _go_on(self, now_s: float) -> None:
        broker = self._broker
        for peer in list(broker.peers.values()):
            name = peer.name
            if peer.role == "broker" and name not in self._sync_told and not self._awaits_besides(name):
                self._sync_told[name] = None
                broker.send(name, Synced(tail_count=peer.again_count), now_s)
        if self.is_learning and not self._unsynced:
            for name in self._subscriptions_due:
                if name not in self._wanted_from:
                    self._wanted_from[name] = None
                    broker.send(name, SubscriptionsWanted(), now_s)
        for name in list(self._subscriptions_owed):
            if not self._awaits_besides(name) and not _besides(name, self._subscriptions_due):
                del self._subscriptions_owed[name]
                broker.send(name, SubscriptionsTold(), now_s)
        if self.is_learning and not (self._unsynced or self._records_due or self._subscriptions_due):
            self._complete(now_s)
        broker.interests.confirm_held(now_s)

    def begin_learning(self) -> None:
        """Routes, and clients of an earlier incarnation, have yet to become known: data may have to wait for them."""
        broker = self._broker
        if broker.config.replica in ("", "synchronous") and not broker.config.assists:
            broker.input.gate(is_closed=True)
        broker.records.await_clients()

    def _awaits_besides(self, name: str) -> bool:
        return bool(self._records_due) or _besides(name, self._unsynced)

    def _complete(self, now_s: float) -> None:
        """All routes are known: go on with data, and let neighbours forget what was not told again."""
        broker = self._broker
        self.is_learning = False
        for peer in list(broker.peers.values()):
            if peer.role == "broker":
                others = broker.topology.brokers_besides(peer)
                broker.send(peer.name, Swept(names=tuple(others), addresses=tuple(others.values())), now_s)
        broker.gaps.learned(now_s)
        if broker.safe is not None:  # what is on the disk goes before what has waited
            broker.safe.learned(now_s)
        broker.input.gate(is_closed=False)
        broker.records.look_for_guardian(now_s)
        broker.moves.resume_all(now_s)
        if broker.replacement is not None:
            broker.replacement.learned(now_s)
        self.look_for_returned(now_s)

    # ---- the clients of an earlier incarnation ----

    def recovered(self, records: tuple[ClientRecord, ...], now_s: float) -> None:
        """The disk knows the clients of the incarnation before."""
        self._records = ClientRecords(version=0, records=records)
        self._adopt(now_s)

    def resumed(self, left: LeftBehind, now_s: float) -> None:
        """The incarnation before has left its clients; a neighbour that knows later records of them goes before."""
        self._records = ClientRecords(version=left.version, records=left.records)
        self._adopt(now_s)

    def _adopt(self, now_s: float) -> None:
        """The clients are known: they are away, and what they want is in force."""
        broker = self._broker
        broker.records.go_on_after(self._records.version)
        records, self._records = self._records.records, ClientRecords(version=self._records.version)
        for record in records:
            peer = broker.sessions.adopt(record, now_s)
            if peer is None:
                continue
            for advertisement in record.advertisements:
                broker.interests.restore_advertisement(peer, advertisement, now_s)
            for subscription in record.subscriptions:
                broker.interests.restore_subscription(peer, subscription, now_s)
            if broker.replacement is not None:
                broker.replacement.client_known(peer, [each.filter for each in record.subscriptions])
            if record.advertisements and record.leaving_for <= record.stay:  # who leaves, has nothing to say again
                self.returning[peer.name] = None
        said, self._said_by_clients = self._said_by_clients, []
        self.holds_clients = False
        broker.input.control.extendleft(reversed(said))
        broker.input.let_go()

    # ---- what died with an earlier incarnation ----

    def hold_handover(self, held: Held) -> None:
        """A handover, or the end of a stay, waits until all have said again what died with the earlier incarnation.

        It may have gone half of its ways: a subscriber that moves may have got what follows it elsewhere, and must have
        it before the old stay ends.
        """
        self._handovers.append(held)

    def look_for_returned(self, now_s: float) -> None:
        """Publishers and neighbours may have said again all that they had to, or have left."""
        peers, had = self._broker.peers, bool(self.returning)
        for name, count in list(self.returning.items()):
            peer = peers.get(name)
            if peer is None or (count is not None and _said_again_count(peer) >= count):
                del self.returning[name]
        if not self.returning and not self.is_learning and (had or self._handovers):
            handovers, self._handovers = self._handovers, []
            self._broker.later += self._broker.ordering.release(handovers, now_s)
            self._broker.moves.resume_all(now_s)
            if self._broker.replacement is not None:
                self._broker.replacement.divisions.settle()

    def _forget_tail(self, neighbour: str, now_s: float) -> None:
        if neighbour in self.returning:
            self.returning[neighbour] = 0
            self.look_for_returned(now_s)

    def hold_client(self, name: str, message: AnyMessage, epoch: int) -> None:
        """A client has said something too early."""
        self._said_by_clients.append((name, message, epoch))

    # ---- protocols that do not wait ----

    def subscribed(self, peer: Peer, id: str, filter: Filter, now_s: float) -> None:
        """A neighbour's path for a subscription is there: what waits for it goes on, what has passed may follow."""
        queue = self._wait_ready.get(peer.name)
        if queue is not None:
            queue.make_ready(id)
            self._broker.output.touch(peer.name)
        if peer.role == "broker" and self._broker.replacement is not None:
            self._broker.replacement.late_subscription(peer, filter)


class _Matching:
    """Asks which subscriptions of a neighbour a publication matches."""

    def __init__(self, takeover: Takeover, name: str) -> None:
        self._takeover = takeover
        self._name = name

    def __call__(self, message: Publish | bytes) -> list[str]:
        return self._takeover.matching(self._name, message)


def _said_again_count(peer: Peer) -> int:
    """How much a publisher or a neighbour has said again, and was processed."""
    return peer.link.processed_count if peer.role == "broker" else peer.last_sequence


def _besides(neighbour: str, owing: dict[str, None]) -> bool:
    return any(name != neighbour for name in owing)
