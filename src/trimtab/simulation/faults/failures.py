"""Brokers of a simulated world that die, hang or are congested, and who starts replicas for them.

A dead broker loses all it knew. A replica takes its name and its place: what is found under the name is another machine
from then on. Whoever starts it makes sure that the one before it is over, as an operator's system would.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.protocol.effects import Assist, Replace
from trimtab.protocol.events import LeftBehind, Resumed
from trimtab.protocol.link import Link
from trimtab.protocol.messages import Publish
from trimtab.simulation.world.capacity import SimulatedCapacity

if TYPE_CHECKING:
    from trimtab.simulation.world.broker_host import BrokerHost
    from trimtab.simulation.world.world import World


_LOOK_EVERY_S: Final = 0.25
"""How often is looked whether a takeover has ended, where something waits for that."""

_LOOKS_MAX_COUNT: Final = 400
"""Whoever waits for the end of takeovers gives up then: most runs are over."""


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
        """Take a machine; an incarnation that was asked for before is not replaced or assisted twice."""
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
    lost = _held_by(broker)
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
        self._usual_capacities: dict[str, SimulatedCapacity] = {}
        self.clients_return_s = 0.5
        """Clients try their broker's address again within so long."""
        self.operator_replaces_after_s: float | None = None
        """An operator has a broker replaced that nobody else has asked for so long, if there is one: all its
        neighbours may have died with it."""
        self._gaps_count = 0
        self._left: dict[str, LeftBehind] = {}
        """What brokers that were asked to end have left for their next incarnations."""
        self._orphans: dict[str, set[tuple[str, int]]] = {}
        """With `safe`: what a broker alone has, because the neighbour that had it as well has died; by the broker."""

    def kill(self, name: str, noticed_after_s: float = 0.0) -> None:
        """End a broker's process: its connections break, what is under way is lost, and so is all it knew."""
        world = self._world
        host = world.brokers.get(name)
        if host is None or host.is_dead:
            return
        world.faults_count["crash"] += 1
        host.stop(is_dead=True)
        if host.disk is not None:
            host.disk.broker_died()
        if _is_assistant(host):
            self._forget_assistant(host)
        else:
            self._forget(host)
        self._call_operator(host)
        for connection in host.connections.values():
            connection.stays_down = True
            if connection.is_up:
                after_s = (0.0, noticed_after_s) if connection.first is host else (noticed_after_s, 0.0)
                world.transport.take_down(connection, after_s)

    def ask(self, name: str) -> None:
        """Ask a broker to end: it says that it returns, and leaves what nobody else has for its next incarnation."""
        world = self._world
        host = world.brokers.get(name)
        if host is None or host.is_stopped:
            return
        world.faults_count["asked"] += 1
        left = host.leave()
        if left is not None:
            self._left[name] = left
        self._forget(host, leaves_state=True)
        self._call_operator(host)
        for connection in host.connections.values():
            connection.stays_down = True
            if connection.is_up:
                noticed_after_s = (connection.latency_s, connection.latency_s)
                world.transport.take_down(connection, noticed_after_s, returns=True)

    def _forget(self, host: BrokerHost, *, leaves_state: bool = False) -> None:
        """Note which publications may be lost with a broker, and whose may come again.

        Where one of its neighbours is away, or one of them or itself is being taken over, `received` and `safe` promise
        nothing until all takeovers have ended: what two adjacent brokers know is nowhere else.
        """
        broker, checker = host.broker, self._world.checker
        lost = set[tuple[str, int]]()
        if not leaves_state or broker.safe is not None:
            lost, self.lost_with_brokers = lost_with(broker, self.lost_with_brokers)
        level = broker.config.acknowledges
        held = _held_by(broker)
        if level == "safe":
            lost |= self._orphans.pop(host.name, set()) & held
            for name in host.connections:
                if name in self._world.brokers:
                    orphans = held & _held_by(self._world.brokers[name].broker)
                    self._orphans.setdefault(name, set()).update(orphans)
        hosts = self._world.clients
        clients = [name for name in broker.peers if name in hosts and hosts[name].session.broker == broker.name]
        # without those on their way here: theirs is another broker
        if level == "received" or lost:
            checker.gaps.may_lose()
        checker.broker_died(clients, lost)
        if level != "durable" and self._meets_another(host, leaves_state=leaves_state):
            self._gaps_count += 1
            checker.begin_gap()
            self._end_gap_when_mended(_LOOKS_MAX_COUNT)

    def _forget_assistant(self, host: BrokerHost) -> None:
        """What only an assistant has may be lost with it at `received`; where more is promised it has nothing alone."""
        if host.broker.safe is None:
            self._world.checker.gaps.may_lose()
            self._world.checker.broker_died((), _held_by(host.broker))

    def _call_operator(self, host: BrokerHost) -> None:
        if self.operator_replaces_after_s is not None and not _is_assistant(host):
            self._world.at(self._world.now_s + self.operator_replaces_after_s, self._replace_by_hand, host)

    def _replace_by_hand(self, host: BrokerHost) -> None:
        """What `trimtab replace` does: the operator knows who the neighbours are."""
        if self._world.brokers[host.name] is not host:
            return
        config = host.broker.config
        assert config.replication is not None
        neighbours = tuple(
            (name, "") for name in host.connections if name in self._world.brokers and not name.endswith("~")
        )
        protocol = config.replication.protocol
        self.replace(Replace(host.name, config.session, "by hand", protocol, neighbours, host.broker.epoch))

    def _meets_another(self, host: BrokerHost, *, leaves_state: bool) -> bool:
        """Whether a broker dies that is being taken over itself, or whose neighbour is away or being taken over.

        A broker without neighbours counts as well, unless it leaves its state: only its disk could know its clients.
        """
        near = [self._world.brokers[name] for name in host.connections if name in self._world.brokers]
        near = [each for each in near if not _is_assistant(each)]
        return (
            (not leaves_state and not (near and host.broker.records.are_guarded))
            or self._is_taking_over(host)
            or any(each.is_stopped or self._is_taking_over(each) for each in near)
        )

    def _is_taking_over(self, host: BrokerHost) -> bool:
        """Whether a later incarnation of a broker has not learnt all routes, or not all its clients have found it."""
        broker = host.broker
        if broker.config.epoch == 1:
            return False
        return not broker.takeover.is_over or any(
            peer is None or not peer.link.connected
            for peer in (
                broker.peers.get(client.name)
                for client in self._world.clients.values()
                if not client.has_left and client.session.broker == host.name
            )
        )

    @property
    def are_mended(self) -> bool:
        """Whether every broker works, every takeover has ended as far as clients may notice, and records are kept."""
        hosts = [host for host in self._world.brokers.values() if not _is_assistant(host)]
        return not any(
            host.is_stopped or self._is_taking_over(host) or not host.broker.records.are_guarded for host in hosts
        )

    def _are_filters_in_force(self) -> bool:
        """Whether all that was in force is again: a client that was forgotten tells its filters anew."""
        world = self._world
        wanted = [each for each in world.checker.subscriptions.values() if each.in_force and not each.ended]
        hosts = {name: world.brokers.get(client.session.broker) for name, client in world.clients.items()}
        return all(
            host is None or host.broker.interests.is_in_force(each.id, each.client)
            for each, host in ((each, hosts.get(each.client)) for each in wanted)
        )

    def _end_gap_when_mended(self, looks_count: int) -> None:
        if (self.are_mended and self._are_filters_in_force()) or not looks_count:
            self._gaps_count -= 1
            if not self._gaps_count:
                self._world.checker.end_gap()
        else:
            self._world.at(self._world.now_s + _LOOK_EVERY_S, self._end_gap_when_mended, looks_count - 1)

    def once_mended(self, action: Callable[[], None], looks_count: int = _LOOKS_MAX_COUNT) -> None:
        """Let something fail now or as soon as all takeovers before it have ended; not at all if they never do."""
        if self.are_mended:
            action()
        elif looks_count:
            self._world.at(self._world.now_s + _LOOK_EVERY_S, self.once_mended, action, looks_count - 1)

    def hang(self, name: str) -> None:
        """Let a broker do nothing any more while its connections stand."""
        host = self._world.brokers.get(name)
        if host is not None and not host.is_dead:
            self._world.faults_count["hang"] += 1
            host.stop(is_dead=False)
            self._call_operator(host)

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
        if host.is_dead or host.broker.config.session != request.session:
            return
        if name in world.brokers and not world.brokers[name].is_dead:
            return
        names = [neighbour for neighbour, _ in request.neighbours]
        config = msgspec.structs.replace(
            host.broker.config,
            name=name,
            epoch=host.broker.epoch,
            neighbours=(request.broker, *names),
            replica=request.protocol,
            assists=request.broker,
            reorders=request.reorders,
        )
        assistant = world.start_broker(config, self._usual_capacities.get(request.broker, host.capacity), ())
        assistant.on_dismissed = self._dismiss
        world.checker.gaps.demands_notices = False
        world.add_link(name, request.broker)
        for neighbour in names:
            world.add_link(name, neighbour, host.connections[neighbour].latency_s)

    def _dismiss(self, assistant: BrokerHost) -> None:
        """An assistant that is not wanted somewhere is not wanted at all, and leaves."""
        if assistant.is_dead:
            return
        self._forget_assistant(assistant)
        assistant.stop(is_dead=True)
        for connection in assistant.connections.values():
            other = self._world.brokers[connection.other(assistant.name)]
            self._world.transport.shut(connection, assistant.name, partial(other.left, assistant.name))

    def provide(self, request: Replace | Assist) -> None:
        """A broker asks for a replica or an assistant."""
        self.requests.append((self._world.now_s, request))
        if self.provisioner is not None:
            self.provisioner.provide(request)

    def replace(self, request: Replace) -> None:
        """Begin another incarnation of a broker, on a machine of the same kind, once the one before is surely over."""
        world = self._world
        before = world.brokers[request.broker]
        if before.broker.config.session != request.session:
            return
        self.kill(request.broker)
        self._left.pop(request.broker, None)
        self.replaced_count += 1
        config = msgspec.structs.replace(
            before.broker.config,
            session=f"{request.session}+",
            epoch=request.epoch + 1,
            neighbours=tuple(name for name, _ in request.neighbours),
            replica=request.protocol,
        )
        self._begin_again(before, config)

    def restart(self, name: str) -> None:
        """Begin another incarnation of a dead broker, on its machine, with nothing but its configuration and disk."""
        before = self._world.brokers[name]
        if before.is_dead:
            config, brokers = before.broker.config, self._world.brokers
            again = msgspec.structs.replace(
                config,
                session=f"{config.session}+",
                epoch=before.broker.epoch + 1,
                neighbours=tuple(
                    name for name in before.connections if name in brokers and not _is_assistant(brokers[name])
                ),
                replica="",
            )
            self._begin_again(before, again, self._left.pop(name, None))

    def _begin_again(self, before: BrokerHost, config: BrokerConfig, left: LeftBehind | None = None) -> None:
        world = self._world
        capacity = self._usual_capacities.get(config.name, before.capacity)
        after = world.start_broker(config, capacity, world.agents_for(config.name))
        if left is not None:
            after.tell(Resumed(left))
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


def _is_assistant(host: BrokerHost) -> bool:
    return bool(host.broker.config.assists)


def _held_by(broker: Broker) -> set[tuple[str, int]]:
    """The publications in a broker's memory: in its input, for its peers, kept for late ones, or waiting in order."""
    held = [message for _, message in broker.data_waiting()]
    for peer in broker.peers.values():
        held += [message for message in (*peer.link.undelivered_data(), *peer.queue) if isinstance(message, Publish)]
    if broker.replacement is not None:
        held += broker.replacement.held()
    return {(message.publisher, message.sequence) for message in held if isinstance(message, Publish)}
