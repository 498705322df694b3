"""Brokers in the simulated world: a machine with a processor that matches and a bandwidth that its queues share."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.broker.peers import Peer
from trimtab.load.agents import Agent, ClientStayed
from trimtab.load.indices import LoadIndices
from trimtab.protocol.effects import (
    Append,
    Assist,
    Close,
    CloseStream,
    Effect,
    FetchResults,
    Forget,
    OpenStream,
    Record,
    Replace,
)
from trimtab.protocol.events import BackEndEvent, Connected, Disconnected, LinkRemoved, Recovered, Step, Stored, Wake
from trimtab.protocol.frames import Hello, Payload
from trimtab.protocol.messages import AnyMessage, Publish, Redirect
from trimtab.simulation.back_end import BackEnd
from trimtab.simulation.capacity import (
    PUBLICATION_BYTES,
    Capacity,
    frame_bytes,
    matching_delay_s,
    memory_bytes,
)
from trimtab.simulation.checkers import DeliveryChecker
from trimtab.simulation.clock import Clock
from trimtab.simulation.connections import Connection, Frames, Sending, Transport
from trimtab.simulation.disk import Disk
from trimtab.simulation.failures import may_lose
from trimtab.simulation.recording import WorldRecords
from trimtab.simulation.uplinks import ByDeadline, ControlFirst, FirstInFirstOut, Uplink

_STEP: Final = Step()
_WAKE: Final = Wake()
_NEVER_S: Final = float("inf")


class ObservedBroker(Broker):
    """A broker that tells the checker when it takes over a publication, and is otherwise the same."""

    def __init__(
        self, config: BrokerConfig, checker: DeliveryChecker, agents: Sequence[Agent] = (), now_s: float = 0.0
    ) -> None:
        super().__init__(config, agents, now_s)
        self._checker = checker
        self.last_publication_bytes = PUBLICATION_BYTES
        """The size of the publication that was matched last."""
        self.keeps_clients = False
        """Whether clients that agents want to send elsewhere stay, in order to see what becomes of them here."""
        self.may_lose_all = False
        """Whether it is an assistant of a broker that has died: what it has may be lost with it."""

    def send(self, name: str, message: AnyMessage, now_s: float) -> None:
        if self.keeps_clients and isinstance(message, Redirect):
            self.tell_agents_of_move(ClientStayed(name, message.cause, "this broker keeps its clients"), name, now_s)
        else:
            super().send(name, message, now_s)

    def route(self, source: str, message: Publish, now_s: float) -> list[Effect]:
        if self.sizes_bytes:
            self.last_publication_bytes = self.sizes_bytes.get(message.publisher, PUBLICATION_BYTES)
        effects = super().route(source, message, now_s)
        if self.config.replica and (self.may_lose_all or may_lose(self)):
            self._checker.may_be_lost(message.publisher, message.sequence)
        return effects

    def _take_over(self, peer: Peer, message: Publish, now_s: float) -> bool:
        taken = super()._take_over(peer, message, now_s)
        if taken:
            self._checker.accepted(message.publisher, message.sequence, message.values, now_s)
        return taken

    def _drop_oldest(self, peer: Peer) -> Publish | None:
        dropped = super()._drop_oldest(peer)
        if dropped is not None:
            self._checker.dropped(peer.name, dropped.publisher, dropped.sequence)
        return dropped

    def remove_peer(self, name: str, now_s: float) -> None:
        peer = self.peers.get(name)
        if peer is not None and peer.lease_ends_s is not None and now_s >= peer.lease_ends_s:
            self._checker.lapsed(subscription_of(wire_id) for wire_id in peer.subscriptions)
        super().remove_peer(name, now_s)


class BoundedBroker(ObservedBroker):
    """A broker whose queues for clients are bounded by what a slow client loses, and are watched."""

    def _queue_is_full(self, peer: Peer) -> list[Effect]:
        effects = super()._queue_is_full(peer)
        if any(isinstance(effect, Close) for effect in effects):
            self._checker.disconnected(peer.name)
        elif peer.role == "client":
            max_count = self.config.client_queue_max_count + self.config.link.window_frames_count
            if peer.link.queued_data_count > max_count:
                self._checker.violate("queue", f"{peer.link.queued_data_count} messages of {self.name} for {peer.name}")
        return effects


def subscription_of(wire_id: str) -> str:
    """The subscription that brokers know by this id, which each move changes.

    >>> subscription_of("alice/s1@3"), subscription_of("alice/s1")
    ('alice/s1', 'alice/s1')
    """
    return wire_id.rpartition("@")[0] or wire_id


class BrokerHost:
    """A broker and its machine."""

    def __init__(
        self,
        broker: ObservedBroker,
        capacity: Capacity,
        clock: Clock,
        transport: Transport,
        closed: list[Close],
        *,
        commit_s: float,
        acknowledge_after_s: float,
        uplink: Uplink = "turns",
    ) -> None:
        self.name = broker.name
        self.broker = broker
        self.capacity = capacity
        self.connections: dict[str, Connection] = {}
        self.is_paused = False
        self.records: WorldRecords | None = None
        """Told what the broker's agents have for the records, where records are wanted."""
        self.back_end: BackEnd | None = None
        """Where channels come from, if anywhere."""
        self.provide: Callable[[Replace | Assist], None] | None = None
        """Who starts replicas and assistants, if anybody does."""
        self.disk: Disk | None = None
        """What it stores stays when it dies, if it stores anything."""
        self.is_dead = False
        self._clock = clock
        self._transport = transport
        self._closed = closed
        self._commit_s = commit_s
        self._acknowledge_after_s = acknowledge_after_s
        self._s_per_byte = 8 / capacity.bandwidth_mbps / 1e6 if capacity.bandwidth_mbps else 0.0
        self._meters = broker.meters
        self._is_matching = False
        self._sends_until_s = 0.0
        """When what was committed has been sent; nothing else leaves before."""
        self._goes_on_then = False
        """Whether that time is planned for, because something waits for it."""
        self._is_stopped = False
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._arrived_s: deque[float] = deque()
        """When the publications of the input queue arrived."""
        self._turn: OrderedDict[str, None] | FirstInFirstOut | ByDeadline | ControlFirst = OrderedDict()
        """Peers that may have a frame to send, the one whose turn it is first."""
        if uplink == "fifo":
            self._turn = FirstInFirstOut()
        elif uplink == "deadlines":
            self._turn = ByDeadline(broker, clock)
        elif uplink == "control-first":
            self._turn = ControlFirst(broker)
        self._owing: dict[str, None] = {}
        """Neighbours that are owed nothing but an acknowledgement, which may wait a little."""
        self._wake_s = _NEVER_S

    def load(self) -> LoadIndices:
        """The broker's load at this moment, with modelled times, bytes and memory."""
        self._tell_load()
        return self.broker.read_load(self._clock.now_s)

    def _tell_load(self) -> None:
        """Tell the broker what its machine knows: how long its output queues take, and its memory."""
        output_count = self.broker.output_count
        self._meters.sent(output_count * PUBLICATION_BYTES * self._s_per_byte)
        self.broker.memory_bytes = memory_bytes(self.broker, output_count)

    @property
    def is_stopped(self) -> bool:
        """Whether it does nothing any more: it is dead, or hangs for good."""
        return self._is_stopped

    # ---- the connections' side ----

    def greeting(self, peer: str) -> Hello:
        """What the broker greets a peer with."""
        return self.broker.greeting(peer)

    def connected(self, peer: str, hello: Hello) -> None:
        """A peer's greeting arrived."""
        self._carry_out(self.broker.handle(Connected(peer, hello), self._clock.now_s))
        self.pump()

    def disconnected(self, peer: str) -> None:
        """The connection to a peer is gone."""
        self._carry_out(self.broker.handle(Disconnected(peer), self._clock.now_s))
        self.pump()

    def left(self, peer: str) -> None:
        """A client or neighbour is gone for good."""
        if not self.waits(self.left, peer):
            self._carry_out(self.broker.handle(LinkRemoved(peer), self._clock.now_s))
            self.pump()

    def receive(self, peer: str, frames: Frames, at_s: float) -> bool:
        """Hand frames to the broker's input queue."""
        for frame in frames:
            self.broker.receive(peer, frame, at_s)
            if type(frame) is Payload and type(frame.messages[-1]) is Publish:
                count = sum(type(message) is Publish for message in frame.messages)
                self._meters.arrived(at_s, count)
                self._arrived_s.extend([at_s] * count)
        return True

    def read(self) -> None:
        """Whatever arrives is handed over."""

    def owe(self) -> None:
        """Whatever arrives is handed over."""

    def mount(self, disk: Disk) -> None:
        """Find what an earlier life has stored."""
        self.disk = disk
        stored = disk.mount(self._stored)
        self._carry_out(self.broker.handle(Recovered(stored), self._clock.now_s))
        self._plan_wake()

    def _stored(self, number: int) -> None:
        if not self.waits(self._stored, number):
            self._carry_out(self.broker.handle(Stored(number), self._clock.now_s))
            self.pump()

    def change_agents(self, agents: Sequence[Agent]) -> None:
        """Let these agents work in the broker from now on."""
        self.broker.change_agents(agents, self._clock.now_s)
        self._carry_out(self.broker.handle(_WAKE, self._clock.now_s))
        self.pump()

    # ---- pauses ----

    def pause(self, for_s: float) -> bool:
        """Do nothing for a while; whether that is new."""
        if self.is_paused:
            return False
        self.is_paused = True
        self._clock.at(self._clock.now_s + for_s, self._resume)
        return True

    def stop(self, *, is_dead: bool) -> None:
        """Do nothing any more; a dead broker has not even a memory of what arrives."""
        self.is_paused = True
        self.is_dead = self.is_dead or is_dead
        self._is_stopped = True

    def _resume(self) -> None:
        if self._is_stopped:
            return
        self.is_paused = False
        waiting, self._waiting = self._waiting, deque()
        for action, arguments in waiting:
            action(*arguments)
        self.pump()

    def waits(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Whether the broker is paused; if so it does this later."""
        if self.is_paused and not self._is_stopped:
            self._waiting.append((action, arguments))
        return self.is_paused

    def back_end_said(self, event: BackEndEvent) -> None:
        """News or an answer of the back end."""
        self._carry_out(self.broker.handle(event, self._clock.now_s))
        self.pump()

    # ---- work ----

    def pump(self) -> None:
        """Let the broker do all it can at this moment: control at once, publications as its CPU allows, then send."""
        if self.is_paused:
            return
        broker = self.broker
        while True:
            while not self._is_matching and broker.input_count:
                if self.capacity.cpu_mhz and broker.next_is_publication:
                    delay_s = matching_delay_s(len(broker.tables.subscriptions), self.capacity.cpu_mhz)
                    self._is_matching = True
                    self._clock.at(self._clock.now_s + delay_s, self._matched, delay_s)
                else:
                    self._step(0.0)
            if self._s_per_byte:
                self._send_paced()
            else:
                self._send_all()
            if self._is_matching or not broker.input_count:
                break  # otherwise sending has made room for what was held back
        self._plan_wake()

    def _matched(self, delay_s: float) -> None:
        if self.waits(self._matched, delay_s):
            return
        self._is_matching = False
        broker = self.broker
        while broker.input_count and not broker.next_is_publication:
            self._step(0.0)
        if broker.input_count:
            self._step(delay_s)
        self.pump()

    def _step(self, matching_s: float) -> None:
        broker, now_s = self.broker, self._clock.now_s
        counters = broker.counters
        in_count, out_count = counters.publications_in_count, counters.publications_out_count
        self._carry_out(broker.handle(_STEP, now_s))
        arrived_s = now_s
        while len(self._arrived_s) > broker.input_count + broker.held_count:
            arrived_s = self._arrived_s.popleft()
        if counters.publications_in_count > in_count:
            self._meters.matched(matching_s, now_s - arrived_s - matching_s, now_s)
            copies_count = counters.publications_out_count - out_count
            self._meters.queued_output(copies_count * broker.last_publication_bytes, now_s)

    def _touched(self) -> dict[str, None]:
        """Peers that may have something to send; a neighbour that is owed nothing but an acknowledgement waits."""
        broker = self.broker
        touched = broker.touched()
        if not touched or not self._acknowledge_after_s:
            return touched
        for name in broker.tables.neighbours:
            if name in touched and name in self.connections and broker.owes_only_ack(name):
                if not self._owing:
                    self._clock.at(self._clock.now_s + self._acknowledge_after_s, self._acknowledge)
                self._owing[name] = None
                del touched[name]
        return touched

    def _acknowledge(self) -> None:
        owing, self._owing = self._owing, {}
        if self.waits(self._acknowledge_to, owing):
            return
        self._acknowledge_to(owing)

    def _acknowledge_to(self, owing: Mapping[str, None]) -> None:
        for name in owing:
            connection = self.connections.get(name)
            if connection is not None and self.broker.owes_only_ack(name):
                frame = self.broker.take_frame(name, self._clock.now_s)
                if frame is not None:
                    self._transport.transmit(connection, self.name, [frame], self._clock.now_s)

    def _send_all(self) -> None:
        take, now_s = self.broker.take_frames, self._clock.now_s
        sendings: list[Sending] = []
        for peer in self._touched():
            frames = take(peer, now_s)
            connection = self.connections.get(peer)
            if frames and connection is not None:
                sendings.append((connection, self.name, frames, now_s))
        if sendings:
            self._transport.transmit_bundled(sendings)

    def _send_paced(self) -> None:
        """Send at the broker's bandwidth, one frame after the other; the peers with something to send take turns.

        What fits into a short time is committed at once, so that a frame that comes then waits for that time's end.
        """
        turn = self._turn
        for peer in self._touched():
            turn[peer] = None
        if not turn or self._goes_on_then:
            return
        now_s = self._clock.now_s
        if now_s < self._sends_until_s:
            self._goes_on_then = True
            self._clock.at(self._sends_until_s, self._sent)
            return
        departs_s, until_s = now_s, now_s + self._commit_s
        take, s_per_byte, connections = self.broker.take_in_turn, self._s_per_byte, self.connections
        name, publication_s, sizes_bytes = self.name, PUBLICATION_BYTES * s_per_byte, self.broker.sizes_bytes
        sendings: list[Sending] = []
        laid_count = 0
        while turn:
            peer, _ = turn.popitem(last=False)
            frame, has_more = take(peer, departs_s)
            if frame is None:
                continue
            if has_more:
                turn.setdefault(peer)
            connection = connections.get(peer)
            if type(frame) is Payload and type(message := frame.messages[0]) is Publish:
                if sizes_bytes and message.publisher in sizes_bytes:
                    departs_s += sizes_bytes[message.publisher] * s_per_byte
                else:
                    departs_s += publication_s
                if connection is not None and connection.is_read_later and connection.lay(frame, departs_s):
                    laid_count += 1
                    connection = None
            else:
                departs_s += frame_bytes(frame) * s_per_byte
            if connection is not None:
                sendings.append((connection, name, [frame], departs_s))
            if departs_s >= until_s:
                break
        if laid_count:
            self._transport.note_bundle(name, laid_count)
        self._sends_until_s = departs_s
        if turn and departs_s > now_s:
            self._goes_on_then = True
            self._clock.at(departs_s, self._sent)
        if sendings:
            self._transport.transmit_bundled(sendings)

    def _sent(self) -> None:
        self._goes_on_then = False
        self.pump()

    def _plan_wake(self) -> None:
        wake_s = self.broker.wake_at_s(self._wake_s)
        if wake_s is not None and wake_s < self._wake_s:
            self._wake_s = wake_s
            self._clock.at(wake_s, self._wake, wake_s)

    def _wake(self, planned_s: float) -> None:
        if self._wake_s == planned_s:
            self._wake_s = _NEVER_S
        if not self.is_paused:
            self._tell_load()
            self._carry_out(self.broker.handle(_WAKE, self._clock.now_s))
            self.pump()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Close):
                self._closed.append(effect)
                connection = self.connections[effect.peer]
                connection.stays_down = True
                self._transport.take_down(connection)
                connection.host_opposite(self.name).dismissed(self.name, effect.reason)
            elif isinstance(effect, Record):
                if self.records is not None:
                    self.records.told(effect.record)
            elif isinstance(effect, Replace | Assist):
                if self.provide is not None:
                    self.provide(effect)
            elif isinstance(effect, Append | Forget) and self.disk is not None:
                if isinstance(effect, Append):
                    self.disk.append(effect)
                else:
                    self.disk.forget(effect)
            elif isinstance(effect, OpenStream | CloseStream | FetchResults) and self.back_end is not None:
                self.back_end.ask(self, effect)

    def dismissed(self, peer: str, reason: str) -> None:
        """A neighbour has closed the connection; it comes back only if somebody links the two again."""
