"""Brokers of a simulated world that die, hang or are congested, and who starts replicas for them.

A dead broker loses all it knew. A replica takes its name and its place: what is found under the name is another machine
from then on. Whoever starts it makes sure that the life before it is over, as an operator's system would.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Protocol

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.protocol.effects import Assist, Replace
from trimtab.protocol.link import Link
from trimtab.protocol.messages import Publish
from trimtab.simulation.capacity import Capacity

if TYPE_CHECKING:
    from trimtab.simulation.broker_host import BrokerHost
    from trimtab.simulation.world import World


class Provisioner(Protocol):
    """Who starts a replica for a broker that has failed, or an assistant for one that is congested."""

    def provide(self, request: Replace | Assist) -> None:
        """Start one, unless that is under way or done."""
        ...


class StandByPool:
    """Machines that stand by: a replica begins a while after it was asked for, as long as there are any."""

    def __init__(self, world: World, start_after_s: float, machines_count: int) -> None:
        self._world = world
        self._start_after_s = start_after_s
        self.machines_count = machines_count
        self._under_way: dict[tuple[str, str, bool], None] = {}

    def provide(self, request: Replace | Assist) -> None:
        """Take a machine; a life that was asked for before is not replaced or assisted twice."""
        key = (request.broker, request.session, isinstance(request, Assist))
        if key in self._under_way or not self.machines_count:
            return
        if self._world.brokers[request.broker].broker.config.session != request.session:
            return
        self.machines_count -= 1
        self._under_way[key] = None
        failures = self._world.failures
        starts_s = self._world.now_s + self._start_after_s
        if isinstance(request, Assist):
            self._world.at(starts_s, failures.assist, request)
        else:
            self._world.at(starts_s, failures.replace, request)


def lost_with(broker: Broker, lost_before: Set[tuple[str, int]]) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """What may be lost when a broker dies, and all that was in the memory of a broker that has died until now."""
    held = [message for _, message in broker.data_waiting()]
    for peer in broker.peers.values():
        held += [message for message in (*peer.link.undelivered_data(), *peer.queue) if isinstance(message, Publish)]
    lost = {(message.publisher, message.sequence) for message in held if isinstance(message, Publish)}
    if broker.config.acknowledges == "durable":
        return set(), set(lost_before)  # what was acknowledged is on a disk
    if broker.safe is not None:  # with this broker and with one before it; with any one nothing is lost
        return _not_handed_back(broker) & lost_before, lost | lost_before
    return lost, lost | lost_before


def _not_handed_back(broker: Broker) -> set[tuple[str, int]]:
    """Publications that have not arrived yet at the neighbour that they are for."""
    waiting = [
        message
        for peer in broker.peers.values()
        if peer.role == "broker"
        for message in Link.undelivered_data(peer.link)
    ]
    return {(message.publisher, message.sequence) for message in waiting if isinstance(message, Publish)}


class Failures:
    """What fails in a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.provisioner: Provisioner | None = None
        """Who starts replicas; without one a failed broker stays away."""
        self.requests: list[tuple[float, Replace | Assist]] = []
        """When brokers asked for replicas and assistants."""
        self.lost_with_brokers: set[tuple[str, int]] = set()
        """Publications that were in the memory of a broker when it died."""
        self.replaced_count = 0
        self._usual_capacities: dict[str, Capacity] = {}
        self.clients_return_s = 0.5
        """Clients try their broker's address again within so long."""

    def kill(self, name: str, noticed_after_s: float = 0.0) -> None:
        """End a broker's process: its connections break, what is under way is lost, and so is all it knew."""
        world = self._world
        host = world.brokers.get(name)
        if host is None or host.is_dead:
            return
        world.faults_count["crash"] += 1
        host.stop(is_dead=True)
        self._forget(host)
        for connection in host.connections.values():
            connection.stays_down = True
            if connection.is_up:
                after_s = (0.0, noticed_after_s) if connection.first is host else (noticed_after_s, 0.0)
                world.transport.take_down(connection, after_s)

    def _forget(self, host: BrokerHost) -> None:
        """Note which publications are lost with a broker, and whose may come again."""
        broker = host.broker
        lost, self.lost_with_brokers = lost_with(broker, self.lost_with_brokers)
        hosts = self._world.clients
        clients = [name for name in broker.peers if name in hosts and hosts[name].session.broker == broker.name]
        self._world.checker.broker_died(clients, lost)  # without those on their way here: theirs is another broker

    def hang(self, name: str) -> None:
        """Let a broker do nothing any more while its connections stand."""
        host = self._world.brokers.get(name)
        if host is not None and not host.is_dead:
            self._world.faults_count["hang"] += 1
            host.stop(is_dead=False)

    def congest(self, name: str, cpu_mhz: float, for_s: float) -> None:
        """Slow a broker's processor down for a while."""
        host = self._world.brokers.get(name)
        if host is None:
            return
        self._world.faults_count["congest"] += 1
        usual = self._usual_capacities.setdefault(name, host.capacity)
        host.capacity = msgspec.structs.replace(usual, cpu_mhz=cpu_mhz)
        self._world.at(self._world.now_s + for_s, setattr, host, "capacity", usual)

    def assist(self, request: Assist) -> None:
        """Start a broker that shares the load of another, on a machine as that one has it when it is well."""
        world = self._world
        host = world.brokers[request.broker]
        name = f"{request.broker}~"
        if host.is_dead or host.broker.config.session != request.session or name in world.brokers:
            return
        names = [neighbour for neighbour, _ in request.neighbours]
        config = msgspec.structs.replace(
            host.broker.config,
            name=name,
            neighbours=(request.broker, *names),
            replica=request.protocol,
            assists=request.broker,
            reorders=request.reorders,
        )
        world.start_broker(config, self._usual_capacities.get(request.broker, host.capacity), ())
        world.add_link(name, request.broker)
        for neighbour in names:
            world.add_link(name, neighbour, host.connections[neighbour].latency_s)

    def provide(self, request: Replace | Assist) -> None:
        """A broker asks for a replica or an assistant."""
        self.requests.append((self._world.now_s, request))
        if self.provisioner is not None:
            self.provisioner.provide(request)

    def replace(self, request: Replace) -> None:
        """Begin another life of a broker, on a machine of the same kind, once the one before it is surely over."""
        world = self._world
        before = world.brokers[request.broker]
        if before.broker.config.session != request.session:
            return
        self.kill(request.broker)
        self.replaced_count += 1
        config = msgspec.structs.replace(
            before.broker.config,
            session=f"{request.session}+",
            neighbours=tuple(name for name, _ in request.neighbours),
            replica=request.protocol,
        )
        self._begin_again(before, config)

    def restart(self, name: str) -> None:
        """Begin another life of a broker that is dead, on its machine, with nothing but its configuration and disk."""
        before = self._world.brokers[name]
        if before.is_dead:
            config = before.broker.config
            self._begin_again(before, msgspec.structs.replace(config, session=f"{config.session}+", replica=""))

    def _begin_again(self, before: BrokerHost, config: BrokerConfig) -> None:
        world = self._world
        after = world.start_broker(config, before.capacity, world.agents_for(config.name))
        for peer, connection in before.connections.items():
            client = world.clients.get(peer)
            if client is not None and client.connections.get(config.name) is not connection:
                continue  # it has left, or moved on
            connection.hand_to(after)
            after.connections[peer] = connection
            other = world.brokers.get(peer)
            if other is not None and other.is_dead:
                continue  # linked when that one is replaced
            connection.stays_down = False
            delay_s = 0.0 if client is None else world.rng.uniform(0.0, self.clients_return_s)
            world.at(world.now_s + delay_s, world.transport.bring_up, connection)
