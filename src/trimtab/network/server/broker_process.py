"""One broker in one process: its sockets, its timers and its end. The broker itself knows nothing of them.

A turn of the event loop: whatever arrived is handed to the broker (`Received`), the broker does some steps, and each
peer with something to be told gets one write. A turn does a bounded number of steps, so that reading and writing go on
while much is to be done.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from trimtab.broker.core import Broker
from trimtab.network.clock import now_s
from trimtab.network.failover.membership import StoodBy, membership_of
from trimtab.network.failover.process_identity import ProcessIdentity, new_session
from trimtab.network.failover.process_proof import ProcessProof
from trimtab.network.failover.provisioners import provisioner_of
from trimtab.network.failover.replacing import Replacing
from trimtab.network.failover.replication_settings import ReplicaOrder
from trimtab.network.links.address import Address
from trimtab.network.links.connection import CLOSE_WITHIN_S, SILENT, Connection
from trimtab.network.links.heartbeat import Heartbeat, HeartbeatConfig
from trimtab.network.links.neighbour_links import NeighbourLinks
from trimtab.network.loops import run
from trimtab.network.network_file import NetworkPlan
from trimtab.network.security import caller
from trimtab.network.security.access_control import AccessControl, Asked
from trimtab.network.security.listener import Listener
from trimtab.network.server.back_end import BackEndConnection, token_in
from trimtab.network.server.capacity import EnforcedCapacity
from trimtab.network.server.descriptors import DescriptorWatch
from trimtab.network.server.disk import disk_of
from trimtab.network.server.ending import Ending, next_order, objection_to_return
from trimtab.network.server.greetings import Greetings
from trimtab.network.server.intake import Intake, without_publications
from trimtab.network.server.outgoing import Outgoing
from trimtab.network.server.process_meters import ProcessMeters
from trimtab.network.server.publication_log import PublicationLogError
from trimtab.network.server.requests import Requests
from trimtab.network.server.state_file import State, StateFileError
from trimtab.network.server.telemetry import Telemetry
from trimtab.policies.api import Agent
from trimtab.policies.multistage.config import COORDINATOR_NAME
from trimtab.policies.registry import agents_of, objection_to_change
from trimtab.protocol.effects import (
    Append,
    Assist,
    Close,
    CloseStream,
    Effect,
    FetchResults,
    Forget,
    Leave,
    OpenStream,
    Record,
    Replace,
)
from trimtab.protocol.events import Disconnected, Event, FenceChanged, LinkRemoved, Resumed, Step, Wake
from trimtab.protocol.frames import Ack, FailureStatus, Frame, Goodbye, Hello, Payload, StatusReply, StatusRequest
from trimtab.protocol.records import Recorder, as_record
from trimtab.protocol.requests import Reply, SingleRequest
from trimtab.protocol.snapshots import SnapshotRequest

STEPS_PER_TURN_COUNT: Final = 256
"""Messages processed before the loop may read and write again: a few milliseconds."""

_STEP: Final = Step()
_STEPS: Final = Step(STEPS_PER_TURN_COUNT)

TICK_S: Final = 0.25
"""How often rates, queues and memory are looked at."""

ANSWER_WITHIN_S: Final = 0.05
"""A broker that is asked to begin again has answered then."""

_NEVER_S: Final = float("inf")

log = logging.getLogger("trimtab.broker")


class SecondReplicaError(Exception):
    """Another process has the place of this one, which ends; the message says why."""


class ProcessOptions(msgspec.Struct, frozen=True):
    """What a broker's process is started with, besides the network."""

    file: str | Path | None = None
    """The network file, by which a process can be started for a neighbour that fails."""
    order: ReplicaOrder | None = None
    """The earlier incarnation of itself that the broker replaces, if it does."""
    stop_with_pid: int | None = None
    """The process with which this one ends."""
    recorder: Recorder | None = None
    """Where load is recorded."""
    replica_options: tuple[str, ...] = ()
    """Options of processes that are started for neighbours."""
    stood_by: StoodBy | None = None
    """What the process knows from the time before it had an order."""


DEFAULT_OPTIONS: Final = ProcessOptions()


