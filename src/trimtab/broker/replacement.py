"""What a broker does about neighbours that fail: it watches them, has them replaced, and tells replicas what it knows.

A replica has the name of the broker that it replaces, so that routes towards it stay what they are and nobody beyond
its neighbours notices. Each neighbour tells it again what it had told the broker before; what the replica tells in turn
is known already and goes no further. What it does not tell again is told to it at the end (`Unclaimed`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from trimtab.broker.assistance import Assistance
from trimtab.broker.assistant import AssistantDuties
from trimtab.broker.peers import Peer
from trimtab.broker.replica import ABSENT, ReplicaDuties
from trimtab.broker.routing import Entry
from trimtab.language import Filter
from trimtab.protocol.codec import decode_publication
from trimtab.protocol.effects import Assist, Effect, Replace
from trimtab.protocol.frames import Hello, Sendable
from trimtab.protocol.messages import (
    Advertise,
    AdvertisementsTold,
    AnyMessage,
    KnownFilter,
    Neighbours,
    Progress,
    Publish,
    Replicated,
    Returned,
    Subscribe,
    SubscriptionsTold,
    SubscriptionsWanted,
    Unclaimed,
)
from trimtab.replication.config import ReplicationConfig
from trimtab.replication.conversation import Conversation, Reply
from trimtab.replication.detection import Signs, Verdict
from trimtab.replication.safe_link import SafeLink
from trimtab.replication.wait_ready import WaitReadyQueue
from trimtab.replication.watch import NeighbourWatch
from trimtab.replication.withdrawals import Withdrawals

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


_ENDED_LIVES_MAX_COUNT: Final = 1_000
"""So many lives of neighbours that are over are remembered, the latest; a process returns soon or never."""


class _Replaced:
    """A neighbour that a replica is taking the place of."""

    def __init__(self, advertisements: list[str], subscriptions: list[str], untold: list[str]) -> None:
        self.unclaimed_advertisements = dict.fromkeys(advertisements)
        self.unclaimed_subscriptions = dict.fromkeys(subscriptions)
        """What came from the broker before and has not come again."""
        self.untold_subscriptions = dict.fromkeys(untold)
        """What the broker before was told and the replica was not, as no advertisement of it has pulled it yet."""
        self.unconfirmed_subscriptions: dict[str, None] = {}
        """What has come again and is confirmed at the end, lest the answers hold publications up."""
        self.confirms_late = False
        self.queue: WaitReadyQueue | None = None
        self.is_over = False
        """Whether the replica has all that neighbours know."""


class Replacement:
    """One broker's part in the replacement of others, and in its own if it is a replica."""

    def __init__(self, broker: Broker, config: ReplicationConfig) -> None:
        self._broker = broker
        self.config = config
        self._watch = NeighbourWatch(broker.name, broker.config.address, config)
        self._replaced: dict[str, _Replaced] = {}
        self._ended_lives: dict[tuple[str, str], None] = {}
        """Neighbours that were replaced, with their sessions: they are not let in again, should they return."""
        self._withdrawals: dict[str, Withdrawals] = {}
        """By neighbour: advertisements that have ended here and may not have ended there."""
        self.assistance = Assistance(broker, config.progress_every_s)
        """Brokers that share the load of neighbours, or of this one."""
        self.duties: ReplicaDuties | AssistantDuties | None = None
        """What a replica or an assistant does besides; None for others."""
        if broker.config.assists:
            self.duties = AssistantDuties(broker, config)
        elif broker.config.replica:
            self.duties = ReplicaDuties(broker, config)
        self._conversation = Conversation(broker.config.neighbours if broker.config.replica else ())

    def is_ended_life(self, hello: Hello) -> bool:
        """Whether a broker greets that was replaced."""
        return hello.role == "broker" and (hello.name, hello.session) in self._ended_lives

    # ---- watching ----

    def neighbour_came(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """A neighbour is new; it may be a replica that this broker has not known in an earlier life."""
        self._watch.came(peer.name, peer.session, now_s)
        self.tell_neighbours(now_s)
        if self.duties is not None:
            self.duties.neighbour_came(peer)
        if hello.replica:
            self._reply(self._conversation.asked_by(peer.name), now_s)

    def assistant_came(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """A broker that shares the load of a neighbour, or of this one, greets."""
        self.assistance.came(peer, hello, now_s)
        self._watch.came(peer.name, peer.session, now_s)
        self._reply(self._conversation.asked_by(peer.name), now_s)

    def neighbour_gone(self, peer: Peer, now_s: float) -> None:
        """A link was taken away for good."""
        name = peer.name
        self.assistance.gone(peer, now_s)
        self._watch.gone(name)
        self._replaced.pop(name, None)
        self._withdrawals.pop(name, None)
        if self.duties is not None:
            self.duties.unclaimed_by_none(name, now_s)
        self._reply(self._conversation.gone(name), now_s)
        self.tell_neighbours(now_s)

    def tell_neighbours(self, now_s: float) -> None:
        """Tell each neighbour who the others are."""
        for peer in self._broker.peers.values():
            if peer.role == "broker" and not peer.assists:
                self._tell_neighbours_to(peer, now_s)

    def _tell_neighbours_to(self, peer: Peer, now_s: float) -> None:
        others = {
            other.name: other.behind.get(other.name, "")
            for other in self._broker.peers.values()
            if other.role == "broker" and other is not peer and not other.assists
        }
        self._broker.send(peer.name, Neighbours(names=tuple(others), addresses=tuple(others.values())), now_s)

    def neighbours_of(self, name: str) -> dict[str, str]:
        """The neighbours of a neighbour, this broker included, and their addresses."""
        return self._watch.neighbours_of(name)

    def verdicts(self) -> dict[str, Verdict]:
        """How each neighbour is, as far as its link shows."""
        return self._watch.verdicts()

    def is_being_told(self, name: str) -> bool:
        """Whether a replica of a neighbour has greeted and does not know all yet."""
        replaced = self._replaced.get(name)
        return replaced is not None and not replaced.is_over

    def retire(self) -> None:
        """Watch no more, for the end of an experiment."""
        self._watch.retire()

    def wake_at_s(self) -> float | None:
        """When there is something to do."""
        times_s = [self._watch.wake_at_s(), self.assistance.wake_at_s()]
        if self.duties is not None:
            times_s.append(self.duties.wake_at_s())
        return min((time_s for time_s in times_s if time_s is not None), default=None)

    def wake(self, now_s: float) -> list[Effect]:
        """Do what is due."""
        if self.duties is not None:
            self.duties.wake(now_s)
        effects = self.assistance.wake(now_s)
        for wanted in self._watch.look(self._signs_of, self._ask, now_s):
            if self.assistance.is_assistant(wanted.broker):
                if isinstance(wanted, Replace):
                    self._broker.remove_peer(wanted.broker, now_s)
            elif self.assistance.has_assistant(wanted.broker) and isinstance(wanted, Assist):
                pass
            elif not self._broker.config.assists:
                effects.append(wanted)
        return effects

    def _signs_of(self, name: str) -> Signs:
        peer = self._broker.peers[name]
        return Signs(peer.link.connected, peer.link.expects + peer.link.acks_count, len(peer.queue))

    def _ask(self, name: str) -> None:
        self._broker.peers[name].link.ask()
        self._broker.touch(name)

    # ---- a neighbour is replaced ----

    def begin(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """A replica greets under the name of a neighbour: begin a link with it and tell it what the other knew."""
        broker, tables, name = self._broker, self._broker.tables, peer.name
        self.assistance.gone(peer, now_s)
        advertisements, subscriptions = tables.told_to(name)
        retained = self._retained_for(name)
        ended = self._withdrawals[name].unprocessed() if name in self._withdrawals else []
        replaced = self._replaced[name] = _Replaced(
            [e.id for e in tables.advertisements.values() if e.hop == name and not tables.is_led(e.id)],
            [e.id for e in tables.subscriptions.values() if e.hop == name],
            subscriptions,
        )
        waiting = [broker.moves.after_loss(message) for message in retained]
        self._ended_lives[name, peer.session] = None
        if len(self._ended_lives) > _ENDED_LIVES_MAX_COUNT:
            del self._ended_lives[next(iter(self._ended_lives))]
        old = peer.link
        peer.session = hello.session
        peer.link = broker.new_link()
        peer.queue = peer.link.data
        replaced.confirms_late = hello.replica in ("incremental", "incremental-ordered")
        if hello.replica == "incremental":
            peer.queue = replaced.queue = WaitReadyQueue(peer.link.data, partial(self._matching, name))
        elif hello.replica == "synchronous":
            peer.link.hold_data()
        for message in waiting:
            peer.queue.append(message)
        if broker.safe is not None and isinstance(old, SafeLink) and isinstance(peer.link, SafeLink):
            unprocessed_count = sum(source == name for source, _ in broker.data_waiting())
            broker.safe.replaced(name, old, peer.link, unprocessed_count)
        broker.sessions.forget_what_was_said(peer, now_s)
        for known in ended:  # their ends stand in what waits, behind publications that need their routes
            broker.send(name, Advertise(id=known.id, filter=known.filter), now_s)
        for id in advertisements:
            broker.send(name, Advertise(id=id, filter=tables.advertisements[id].filter), now_s)
        broker.interests.wait_for_sync(name, now_s)
        self._watch.came(name, hello.session, now_s)
        self._tell_neighbours_to(peer, now_s)
        if self.duties is not None:
            self.duties.unclaimed_by_none(name, now_s)
        self._reply(self._conversation.asked_by(name), now_s)

    def _retained_for(self, name: str) -> list[Sendable]:
        """The data that a neighbour has not processed, in its order."""
        peer, replaced = self._broker.peers.get(name), self._replaced.get(name)
        retained = [] if peer is None else peer.link.undelivered_data()
        return retained if replaced is None or replaced.queue is None else retained + replaced.queue.waiting()

    def withdrew(self, neighbour: str, id: str, filter: Filter) -> None:
        """An advertisement's end stands in a neighbour's queue: until it is processed a replica needs the filter."""
        if neighbour not in self._withdrawals:
            self._withdrawals[neighbour] = Withdrawals(partial(self._retained_for, neighbour))
        self._withdrawals[neighbour].add(id, filter)

    def _matching(self, name: str, message: Publish | bytes) -> list[str]:
        values = message.values if isinstance(message, Publish) else decode_publication(message).values
        return self._broker.tables.matching_from(name, values)

    def advertises_again(self, peer: Peer, message: Advertise, now_s: float) -> bool:
        """Whether an advertisement is known from an earlier life, of the neighbour or of this broker."""
        broker = self._broker
        entry = broker.tables.advertisements.get(message.id)
        if entry is None or entry.filter != message.filter:
            return False
        if entry.hop == ABSENT or self._is_known_of_absent(entry, peer):
            broker.interests.claim_advertisement(entry, peer, now_s)
            return True
        replaced = self._replaced.get(peer.name)
        if entry.hop != peer.name or replaced is None or message.id not in replaced.unclaimed_advertisements:
            return False  # the end of the one that is known may be on its way
        del replaced.unclaimed_advertisements[message.id]
        broker.interests.confirm_advertisement_again(message.id, now_s)
        return True

    def _is_known_of_absent(self, entry: Entry, peer: Peer) -> bool:
        """Whether a client's own filter is known here from a neighbour: an adjacent replica keeps it for the absent."""
        duties = self.duties
        is_returning = peer.role == "client" and duties is not None and not duties.is_over
        return is_returning and entry.hop in self._broker.tables.neighbours

    def is_unclaimed(self, entry: Entry) -> bool:
        """Whether an advertisement or subscription is known from an earlier life of a neighbour, and not yet again."""
        replaced = self._replaced.get(entry.hop)
        return replaced is not None and (
            entry.id in replaced.unclaimed_advertisements or entry.id in replaced.unclaimed_subscriptions
        )

    def ended(self, peer: Peer, id: str) -> None:
        """A replica has ended what the broker before it had told: if it tells it again, it is new."""
        replaced = self._replaced.get(peer.name)
        if replaced is not None:
            replaced.unclaimed_advertisements.pop(id, None)
            replaced.unclaimed_subscriptions.pop(id, None)

    def holds_back(self, entry: Entry) -> bool:
        """Whether an advertisement is not to be confirmed yet: clients may be absent that want what it announces."""
        return self.duties is not None and self.duties.holds_back(entry)

    def advertised(self, peer: Peer, filter: Filter, now_s: float) -> None:
        """A replica's advertisement pulls what the broker before it had been told."""
        replaced = self._replaced.get(peer.name)
        if replaced is None:
            return
        tables = self._broker.tables
        for id in list(replaced.untold_subscriptions):
            entry = tables.subscriptions.get(id)
            if entry is None or not tables.is_subscription_told(peer.name, id):
                del replaced.untold_subscriptions[id]
            elif filter.intersects(entry.filter):
                del replaced.untold_subscriptions[id]
                self._broker.send(peer.name, Subscribe(id=id, filter=entry.filter), now_s)

    def subscribes_again(self, peer: Peer, message: Subscribe, now_s: float) -> bool:
        """Whether a subscription is known from an earlier life, of the neighbour or of this broker."""
        broker = self._broker
        entry = broker.tables.subscriptions.get(message.id)
        if entry is None or entry.filter != message.filter:
            return False
        if entry.hop == ABSENT or self._is_known_of_absent(entry, peer):
            broker.interests.claim_subscription(entry, peer, message, now_s)
            if self.duties is not None:
                self.duties.claimed(message.id, now_s)
                if peer.role == "broker":
                    self.duties.neighbour_subscribed(peer, entry.filter, is_claim=True, now_s=now_s)
            return True
        if entry.hop != peer.name or peer.role != "broker":
            return False
        self.subscribed(peer, message, now_s)
        replaced = self._replaced.get(peer.name)
        if replaced is not None:
            replaced.unclaimed_subscriptions.pop(message.id, None)
        if replaced is not None and replaced.confirms_late:
            replaced.unconfirmed_subscriptions[message.id] = None
        else:
            broker.interests.confirm_subscription_again(message.id, now_s)
        return True

    def subscribed(self, peer: Peer, message: Subscribe, now_s: float) -> None:
        """A neighbour's path for a subscription is there."""
        replaced = self._replaced.get(peer.name)
        if replaced is not None and replaced.queue is not None:
            replaced.queue.make_ready(message.id)
            self._broker.touch(peer.name)
        if self.duties is not None:
            is_claim = self.duties.claimed(message.id, now_s)
            if peer.role == "broker":
                self.duties.neighbour_subscribed(peer, message.filter, is_claim=is_claim, now_s=now_s)

    def _end(self, peer: Peer, message: Replicated, now_s: float) -> None:
        """The replica has all that neighbours know: tell it what nobody has, and go on with publications."""
        broker, tables = self._broker, self._broker.tables
        replaced = self._replaced.get(peer.name)
        if replaced is None:  # a replica, too, which knows of no life before
            broker.send(peer.name, Unclaimed(advertisements=(), subscriptions=()), now_s)
            return
        advertisements, subscriptions = tables.advertisements, tables.subscriptions
        unclaimed = Unclaimed(
            advertisements=tuple(
                KnownFilter(id, advertisements[id].filter)
                for id in replaced.unclaimed_advertisements
                if id in advertisements and advertisements[id].hop == peer.name
            ),
            subscriptions=tuple(
                KnownFilter(id, subscriptions[id].filter)
                for id in replaced.unclaimed_subscriptions
                if id in subscriptions and subscriptions[id].hop == peer.name
            ),
        )
        broker.send(peer.name, unclaimed, now_s)
        broker.reach.only_behind(peer, message.names, now_s)
        for id in replaced.unconfirmed_subscriptions:
            if id in subscriptions and subscriptions[id].hop == peer.name:
                broker.interests.confirm_subscription_again(id, now_s)
        replaced.unconfirmed_subscriptions.clear()
        replaced.confirms_late = False
        replaced.is_over = True
        if replaced.queue is not None:
            replaced.queue.end()
            replaced.queue = None
            peer.queue = peer.link.data
        peer.link.release_data()
        broker.touch(peer.name)

    # ---- messages ----

    def handle(self, peer: Peer, message: AnyMessage, now_s: float) -> list[Effect]:
        """A message about neighbours and replicas."""
        match message:
            case Returned():
                if self.duties is not None and peer.role == "client":
                    self.duties.client_returned(peer, now_s)
            case _ if peer.role == "client":
                pass  # the rest is for brokers
            case Neighbours():
                self._watch.told(peer.name, message)
            case AdvertisementsTold():
                self._reply(self._conversation.advertisements_told(peer.name), now_s)
            case SubscriptionsWanted():
                self._reply(self._conversation.subscriptions_wanted_by(peer.name), now_s)
            case SubscriptionsTold():
                if self.duties is not None:
                    self.duties.neighbour_told_all(peer.name)
                self._reply(self._conversation.subscriptions_told(peer.name), now_s)
            case Replicated():
                self._end(peer, message, now_s)
            case Progress() if isinstance(self.duties, AssistantDuties):
                self.duties.progress(peer, message)
            case Progress():
                return self.assistance.progress(peer, message, now_s)
            case Unclaimed():
                if self.duties is not None:
                    self.duties.unclaimed(peer, message, now_s)
            case _:
                pass  # not about neighbours or replicas
        return []

    def from_assistant(self, peer: Peer, message: AnyMessage, now_s: float) -> list[Effect]:
        """A message of a broker that shares the load of a neighbour, or of this one."""
        match message:
            case SubscriptionsWanted():
                self._reply(self._conversation.subscriptions_wanted_by(peer.name), now_s)
            case Progress():
                return self.assistance.progress(peer, message, now_s)
            case _:
                self.assistance.handle(peer, message, now_s)
        return []

    def client_came(self, peer: Peer, hello: Hello) -> None:
        """A client connects."""
        if self.duties is not None:
            self.duties.client_came(peer, hello)

    def _reply(self, replies: list[Reply], now_s: float) -> None:
        for name, message in replies:
            self._broker.send(name, message, now_s)
        if self.duties is None or self.duties.is_complete or not self._conversation.is_complete:
            return
        self.duties.completed(now_s)
        for peer in self._broker.peers.values():
            if peer.role == "broker":
                others = self._broker.reach.brokers_besides(peer)
                self._broker.send(peer.name, Replicated(names=tuple(others), addresses=tuple(others.values())), now_s)
