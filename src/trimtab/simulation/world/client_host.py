"""Client sessions in the simulated world: where they are connected, and what their applications see."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from trimtab.client.session import ClientSession, WindowFull
from trimtab.language import Publication
from trimtab.protocol.effects import (
    Close,
    Deliver,
    Effect,
    GapNotice,
    InForce,
    MeasureRoundTrips,
    Moved,
    NotMoved,
    Open,
    Rejected,
    Shut,
    Taken,
    Throttled,
)
from trimtab.protocol.events import Connected, Disconnected, MoveTo, RoundTripsMeasured, Wake
from trimtab.protocol.frames import Hello, Payload
from trimtab.simulation.checkers.deliveries import DeliveryChecker
from trimtab.simulation.world.broker_host import BrokerHost
from trimtab.simulation.world.clock import Clock
from trimtab.simulation.world.connections import Connection, Frames, Sending, Transport
from trimtab.simulation.world.recording import WorldRecords
from trimtab.simulation.world.trace import Trace

_WAKE: Final = Wake()
_NEVER_S: Final = float("inf")
_ROUNDING: Final = 1e-6
"""A time so near to the next of regular ones, in units of their distance, is that time."""


class Surroundings:
    """What all clients of a world share."""

    def __init__(  # noqa: PLR0917 (parts of a world)
        self,
        clock: Clock,
        transport: Transport,
        trace: Trace,
        checker: DeliveryChecker,
        acknowledge_after_s: float,
        acknowledge_max_count: int,
        *,
        reads_later: bool,
    ) -> None:
        self.clock = clock
        self.transport = transport
        self.trace = trace
        self.checker = checker
        self.brokers: dict[str, BrokerHost] = {}
        self.closed: list[Close] = []
        self.records: WorldRecords | None = None
        """Told what happens, where records are wanted."""
        self.moves_count = 0
        self.moves_refused_count = 0
        self.acknowledge_after_s = acknowledge_after_s
        self.acknowledge_max_count = acknowledge_max_count
        """A client that has so many frames to acknowledge does so at once, lest its broker's window fill up."""
        self.reads_later = reads_later
        """Whether clients may let publications lie in their connections until they acknowledge them."""
        self.owing: dict[str, ClientHost] = {}
        """Clients that owe nothing but an acknowledgement, which may wait a little for others."""

    def owe(self, client: ClientHost) -> None:
        """A client's acknowledgement waits with those of others, until the next of the times when all acknowledge."""
        if not self.owing:
            after_s = self.acknowledge_after_s
            number = int(self.clock.now_s / after_s + _ROUNDING) + 1
            self.clock.at(number * after_s, self._acknowledge_all)
        self.owing[client.name] = client

    def read_all(self) -> None:
        """Let all clients read what has arrived."""
        for client in list(self.owing.values()):
            client.read()

    def _acknowledge_all(self) -> None:
        owing, self.owing = self.owing, {}
        now_s = self.clock.now_s
        sendings: list[Sending] = []
        for client in owing.values():
            client.read()
            client.owed_count = 0
            link, connections = client.session.link, list(client.connections.values())
            if any(connection.unread for connection in connections):
                self.owe(client)
            if len(connections) != 1 or link.has_more_than_ack():
                client.send()
                continue
            ack = link.take(now_s)
            if ack is not None:
                sendings.append((connections[0], client.name, [ack], now_s))
        self.transport.transmit_bundled(sendings)


