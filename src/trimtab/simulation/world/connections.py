"""Connections between hosts: latency, what is under way, faults of frames, and bundles of frames that arrive together.

Frames of one connection keep their order. Every frame has its own modelled time of arrival. Frames to and from clients
on connections without declared faults may be handed over in bundles: all that arrive during one short slot of time are
handed over at the slot's end, each with its own time, which saves an event of the clock for each. Single publications
for a client that has nothing to do but to deliver them are not handed over at all: they lie in the connection until the
client reads them, which it does before anything else happens to it, and before it acknowledges them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from operator import itemgetter
from random import Random
from typing import Any, Protocol, TypeAlias

from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.messages import Publish
from trimtab.simulation.faults.faults import Delay, Drop, Duplicate, FrameFault, Reorder
from trimtab.simulation.world.clock import Clock
from trimtab.simulation.world.trace import Trace

Frames: TypeAlias = list[Payload | Ack]

Sending: TypeAlias = "tuple[Connection, str, Frames, float]"
"""A connection, who sends over it, what, and when it leaves."""

Arrival: TypeAlias = "tuple[float, Connection, int, SimulatedHost, str, Frames]"
"""A time, a connection and its epoch, who receives, from whom, and what."""

_arrival_s = itemgetter(0)


class SimulatedHost(Protocol):
    """A broker or a client and its machine, as connections see it."""

    name: str
    is_paused: bool
    is_dead: bool

    def greeting(self, peer: str) -> Hello:
        """What to greet a peer with."""
        ...

    def connected(self, peer: str, hello: Hello) -> None:
        """A peer's greeting arrived."""
        ...

    def disconnected(self, peer: str, *, returns: bool = False) -> None:
        """The connection to a peer is gone; one that was asked to end has said that it returns."""
        ...

    def dismissed(self, peer: str, reason: str) -> None:
        """The peer has closed the connection for good, and says why."""
        ...

    def receive(self, peer: str, frames: Frames, at_s: float) -> bool:
        """Frames arrived at a time, which may lie a little in the past; whether `pump` is needed."""
        ...

    def pump(self) -> None:
        """Do all that can be done at this moment, and send what there is to send."""
        ...

    def waits(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Whether the host is paused; if so it does this later."""
        ...

    def read(self) -> None:
        """Take in what has arrived and lies in connections."""
        ...

    def owe(self) -> None:
        """Publications lie in the connection: read and acknowledge them before long."""
        ...


class Connection:
    """A link between two hosts, and the connection below it that comes and goes."""

    __slots__ = (
        "ends",
        "epoch",
        "faults",
        "first",
        "greeted",
        "is_greeted",
        "is_inner",
        "is_plain",
        "is_read_later",
        "is_up",
        "latency_s",
        "latest_at_first_s",
        "latest_at_second_s",
        "second",
        "slots_count",
        "stays_down",
        "unread",
        "unread_max_count",
    )

    def __init__(
        self,
        first: SimulatedHost,
        second: SimulatedHost,
        latency_s: float,
        unread_max_count: int = 0,
        *,
        is_inner: bool,
    ) -> None:
        self.first = first
        self.second = second
        self.ends = (first.name, second.name)
        self.latency_s = latency_s
        self.is_inner = is_inner
        """Whether both ends are brokers."""
        self.epoch = 0
        self.is_up = False
        self.stays_down = False
        self.latest_at_first_s = 0.0
        self.latest_at_second_s = 0.0
        self.faults: list[FrameFault] = []
        self.is_plain = not is_inner
        """Whether it leads to a client and no faults of frames are declared for it."""
        self.greeted: set[str] = set()
        """The ends that have got the other's greeting since the connection came up; before, they send nothing."""
        self.is_greeted = False
        """Whether the first end has got the other's greeting since the connection came up."""
        self.is_read_later = False
        """Whether the client has nothing to do with publications but to deliver them, so that it may do so later."""
        self.unread: list[tuple[float, Payload]] = []
        """Publications for the client that it has not read, and when they arrive."""
        self.unread_max_count = unread_max_count
        self.slots_count = 0
        """Frames for the client that are handed over at the end of a slot; nothing that follows them is read before."""

    def lay(self, frame: Payload, departs_s: float) -> bool:
        """Let a single publication lie in the connection until the client reads it; False if it must be handed over."""
        unread = self.unread
        if not self.is_read_later or self.slots_count or len(unread) >= self.unread_max_count:
            return False
        arrival_s = departs_s + self.latency_s
        if arrival_s < self.latest_at_first_s:
            arrival_s = self.latest_at_first_s
        else:
            self.latest_at_first_s = arrival_s
        if not unread:
            self.first.owe()
        unread.append((arrival_s, frame))
        return True

    def take_unread(self, now_s: float) -> list[tuple[float, Payload]]:
        """What has arrived and was not read."""
        unread = self.unread
        if not unread or unread[0][0] > now_s:
            return []
        if unread[-1][0] <= now_s:
            self.unread = []
            return unread
        arrived_count = bisect_right(unread, now_s, key=_arrival_s)
        self.unread = unread[arrived_count:]
        return unread[:arrived_count]

    def begin_epoch(self) -> None:
        """What is under way will not arrive any more."""
        self.epoch += 1
        self.slots_count = 0
        self.unread = []
        self.is_greeted = self.is_read_later = False
        self.greeted.clear()

    def host_opposite(self, end: str) -> SimulatedHost:
        """The host at the other end."""
        return self.second if end == self.ends[0] else self.first

    def hand_to(self, host: SimulatedHost) -> None:
        """One end is another machine from now on, under the same name."""
        if host.name == self.ends[0]:
            self.first = host
        else:
            self.second = host

    def add_faults(self, faults: Iterable[FrameFault]) -> None:
        """Something happens to frames of this connection."""
        self.faults.extend(faults)
        self.is_plain = not self.is_inner and not self.faults
        self.is_read_later &= self.is_plain

    def next_arrival_s(self, receiver: SimulatedHost, departs_s: float) -> float:
        """When what leaves at a time arrives: after the latency, and behind what is under way."""
        arrival_s = departs_s + self.latency_s
        if receiver is self.first:
            self.latest_at_first_s = max(arrival_s, self.latest_at_first_s)
            return self.latest_at_first_s
        self.latest_at_second_s = max(arrival_s, self.latest_at_second_s)
        return self.latest_at_second_s

    def other(self, end: str) -> str:
        """The name of the other end."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]


class Transport:
    """All connections of a world."""

    def __init__(self, clock: Clock, trace: Trace, rng: Random, bundle_s: float, unread_max_count: int) -> None:
        self.connections: dict[frozenset[str], Connection] = {}
        self.faults_count: Counter[str] = Counter()
        self.frames_count = 0
        self._clock = clock
        self._trace = trace
        self._rng = rng
        self._bundle_s = bundle_s
        self._unread_max_count = unread_max_count
        self._bundles: dict[float, list[Arrival]] = {}
        self._frame_faults: list[FrameFault] = []

    # ---- connections come and go ----

    def join(self, first: SimulatedHost, second: SimulatedHost, latency_s: float, *, is_inner: bool) -> Connection:
        """A new connection between two hosts, or the one that was there; it comes up after the latency."""
        ends = frozenset((first.name, second.name))
        connection = self.connections.get(ends)
        if connection is None:
            connection = self.connections[ends] = Connection(
                first, second, latency_s, self._unread_max_count, is_inner=is_inner
            )
            connection.add_faults(
                fault for fault in self._frame_faults if fault.between is None or frozenset(fault.between) == ends
            )
        connection.hand_to(first)
        connection.hand_to(second)
        connection.stays_down = False
        self.bring_up(connection)
        return connection

    def bring_up(self, connection: Connection) -> None:
        """Both ends greet each other; each is connected when the other's greeting arrives. The dead greet nobody."""
        if connection.is_up or connection.stays_down or connection.first.is_dead or connection.second.is_dead:
            return
        connection.is_up = True
        connection.begin_epoch()
        for receiver in (connection.second, connection.first):
            sender = connection.host_opposite(receiver.name)
            hello = sender.greeting(receiver.name)
            arrival_s = connection.next_arrival_s(receiver, self._clock.now_s)
            self._clock.at(arrival_s, self._greet, connection, connection.epoch, receiver, hello)

    def _greet(self, connection: Connection, epoch: int, receiver: SimulatedHost, hello: Hello) -> None:
        if connection.epoch == epoch and not receiver.waits(self._greet, connection, epoch, receiver, hello):
            connection.is_greeted |= receiver is connection.first
            connection.greeted.add(receiver.name)
            receiver.connected(connection.other(receiver.name), hello)

    def take_down(
        self, connection: Connection, noticed_after_s: tuple[float, float] = (0.0, 0.0), *, returns: bool = False
    ) -> None:
        """The connection breaks: what is under way is lost, and each end notices after a while."""
        connection.first.read()
        connection.is_up = False
        connection.begin_epoch()
        for host, after_s in zip((connection.first, connection.second), noticed_after_s, strict=True):
            self._clock.at(self._clock.now_s + after_s, self._notice, connection, connection.epoch, host, returns)

    def _notice(self, connection: Connection, epoch: int, host: SimulatedHost, returns: bool) -> None:
        if connection.epoch == epoch and not host.waits(self._notice, connection, epoch, host, returns):
            host.disconnected(connection.other(host.name), returns=returns)

    def shut(self, connection: Connection, end: str, on_arrival: Callable[[], None]) -> None:
        """One end closes the connection for good; the other learns it behind what is under way, if it can."""
        connection.first.read()
        connection.stays_down = True
        if not connection.is_up:
            return
        connection.is_up = False
        connection.begin_epoch()
        self._clock.at(connection.next_arrival_s(connection.host_opposite(end), self._clock.now_s), on_arrival)

    def forget(self, first: str, second: str) -> None:
        """The link between two hosts is taken away; what is under way on it is lost."""
        connection = self.connections.pop(frozenset((first, second)))
        connection.stays_down = True
        connection.is_up = False
        connection.begin_epoch()

    # ---- frames ----

    def transmit(self, connection: Connection, sender: str, frames: Frames, departs_s: float) -> None:
        """Put frames on their way; without faults they arrive together."""
        self.frames_count += len(frames)
        first = frames[0]
        number = first.number if type(first) is Payload else 0
        self._trace.add((departs_s, sender, connection.other(sender), number, first.ack, len(frames)))
        if not connection.is_up or sender not in connection.greeted:
            return
        receiver = connection.host_opposite(sender)
        if not connection.faults:
            arrival_s = connection.next_arrival_s(receiver, departs_s)
            self._clock.at(arrival_s, self._arrive, connection, connection.epoch, receiver, sender, frames)
            return
        for frame in frames:
            copies_count, extra_s = self._suffer(connection, departs_s)
            arrival_s = connection.next_arrival_s(receiver, departs_s + extra_s)
            for _ in range(copies_count):
                self._clock.at(arrival_s, self._arrive, connection, connection.epoch, receiver, sender, [frame])

    def transmit_bundled(self, sendings: list[Sending]) -> None:
        """Put frames of many connections on their way; those that may be handed over in bundles are."""
        bundle_s = self._bundle_s
        bundled_count, slot_ends_s = 0, float("-inf")
        slot: list[Arrival] = []
        for connection, sender, frames, departs_s in sendings:
            if not connection.is_plain:
                self.transmit(connection, sender, frames, departs_s)
                continue
            bundled_count += len(frames)
            if not connection.is_up:
                continue
            frame = frames[0]
            if (
                connection.is_read_later
                and type(frame) is Payload
                and len(frames) == len(frame.messages) == 1
                and type(frame.messages[0]) is Publish
                and sender != connection.ends[0]
                and connection.lay(frame, departs_s)
            ):
                continue
            receiver = connection.first
            if receiver.name == sender:
                receiver = connection.second
                arrival_s = connection.next_arrival_s(receiver, departs_s)
            else:
                arrival_s = departs_s + connection.latency_s
                arrival_s = max(arrival_s, connection.latest_at_first_s)
                connection.latest_at_first_s = arrival_s
                connection.slots_count += 1
            if arrival_s >= slot_ends_s or arrival_s < slot_ends_s - bundle_s:
                slot_ends_s = (arrival_s // bundle_s + 1) * bundle_s if bundle_s else arrival_s
                slot = self._slot(slot_ends_s)
            slot.append((arrival_s, connection, connection.epoch, receiver, sender, frames))
        if bundled_count:
            self.note_bundle(sendings[0][1], bundled_count)

    def note_bundle(self, sender: str, frames_count: int) -> None:
        """So many frames to or from clients were sent."""
        self.frames_count += frames_count
        self._trace.add((self._clock.now_s, sender, frames_count))

    def _slot(self, ends_s: float) -> list[Arrival]:
        slot = self._bundles.get(ends_s)
        if slot is None:
            slot = self._bundles[ends_s] = []
            self._clock.at(ends_s, self._arrive_bundled, ends_s)
        return slot

    def _arrive(self, connection: Connection, epoch: int, receiver: SimulatedHost, sender: str, frames: Frames) -> None:
        if connection.epoch != epoch or receiver.waits(self._arrive, connection, epoch, receiver, sender, frames):
            return
        if receiver.receive(sender, frames, self._clock.now_s):
            receiver.pump()

    def _arrive_bundled(self, slot_ends_s: float) -> None:
        bundle = self._bundles.pop(slot_ends_s)
        bundle.sort(key=_arrival_s)
        receivers: dict[str, SimulatedHost] = {}
        for arrival_s, connection, epoch, receiver, sender, frames in bundle:
            if connection.epoch != epoch:
                continue
            if receiver is connection.first:
                connection.slots_count -= 1
            if receiver.is_paused:
                receiver.waits(self._arrive, connection, epoch, receiver, sender, frames)
                continue
            if receiver.receive(sender, frames, arrival_s):
                receivers[receiver.name] = receiver
        for receiver in receivers.values():
            receiver.pump()

    # ---- faults ----

    def add_frame_fault(self, fault: FrameFault) -> None:
        """Something happens to frames of one connection or of all, those that come later included."""
        self._frame_faults.append(fault)
        for ends, connection in self.connections.items():
            if fault.between is None or frozenset(fault.between) == ends:
                connection.add_faults([fault])

    def cut(self, ends: frozenset[str], for_s: float, noticed_after_s: tuple[float, float]) -> None:
        """A connection breaks and comes back."""
        connection = self.connections.get(ends)
        if connection is None or not connection.is_up:
            return
        self.faults_count["cut"] += 1
        self.take_down(connection, noticed_after_s)
        self._clock.at(self._clock.now_s + for_s, self.bring_up, connection)

    def partition(self, inside: frozenset[str], for_s: float) -> None:
        """All connections between brokers inside and outside break and come back together."""
        crossing = [
            connection
            for connection in self.connections.values()
            if connection.is_inner
            and (connection.ends[0] in inside) != (connection.ends[1] in inside)
            and connection.is_up
        ]
        if crossing:
            self.faults_count["partition"] += 1
        for connection in crossing:
            self.take_down(connection)
            self._clock.at(self._clock.now_s + for_s, self.bring_up, connection)

    def _suffer(self, connection: Connection, departs_s: float) -> tuple[int, float]:
        """How often a frame arrives and how much later than it should."""
        copies_count, extra_s = 1, 0.0
        for fault in connection.faults:
            if not fault.at_s <= departs_s < fault.at_s + fault.for_s or self._rng.random() >= fault.probability:
                continue
            match fault:
                case Drop():
                    copies_count = 0
                    self.faults_count["drop"] += 1
                case Duplicate():
                    copies_count *= 2
                    self.faults_count["duplicate"] += 1
                case Delay(delay_s=delay_s):
                    extra_s += delay_s
                    self.faults_count["delay"] += 1
                case Reorder(spread_s=spread_s):
                    extra_s += self._rng.uniform(0.0, spread_s)
                    self.faults_count["reorder"] += 1
        return copies_count, extra_s
