"""Brokers in the simulated world: a machine with a processor that matches and a bandwidth that its queues share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.broker.flow.uplink import AnyUplink, UplinkScheduler
from trimtab.broker.log.log_contents import Key
from trimtab.load.indices import LoadIndices
from trimtab.policies.api import Agent
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
from trimtab.protocol.events import (
    BackEndEvent,
    Connected,
    Disconnected,
    DiskSpaceChanged,
    Event,
    LeftBehind,
    LinkRemoved,
    LoadMeasured,
    Recovered,
    Step,
    Stored,
    Wake,
)
from trimtab.protocol.frames import Hello, Payload
from trimtab.protocol.messages import Publish
from trimtab.simulation.checkers.deliveries import DeliveryChecker
from trimtab.simulation.world.back_end import BackEnd
from trimtab.simulation.world.capacity import (
    PUBLICATION_BYTES,
    SimulatedCapacity,
    frame_bytes,
    matching_delay_s,
    memory_bytes,
)
from trimtab.simulation.world.clock import Clock
from trimtab.simulation.world.connections import Connection, Frames, Sending, Transport
from trimtab.simulation.world.disk import Disk
from trimtab.simulation.world.recording import WorldRecords

_STEP: Final = Step()
_WAKE: Final = Wake()
_NEVER_S: Final = float("inf")


class CheckingObserver:
    """Tells the checker of deliveries what a broker does."""

    def __init__(self, config: BrokerConfig, checker: DeliveryChecker) -> None:
        self._name = config.name
        self._checker = checker
        self._is_basic = config.replica == "basic" and not config.assists
        self._queued_max_count: int | None = None
        """What may wait for a client, where slow clients lose something; sources of others are held back."""
        if config.slow_policy != "block":
            self._queued_max_count = config.client_queue_max_count + config.link.window_frames_count

    def accepted(self, message: Publish, now_s: float) -> None:
        """It is to be delivered."""
        self._checker.accepted(message.publisher, message.sequence, message.values, now_s)

    def recovered(self, message: Publish) -> None:
        """It may be acknowledged."""
        self._checker.recovered(message.publisher, message.sequence)

    def damaged_on_disk(self, keys: Iterable[Key]) -> None:
        """Their records cannot be read any more: they may be lost, if nobody else has them."""
        self._checker.gaps.may_lose()
        for publisher, _, sequence in keys:
            self._checker.damaged_on_disk(publisher, sequence)

    def passed_by_stand_in(self, message: Publish) -> None:
        """It may be lost there."""
        if self._is_basic:
            self._checker.may_be_lost(message.publisher, message.sequence)

    def dropped(self, client: str, message: Publish) -> None:
        """It is not to be delivered to this client."""
        self._checker.dropped(client, message.publisher, message.sequence)

    def client_queue_full(self, client: str, queued_count: int) -> None:
        """The queue is to stay within its bound."""
        if self._queued_max_count is not None and queued_count > self._queued_max_count:
            self._checker.violate("queue", f"{queued_count} messages of {self._name} for {client}")

    def disconnected_as_slow(self, client: str) -> None:
        """Nothing more is to be delivered to this client."""
        self._checker.disconnected(client)

    def lease_lapsed(self, client: str, subscriptions: Iterable[str]) -> None:
        """Nothing more is to be delivered for these subscriptions."""
        self._checker.lapsed(list(subscriptions))

    def left_unheard(self, client: str, undelivered: Iterable[Publish]) -> None:
        """This is not to be delivered."""
        self._checker.excused(client, [(each.publisher, each.sequence) for each in undelivered])

    def came(self, client: str, old_broker: str, cause: str, now_s: float) -> None:
        """Moves are recorded where the clients are."""


class BrokerHost:
    """A broker and its machine."""

    def __init__(
        self,
        broker: Broker,
        capacity: SimulatedCapacity,
        clock: Clock,
        transport: Transport,
        closed: list[Close],
        *,
        observer: CheckingObserver,
        sizes_bytes: Mapping[str, int],
        commit_s: float,
        acknowledge_after_s: float,
        uplink: AnyUplink = "turns",
    ) -> None:
        self.name = broker.name
        self.broker = broker
        self.capacity = capacity
        self.connections: dict[str, Connection] = {}
        self.is_paused = False
        self._is_catching_up = False
        self.records: WorldRecords | None = None
        """Told what the broker's agents have for the records, where records are wanted."""
        self.back_end: BackEnd | None = None
        """Where channels come from, if anywhere."""
        self.on_dismissed: Callable[[BrokerHost], None] | None = None
        """Who is told that a neighbour does not want this broker."""
        self.provide: Callable[[Replace | Assist], None] | None = None
        """Who starts replicas and assistants, if anybody does."""
        self.observer = observer
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
        self._sizes_bytes = sizes_bytes
        """The sizes of publications by publisher, of those that are not of the usual size."""
        self._is_matching = False
        self._matched_bytes = PUBLICATION_BYTES
        """The size of the publication that was matched last."""
        self._sends_until_s = 0.0
        """When what was committed has been sent; nothing else leaves before."""
        self._goes_on_then = False
        """Whether that time is planned for, because something waits for it."""
        self._is_stopped = False
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._arrived_s: deque[float] = deque()
        """When the publications of the input queue arrived."""
        self._uplink = UplinkScheduler(broker.peers, uplink)
        """Peers that may have a frame to send."""
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
        self.tell(
            LoadMeasured(
                memory_bytes=memory_bytes(self.broker, output_count),
                output_delay_s=output_count * PUBLICATION_BYTES * self._s_per_byte,
            )
        )

    def tell(self, event: Event) -> None:
        """Tell the broker something upon which it has nothing to send."""
        self._carry_out(self.broker.handle(event, self._clock.now_s))

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

    def disconnected(self, peer: str, *, returns: bool = False) -> None:
        """The connection to a peer is gone; one that was asked to end has said that it returns."""
        self._carry_out(self.broker.handle(Disconnected(peer, returns), self._clock.now_s))
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
        """Find what an earlier incarnation has stored."""
        self.disk = disk
        found = disk.mount(self._stored, self._room_changed)
        if found.damage:
            self.observer.damaged_on_disk(found.may_be_missing)
        event = Recovered(found.publications, found.records, found.damage)
        self._carry_out(self.broker.handle(event, self._clock.now_s))
        self.pump()

    def _stored(self, number: int) -> None:
        if not self.waits(self._stored, number):
            self._carry_out(self.broker.handle(Stored(number), self._clock.now_s))
            self.pump()

    def _room_changed(self, has_room: bool) -> None:
        if not self.waits(self._room_changed, has_room):
            self._carry_out(self.broker.handle(DiskSpaceChanged(has_room), self._clock.now_s))
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

    def leave(self) -> LeftBehind | None:
        """End because it was asked to: what the next incarnation must know, unless that is on the disk."""
        self.stop(is_dead=True)
        if self.disk is not None:
            self.disk.close()
            return None
        return self.broker.left_behind()

    def _resume(self) -> None:
        if self._is_stopped:
            return
        self.is_paused = False
        waiting, self._waiting = self._waiting, deque()
        self._is_catching_up = True  # and sends nothing: a connection may be another one since
        for action, arguments in waiting:
            action(*arguments)
        self._is_catching_up = False
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
        if self.is_paused or self._is_catching_up:
            return
        broker = self.broker
        while True:
            while not self._is_matching and broker.input_count:
                if self.capacity.cpu_mhz and broker.next_is_publication:
                    delay_s = matching_delay_s(broker.tables.matched_count, self.capacity.cpu_mhz)
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
        if self._sizes_bytes and (publisher := broker.next_publisher):
            self._matched_bytes = self._sizes_bytes.get(publisher, PUBLICATION_BYTES)
        self._carry_out(broker.handle(_STEP, now_s))
        arrived_s = now_s
        while len(self._arrived_s) > broker.input_count + broker.held_count:
            arrived_s = self._arrived_s.popleft()
        if counters.publications_in_count > in_count:
            self._meters.matched(matching_s, now_s - arrived_s - matching_s, now_s)
            copies_count = counters.publications_out_count - out_count
            self._meters.queued_output(copies_count * self._matched_bytes, now_s)

    def _touched(self) -> dict[str, None]:
        """Peers that may have something to send; a neighbour that is owed nothing but an acknowledgement waits."""
        broker = self.broker
        touched = broker.output.touched()
        if not touched or not self._acknowledge_after_s:
            return touched
        for name in broker.tables.neighbours:
            if name in touched and name in self.connections and broker.output.owes_only_ack(name):
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
            if connection is not None and self.broker.output.owes_only_ack(name):
                frame = self.broker.take_frame(name, self._clock.now_s)
                if frame is not None:
                    self._transport.transmit(connection, self.name, [frame], self._clock.now_s)

    def _send_all(self) -> None:
        take, now_s = self.broker.output.take_frames, self._clock.now_s
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
        uplink, now_s = self._uplink, self._clock.now_s
        uplink.add(self._touched(), now_s)
        if self._goes_on_then or not uplink:
            return
        if now_s < self._sends_until_s:
            self._goes_on_then = True
            self._clock.at(self._sends_until_s, self._sent)
            return
        departs_s, until_s = now_s, now_s + self._commit_s
        take, s_per_byte, connections = self.broker.output.take_in_turn, self._s_per_byte, self.connections
        name, publication_s, sizes_bytes = self.name, PUBLICATION_BYTES * s_per_byte, self._sizes_bytes
        sendings: list[Sending] = []
        laid_count = 0
        while peer := uplink.take(departs_s):
            frame, has_more = take(peer, departs_s)
            if frame is None:
                continue
            if has_more:
                uplink.goes_on(peer, departs_s)
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
        if departs_s > now_s and uplink:
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
        if self.on_dismissed is not None:
            self.on_dismissed(self)
