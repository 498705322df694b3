"""The simulated world: virtual time, capacities, connections and faults around the very same brokers and clients.

Time stands still while a role works; it passes on links (latency), in the matching step of a broker (its CPU) and on
the way out of a broker (its bandwidth, shared by its output queues in turn). Every random choice comes from one seeded
generator and every event has its place in one queue, so that the same seed gives the same history.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker, Peer
from trimtab.client.session import MOVE_WITHIN_S, ClientConfig, ClientSession, WindowFull
from trimtab.language import Filter, Publication, Value
from trimtab.protocol.codec import encode_frame
from trimtab.protocol.effects import Close, Deliver, Effect, InForce, Moved, NotMoved, Open, Rejected, Shut, Taken
from trimtab.protocol.events import Connected, Disconnected, LinkRemoved, MoveTo, Received, Step, Wake
from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import Publish
from trimtab.simulation.checkers import DeliveryChecker
from trimtab.simulation.faults import Cut, Delay, Drop, Duplicate, Fault, FrameFault, Partition, Pause, Reorder
from trimtab.simulation.trace import Trace

MATCHING_MHZ_S_PER_SUBSCRIPTION: Final = 0.0165
"""Matching takes this, times the subscriptions in the engine, divided by the CPU speed in MHz (from the thesis)."""

PUBLICATION_BYTES: Final = 320
"""A stock publication on the wire; frames are never counted as less than their own bytes."""

_STEP: Final = Step()
_WAKE: Final = Wake()


def matching_delay_s(subscriptions_count: int, cpu_mhz: float | None) -> float:
    """How long a broker matches one publication.

    >>> round(matching_delay_s(120, 100), 4), matching_delay_s(120, None)
    (0.0198, 0.0)
    """
    return MATCHING_MHZ_S_PER_SUBSCRIPTION * subscriptions_count / cpu_mhz if cpu_mhz else 0.0


class Capacity(msgspec.Struct, frozen=True):
    """What a broker's machine can do; what is not given is unlimited."""

    cpu_mhz: float | None = None
    memory_mb: float | None = None
    bandwidth_mbps: float | None = None


class ObservedBroker(Broker):
    """A broker that tells the checker when it takes over a publication, and is otherwise the same."""

    def __init__(self, config: BrokerConfig, checker: DeliveryChecker) -> None:
        super().__init__(config)
        self._checker = checker

    def _take_over(self, peer: Peer, message: Publish, now_s: float) -> bool:
        taken = super()._take_over(peer, message, now_s)
        if taken:
            self._checker.accepted(message.publisher, message.sequence, message.values, now_s)
        return taken


class Connection:
    """A link between two nodes, and the connection below it that comes and goes."""

    __slots__ = ("ends", "epoch", "faults", "is_up", "latency_s", "latest_arrival_s", "stays_down")

    def __init__(self, ends: tuple[str, str], latency_s: float) -> None:
        self.ends = ends
        self.latency_s = latency_s
        self.epoch = 0
        self.is_up = False
        self.stays_down = False
        self.latest_arrival_s = {ends[0]: 0.0, ends[1]: 0.0}
        self.faults: list[FrameFault] = []

    def other(self, end: str) -> str:
        """The node at the other end."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]


class BrokerNode:
    """A broker and its machine."""

    def __init__(self, broker: Broker, capacity: Capacity) -> None:
        self.name = broker.name
        self.broker = broker
        self.capacity = capacity
        self.connections: dict[str, Connection] = {}
        self.is_matching = False
        self.is_sending = False
        self.is_paused = False
        self.waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.turn: OrderedDict[str, None] = OrderedDict()
        """Peers that may have a frame to send, the one whose turn it is first."""
        self.wake_s = float("inf")


class ClientNode:
    """A client session and where it is connected."""

    def __init__(self, session: ClientSession, connection: Connection) -> None:
        self.name = session.name
        self.session = session
        self.connections = {connection.other(session.name): connection}
        """By broker: one, or two during a move."""
        self.latency_s = connection.latency_s
        self.wake_s = float("inf")
        self.has_left = False
        self.held_back: deque[Publication] = deque()
        """Publications that wait for room in the session's window."""


