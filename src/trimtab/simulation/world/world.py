"""The simulated world: virtual time, capacities, connections and faults around the very same brokers and clients.

Time stands still while a role works; it passes on links (latency), in the matching step of a broker (its CPU) and on
the way out of a broker (its bandwidth, shared by its output queues in turn). Every random choice comes from one seeded
generator and every event has its place in one queue, so that the same seed gives the same history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.broker.flow.uplink import AnyUplink
from trimtab.client.config import HOLD_BACK_WITHIN_S, MOVE_WITHIN_S, REACH_WITHIN_S, ClientConfig
from trimtab.client.session import ClientSession
from trimtab.language import Filter, Publication, Value
from trimtab.load.indices import LoadIndices
from trimtab.policies.api import Agent
from trimtab.protocol.channels import stream_name
from trimtab.protocol.effects import Close, Deliver
from trimtab.protocol.events import PublicationSizes
from trimtab.protocol.frames import Order
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import WireValue
from trimtab.simulation.checkers.deliveries import DeliveryChecker
from trimtab.simulation.faults.failures import Failures
from trimtab.simulation.faults.faults import (
    Congest,
    Crash,
    Cut,
    DiskFault,
    Fault,
    FlipBit,
    FrameFault,
    FullDisk,
    Hang,
    Partition,
    Pause,
    SlowDisk,
)
from trimtab.simulation.world.back_end import BackEnd
from trimtab.simulation.world.broker_host import BrokerHost, CheckingObserver
from trimtab.simulation.world.capacity import SimulatedCapacity, matching_delay_s
from trimtab.simulation.world.client_host import ClientHost, Surroundings
from trimtab.simulation.world.clock import Clock
from trimtab.simulation.world.connections import Connection, Transport
from trimtab.simulation.world.disk import Disk
from trimtab.simulation.world.recording import WorldRecords
from trimtab.simulation.world.trace import Trace


class World:
    """Brokers, clients, links and time."""

    def __init__(
        self,
        seed: int,
        *,
        link: LinkConfig | None = None,
        acknowledge_after_s: float = 0.0,
        clients_acknowledge_after_s: float | None = None,
        bundle_s: float = 0.0,
        move_within_s: float = MOVE_WITHIN_S,
        uplink: AnyUplink = "turns",
    ):
        """A world without anybody.

        With `acknowledge_after_s` acknowledgements that nothing else goes with wait for so long, those of clients
        perhaps longer. With `bundle_s` frames to and from clients are handed over in bundles of that length, and
        brokers with a bandwidth commit what they send for that length; each frame keeps its own modelled time.
        `uplink` says how the output queues of a broker share its bandwidth.
        """
        self._seed = seed
        self._uplink: AnyUplink = uplink
        self._sizes_bytes: dict[str, int] = {}
        """The sizes of publications on the wire by publisher, of those whose publications are not of the usual size."""
        self._link_config = link or LinkConfig()
        self._acknowledge_after_s = min(acknowledge_after_s, self._link_config.retransmit_after_s / 2)
        clients_after_s = acknowledge_after_s if clients_acknowledge_after_s is None else clients_acknowledge_after_s
        clients_after_s = min(clients_after_s, self._link_config.retransmit_after_s / 2)
        self._bundle_s = bundle_s
        self._move_within_s = move_within_s
        self.clock = Clock()
        self.rng = Random(seed)
        self.checker = DeliveryChecker()
        self.trace = Trace()
        acknowledge_max_count = self._link_config.window_frames_count // 4
        self.transport = Transport(self.clock, self.trace, self.rng, bundle_s, acknowledge_max_count)
        self.brokers: dict[str, BrokerHost] = {}
        self.clients: dict[str, ClientHost] = {}
        self._around = Surroundings(
            self.clock,
            self.transport,
            self.trace,
            self.checker,
            clients_after_s,
            acknowledge_max_count,
            reads_later=bundle_s > 0 and clients_after_s > 0,
        )
        self._around.brokers = self.brokers
        self.checker.let_read = self._caught_up
        self.back_end: BackEnd | None = None
        """Where channels come from, if anywhere."""
        self.disks: dict[str, Disk] = {}
        """What brokers have stored, by their names."""
        self.failures = Failures(self)
        """Brokers that die, and replicas for them."""
        self.agents_for: Callable[[str], Sequence[Agent]] = lambda name: ()
        """The agents inside another incarnation of a broker."""
        self._is_retired = False

    # ---- time ----

    @property
    def now_s(self) -> float:
        """The time."""
        return self.clock.now_s

    def at(self, time_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time; what is planned for the same time happens in the order of planning."""
        self.clock.at(time_s, action, *arguments)

    def run(self, until_s: float = float("inf"), events_max_count: int | None = None) -> None:
        """Let time pass until then, until nothing is left to happen, or until too much has happened."""
        self.clock.run(until_s, events_max_count)
        self._around.read_all()

    def retire_agents(self) -> None:
        """Let no broker begin anything by itself any more, those that are yet to start among them, and come to rest."""
        self._is_retired = True
        for host in self.brokers.values():
            host.broker.retire_agents()

    @property
    def link_config(self) -> LinkConfig:
        """The limits of links of this world."""
        return self._link_config

    @property
    def on_delivery(self) -> Callable[[str, Deliver, float], None] | None:
        """Who is told of each delivery, with the client's name and the time, besides the checker."""
        return self.checker.on_delivery

    @on_delivery.setter
    def on_delivery(self, told: Callable[[str, Deliver, float], None] | None) -> None:
        self.checker.on_delivery = told

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is left to happen."""
        return self.clock.is_at_rest

    # ---- what is there and what has happened ----

    @property
    def links(self) -> dict[frozenset[str], Connection]:
        """All connections by their two ends."""
        return self.transport.connections

    @property
    def faults_count(self) -> Counter[str]:
        """Faults that have happened, by kind."""
        return self.transport.faults_count

    @property
    def frames_count(self) -> int:
        """Frames that were sent."""
        return self.transport.frames_count

    @property
    def moves_count(self) -> int:
        """Moves that were completed."""
        return self._around.moves_count

    @property
    def moves_refused_count(self) -> int:
        """Moves that were refused because the new broker had not heard of the old one."""
        return self._around.moves_refused_count

    @property
    def closed(self) -> list[Close]:
        """Connections that a broker or a client closed, with reasons."""
        return self._around.closed

    def load(self, broker: str) -> LoadIndices:
        """A broker's load at this moment."""
        return self.brokers[broker].load()

    @property
    def records(self) -> WorldRecords | None:
        """Who is told what happens, where records are wanted."""
        return self._around.records

    def keep_records(self, records: WorldRecords) -> None:
        """Tell what happens from now on."""
        self._around.records = records
        for host in self.brokers.values():
            host.records = records

    # ---- building ----

    def add_broker(
        self, config: BrokerConfig, capacity: SimulatedCapacity | None = None, agents: Sequence[Agent] = ()
    ) -> None:
        """Start a broker, with agents inside."""
        if config.name in self.brokers or config.name in self.clients:
            raise ValueError(f"the name {config.name} is in use")
        self.start_broker(_measured(config, capacity or SimulatedCapacity()), capacity or SimulatedCapacity(), agents)

    def start_broker(self, config: BrokerConfig, capacity: SimulatedCapacity, agents: Sequence[Agent]) -> BrokerHost:
        """Start a broker on a machine of its own; one of the same name is found no more."""
        observer = CheckingObserver(config, self.checker)
        if config.order == "any":
            self.checker.promise_no_order()
        broker = Broker(config, () if self._is_retired else agents, self.now_s, observer=observer)
        if self._is_retired:
            broker.retire_agents()
        host = self.brokers[config.name] = BrokerHost(
            broker,
            capacity,
            self.clock,
            self.transport,
            self.closed,
            observer=observer,
            sizes_bytes=self._sizes_bytes,
            commit_s=self._bundle_s,
            acknowledge_after_s=self._acknowledge_after_s,
            uplink=self._uplink,
        )
        if self._sizes_bytes:
            host.tell(PublicationSizes(self._sizes_bytes))
        host.records = self.records
        host.provide = self.failures.provide
        if config.acknowledges == "durable":
            host.mount(self._disk_of(config.name))
        if config.has_back_end and self.back_end is not None:
            host.back_end = self.back_end
            self.back_end.join(host)
        return host

    def _disk_of(self, broker: str) -> Disk:
        if broker not in self.disks:
            self.disks[broker] = Disk(self.clock, Random(f"disk of {broker} {self._seed}"))
        return self.disks[broker]

    def set_publication_bytes(self, publisher: str, size_bytes: int) -> None:
        """The publications of a publisher have this size on the wire, not the usual one; all brokers are told."""
        self._sizes_bytes[publisher] = size_bytes
        for host in self.brokers.values():
            host.tell(PublicationSizes({publisher: size_bytes}))

    def add_back_end(self, channels: tuple[str, ...], latency_s: float = 0.001) -> BackEnd:
        """A back end for the brokers that are started afterwards and may have one."""
        self.back_end = BackEnd(self.clock, self.checker.channels, latency_s, channels)
        return self.back_end

    def add_link(self, first: str, second: str, latency_s: float = 0.001) -> None:
        """Link two brokers; their connection comes up after the latency."""
        here, there = self.brokers[first], self.brokers[second]
        connection = self.transport.join(here, there, latency_s, is_inner=True)
        here.connections[second] = connection
        there.connections[first] = connection

    def remove_link(self, first: str, second: str) -> None:
        """Take the link between two brokers away for good; what is under way on it is lost."""
        self.transport.forget(first, second)
        for here, there in ((first, second), (second, first)):
            del self.brokers[here].connections[there]
            self.brokers[here].left(there)

    def are_linked(self, first: str, second: str) -> bool:
        """Whether each of two brokers knows the other and has taken in all that the other had to say."""
        for here, there in ((first, second), (second, first)):
            broker = self.brokers[here].broker
            if there not in broker.peers or not broker.peers[there].link.idle or broker.input_count:
                return False
        return True

    def add_client(
        self, name: str, broker: str, latency_s: float = 0.001, *, order: Order = "publisher"
    ) -> ClientSession:
        """Start a client and connect it; one that takes any order drops nothing that is late, whatever is promised."""
        if name in self.brokers or name in self.clients:
            raise ValueError(f"the name {name} is in use")
        config = ClientConfig(
            name,
            reach_within_s=min(REACH_WITHIN_S, self._move_within_s),
            move_within_s=self._move_within_s,
            hold_back_within_s=min(HOLD_BACK_WITHIN_S, self._move_within_s),
            order=order,
            link=self._link_config,
        )
        session = ClientSession(config)
        self.clients[name] = ClientHost(session, self._around, latency_s)
        self.clients[name].open(broker)
        return session

    def add_fault(self, fault: Fault) -> None:
        """Declare what goes wrong."""
        match fault:
            case Cut(between=between):
                self.at(fault.at_s, self.transport.cut, frozenset(between), fault.for_s, fault.noticed_after_s)
            case Partition():
                self.at(fault.at_s, self.transport.partition, frozenset(fault.brokers), fault.for_s)
            case Pause(broker=broker):
                self.at(fault.at_s, self._pause, broker, fault.for_s)
            case Crash(broker=broker):
                self.at(fault.at_s, self.failures.kill, broker, fault.noticed_after_s)
            case Hang(broker=broker):
                self.at(fault.at_s, self.failures.hang, broker)
            case Congest(broker=broker):
                self.at(fault.at_s, self.failures.congest, broker, fault.cpu_mhz, fault.for_s)
            case FlipBit() | FullDisk() | SlowDisk():
                self.at(fault.at_s, self._let_disk_fail, fault)
            case FrameFault():
                self.transport.add_frame_fault(fault)

    def _let_disk_fail(self, fault: DiskFault) -> None:
        disk = self.disks.get(fault.broker)
        if disk is None:
            return
        match fault:
            case FlipBit():
                disk.flip_bit()
            case FullDisk(for_s=for_s):
                disk.fill(for_s)
            case SlowDisk(for_s=for_s, write_s=write_s):
                disk.slow_down(write_s, for_s)
        self.faults_count[str(type(fault).__struct_config__.tag)] += 1

    def _pause(self, broker: str, for_s: float) -> None:
        if broker in self.brokers and self.brokers[broker].pause(for_s):
            self.faults_count["pause"] += 1

    # ---- the application's side of clients ----

    def advertise(self, client: str, filter: Filter) -> str:
        """A client announces what it will publish."""
        host = self._caught_up(client)
        id = host.session.advertise(filter, self.now_s)
        self.checker.advertised(id, client, filter)
        host.send()
        return id

    def unadvertise(self, client: str, id: str) -> None:
        """A client ends an advertisement."""
        host = self._caught_up(client)
        self.checker.unadvertised(id)
        host.session.unadvertise(id, self.now_s)
        host.send()

    def subscribe(self, client: str, filter: Filter, within_s: float | None = None) -> str:
        """A client asks for what a filter matches, perhaps within a time."""
        host = self._caught_up(client)
        id = host.session.subscribe(filter, self.now_s, within_s)
        self.checker.subscribed(id, client, filter)
        host.send()
        return id

    def subscribe_channel(self, client: str, channel: str, arguments: dict[str, WireValue]) -> str:
        """A client asks for the results of a channel from now on."""
        host = self._caught_up(client)
        id = host.session.subscribe_channel(channel, arguments, self.now_s)
        self.checker.channels.subscribed(id, client, stream_name(channel, arguments))
        host.send()
        return id

    def unsubscribe_channel(self, client: str, id: str) -> None:
        """A client ends a subscription to a channel."""
        host = self._caught_up(client)
        self.checker.channels.ended(id)
        host.session.unsubscribe(id, self.now_s)
        host.send()

    def unsubscribe(self, client: str, id: str) -> None:
        """A client ends a subscription."""
        host = self._caught_up(client)
        self.checker.unsubscribed(id)
        host.session.unsubscribe(id, self.now_s)
        host.send()

    def publish(self, client: str, publication: Publication | Mapping[str, Value]) -> None:
        """A client publishes; if its window is full the publication waits for room."""
        ready = publication if isinstance(publication, Publication) else Publication(publication)
        self.clients[client].publish(ready)

    def move(self, client: str, broker: str) -> None:
        """A client is asked to go on at another broker."""
        self.clients[client].move(broker)

    def leave(self, client: str) -> None:
        """A client goes for good, and with it all that it advertised and subscribed to."""
        host = self._caught_up(client)
        self.checker.left(client)
        host.leave()

    def _caught_up(self, client: str) -> ClientHost:
        """A client, when it has read all that it has got."""
        host = self.clients[client]
        host.read()
        return host


def _measured(config: BrokerConfig, capacity: SimulatedCapacity) -> BrokerConfig:
    """A broker's configuration with what its machine can do, which its meters compare with what it does."""
    meters = config.meters
    if capacity.bandwidth_mbps:
        meters = msgspec.structs.replace(meters, bandwidth_bytes_per_s=capacity.bandwidth_mbps * 1e6 / 8)
    if capacity.downlink_mbps:
        meters = msgspec.structs.replace(meters, downlink_bytes_per_s=capacity.downlink_mbps * 1e6 / 8)
    if capacity.memory_mb:
        meters = msgspec.structs.replace(meters, memory_bytes=capacity.memory_mb * 1e6)
    if capacity.cpu_mhz:
        meters = msgspec.structs.replace(meters, matching_s_per_subscription=matching_delay_s(1, capacity.cpu_mhz))
    return msgspec.structs.replace(config, meters=meters)