class ClientHost:
    """A client session and where it is connected."""

    def __init__(self, session: ClientSession, surroundings: Surroundings, latency_s: float) -> None:
        self.name = session.name
        self.is_paused = self.is_dead = False
        self.session = session
        self.connections: dict[str, Connection] = {}
        """By broker: one, or two during a move."""
        self.latency_s = latency_s
        self.has_left = False
        self.dismissed_because = ""
        """What the broker said that closed the connection for good."""
        self.told: Counter[str] = Counter()
        """Why the broker refused or held back what the client sent."""
        self.reads = True
        """Whether the application reads what arrives; if not, all that it is sent stays in its connection."""
        self.held_back: deque[Publication] = deque()
        """Publications that wait for room in the session's window."""
        self.owed_count = 0
        self._around = surroundings
        self._clock = surroundings.clock
        self._checker = surroundings.checker
        self._wake_s = _NEVER_S

    # ---- the application's side ----

    def stop_reading(self) -> None:
        """The application reads nothing more; all that it is sent from now on stays in its connection."""
        self.read()
        self.reads = False
        self._look_when_to_read()

    def publish(self, publication: Publication) -> None:
        """Publish; if the window is full the publication waits for room."""
        self.read()
        self.held_back.append(publication)
        self._publish_held_back()
        self.send()

    def move(self, broker: str) -> None:
        """Ask the session to go on at another broker."""
        self.read()
        self._carry_out_all(self.session.handle(MoveTo(broker), self._clock.now_s))
        self.send()

    def leave(self) -> None:
        """Go for good."""
        self.read()
        self.has_left = True
        for broker in list(self.connections):
            self._shut(broker)
            self.session.handle(Disconnected(broker), self._clock.now_s)

    def _publish_held_back(self) -> None:
        while self.held_back and not self.session.window_is_full:
            try:
                sequence = self.session.publish(self.held_back[0], self._clock.now_s)
            except WindowFull:
                return
            self.held_back.popleft()
            self._checker.published(self.name, sequence)

    # ---- the connections' side ----

    def greeting(self, peer: str) -> Hello:
        """What the session greets a broker with."""
        return self.session.greeting(peer)

    def connected(self, peer: str, hello: Hello) -> None:
        """A broker's greeting arrived."""
        self.read()
        self._carry_out_all(self.session.handle(Connected(peer, hello), self._clock.now_s))
        self.send()

    def disconnected(self, peer: str, *, returns: bool = False) -> None:
        """The connection to a broker is gone."""
        self.read()
        self.session.handle(Disconnected(peer), self._clock.now_s)
        if self.session.is_moving:
            self._plan_wake()

    def dismissed(self, peer: str, reason: str) -> None:
        """A broker has closed the connection and told why; the application ends."""
        self.dismissed_because = reason
        self.connections.pop(peer, None)
        self.leave()

    def waits(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Clients are never paused."""
        return False

    def receive(self, peer: str, frames: Frames, at_s: float) -> bool:
        """Hand frames to the session and what it delivers to the checker; a mere acknowledgement may wait."""
        if not self.reads:
            return False
        self.read()
        session, around, name = self.session, self._around, self.name
        for frame in frames:
            for effect in session.receive(peer, frame, at_s):
                self._carry_out(effect, at_s)
            self.owed_count += len(frame.messages) if type(frame) is Payload else 1
        session.consumed()
        self._look_when_to_read()
        if (
            not around.acknowledge_after_s
            or self.owed_count > around.acknowledge_max_count
            or len(self.connections) != 1
            or session.link.has_more_than_ack()
        ):
            return True
        if name not in around.owing:
            around.owe(self)
        return False

    def read(self) -> None:
        """Hand the session what has arrived since it was last looked at, each frame with its own time."""
        for broker, connection in self.connections.items():
            if connection.unread:
                self._read(broker, connection.take_unread(self._clock.now_s))
                return  # only a client with one connection reads later

    def _read(self, broker: str, arrivals: list[tuple[float, Payload]]) -> None:
        if not arrivals:
            return
        session, around, name = self.session, self._around, self.name
        delivered = session.receive_run(broker, arrivals)
        if delivered is None:
            for at_s, frame in arrivals:
                for effect in session.receive(broker, frame, at_s):
                    self._carry_out(effect, at_s)
        else:
            around.checker.delivered_run(name, delivered)
            around.trace.add((name, [(at_s, deliver.publisher, deliver.sequence) for at_s, deliver in delivered]))
            if around.records is not None and around.records.wants_deliveries:
                for at_s, deliver in delivered:
                    around.records.delivered(session, deliver, at_s)
        self.owed_count += len(arrivals)
        session.consumed()

    def owe(self) -> None:
        """Read and acknowledge what lies in the connection before long."""
        if self.name not in self._around.owing:
            self._around.owe(self)

    def _look_when_to_read(self) -> None:
        """Publications may be read later where they are the only thing to happen to the client."""
        is_quiet = self.reads and len(self.connections) == 1 and not self.session.is_moving and self._around.reads_later
        for connection in self.connections.values():
            connection.is_read_later = is_quiet and connection.is_plain and connection.is_greeted

    def pump(self) -> None:
        """Send what there is to say."""
        self.send()

    def send(self) -> None:
        """Send all that can be sent, and plan when to look after what is not acknowledged."""
        self._look_when_to_read()
        session, now_s = self.session, self._clock.now_s
        self.owed_count = 0
        for broker, connection in self.connections.items():
            frames: Frames = []
            while (frame := session.take_frame(now_s, broker)) is not None:
                frames.append(frame)
            if frames:
                self._around.transport.transmit(connection, self.name, frames, now_s)
        self._plan_wake()

    def _plan_wake(self) -> None:
        wake_s = self.session.wake_at_s()
        if wake_s is not None and wake_s < self._wake_s:
            self._wake_s = wake_s
            self._clock.at(wake_s, self._wake, wake_s)

    def _wake(self, planned_s: float) -> None:
        if self._wake_s == planned_s:
            self._wake_s = _NEVER_S
        if self.has_left:
            return
        self.read()
        self._carry_out_all(self.session.handle(_WAKE, self._clock.now_s))
        self.send()

    # ---- effects ----

    def _carry_out_all(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._carry_out(effect, self._clock.now_s)

    def _carry_out(self, effect: Effect, at_s: float) -> None:
        records = self._around.records
        match effect:
            case Deliver():
                self._checker.delivered(self.name, effect, at_s)
                self._around.trace.add((at_s, self.name, effect.publisher, effect.sequence, effect.subscriptions))
                if records is not None:
                    records.delivered(self.session, effect, at_s)
            case InForce(id=id, position=position):
                if position is None:
                    self._checker.in_force(id, at_s)
                else:
                    self._checker.channels.in_force(id, position)
            case Taken(sequence=sequence):
                self._checker.taken(self.name, sequence)
                self._publish_held_back()
            case NotMoved(broker=broker, reason=reason):
                self._around.moves_refused_count += 1
                if records is not None:
                    records.stayed(self.session, broker, reason, at_s)
            case GapNotice():
                self._checker.told_gap(self.name, effect, at_s)
                self._around.trace.add((at_s, self.name, "gap", effect.publisher, effect.first, effect.last))
                if records is not None:
                    records.gap_told(self.session, effect, at_s)
            case Throttled(reason=reason):
                self.told[reason] += 1
            case Rejected(about=about, reason=reason):
                self.told[reason] += 1
                self._checker.rejected(self.name, about, reason, at_s)
            case Close():
                self._around.closed.append(effect)
            case Open(broker=broker, cause=cause):
                if records is not None:
                    records.move_began(self.session, cause, at_s)
                self.open(broker)
            case Shut(broker=broker):
                self._shut(broker)
            case MeasureRoundTrips(question=question, addresses=addresses):
                self._measure(question, list(addresses))
            case Moved(waited_s=waited_s):
                self._around.moves_count += 1
                if records is not None:
                    records.moved(self.session, waited_s, at_s)

    def _measure(self, question: str, brokers: list[str]) -> None:
        """Tell the session how far brokers are, when the farthest has answered; one that is paused does not."""
        known = self._around.brokers
        there_and_back_s = 2 * self.latency_s
        reached = {name: there_and_back_s for name in brokers if name in known and not known[name].is_paused}
        answer = RoundTripsMeasured(question, reached)
        self._clock.at(self._clock.now_s + there_and_back_s, self._measured, answer)

    def _measured(self, answer: RoundTripsMeasured) -> None:
        if not self.has_left:
            self.read()
            self._carry_out_all(self.session.handle(answer, self._clock.now_s))
            self.send()

    def open(self, broker: str) -> None:
        """Connect to a broker."""
        host = self._around.brokers[broker]
        self.read()
        connection = self._around.transport.join(self, host, self.latency_s, is_inner=False)
        host.connections[self.name] = connection
        self.connections[broker] = connection
        self._look_when_to_read()

    def _shut(self, broker: str) -> None:
        """Leave a broker for good; if the connection is down, the broker finds out by itself."""
        connection = self.connections.pop(broker)
        self._around.transport.shut(connection, self.name, lambda: self._around.brokers[broker].left(self.name))