class World:
    """Brokers, clients, links and time."""

    def __init__(
        self,
        seed: int,
        *,
        link: LinkConfig | None = None,
        acknowledge_after_s: float = 0.0,
        move_within_s: float = MOVE_WITHIN_S,
    ):
        self.now_s = 0.0
        self.rng = Random(seed)
        self.checker = DeliveryChecker()
        self.trace = Trace()
        self.brokers: dict[str, BrokerNode] = {}
        self.clients: dict[str, ClientNode] = {}
        self.links: dict[frozenset[str], Connection] = {}
        self.faults_count: Counter[str] = Counter()
        self.frames_count = 0
        self.moves_count = 0
        self.moves_refused_count = 0
        self.closed: list[Close] = []
        self._acknowledge_after_s = acknowledge_after_s
        self._move_within_s = move_within_s
        self._owing: dict[str, ClientNode] = {}
        """Clients that owe nothing but an acknowledgement, which may wait a little for others."""
        self._link_config = link or LinkConfig()
        self._frame_faults: list[FrameFault] = []
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._events_count = 0

    # ---- time ----

    def at(self, time_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time; what is planned for the same time happens in the order of planning."""
        self._events_count += 1
        heapq.heappush(self._queue, (max(time_s, self.now_s), self._events_count, action, arguments))

    def run(self, until_s: float = float("inf"), events_max_count: int | None = None) -> None:
        """Let time pass until then, until nothing is left to happen, or until too much has happened."""
        queue = self._queue
        left_count = -1 if events_max_count is None else events_max_count
        while queue and queue[0][0] <= until_s and left_count != 0:
            left_count -= 1
            self.now_s, _, action, arguments = heapq.heappop(queue)
            action(*arguments)
        if queue and until_s < queue[0][0]:
            self.now_s = until_s

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is left to happen."""
        return not self._queue

    # ---- building ----

    def add_broker(self, config: BrokerConfig, capacity: Capacity | None = None) -> None:
        """Start a broker."""
        if config.name in self.brokers or config.name in self.clients:
            raise ValueError(f"the name {config.name} is in use")
        self.brokers[config.name] = BrokerNode(ObservedBroker(config, self.checker), capacity or Capacity())

    def add_link(self, first: str, second: str, latency_s: float = 0.001) -> None:
        """Link two brokers; their connection comes up after the latency."""
        connection = Connection((first, second), latency_s)
        self.links[frozenset((first, second))] = connection
        self.brokers[first].connections[second] = connection
        self.brokers[second].connections[first] = connection
        self._join_frame_faults(connection)
        self._bring_up(connection)

    def remove_link(self, first: str, second: str) -> None:
        """Take the link between two brokers away for good; what is under way on it is lost."""
        connection = self.links.pop(frozenset((first, second)))
        connection.stays_down = True
        connection.is_up = False
        connection.epoch += 1
        for here, there in ((first, second), (second, first)):
            del self.brokers[here].connections[there]
            self._leave(there, here)

    def are_linked(self, first: str, second: str) -> bool:
        """Whether each of two brokers knows the other and has taken in all that the other had to say."""
        for here, there in ((first, second), (second, first)):
            broker = self.brokers[here].broker
            if there not in broker.peers or not broker.peers[there].link.idle or broker.input_count:
                return False
        return True

    def add_client(self, name: str, broker: str, latency_s: float = 0.001) -> ClientSession:
        """Start a client and connect it."""
        if name in self.brokers or name in self.clients:
            raise ValueError(f"the name {name} is in use")
        connection = Connection((name, broker), latency_s)
        self.links[frozenset((name, broker))] = connection
        self.brokers[broker].connections[name] = connection
        session = ClientSession(ClientConfig(name, move_within_s=self._move_within_s, link=self._link_config))
        self.clients[name] = ClientNode(session, connection)
        self._join_frame_faults(connection)
        self._bring_up(connection)
        return session

    def add_fault(self, fault: Fault) -> None:
        """Declare what goes wrong."""
        match fault:
            case Cut(between=between):
                self.at(fault.at_s, self._cut, frozenset(between), fault.for_s, fault.noticed_after_s)
            case Partition():
                self.at(fault.at_s, self._partition, frozenset(fault.brokers), fault.for_s)
            case Pause(broker=broker):
                self.at(fault.at_s, self._pause, broker, fault.for_s)
            case FrameFault():
                self._frame_faults.append(fault)
                for connection in self.links.values():
                    if fault.between is None or frozenset(fault.between) == frozenset(connection.ends):
                        connection.faults.append(fault)

    def _join_frame_faults(self, connection: Connection) -> None:
        ends = frozenset(connection.ends)
        connection.faults.extend(
            fault for fault in self._frame_faults if fault.between is None or frozenset(fault.between) == ends
        )

    # ---- the application's side of clients ----

    def advertise(self, client: str, filter: Filter) -> str:
        """A client announces what it will publish."""
        node = self.clients[client]
        id = node.session.advertise(filter, self.now_s)
        self.checker.advertised(id, client, filter)
        self._pump_client(node)
        return id

    def unadvertise(self, client: str, id: str) -> None:
        """A client ends an advertisement."""
        node = self.clients[client]
        self.checker.unadvertised(id)
        node.session.unadvertise(id, self.now_s)
        self._pump_client(node)

    def subscribe(self, client: str, filter: Filter) -> str:
        """A client asks for what a filter matches."""
        node = self.clients[client]
        id = node.session.subscribe(filter, self.now_s)
        self.checker.subscribed(id, client, filter)
        self._pump_client(node)
        return id

    def unsubscribe(self, client: str, id: str) -> None:
        """A client ends a subscription."""
        node = self.clients[client]
        self.checker.unsubscribed(id)
        node.session.unsubscribe(id, self.now_s)
        self._pump_client(node)

    def publish(self, client: str, publication: Publication | Mapping[str, Value]) -> None:
        """A client publishes; if its window is full the publication waits for room."""
        node = self.clients[client]
        ready = publication if isinstance(publication, Publication) else Publication(publication)
        node.held_back.append(ready)
        self._publish_held_back(node)
        self._pump_client(node)

    def move(self, client: str, broker: str) -> None:
        """A subscriber is asked to go on at another broker."""
        node = self.clients[client]
        self._client_effects(node, node.session.handle(MoveTo(broker), self.now_s))
        self._pump_client(node)

    def leave(self, client: str) -> None:
        """A client goes for good, and with it all that it advertised and subscribed to."""
        node = self.clients[client]
        self.checker.left(client)
        node.has_left = True
        for broker in list(node.connections):
            self._shut(node, broker)
            node.session.handle(Disconnected(broker), self.now_s)

    def _publish_held_back(self, node: ClientNode) -> None:
        while node.held_back and not node.session.window_is_full:
            try:
                sequence = node.session.publish(node.held_back[0], self.now_s)
            except WindowFull:
                return
            node.held_back.popleft()
            self.checker.published(node.name, sequence)

    # ---- connections ----

    def _bring_up(self, connection: Connection) -> None:
        """Both ends greet each other; each is connected when the other's greeting arrives."""
        if connection.is_up or connection.stays_down:
            return
        connection.is_up = True
        connection.epoch += 1
        first, second = connection.ends
        for sender, receiver in ((first, second), (second, first)):
            arrival_s = max(self.now_s + connection.latency_s, connection.latest_arrival_s[receiver])
            connection.latest_arrival_s[receiver] = arrival_s
            hello = self._greeting(sender, receiver)
            self.at(arrival_s, self._greet, connection, connection.epoch, receiver, hello)

    def _greeting(self, sender: str, receiver: str) -> Hello:
        client = self.clients.get(sender)
        return client.session.greeting(receiver) if client else self.brokers[sender].broker.greeting(receiver)

    def _greet(self, connection: Connection, epoch: int, receiver: str, hello: Hello) -> None:
        if connection.epoch != epoch or self._waits(receiver, self._greet, (connection, epoch, receiver, hello)):
            return
        event = Connected(connection.other(receiver), hello)
        client = self.clients.get(receiver)
        if client is not None:
            self._client_effects(client, client.session.handle(event, self.now_s))
            self._pump_client(client)
        else:
            node = self.brokers[receiver]
            self._broker_effects(node, node.broker.handle(event, self.now_s))
            self._pump_broker(node)

    def _take_down(self, connection: Connection, noticed_after_s: tuple[float, float]) -> None:
        connection.is_up = False
        connection.epoch += 1
        for end, after_s in zip(connection.ends, noticed_after_s, strict=True):
            self.at(self.now_s + after_s, self._notice, connection, connection.epoch, end)

    def _notice(self, connection: Connection, epoch: int, end: str) -> None:
        if connection.epoch != epoch or self._waits(end, self._notice, (connection, epoch, end)):
            return
        event = Disconnected(connection.other(end))
        client = self.clients.get(end)
        if client is not None:
            client.session.handle(event, self.now_s)
        else:
            node = self.brokers[end]
            self._broker_effects(node, node.broker.handle(event, self.now_s))
            self._pump_broker(node)

    # ---- faults ----

    def _cut(self, ends: frozenset[str], for_s: float, noticed_after_s: tuple[float, float]) -> None:
        connection = self.links.get(ends)
        if connection is None or not connection.is_up:
            return
        self.faults_count["cut"] += 1
        self._take_down(connection, noticed_after_s)
        self.at(self.now_s + for_s, self._bring_up, connection)

    def _partition(self, inside: frozenset[str], for_s: float) -> None:
        crossing = [
            connection
            for connection in self.links.values()
            if connection.ends[1] in self.brokers
            and connection.ends[0] in self.brokers
            and (connection.ends[0] in inside) != (connection.ends[1] in inside)
            and connection.is_up
        ]
        if crossing:
            self.faults_count["partition"] += 1
        for connection in crossing:
            self._take_down(connection, (0.0, 0.0))
            self.at(self.now_s + for_s, self._bring_up, connection)

    def _pause(self, broker: str, for_s: float) -> None:
        node = self.brokers.get(broker)
        if node is None or node.is_paused:
            return
        self.faults_count["pause"] += 1
        node.is_paused = True
        self.at(self.now_s + for_s, self._resume, node)

    def _resume(self, node: BrokerNode) -> None:
        node.is_paused = False
        waiting, node.waiting = node.waiting, deque()
        for action, arguments in waiting:
            action(*arguments)
        self._pump_broker(node)

    def _waits(self, name: str, action: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
        """Whether a paused broker must do this later."""
        node = self.brokers.get(name)
        if node is None or not node.is_paused:
            return False
        node.waiting.append((action, arguments))
        return True

    # ---- frames ----

    def _transmit(self, connection: Connection, sender: str, frames: list[Payload | Ack]) -> None:
        """Put frames on their way; without faults they travel and arrive together."""
        receiver = connection.other(sender)
        now_s = self.now_s
        if not connection.faults:
            arrival_s = self._depart(connection, sender, receiver, frames)
            if arrival_s is not None:
                self.at(arrival_s, self._arrive, connection, connection.epoch, receiver, frames)
            return
        self.frames_count += len(frames)
        first = frames[0]
        number = first.number if type(first) is Payload else 0
        self.trace.add((now_s, sender, receiver, number, first.ack, len(frames)))
        if not connection.is_up:
            return
        for frame in frames:
            copies_count, extra_s = self._suffer(connection)
            arrival_s = max(now_s + connection.latency_s + extra_s, connection.latest_arrival_s[receiver])
            connection.latest_arrival_s[receiver] = arrival_s
            for _ in range(copies_count):
                self.at(arrival_s, self._arrive, connection, connection.epoch, receiver, [frame])

    def _transmit_all(self, sendings: list[tuple[Connection, str, list[Payload | Ack]]]) -> None:
        """Put frames of many connections on their way; those that arrive at the same time are one event."""
        arrivals: dict[float, list[tuple[Connection, int, str, list[Payload | Ack]]]] = {}
        for connection, sender, frames in sendings:
            if connection.faults:
                self._transmit(connection, sender, frames)
                continue
            receiver = connection.other(sender)
            arrival_s = self._depart(connection, sender, receiver, frames)
            if arrival_s is not None:
                arrivals.setdefault(arrival_s, []).append((connection, connection.epoch, receiver, frames))
        for arrival_s, burst in arrivals.items():
            self.at(arrival_s, self._arrive_all, burst)

    def _depart(self, connection: Connection, sender: str, receiver: str, frames: list[Payload | Ack]) -> float | None:
        """When frames that suffer no fault arrive; None if nothing does."""
        self.frames_count += len(frames)
        first = frames[0]
        number = first.number if type(first) is Payload else 0
        self.trace.add((self.now_s, sender, receiver, number, first.ack, len(frames)))
        if not connection.is_up:
            return None
        latest_arrival_s = connection.latest_arrival_s
        arrival_s = self.now_s + connection.latency_s
        if arrival_s < latest_arrival_s[receiver]:
            return latest_arrival_s[receiver]
        latest_arrival_s[receiver] = arrival_s
        return arrival_s

    def _suffer(self, connection: Connection) -> tuple[int, float]:
        """How often a frame arrives and how much later than it should."""
        copies_count, extra_s = 1, 0.0
        for fault in connection.faults:
            if not fault.at_s <= self.now_s < fault.at_s + fault.for_s or self.rng.random() >= fault.probability:
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
                    extra_s += self.rng.uniform(0.0, spread_s)
                    self.faults_count["reorder"] += 1
        return copies_count, extra_s

    def _arrive(self, connection: Connection, epoch: int, receiver: str, frames: list[Payload | Ack]) -> None:
        if connection.epoch != epoch:
            return
        client = self.clients.get(receiver)
        if client is not None:
            sender = connection.other(receiver)
            handle = client.session.handle
            for frame in frames:
                effects = handle(Received(sender, frame), self.now_s)
                if effects:
                    self._client_effects(client, effects)
            self._answer(client)
            return
        if self._waits(receiver, self._arrive, (connection, epoch, receiver, frames)):
            return
        node = self.brokers[receiver]
        sender = connection.other(receiver)
        handle = node.broker.handle
        for frame in frames:
            handle(Received(sender, frame), self.now_s)
        self._pump_broker(node)

    def _arrive_all(self, burst: list[tuple[Connection, int, str, list[Payload | Ack]]]) -> None:
        brokers: dict[str, BrokerNode] = {}
        for connection, epoch, receiver, frames in burst:
            node = self.brokers.get(receiver)
            if node is None:
                self._arrive(connection, epoch, receiver, frames)
            elif connection.epoch == epoch and not self._waits(
                receiver, self._arrive, (connection, epoch, receiver, frames)
            ):
                sender = connection.other(receiver)
                for frame in frames:
                    node.broker.handle(Received(sender, frame), self.now_s)
                brokers[receiver] = node
        for node in brokers.values():
            self._pump_broker(node)

    def _answer(self, client: ClientNode) -> None:
        """Send what a client has to say; a mere acknowledgement may wait for those of others."""
        if self._acknowledge_after_s and len(client.connections) == 1 and not client.session.link.has_more_than_ack():
            if not self._owing:
                self.at(self.now_s + self._acknowledge_after_s, self._acknowledge_all)
            self._owing[client.name] = client
        else:
            self._pump_client(client)

    def _acknowledge_all(self) -> None:
        owing, self._owing = self._owing, {}
        sendings: list[tuple[Connection, str, list[Payload | Ack]]] = []
        for client in owing.values():
            if len(client.connections) != 1:
                self._pump_client(client)
                continue
            frames = client.session.link.take_all(self.now_s)
            if frames:
                (connection,) = client.connections.values()
                sendings.append((connection, client.name, frames))
        self._transmit_all(sendings)

    # ---- brokers ----

    def _pump_broker(self, node: BrokerNode) -> None:
        """Let a broker do all it can at this moment: control at once, publications as its CPU allows, then send."""
        if node.is_paused:
            return
        broker = node.broker
        while not node.is_matching and broker.input_count:
            if node.capacity.cpu_mhz and broker.next_is_publication:
                delay_s = matching_delay_s(len(broker.tables.subscriptions), node.capacity.cpu_mhz)
                node.is_matching = True
                self.at(self.now_s + delay_s, self._matched, node)
            else:
                self._broker_effects(node, broker.handle(_STEP, self.now_s))
        if node.capacity.bandwidth_mbps:
            self._send_next(node)
        else:
            self._send_all(node)
        self._plan_wake(node)

    def _matched(self, node: BrokerNode) -> None:
        if self._waits(node.name, self._matched, (node,)):
            return
        node.is_matching = False
        broker = node.broker
        while broker.input_count and not broker.next_is_publication:
            self._broker_effects(node, broker.handle(_STEP, self.now_s))
        if broker.input_count:
            self._broker_effects(node, broker.handle(_STEP, self.now_s))
        self._pump_broker(node)

    def _send_all(self, node: BrokerNode) -> None:
        take, now_s = node.broker.take_frames, self.now_s
        sendings: list[tuple[Connection, str, list[Payload | Ack]]] = []
        for peer in node.broker.touched():
            frames = take(peer, now_s)
            connection = node.connections.get(peer)
            if frames and connection is not None:
                sendings.append((connection, node.name, frames))
        if len(sendings) == 1:
            self._transmit(*sendings[0])
        elif sendings:
            self._transmit_all(sendings)

    def _send_next(self, node: BrokerNode) -> None:
        """Send one frame at the broker's bandwidth; the peers with something to send take turns."""
        turn = node.turn
        for peer in node.broker.touched():
            turn.setdefault(peer, None)
        if node.is_sending:
            return
        while turn:
            peer = next(iter(turn))
            del turn[peer]
            frame = node.broker.take_frame(peer, self.now_s)
            if frame is not None:
                turn[peer] = None
                node.is_sending = True
                seconds = frame_bytes(frame) * 8 / (node.capacity.bandwidth_mbps or 1.0) / 1e6
                self.at(self.now_s + seconds, self._sent, node, peer, frame)
                return

    def _sent(self, node: BrokerNode, peer: str, frame: Payload | Ack) -> None:
        node.is_sending = False
        connection = node.connections.get(peer)
        if connection is not None:
            self._transmit(connection, node.name, [frame])
        self._pump_broker(node)

    def _plan_wake(self, node: BrokerNode) -> None:
        if node.wake_s <= self.now_s + self._link_config.retransmit_after_s:
            return  # nothing can be due before that wake, which plans the next
        wake_s = node.broker.wake_at_s()
        if wake_s is not None and wake_s < node.wake_s:
            node.wake_s = wake_s
            self.at(wake_s, self._wake_broker, node, wake_s)

    def _wake_broker(self, node: BrokerNode, planned_s: float) -> None:
        if node.wake_s == planned_s:
            node.wake_s = float("inf")
        if not node.is_paused:
            self._broker_effects(node, node.broker.handle(_WAKE, self.now_s))
            self._pump_broker(node)

    def _broker_effects(self, node: BrokerNode, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Close):
                self.closed.append(effect)
                connection = node.connections[effect.peer]
                connection.stays_down = True
                self._take_down(connection, (0.0, 0.0))

    # ---- clients ----

    def _pump_client(self, node: ClientNode) -> None:
        session = node.session
        for broker, connection in node.connections.items():
            frames: list[Payload | Ack] = []
            while (frame := session.take_frame(self.now_s, broker)) is not None:
                frames.append(frame)
            if frames:
                self._transmit(connection, node.name, frames)
        wake_s = session.wake_at_s()
        if wake_s is not None and wake_s < node.wake_s:
            node.wake_s = wake_s
            self.at(wake_s, self._wake_client, node, wake_s)

    def _wake_client(self, node: ClientNode, planned_s: float) -> None:
        if node.wake_s == planned_s:
            node.wake_s = float("inf")
        if node.has_left:
            return
        self._client_effects(node, node.session.handle(_WAKE, self.now_s))
        self._pump_client(node)

    def _client_effects(self, node: ClientNode, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver():
                    self.checker.delivered(node.name, effect, self.now_s)
                    self.trace.add((self.now_s, node.name, effect.publisher, effect.sequence, effect.subscriptions))
                case InForce(id=id):
                    self.checker.in_force(id, self.now_s)
                case Taken(sequence=sequence):
                    self.checker.taken(node.name, sequence)
                    self._publish_held_back(node)
                case NotMoved():
                    self.moves_refused_count += 1
                case Rejected(about=about, reason=reason):
                    self.checker.rejected(node.name, about, reason, self.now_s)
                case Close():
                    self.closed.append(effect)
                case Open(broker=broker):
                    self._open(node, broker)
                case Shut(broker=broker):
                    self._shut(node, broker)
                case Moved():
                    self.moves_count += 1

    def _open(self, node: ClientNode, broker: str) -> None:
        ends = frozenset((node.name, broker))
        connection = self.links.get(ends)
        if connection is None:
            connection = self.links[ends] = Connection((node.name, broker), node.latency_s)
            self.brokers[broker].connections[node.name] = connection
            self._join_frame_faults(connection)
        connection.stays_down = False
        node.connections[broker] = connection
        self._bring_up(connection)

    def _shut(self, node: ClientNode, broker: str) -> None:
        """The client leaves the broker for good; if the connection is down, the broker finds out by itself."""
        connection = node.connections.pop(broker)
        connection.stays_down = True
        if not connection.is_up:
            return
        connection.is_up = False
        connection.epoch += 1
        arrival_s = max(self.now_s + connection.latency_s, connection.latest_arrival_s[broker])
        connection.latest_arrival_s[broker] = arrival_s
        self.at(arrival_s, self._leave, node.name, broker)

    def _leave(self, peer: str, broker: str) -> None:
        """A broker learns that a client or neighbour is gone for good."""
        if not self._waits(broker, self._leave, (peer, broker)):
            node = self.brokers[broker]
            self._broker_effects(node, node.broker.handle(LinkRemoved(peer), self.now_s))
            self._pump_broker(node)


def frame_bytes(frame: Payload | Ack) -> int:
    """What a frame costs on the wire: publications as much as in the thesis, the rest its own bytes.

    >>> frame_bytes(Ack(1)) < PUBLICATION_BYTES
    True
    """
    if type(frame) is Payload and type(frame.message) is Publish:
        return PUBLICATION_BYTES
    return len(encode_frame(frame))
