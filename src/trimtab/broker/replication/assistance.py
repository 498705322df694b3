"""A broker's part where an assistant shares the load of a broker that is congested.

The assistant has a name of its own. It is linked to all neighbours of the congested broker, and to that broker for the
sake of its clients. It is told what that broker is told, and tells nobody anything new: what the congested broker has
told is what counts. Subscriptions are confirmed when both know them, so that a publication may take either way. How the
order of what has taken two ways is restored, also when the assistant leaves or somebody dies, stands in `divisions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.broker.peers import Peer
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.broker.replication.divisions import Division, Divisions
from trimtab.broker.replication.retention import RetainingLink
from trimtab.broker.replication.scheduling import ScheduledQueue
from trimtab.protocol.codec import decode_publication
from trimtab.protocol.effects import Effect
from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import (
    Advertise,
    AnyMessage,
    Confirmed,
    OneWay,
    Progress,
    Publish,
    Relieved,
    Sent,
    Subscribe,
    Swept,
    Unadvertise,
    Unsubscribe,
)
from trimtab.protocol.versions import is_known

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


_MARKERS_PER_INCARNATION_COUNT: Final = 1_000_000_000
"""Markers of another incarnation have other numbers."""


class Assistance:
    """Assistants that this broker knows."""

    def __init__(self, broker: Broker, config: ReplicationConfig) -> None:
        self._broker = broker
        self._config = config
        self._begun: dict[str, Progress] = {}
        """Brokers that say that they have an assistant, of which nothing has been heard yet."""
        self._passed_on = PassedOn()
        self._now_s = 0.0
        self.divisions = Divisions(broker, self)
        self._by_broker = self.divisions.by_broker

    # ---- an assistant comes ----

    def problem_with(self, hello: Hello) -> str:
        """Why an assistant is not taken, empty if it is."""
        broker = self._broker
        if broker.safe is not None and not (hello.reorders and hello.replica == "synchronous"):
            return "what is safe must stay in order: its assistants re-order, and know all routes (synchronous)"
        if hello.assists != broker.name and hello.assists not in broker.tables.neighbours:
            return f"{hello.assists} is no neighbour of {broker.name}"
        assisted = broker.peers.get(hello.assists)
        if hello.epoch != (broker.epoch if assisted is None else assisted.incarnation):
            return f"{hello.assists} needs no assistant any more"  # it assists an earlier incarnation
        speaking = broker.tables.neighbours if assisted is None else {hello.assists: 0}
        if old := [name for name in speaking if not is_known(OneWay(), broker.peers[name].version)]:
            return f"{old[0]} speaks a version of the protocol in which assistants cannot leave"
        if self._by_broker:
            return f"{broker.name} or a neighbour of it has an assistant already, and two so near do not fit"
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
        if isinstance(peer.link, RetainingLink):
            peer.link.counts_done = True
        is_own = hello.assists == broker.name
        streams = list(broker.tables.neighbours) if is_own else [hello.assists]
        division = Division(hello.assists, (peer.name, *streams), hello)
        division.markers_count = broker.epoch * _MARKERS_PER_INCARNATION_COUNT
        self.divisions.begin(division)
        broker.input.same_side[peer.name] = hello.assists
        broker.add_stage(self)
        broker.interests.say(broker.tables.add_twin(peer.name, "" if is_own else hello.assists), now_s)
        if is_own:
            self.begin_if_still(now_s)
            return
        congested = broker.peers[hello.assists]
        congested.queue = ScheduledQueue(
            congested.link,
            peer.link,
            self._config.relieved_count,
            lambda message: self._may_assist(division, message),
            lambda: self._sent(division),
        )
        if self._begun.pop(hello.assists, None) is not None:
            division.has_begun = True

    def is_assistant(self, name: str) -> bool:
        """Whether a neighbour is an assistant."""
        return any(name == division.assistant for division in self._by_broker.values())

    def has_assistant(self, name: str) -> bool:
        """Whether a neighbour has one, or its publications are not in order yet since it had."""
        return name in self._by_broker

    def divides(self, name: str) -> bool:
        """Whether what goes to a neighbour or comes from it may take two ways."""
        return name in self._by_broker or self._broker.name in self._by_broker

    def is_told(self, name: str) -> bool:
        """Whether a neighbour has an assistant that knows all routes."""
        return name in self._by_broker and self._by_broker[name].is_complete

    def has_left(self) -> None:
        """No assistant is known any more."""
        if not self._by_broker:
            self._broker.remove_stage(self)

    # ---- publications ----

    def choose_hops(self, source: str, hops: list[str]) -> list[str]:
        """What came from a neighbour's assistant does not go to that neighbour, and from our own to clients only."""
        broker, division = self._broker, self.divisions.by_source.get(source)
        if division is None or source != division.assistant:
            return hops
        if division.broker == broker.name:
            return [hop for hop in hops if hop not in broker.tables.neighbours]
        return [hop for hop in hops if hop != division.broker]

    def publication(self, source: str, message: Publish, place: int, now_s: float) -> list[Effect]:
        """What takes one way to this broker, which has an assistant, takes one way to all: it is marked for them."""
        self._now_s = now_s
        own = self._by_broker.get(self._broker.name)
        if own is not None and own.has_begun and source not in self.divisions.by_source:
            self._passed_on.note(self._broker.name, message)
            self._plan(own, now_s)
        return self._broker.after_stage(place, source, message, now_s)

    def came_from_neighbour(self, source: str, message: Publish) -> None:
        """A publication has come to this broker, which has an assistant, over its own way."""
        self._passed_on.note(source, message)

    def _may_assist(self, division: Division, message: Publish | bytes) -> bool:
        if not division.has_begun:
            return False
        if division.is_complete or division.protocol == "basic":
            return True
        if division.protocol != "incremental":
            return False
        values = message.values if isinstance(message, Publish) else decode_publication(message).values
        matching = self._broker.tables.matching_from(division.broker, values)
        return any(id in division.subscriptions for id in matching)

    # ---- markers ----

    def _sent(self, division: Division) -> None:
        """A publication was sent over one of the ways."""
        self._broker.output.touch(division.assistant)
        if division.merge is not None:
            self._plan(division, self._now_s)

    def _plan(self, division: Division, now_s: float) -> None:
        if division.due_s is None and division.has_begun:
            division.due_s = now_s + self._config.progress_every_s

    def wake_at_s(self) -> float | None:
        """When the next marker is due."""
        due_s = [division.due_s for division in self._by_broker.values() if division.due_s is not None]
        return min(due_s, default=None)

    def wake(self, now_s: float) -> None:
        """Send markers that are due."""
        self._now_s = now_s
        for division in self._by_broker.values():
            if division.due_s is not None and now_s >= division.due_s:
                self._mark(division, now_s)

    def _mark(self, division: Division, now_s: float) -> None:
        broker = self._broker
        division.due_s = None
        division.markers_count += 1
        if division.broker == broker.name:
            sent = self._passed_on.take(broker.name)
            self._to_neighbours(Progress(origin=broker.name, number=division.markers_count, sent=sent))
        elif not division.has_left:
            marker = Progress(origin=broker.name, number=division.markers_count)
            for name in (division.broker, division.assistant):
                broker.send(name, marker, now_s)

    def begin_if_still(self, now_s: float) -> None:
        """From here on publications may take two ways: those that have passed this broker took its own.

        Not while a publisher's move is under way: its end stands behind what was published before, on this way alone.
        """
        own = self._by_broker.get(self._broker.name)
        if own is None or not (own.is_complete or own.protocol in ("basic", "incremental")):
            return
        if not own.has_begun and not self._broker.moves.is_publisher_under_way(now_s):
            own.has_begun = True
            self._to_neighbours(Progress(origin=self._broker.name, number=0))

    def _to_neighbours(self, marker: Progress) -> None:
        for peer in list(self._broker.peers.values()):
            if peer.role == "broker" and not peer.assists and peer.name != marker.origin:
                self._broker.send(peer.name, marker, self._now_s)

    def progress(self, peer: Peer, marker: Progress, now_s: float) -> None:
        """A marker has its turn."""
        broker = self._broker
        self._now_s = now_s
        if marker.number == 0 and marker.origin == peer.name:
            division = self._by_broker.get(peer.name)
            if division is None:
                self._begun[peer.name] = marker
            else:
                division.has_begun = True
                self._plan(division, now_s)
            return
        division = self.divisions.by_source.get(peer.name)
        if division is None or division.merge is None:
            return
        if marker.origin == peer.name and division.broker == peer.name:
            division.merge.complete(marker)
            complete = None
        else:
            if division.broker == broker.name and not peer.assists:
                sent = self._passed_on.take(peer.name)
                marker = Progress(origin=marker.origin, number=marker.number, sent=sent)
            complete = division.merge.progress("assistant" if peer.assists else "usual", marker)
        self.divisions.go_on(division)
        if complete is not None and division.broker == broker.name:
            self._to_neighbours(complete)

    # ---- what an assistant says ----

    def handle(self, peer: Peer, message: AnyMessage, now_s: float) -> None:
        """What an assistant tells is known from the broker that it assists; it shows what the assistant knows."""
        self._now_s = now_s
        division = self._by_broker.get(peer.assists)
        if division is None:
            return
        match message:
            case Progress():
                self.progress(peer, message, now_s)
            case Advertise(id=id):
                division.advertisements[id] = None
            case Subscribe(id=id):
                division.subscriptions[id] = None
            case Unsubscribe(id=id):
                division.subscriptions.pop(id, None)
            case Unadvertise(id=id):
                division.advertisements.pop(id, None)
                self.divisions.assistant_ended(division, id)
            case Confirmed():
                self._broker.interests.confirmed(peer.name, message, now_s)
            case Swept():
                division.is_complete = True
                self.begin_if_still(now_s)
            case Relieved():
                self._give_nothing_more(division, now_s)
            case _:
                pass  # the brokers that it reaches are reached through the one that it assists

    def _give_nothing_more(self, division: Division, now_s: float) -> None:
        """An assistant wants to leave: a last marker over both ways, and the end of what it is given."""
        if division.is_ending:
            return
        if division.broker != self._broker.name:
            congested = self._broker.peers[division.broker]
            congested.queue = congested.link.data
            if division.merge is not None:
                self._mark(division, now_s)
        self.divisions.end(division, now_s)
