"""A broker's part where an assistant shares the load of a broker that is congested.

The assistant has a name of its own. It is linked to all neighbours of the congested broker, and to that broker for the
sake of its clients. It is told what that broker is told, and tells nobody anything new: what the congested broker has
told is what counts. Subscriptions are confirmed when both know them, so that a publication may take either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from trimtab.broker.peers import Peer
from trimtab.protocol.codec import decode_publication
from trimtab.protocol.effects import Close, Effect
from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import (
    Advertise,
    AnyMessage,
    Confirmed,
    Progress,
    Publish,
    Sent,
    Subscribe,
    Swept,
    Unadvertise,
    Unsubscribe,
)
from trimtab.replication.merge import OrderedMerge
from trimtab.replication.scheduling import ScheduledQueue, put_back

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class PassedOn:
    """The last publications that were passed on, by where they came from and since when they were last asked for."""

    def __init__(self) -> None:
        self._sent: dict[str, dict[tuple[str, str], int]] = {}

    def note(self, source: str, message: Publish) -> None:
        """One more."""
        self._sent.setdefault(source, {})[message.publisher, message.session] = message.sequence

    def take(self, source: str) -> tuple[Sent, ...]:
        """Those of a source since the last time."""
        sent = self._sent.pop(source, {})
        return tuple(Sent(publisher, session, sequence) for (publisher, session), sequence in sent.items())

    def has(self, source: str) -> bool:
        """Whether there are any of a source."""
        return source in self._sent


_MARKERS_PER_INCARNATION_COUNT: Final = 1_000_000_000
"""Markers of another incarnation have other numbers."""


class _Assistant:
    """An assistant of a neighbour, or of this broker itself."""

    def __init__(self, name: str, hello: Hello) -> None:
        self.name = name
        self.broker = hello.assists
        self.protocol = hello.replica
        self.reorders = hello.reorders
        self.is_complete = False
        """Whether it knows all routes."""
        self.has_begun = not hello.reorders
        """Whether publications may go over both ways, as far as their order is concerned."""
        self.advertisements: dict[str, None] = {}
        self.subscriptions: dict[str, None] = {}
        """What it has told."""
        self.ended: dict[str, Unadvertise] = {}
        """Advertisements that the congested broker has ended and the assistant has not, behind what goes its way."""
        self.ends: list[Unadvertise] = []
        """Those that both have ended, behind publications that wait for their order."""
        self.merge: OrderedMerge | None = None
        self.markers_count = 0
        self.due_s: float | None = None


class Assistance:
    """Assistants that this broker knows."""

    def __init__(self, broker: Broker, progress_every_s: float) -> None:
        self._broker = broker
        self._progress_every_s = progress_every_s
        self._assistants: dict[str, _Assistant] = {}
        """By the brokers that they assist."""
        self._begun: dict[str, Progress] = {}
        """Brokers that say that they have an assistant, of which nothing has been heard yet."""
        self._passed_on = PassedOn()
        self._in_order: list[tuple[str, Publish]] = []
        self.released_max_count = 0
        """The most publications that were put in order and went on at once."""
        self._now_s = 0.0
        self._part: Literal["all", "neighbours", "clients"] = "all"
        """Who gets what is routed; where this broker has an assistant, clients wait for the order and others do not."""
        self._has_clients = False
        self._effects: list[Effect] = []
        """What is to be done since an assistant has gone."""

    def _of(self, source: str) -> _Assistant | None:
        """The assistant that is concerned with what comes from a neighbour."""
        peer = self._broker.peers.get(source)
        if peer is None:
            return None
        return self._assistants.get(peer.assists or source) or self._assistants.get(self._broker.name)

    # ---- an assistant comes and goes ----

    def problem_with(self, hello: Hello) -> str:
        """Why an assistant is not taken, empty if it is."""
        broker = self._broker
        if broker.safe is not None:
            return "what is safe is kept for one broker, and cannot take two ways"
        if hello.assists != broker.name and hello.assists not in broker.tables.neighbours:
            return f"{hello.assists} is no neighbour of {broker.name}"
        assisted = broker.peers.get(hello.assists)
        if hello.epoch != (broker.epoch if assisted is None else assisted.incarnation):
            return f"{hello.assists} needs no assistant any more"  # it assists an earlier incarnation
        if hello.assists in self._assistants and self._assistants[hello.assists].name != hello.name:
            return f"{hello.assists} has an assistant already: {self._assistants[hello.assists].name}"
        if any((name == broker.name) != (hello.assists == broker.name) for name in self._assistants):
            return f"{broker.name} or a neighbour of it has an assistant already, and two that are adjacent do not fit"
        if hello.assists == broker.name and (away := self._neighbour_away()):
            return f"{away}, which an assistant of {broker.name} must hear, is away"
        return ""

    def _neighbour_away(self) -> str:
        """A neighbour that is not there or does not know all yet; empty if there is none."""
        broker = self._broker
        for name in broker.tables.neighbours:
            if not broker.peers[name].link.connected or broker.takeover.is_being_told(name):
                return name
        return next(iter(broker.takeover.expected()), "")

    def came(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """An assistant greets for the first time: tell it all that the congested broker was told."""
        broker = self._broker
        self._now_s = now_s
        peer.assists = hello.assists
        assistant = self._assistants[hello.assists] = _Assistant(peer.name, hello)
        assistant.markers_count = broker.epoch * _MARKERS_PER_INCARNATION_COUNT
        broker.same_side(peer.name, hello.assists)
        if hello.reorders:
            assistant.merge = OrderedMerge(lambda source, message: self._in_order.append((source, message)))
        broker.add_stage(self)
        if hello.assists == broker.name:
            broker.interests.say(broker.tables.add_twin(peer.name, ""), now_s)
            self.begin_if_still(now_s)
            return
        broker.interests.say(broker.tables.add_twin(peer.name, hello.assists), now_s)
        congested = broker.peers[hello.assists]
        congested.queue = ScheduledQueue(
            congested.link,
            peer.link,
            lambda message: self._may_assist(assistant, message),
            lambda: self._sent(assistant),
        )
        marker = self._begun.pop(hello.assists, None)
        if marker is not None:
            assistant.has_begun = True

    def neighbour_came_again(self, peer: Peer, now_s: float) -> None:
        """A neighbour has lost its memory: an assistant of it or of this broker, made for the one before, ends."""
        self.gone(peer, now_s)
        own = self._assistants.get(self._broker.name)
        if own is not None:
            self.gone(self._broker.peers[own.name], now_s)

    def is_assistant(self, name: str) -> bool:
        """Whether a neighbour is an assistant."""
        return any(name == assistant.name for assistant in self._assistants.values())

    def has_assistant(self, name: str) -> bool:
        """Whether a neighbour has one."""
        return name in self._assistants

    def held(self) -> list[Publish]:
        """Publications that wait until those before them have come over the other way."""
        return [each for one in self._assistants.values() if one.merge is not None for each in one.merge.held()]

    def divides(self, name: str) -> bool:
        """Whether what goes to a neighbour or comes from it may take two ways."""
        return name in self._assistants or self._broker.name in self._assistants

    def is_told(self, name: str) -> bool:
        """Whether a neighbour has an assistant that knows all routes."""
        return name in self._assistants and self._assistants[name].is_complete

    def gone(self, peer: Peer, now_s: float) -> None:
        """An assistant, or a broker that has one, is gone or begins another incarnation: one way is left, or none."""
        assistant = self._assistants.get(peer.assists or peer.name)
        if assistant is None:
            return
        broker = self._broker
        congested = broker.peers.get(assistant.broker)
        other = peer if peer.name == assistant.name else broker.peers[assistant.name]
        self._catch_up(assistant, now_s)
        del self._assistants[assistant.broker]
        if congested is not None:
            if congested is peer:
                congested.link.take_back()
            congested.queue = congested.link.data
            self._put_back(other, congested)
        if assistant.merge is not None:
            for publisher, first, last in assistant.merge.end():
                broker.may_come_late(publisher, first, last)
        self._effects += self._go_on(now_s, is_own=assistant.broker == broker.name)
        if congested is not None:
            for end in (*assistant.ends, *assistant.ended.values()):
                broker.interests.unadvertise(congested, end, now_s)
        if not self._assistants:
            broker.remove_stage(self)
        if other.name in broker.peers:
            broker.remove_peer(other.name, now_s)
            self._effects.append(Close(other.name, f"{assistant.broker} needs no assistant any more"))

    def _put_back(self, other: Peer, congested: Peer) -> None:
        """What an assistant has not acknowledged goes to the broker that it assisted."""
        publications = [
            decode_publication(message) if isinstance(message, bytes) else message
            for message in other.link.undelivered_data()
            if isinstance(message, Publish | bytes)
        ]
        put_back(congested.link.data, publications)
        for each in publications:
            self._broker.may_come_late(each.publisher, each.sequence, each.sequence)
        self._broker.touch(congested.name)

    def _catch_up(self, assistant: _Assistant, now_s: float) -> None:
        """Deal with what waits in the input and came from an assistant that is gone, or would be overtaken."""
        broker, merge = self._broker, assistant.merge
        is_own = assistant.broker == broker.name
        for source, message in broker.take_early(lambda source, _: source == assistant.name):
            broker.counters.publications_in_count += is_own
            if merge is None:
                self._in_order.append((source if is_own else assistant.broker, message))
            else:
                merge.came("assistant", source if is_own else assistant.broker, message)
        if merge is None:
            return
        usual = broker.tables.neighbours if is_own else (assistant.broker,)
        early = broker.take_early(lambda source, message: source in usual and merge.has_later_than(message))
        for source, message in early:
            self._effects += self._came_usually(assistant, merge, source, message, now_s)

    # ---- publications ----

    def choose_hops(self, source: str, hops: list[str]) -> list[str]:
        """What came from a neighbour's assistant does not go to that neighbour, and from our own to clients only."""
        broker = self._broker
        peer = broker.peers.get(source)
        if peer is not None and peer.assists and peer.assists != broker.name:
            return [hop for hop in hops if hop != peer.assists]
        if self._part == "all" and (peer is None or not peer.assists):
            return hops
        to_clients = [hop for hop in hops if hop not in broker.tables.neighbours]
        self._has_clients = bool(to_clients)
        return [hop for hop in hops if hop in broker.tables.neighbours] if self._part == "neighbours" else to_clients

    def _may_assist(self, assistant: _Assistant, message: Publish | bytes) -> bool:
        if not assistant.has_begun:
            return False
        if assistant.is_complete or assistant.protocol == "basic":
            return True
        if assistant.protocol != "incremental":
            return False
        values = message.values if isinstance(message, Publish) else decode_publication(message).values
        matching = self._broker.tables.matching_from(assistant.broker, values)
        return any(id in assistant.subscriptions for id in matching)

    def publication(self, source: str, message: Publish, place: int, now_s: float) -> list[Effect]:
        """Put publications that take two ways in order again, where that is wanted."""
        self._now_s = now_s
        assistant = self._of(source)
        if assistant is None or assistant.merge is None:
            return self._broker.route(source, message, now_s)
        peer = self._broker.peers[source]
        if peer.role != "broker":
            if assistant.broker == self._broker.name and assistant.has_begun:
                self._passed_on.note(self._broker.name, message)
                self._plan(assistant, now_s)
            return self._broker.route(source, message, now_s)
        if peer.assists:
            is_own = assistant.broker == self._broker.name
            self._broker.counters.publications_in_count += is_own
            assistant.merge.came("assistant", source if is_own else assistant.broker, message)
            return self._go_on(now_s)
        if not assistant.has_begun:
            return self._broker.route(source, message, now_s)
        effects = self._came_usually(assistant, assistant.merge, source, message, now_s)
        return [*effects, *self._go_on(now_s)]

    def _came_usually(
        self, assistant: _Assistant, merge: OrderedMerge, source: str, message: Publish, now_s: float
    ) -> list[Effect]:
        """A publication came over the usual way; only clients of the congested broker wait for the order there."""
        if assistant.broker != self._broker.name:
            merge.came("usual", source, message)
            return []
        self._part = "neighbours"
        effects = self._broker.route(source, message, now_s)
        self._part = "all"
        self._passed_on.note(source, message)
        merge.came("usual", source if self._has_clients else "", message)
        return effects

    def _go_on(self, now_s: float, *, is_own: bool = False) -> list[Effect]:
        """Route what is in order; the neighbours of a broker that has an assistant have had theirs."""
        broker = self._broker
        in_order, self._in_order = self._in_order, []
        self.released_max_count = max(self.released_max_count, len(in_order))
        effects: list[Effect] = []
        if is_own or broker.name in self._assistants:
            self._part = "clients"
        for source, message in in_order:
            if source:
                effects += self._broker.route(source, message, now_s)
                if self._part == "clients":
                    broker.counters.publications_in_count -= 1  # it counted when it came
        self._part = "all"
        for assistant in self._assistants.values():
            if assistant.ends:
                self._end(assistant, now_s)
        return effects

    def _end(self, assistant: _Assistant, now_s: float) -> None:
        """End advertisements that both ways have ended, once no publication waits that may need them."""
        congested = self._broker.peers.get(assistant.broker)
        if congested is None or (assistant.merge is not None and len(assistant.merge)):
            return
        ends, assistant.ends = assistant.ends, []
        for end in ends:
            self._broker.interests.unadvertise(congested, end, now_s)

    # ---- markers ----

    def _sent(self, assistant: _Assistant) -> None:
        """A publication was sent over one of the ways."""
        self._broker.touch(assistant.name)
        if assistant.reorders:
            self._plan(assistant, self._now_s)

    def _plan(self, assistant: _Assistant, now_s: float) -> None:
        if assistant.due_s is None and assistant.has_begun:
            assistant.due_s = now_s + self._progress_every_s

    def wake_at_s(self) -> float | None:
        """When the next marker is due."""
        if self._effects:
            return self._now_s
        due_s = [assistant.due_s for assistant in self._assistants.values() if assistant.due_s is not None]
        return min(due_s, default=None)

    def wake(self, now_s: float) -> list[Effect]:
        """Send markers that are due."""
        self._now_s = now_s
        for assistant in self._assistants.values():
            if assistant.due_s is not None and now_s >= assistant.due_s:
                assistant.due_s = None
                self._mark(assistant)
        effects, self._effects = self._effects, []
        return effects

    def _mark(self, assistant: _Assistant) -> None:
        broker = self._broker
        assistant.markers_count += 1
        if assistant.broker == broker.name:
            marker = Progress(
                origin=broker.name, number=assistant.markers_count, sent=self._passed_on.take(broker.name)
            )
            self._to_neighbours(marker, assistant.name)
            return
        marker = Progress(origin=broker.name, number=assistant.markers_count)
        for name in (assistant.broker, assistant.name):
            broker.peers[name].link.data.append(marker)
            broker.touch(name)

    def begin_if_still(self, now_s: float) -> None:
        """From here on publications may take two ways: those that have passed this broker took its own.

        Not while a publisher's move is under way: its end stands behind what was published before, on this way alone.
        """
        assistant = self._assistants.get(self._broker.name)
        if assistant is not None and not assistant.has_begun and not self._broker.moves.is_publisher_under_way(now_s):
            assistant.has_begun = True
            self._to_neighbours(Progress(origin=self._broker.name, number=0), assistant.name)

    def _to_neighbours(self, marker: Progress, besides: str) -> None:
        for peer in self._broker.peers.values():
            if peer.role == "broker" and not peer.assists and peer.name not in (besides, marker.origin):
                peer.queue.append(marker)
                self._broker.touch(peer.name)

    def progress(self, peer: Peer, marker: Progress, now_s: float) -> list[Effect]:
        """A marker has its turn."""
        broker = self._broker
        self._now_s = now_s
        if marker.number == 0 and marker.origin == peer.name:
            assistant = self._assistants.get(peer.name)
            if assistant is None:
                self._begun[peer.name] = marker
            else:
                assistant.has_begun = True
                self._plan(assistant, now_s)
            return []
        assistant = self._of(peer.name)
        if assistant is None or assistant.merge is None:
            return []
        if peer.assists:
            assistant.merge.progress("assistant", marker)
        elif marker.origin == peer.name and assistant.broker == peer.name:
            assistant.merge.complete(marker)
        elif assistant.broker == broker.name:
            marker = Progress(origin=marker.origin, number=marker.number, sent=self._passed_on.take(peer.name))
            assistant.merge.progress("usual", marker)
            self._to_neighbours(marker, peer.name)
        else:
            assistant.merge.progress("usual", marker)
        return self._go_on(now_s)

    # ---- what an assistant says ----

    def handle(self, peer: Peer, message: AnyMessage, now_s: float) -> None:
        """What an assistant tells is known from the broker that it assists; it shows what the assistant knows."""
        assistant = self._assistants[peer.assists]
        match message:
            case Advertise(id=id):
                assistant.advertisements[id] = None
            case Subscribe(id=id):
                assistant.subscriptions[id] = None
            case Unsubscribe(id=id):
                assistant.subscriptions.pop(id, None)
            case Unadvertise(id=id):
                assistant.advertisements.pop(id, None)
                end = assistant.ended.pop(id, None)
                if end is not None:
                    assistant.ends.append(end)
                    self._end(assistant, now_s)
            case Confirmed():
                self._broker.interests.confirmed(peer.name, message, now_s)
            case Swept():
                assistant.is_complete = True
            case _:
                pass  # the brokers that it reaches are reached through the one that it assists

    def defers_end(self, peer: Peer, end: Unadvertise) -> bool:
        """Whether the end of an advertisement waits: publications before it may be on the assistant's way."""
        assistant = self._assistants.get(peer.name)
        if assistant is None:
            return False
        if end.id in assistant.advertisements:
            assistant.ended[end.id] = end
            return True
        if assistant.merge is not None and len(assistant.merge):
            assistant.ends.append(end)
            return True
        return False