class BrokerServer:
    """Listens for peers, calls neighbours, and drives one `Broker`."""

    def __init__(
        self,
        plan: NetworkPlan,
        name: str,
        options: ProcessOptions = DEFAULT_OPTIONS,
    ) -> None:
        order, file = options.order, options.file
        self._stop = asyncio.Event()
        self._entry = plan.broker(name)
        self._listen = self._entry.listen if order is None else Address.parse(order.listen)
        self._dialled = plan.dialled_by(name)
        self.policy = plan.policy.name
        self.disk = disk_of(plan, name, order, self._happened, self.stop)
        """Where publications are stored, if they are."""
        self._state = State(plan, name, file, order)
        self._order = order
        own_epoch = order.epoch if order is not None else 1
        epoch = max(own_epoch if self.disk is None else self.disk.epoch, self._state.epoch)
        config = msgspec.structs.replace(plan.config_of(name, new_session()), epoch=epoch)
        if order is not None:
            address = self._entry.address if self._listen == self._entry.listen else self._listen
            config = order.config_of(config, str(address))
            self._dialled = tuple((neighbour, Address.parse(where)) for neighbour, where in order.neighbours)
        self._plan = plan
        self._name = name
        self._file = file
        self.broker = Broker(config, [] if config.assists else self._agents_of(self.policy), now_s())
        self._proof = ProcessProof(config.name, str(self._entry.listen), config.session)
        url = plan.options.back_end
        token = token_in(plan.options.back_end_token_file)
        self._back_end = BackEndConnection(url, name, self._happened, token) if url else None
        self._capacity = EnforcedCapacity.of(self._entry) if plan.options.enforce_capacities else None
        self._meters = ProcessMeters(self.broker, self._capacity)
        self._wake_at_s = _NEVER_S
        self._wake_timer: asyncio.TimerHandle | None = None
        self.connections: dict[str, Connection] = {}
        self._outgoing = Outgoing(
            self.broker,
            self.connections,
            self._meters,
            self._capacity,
            uplink=plan.options.uplink,
            schedule=self.schedule,
        )
        self._heartbeat = Heartbeat(
            HeartbeatConfig(plan.options.silent_after_s, plan.options.answer_within_s),
            lambda: list(self.connections.values()),
            lambda connection: self._show_life(connection, asks=True),
            self._give_up,
        )
        self._intake = Intake(self.broker, self.connections)
        self._turn_is_due = False
        self._is_draining = False
        self.limits = plan.limits
        self.access = AccessControl(plan, name, go_on=self.frame_received, refuse=self.refuse, happened=self._happened)
        """Who decides what is heard of those who connect."""
        self.links = NeighbourLinks(self.broker, config.neighbours, self)
        self._descriptors = DescriptorWatch(config.name)
        self._ending = Ending()
        """What becomes of the process when the broker has ended."""
        self._greetings = Greetings(self)
        self._listener = Listener(self._listen, self._new_connection, plan.limits, self.access, self._greetings)
        self._loss = ""
        """Why this process has no place in the network any more, if it has none."""
        self._companion = (
            ProcessIdentity.of_process(options.stop_with_pid) if options.stop_with_pid is not None else None
        )
        self._membership = membership_of(
            plan, self.broker, self._fence_changed, self._greetings.lose_place, options.stood_by
        )
        self._replacing: Replacing | None = None
        if plan.replication is not None:
            words = list(options.replica_options)
            words += ["--stop-with", str(options.stop_with_pid)] if options.stop_with_pid else []
            provisioner = provisioner_of(plan.replication, plan.standbys, self._listen.host, file, words)
            self._replacing = Replacing(
                self.broker, plan, plan.replication, provisioner, file, membership=self._membership
            )
        self._requests = Requests(
            self.broker,
            self.links,
            self._replacing,
            end_link=self._end_link,
            schedule=self.schedule,
            change_policy=self._change_policy,
            restart=self._restart,
            membership=self._membership,
            ended=self._request_ended,
        )
        self._snapshots = self._requests.snapshots
        self._telemetry = Telemetry(self.broker, self._meters, options.recorder, self.carry_out)
        self.loop: asyncio.AbstractEventLoop
        self._on_links_up: Callable[[], None] | None = None

    def _agents_of(self, policy: str) -> list[Agent]:
        plan, name = self._plan, self._name
        seed = f"network-{secrets.token_hex(4)}" if name == COORDINATOR_NAME else "network"
        return agents_of(plan.policy.named(policy), name, seed, self._entry.site)

    def _change_policy(self, policy: str) -> str:
        """Work by another policy from now on; returns why not, if so."""
        try:
            problem = objection_to_change(self.policy, policy)
            if problem or policy == self.policy:
                return problem
            agents = self._agents_of(policy)
        except ValueError as error:
            return str(error)
        if self.broker.config.assists:
            return "an assistant has no policy"
        log.info("%s: the policy is %s, it was %s", self.broker.name, policy, self.policy)
        self.policy = policy
        self.broker.change_agents(agents, now_s())
        self._wake()
        return ""

    def _restart(self) -> str:
        """End, and begin again; returns why not, if so."""
        if self.broker.config.assists:
            return f"this process is an assistant of {self._name}; end it, and have {self._name} assisted again"
        if problem := objection_to_return(self._file, self._name, is_replica=self._order is not None):
            return f"{self._name} would not come back: {problem}"
        self._ending = Ending("begins again")
        self.loop.call_later(ANSWER_WITHIN_S, self._stop.set)
        return ""

    def _next_order(self) -> ReplicaOrder | None:
        """What a replica begins again as."""
        if self._order is None:
            return None
        former, reach = dict(self._order.neighbours), self.broker.topology
        addresses = {name: reach.address_of(name) or former.get(name, "") for name in self.links.names}
        return next_order(self._order, self.broker.epoch, addresses, str(self._listen))

    async def run(self, ready: Callable[[], None] | None = None) -> Ending:
        """Serve until SIGTERM or SIGINT; `ready` is called once the broker listens and all its links are up.

        Returns what becomes of the process.
        """
        self.loop = asyncio.get_running_loop()
        self._descriptors.begin(self.loop)
        self._proof.answer(self.loop)
        self._on_links_up = ready
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self._stop.set)
        if self._membership is not None:
            self._membership.begin()
        if self.disk is not None:
            self.disk.tell_found()
        if self._state.left is not None:
            self._happened(Resumed(self._state.left))
            self._state.left = None
        address = self._listen
        await self._listener.begin()
        log.info("%s listens at %s", self.broker.name, address)
        for neighbour, where in self._dialled:
            self.links.call(neighbour, where)
        ticking = self.loop.create_task(self._tick())
        self._heartbeat.begin()
        asking = [self.loop.create_task(self._back_end.run())] if self._back_end is not None else []
        self.report_links()
        await self._stop.wait()
        self._listener.close()
        if self._loss:
            self._state.forget()
            raise SecondReplicaError(self._loss)
        await self._drain()
        if self.disk is not None:
            self.disk.close()
        problem = ""
        if self._ending.how == "left":
            self._state.forget()
        else:
            problem = self._state.leave(self.broker)
        await self._close_all()
        self._telemetry.record_load(now_s())
        replacing = [] if self._replacing is None else self._replacing.tasks
        voting = [] if self._membership is None else self._membership.tasks
        probing = self._greetings.probes.tasks
        tasks = [ticking, *asking, *self.links.tasks, *probing, *self._requests.tasks, *replacing, *voting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._proof.close()
        log.info("%s has stopped", self.broker.name)
        if self.disk is not None and self.disk.failure:
            raise PublicationLogError(self.disk.failure)
        if problem:
            raise StateFileError(problem)
        if self._ending.how == "begins again":
            return Ending("begins again", self._next_order())
        return self._ending

    def stop(self) -> None:
        """End soon."""
        self._stop.set()

    def _happened(self, event: Event) -> None:
        """Tell the broker, and do what it says."""
        self.carry_out(self.broker.handle(event, now_s()))
        self.schedule()

    def _fence_changed(self, problem: str) -> None:
        self._happened(FenceChanged(problem))

    # ---- connections ----

    def connection_opened(self, connection: Connection) -> None:
        """A peer called or answered: whoever called greets first, and soon."""
        self._greetings.opened(connection)

    def _new_connection(self) -> Connection:
        return Connection(self, frame_max_bytes=self.limits.greeting_max_bytes)

    def _request_ended(self, connection: Connection, request: Asked, reply: Frame) -> None:
        if self.access.ended(connection, request, reply):
            self._greetings.await_soon(connection)

    def frame_received(self, connection: Connection, frame: Frame) -> None:
        """A frame of a peer, which may not have greeted yet."""
        if not isinstance(frame, Payload | Ack) and not self.access.admits(connection, frame):
            return
        match frame:
            case Payload() | Ack() if connection.peer:
                if unknown := self._intake.problem_with(frame):
                    self.refuse(connection, unknown)
                    return
                if self._is_draining and isinstance(frame, Payload):
                    frame = without_publications(frame)
                if self._snapshots.samplings and isinstance(frame, Payload):
                    self._snapshots.saw(connection.peer, frame)
                self.broker.receive(connection.peer, frame, now_s())
                self._intake.pause_if_full(connection)
                if self._capacity is not None and isinstance(frame, Ack) and frame.asks:
                    self._show_life(connection, asks=False)  # what it has to say may wait long for the bandwidth
            case Hello() if not connection.peer:
                self._greetings.came(connection, frame)
            case StatusRequest():
                connection.send(StatusReply(self._telemetry.latest_status(self, self.limits.statuses_per_s)))
                self._greetings.await_soon(connection)
            case _ if isinstance(frame, SingleRequest | SnapshotRequest):
                self._greetings.await_no_more(connection)
                self.access.began(connection)
                self._requests.take(connection, frame)
            case Goodbye(reason=reason, leaves=leaves, returns=returns):
                log.info("%s: %s says goodbye: %s", self.broker.name, connection.peer or connection.address, reason)
                known = self.broker.peers.get(connection.peer)
                was_linked = known is not None and known.role == "broker"
                self.links.refused(connection, reason)
                if returns:
                    self.links.returns(connection.peer)
                self.forget(connection, leaves=leaves, returns=returns)
                connection.close()
                if connection.dialled or was_linked:  # anybody else may say anything
                    self._greetings.dismissed(connection, reason, was_linked=was_linked)
            case Hello():
                self.refuse(connection, "a second greeting")
            case _ if isinstance(frame, Reply):
                self.refuse(connection, "an answer that nobody asked for")
            case _:
                self.refuse(connection, "the first frame must be a greeting (hello)")

    def bytes_handled(self, connection: Connection) -> None:
        """Whatever arrived is with the broker: it may act on it."""
        self.schedule()

    def connection_broken(self, connection: Connection, reason: str) -> None:
        """The peer broke the protocol; everybody else goes on."""
        self.refuse(connection, reason)

    def connection_writable(self, connection: Connection) -> None:
        """There is room for more frames."""
        self.schedule()

    def connection_closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self.access.closed(connection)
        self.forget(connection)

    def lose_place(self, why: str) -> None:
        """Another process has this one's place: nothing more is said or acknowledged; clients look for it."""
        if self._loss:
            return
        self._loss = why
        self._stop.set()
        for name, connection in list(self.connections.items()):
            peer = self.broker.peers.get(name)
            is_client = peer is not None and peer.role == "client"
            self.forget(connection)
            connection.close(why if is_client else "", leaves=is_client)

    def with_elsewhere(self, answer: Hello) -> Hello:
        """A greeting for a client, which may need to know one day whom to ask where this broker is."""
        if self._replacing is None:
            return answer
        found = {name: self.broker.topology.address_of(name) for name in self.links.names}
        return msgspec.structs.replace(answer, elsewhere={name: address for name, address in found.items() if address})

    def forget(self, connection: Connection, *, leaves: bool = False, returns: bool = False) -> None:
        """The connection does not count any more; a peer that leaves does not come back, one that returns does."""
        self._greetings.forget(connection)
        name, connection.peer = connection.peer, ""
        if name and self.connections.get(name) is connection:
            del self.connections[name]
            self.links.went_down(name)
            peer = self.broker.peers.get(name)
            if peer is not None and peer.leaves:
                log.info("%s: %s has left the network", self.broker.name, name)
                self.links.left(name)
            elif name in self.links.names and not self._is_draining:
                log.info("%s: link to %s is down", self.broker.name, name)
            self.carry_out(self.broker.handle(LinkRemoved(name) if leaves else Disconnected(name, returns), now_s()))
            self.schedule()

    def refuse(self, connection: Connection, reason: str) -> None:
        log.warning("%s: closed %s: %s", self.broker.name, connection.peer or connection.address, reason[:300])
        self.links.refused(connection, reason)
        self.forget(connection)
        connection.close(reason)

    def _show_life(self, connection: Connection, *, asks: bool) -> None:
        frame = self.broker.heartbeat(connection.peer, asks=asks)
        if frame is not None:
            connection.send(frame)

    def _give_up(self, connection: Connection) -> None:
        """A peer is silent: it is away until it comes back over another connection."""
        log.warning("%s: closed %s: %s", self.broker.name, connection.peer, SILENT)
        self.forget(connection)
        connection.give_up()

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Close):
                connection = self.connections.get(effect.peer)
                if connection is not None:
                    self.refuse(connection, effect.reason)
            elif isinstance(effect, Record):
                self._telemetry.record(as_record(effect.record))
            elif isinstance(effect, Append | Forget):
                if self.disk is not None:
                    self.disk.append(effect) if isinstance(effect, Append) else self.disk.forget(effect)
            elif isinstance(effect, Replace | Assist):
                if self._replacing is not None and not self._is_draining:
                    self._replacing.asked(effect)
            elif isinstance(effect, Leave):
                log.info("%s leaves the network", self.broker.name)
                self._ending = Ending("left")
                self._stop.set()
            elif isinstance(effect, OpenStream | CloseStream | FetchResults) and self._back_end is not None:
                self._back_end.ask(effect)

    # ---- turns ----

    def schedule(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._membership is not None:
            self._membership.look()
        delay_s = self._step()
        self._outgoing.flush()
        self._plan_wake()
        if self.broker.input_count:
            if delay_s > 0:
                self._turn_is_due = True
                self.loop.call_later(delay_s, self._turn)
            else:
                self.schedule()

    def _step(self) -> float:
        """Process messages; returns how long the next must wait for the configured capacity."""
        broker, capacity = self.broker, self._capacity
        time_s = now_s()
        wait_s = 0.0
        if capacity is None:
            self.carry_out(broker.handle(_STEPS, time_s))
        for _ in range(STEPS_PER_TURN_COUNT if capacity is not None else 0):
            if not broker.input_count:
                break
            if capacity is not None and broker.next_is_publication:
                wait_s = capacity.matching_wait_s(broker.tables.matched_count, time_s)
                if wait_s > 0:
                    break
            self.carry_out(broker.handle(_STEP, time_s))
            if broker.client_queue_is_full:
                break
        self._meters.worked(time_s)
        return wait_s

    def _plan_wake(self) -> None:
        """See to it that the broker is woken when it wants to be."""
        wake_at_s = self.broker.wake_at_s()
        if wake_at_s is not None and wake_at_s < self._wake_at_s:
            self._wake_at_s = wake_at_s
            if self._wake_timer is not None:
                self._wake_timer.cancel()
            self._wake_timer = self.loop.call_later(max(0.0, wake_at_s - now_s()), self._wake)

    def _wake(self) -> None:
        self._wake_at_s, self._wake_timer = _NEVER_S, None
        self.carry_out(self.broker.handle(Wake(), now_s()))
        self._intake.read_on()
        self.schedule()

    async def _tick(self) -> None:
        while True:
            time_s = now_s()
            self._telemetry.tick(time_s)
            self._plan_wake()
            if self._companion is not None and not self._companion.is_running():
                self._stop.set()
            self.access.look()
            if self._replacing is not None:
                self._replacing.look()
            if self._membership is not None:
                self._membership.look()
            self._descriptors.look()
            if not self.broker.takeover.is_learning:
                self._state.known_again()
            await asyncio.sleep(TICK_S)

    # ---- links to neighbours ----

    def _end_link(self, neighbour: str) -> None:
        connection = self.connections.get(neighbour)
        if connection is not None:
            self.forget(connection, leaves=True)
            connection.close(f"the link between {self.broker.name} and {neighbour} is removed", leaves=True)
        else:
            self.carry_out(self.broker.handle(LinkRemoved(neighbour), now_s()))
            self.schedule()

    def report_links(self) -> None:
        if self._on_links_up is not None and not self.links.missing():
            on_links_up, self._on_links_up = self._on_links_up, None
            on_links_up()

    # ---- status and end ----

    @property
    def is_back_end_reached(self) -> bool:
        """Whether there is a back end that answers."""
        return self._back_end is not None and self._back_end.is_reached

    def failures(self) -> tuple[FailureStatus, ...]:
        """What this broker has seen fail."""
        return () if self._replacing is None else self._replacing.failures()

    def assistances(self) -> tuple[FailureStatus, ...]:
        """Which neighbours this broker has seen congested."""
        return () if self._replacing is None else self._replacing.assistances()

    async def _drain(self) -> None:
        """Let everything that was taken over leave, as far as the peers are there and read."""
        self._is_draining = True
        self.broker.retire_agents()
        ends_s = now_s() + self._plan.options.stop_within_s
        while now_s() < ends_s:
            links = [peer.link for peer in self.broker.peers.values() if peer.link.connected]
            if not self.broker.input_count and all(link.idle for link in links):
                return
            self.schedule()
            await asyncio.sleep(0.01)

    async def _close_all(self) -> None:
        connections = [*self.connections.values(), *self._greetings.ungreeted]
        for connection in connections:
            leaves = self._ending.how == "left"
            what = "has left the network" if leaves else "stops"
            connection.close(f"broker {self.broker.name} {what}", leaves=leaves, returns=not leaves)
        if connections:
            waiting = [self.loop.create_task(connection.wait_closed()) for connection in connections]
            await asyncio.wait(waiting, timeout=CLOSE_WITHIN_S)


def serve(
    plan: NetworkPlan,
    name: str,
    ready: Callable[[], None] | None = None,
    options: ProcessOptions = DEFAULT_OPTIONS,
) -> Ending:
    """Run one broker of the network in this process until it is asked to end; returns what becomes of the process."""

    if plan.security.is_on:
        caller.become(caller.Caller.of_broker(plan.security.certificates, name))

    async def work() -> Ending:
        return await BrokerServer(plan, name, options).run(ready)

    return run(work())
