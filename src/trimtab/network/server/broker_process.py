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
from collections import deque
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Final

import msgspec

from trimtab.broker.core import Broker
from trimtab.broker.load_records import LoadRecords
from trimtab.load.indices import LoadIndices
from trimtab.network.clock import now_s
from trimtab.network.failover.liveness_probe import LivenessProbes
from trimtab.network.failover.membership import StoodBy, membership_of
from trimtab.network.failover.process_identity import Life, new_session
from trimtab.network.failover.process_proof import ProcessProof
from trimtab.network.failover.provisioners import provisioner_of
from trimtab.network.failover.replacing import Replacing
from trimtab.network.failover.replication_settings import ASSISTANT_MARK, ReplicaOrder
from trimtab.network.links.address import Address
from trimtab.network.links.connection import CLOSE_WITHIN_S, PLACE_TAKEN, SILENT, Connection
from trimtab.network.links.heartbeat import Heartbeat, HeartbeatConfig
from trimtab.network.links.neighbour_links import GREETING_WITHIN_S, NeighbourLinks
from trimtab.network.loops import run
from trimtab.network.network_file import NetworkFileError, NetworkPlan, read_network_file
from trimtab.network.network_plan import BYTES_PER_MEGABYTE
from trimtab.network.server.back_end import BackEndLine
from trimtab.network.server.broker_status import status_of
from trimtab.network.server.capacity import Capacity
from trimtab.network.server.descriptors import DescriptorWatch
from trimtab.network.server.ending import Ending, next_order
from trimtab.network.server.outgoing import Outgoing
from trimtab.network.server.process_meters import ProcessMeters
from trimtab.network.server.publication_log import PublicationLog, PublicationLogError
from trimtab.network.server.requests import Requests
from trimtab.network.server.state_file import StateFileError, forget_state, read_state, write_state
from trimtab.policies.api import Agent
from trimtab.policies.registry import COORDINATOR_NAME, agents_of, objection_to_change
from trimtab.protocol.codec import CLIENT_FRAME_MAX_BYTES
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
from trimtab.protocol.events import (
    BackEndEvent,
    Connected,
    Disconnected,
    FenceChanged,
    LeftBehind,
    LinkRemoved,
    Recovered,
    Resumed,
    RoomChanged,
    Step,
    Stored,
    Wake,
)
from trimtab.protocol.frames import (
    Ack,
    BrokerStatus,
    Frame,
    Goodbye,
    Hello,
    Payload,
    StatusReply,
    StatusRequest,
    version_problem,
)
from trimtab.protocol.messages import VERSION, Publish
from trimtab.protocol.records import AnyRecord, Recorder, RecordsError, as_record
from trimtab.protocol.requests import Reply, SingleRequest
from trimtab.protocol.snapshots import SnapshotRequest
from trimtab.protocol.versions import known

STEPS_PER_TURN_COUNT: Final = 256
"""Messages processed before the loop may read and write again: a few milliseconds."""

_STEP: Final = Step()
_STEPS: Final = Step(STEPS_PER_TURN_COUNT)

TICK_S: Final = 0.25
"""How often rates, queues and memory are looked at."""

RECORD_EVERY_S: Final = 1.0
"""How often a load record is written, where records are wanted."""

RATE_OVER_TICKS_COUNT: Final = 8
"""Rates are means over the last two seconds."""

ANSWER_WITHIN_S: Final = 0.05
"""A broker that is asked to begin again has answered then."""

ROOM_TOLD_EVERY_S: Final = 60.0
"""A disk without room is logged so often at most: under load it may have room and none many times a second."""

REPLACED_ALREADY: Final = "another process has replaced this broker already"
"""What an incarnation is told that has lost its place; it ends without a word, lest neighbours think that the broker
leaves."""

PLACE_IS_TAKEN: Final = "the broker of this name lives and keeps its place"
"""What an incarnation is told that greets while another one is connected and answers; it may greet again."""

_NEVER_S: Final = float("inf")

log = logging.getLogger("trimtab.broker")


class SecondReplicaError(Exception):
    """Another process has the place of this one, which ends; the message says why."""


class BrokerServer:
    """Listens for peers, calls neighbours, and drives one `Broker`."""

    def __init__(
        self,
        plan: NetworkPlan,
        name: str,
        *,
        file: str | Path | None = None,
        order: ReplicaOrder | None = None,
        stop_with_pid: int | None = None,
        recorder: Recorder | None = None,
        replica_options: list[str] | None = None,
        stood_by: StoodBy | None = None,
    ) -> None:
        """With an order the broker replaces an earlier incarnation of itself.

        With the network file a process can be started for a neighbour that fails, with options of its own.
        """
        self._entry = plan.broker(name)
        self._listen = self._entry.listen if order is None else Address.parse(order.listen)
        self._dialled = plan.dialled_by(name)
        self._started_s = now_s()
        self._policy = plan.options.policy
        self._log: PublicationLog | None = None
        self._recovered = Recovered(())
        epoch = order.epoch if order is not None else 1
        if plan.options.disk and not (order is not None and order.assists):  # an assistant keeps nothing
            self._log = PublicationLog(
                Path(plan.options.disk) / name,
                self._stored,
                self._disk_failed,
                self._room_changed,
                max_bytes=plan.options.disk_max_mb * BYTES_PER_MEGABYTE,
            )
            found, places_count = self._log.open(epoch), len(self._log.damage)
            damage = f"{places_count} damaged places on the disk of {name}" if places_count else ""
            self._recovered = Recovered(*found, damage)
            epoch = self._log.epoch
            for text in self._log.damage:
                log.error("%s: %s", name, text)
            for text in self._log.torn:
                log.warning("%s: %s, as after a crash", name, text)
        self._order = order
        is_assistant = order is not None and order.assists
        self._state_path = None if is_assistant or self._log is not None else _state_path(plan, name, file)
        state = None if self._state_path is None else read_state(self._state_path)
        if state is not None and order is not None and state[0] + 1 != order.epoch:
            state = None  # what an earlier incarnation has left than the one that this replica follows
        self._has_state = state is not None
        self._left: LeftBehind | None = None
        if state is not None:
            ended_epoch, self._left = state
            epoch = max(epoch, ended_epoch + 1)
        self._disk_problem = ""
        self._room_told_s = -_NEVER_S
        config = msgspec.structs.replace(plan.config_of(name, new_session()), epoch=epoch)
        if order is not None:
            config = msgspec.structs.replace(
                config,
                name=f"{name}{ASSISTANT_MARK}" if order.assists else name,
                replica=order.protocol,
                neighbours=tuple(neighbour for neighbour, _ in order.neighbours),
                address=str(self._listen),
                assists=name if order.assists else "",
                reorders=order.reorders,
            )
            self._dialled = tuple((neighbour, Address.parse(where)) for neighbour, where in order.neighbours)
        self._plan = plan
        self._name = name
        self._file = file
        self.broker = Broker(config, [] if config.assists else self._agents_of(self._policy), self._started_s)
        self._proof = ProcessProof(config.name, str(self._entry.listen), config.session)
        url = plan.options.back_end
        self._back_end = BackEndLine(url, name, self._back_end_said) if url else None
        self._capacity = Capacity.of(self._entry) if plan.options.enforce_capacities else None
        self._meters = ProcessMeters(self.broker, self._capacity)
        self._wake_at_s = _NEVER_S
        self._wake_timer: asyncio.TimerHandle | None = None
        self._connections: dict[str, Connection] = {}
        self._outgoing = Outgoing(
            self.broker,
            self._connections,
            self._meters,
            self._capacity,
            uplink=plan.options.uplink,
            schedule=self._schedule,
        )
        self._heartbeat = Heartbeat(
            HeartbeatConfig(plan.options.silent_after_s, plan.options.answer_within_s),
            lambda: list(self._connections.values()),
            lambda connection: self._show_life(connection, asks=True),
            self._give_up,
        )
        self._ungreeted: dict[Connection, None] = {}
        self._paused: dict[str, None] = {}
        """Clients of whom nothing is read for a while."""
        self._turn_is_due = False
        self._is_draining = False
        self._links = NeighbourLinks(self.broker, config.neighbours, self)
        self._stop = asyncio.Event()
        self._descriptors = DescriptorWatch(config.name)
        self._ending = Ending()
        """What becomes of the process when the broker has ended."""
        self._probes = LivenessProbes(self.broker, self._schedule)
        self._loss = ""
        """Why this process has no place in the network any more, if it has none."""
        self._companion = Life.of_process(stop_with_pid) if stop_with_pid is not None else None
        self._membership = membership_of(
            plan, self.broker, self._fence_changed, lambda: self._lose_place(self._replaced_already), stood_by
        )
        self._replacing: Replacing | None = None
        if plan.replication is not None:
            options = [*(replica_options or []), *(["--stop-with", str(stop_with_pid)] if stop_with_pid else [])]
            provisioner = provisioner_of(plan.replication, plan.standbys, self._listen.host, file, options)
            self._replacing = Replacing(
                self.broker, plan, plan.replication, provisioner, file, membership=self._membership
            )
        self._requests = Requests(
            self.broker,
            self._links,
            self._replacing,
            end_link=self._end_link,
            schedule=self._schedule,
            change_policy=self._change_policy,
            restart=self._restart,
            membership=self._membership,
        )
        self._snapshots = self._requests.snapshots
        self._recorder = recorder
        self._load_records = LoadRecords(self.broker)
        self._recorded_s = 0.0
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=RATE_OVER_TICKS_COUNT + 1)
        self._loop: asyncio.AbstractEventLoop
        self._on_links_up: Callable[[], None] | None = None

    def _agents_of(self, policy: str) -> list[Agent]:
        plan, name = self._plan, self._name
        return agents_of(
            policy,
            name,
            f"network-{secrets.token_hex(4)}" if name == COORDINATOR_NAME else "network",
            plan.padres,
            coordination=plan.coordination,
            site=self._entry.site,
            relocation=plan.relocation,
            delay=plan.delay,
        )

    def _change_policy(self, policy: str) -> str:
        """Work by another policy from now on; returns why not, if so."""
        try:
            problem = objection_to_change(self._policy, policy)
            if problem or policy == self._policy:
                return problem
            agents = self._agents_of(policy)
        except ValueError as error:
            return str(error)
        if self.broker.config.assists:
            return "an assistant has no policy"
        log.info("%s: the policy is %s, it was %s", self.broker.name, policy, self._policy)
        self._policy = policy
        self.broker.change_agents(agents, now_s())
        self._wake()
        return ""

    def _restart(self) -> str:
        """End, and begin again; returns why not, if so."""
        if self.broker.config.assists:
            return f"this process is an assistant of {self._name}; end it, and have {self._name} assisted again"
        if problem := self._problem_with_file():
            return f"{self._name} would not come back: {problem}"
        self._ending = Ending("begins again")
        self._loop.call_later(ANSWER_WITHIN_S, self._stop.set)
        return ""

    def _problem_with_file(self) -> str:
        """Why this broker cannot begin by its network file as that is by now."""
        if self._file is None:
            return ""
        try:
            plan = read_network_file(self._file)
        except NetworkFileError as error:
            return str(error)
        if self._name not in [entry.name for entry in plan.brokers]:
            return f"{self._file} has no broker {self._name} any more"
        if self._order is not None and plan.replication is None:
            return f"{self._file} has no section [replication] any more, and this process is a replica"
        return ""

    def _next_order(self) -> ReplicaOrder | None:
        """What a replica begins again as."""
        if self._order is None:
            return None
        former, reach = dict(self._order.neighbours), self.broker.reach
        addresses = {name: reach.address_of(name) or former.get(name, "") for name in self._links.names}
        return next_order(self._order, self.broker.epoch, addresses, str(self._listen))

    async def run(self, ready: Callable[[], None] | None = None) -> Ending:
        """Serve until SIGTERM or SIGINT; `ready` is called once the broker listens and all its links are up.

        Returns what becomes of the process.
        """
        self._loop = asyncio.get_running_loop()
        self._descriptors.begin(self._loop)
        self._proof.answer(self._loop)
        self._on_links_up = ready
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        if self._membership is not None:
            self._membership.begin()
        if self._log is not None:
            self._carry_out(self.broker.handle(self._recovered, now_s()))
            self._recovered = Recovered(())
        if self._left is not None:
            self._carry_out(self.broker.handle(Resumed(self._left), now_s()))
            self._left = None
        address = self._listen
        server = await self._loop.create_server(
            lambda: Connection(self, frame_max_bytes=CLIENT_FRAME_MAX_BYTES),
            address.host,
            address.port,
            reuse_address=True,
            backlog=1024,
        )
        log.info("%s listens at %s", self.broker.name, address)
        for neighbour, where in self._dialled:
            self._links.call(neighbour, where)
        ticking = self._loop.create_task(self._tick())
        self._heartbeat.begin()
        asking = [self._loop.create_task(self._back_end.run())] if self._back_end is not None else []
        self._report_links()
        await self._stop.wait()
        server.close()
        if self._loss:
            if self._state_path is not None:
                forget_state(self._state_path)
            raise SecondReplicaError(self._loss)
        await self._drain()
        if self._log is not None:
            self._log.close()
        problem = self._leave_state()
        await self._close_all()
        self._record_load(now_s())
        replacing = [] if self._replacing is None else self._replacing.tasks
        voting = [] if self._membership is None else self._membership.tasks
        tasks = [ticking, *asking, *self._links.tasks, *self._probes.tasks, *self._requests.tasks, *replacing, *voting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._proof.close()
        log.info("%s has stopped", self.broker.name)
        if self._disk_problem:
            raise PublicationLogError(self._disk_problem)
        if problem:
            raise StateFileError(problem)
        if self._ending.how == "begins again":
            return Ending("begins again", self._next_order())
        return self._ending

    def _leave_state(self) -> str:
        """Keep what the next incarnation must know; returns why that cannot be."""
        if self._state_path is None:
            return ""
        if self._ending.how == "left":
            forget_state(self._state_path)
            return ""
        left = self.broker.left_behind()
        count = len(left.waiting) + sum(map(len, left.tails.values()))
        if count:
            log.info("%s: %d publications and markers wait for its return in %s", self._name, count, self._state_path)
        try:
            if count or left.records or self.broker.tables.subscriptions:
                write_state(self._state_path, self.broker.epoch, left)
            else:
                forget_state(self._state_path)
        except StateFileError as error:
            log.error("%s: %s", self._name, error)
            return str(error)
        return ""

    def _stored(self, number: int) -> None:
        self._carry_out(self.broker.handle(Stored(number), now_s()))
        self._schedule()

    def _room_changed(self, problem: str) -> None:
        """The disk has no room for more publications, or, if there is no problem, has room again."""
        time_s = now_s()
        if problem and time_s >= self._room_told_s + ROOM_TOLD_EVERY_S:
            self._room_told_s = time_s
            log.error("%s: %s", self.broker.name, problem)
        self._carry_out(self.broker.handle(RoomChanged(not problem), time_s))
        self._schedule()

    def _fence_changed(self, problem: str) -> None:
        self._carry_out(self.broker.handle(FenceChanged(problem), now_s()))
        self._schedule()

    def _disk_failed(self, problem: str) -> None:
        """What is not stored is not acknowledged: a broker that cannot store ends, and another may take its place."""
        log.error("%s stops: %s", self.broker.name, problem)
        self._disk_problem = problem
        self._stop.set()

    # ---- connections ----

    def connection_opened(self, connection: Connection) -> None:
        """A peer called or answered: whoever called greets first, and soon."""
        self._ungreeted[connection] = None
        if connection.dialled:
            self._greet(connection, self.broker.greeting(connection.dialled))
        connection.greeting_timer = self._loop.call_later(
            GREETING_WITHIN_S, self._refuse, connection, f"no greeting within {GREETING_WITHIN_S:g} s"
        )

    def frame_received(self, connection: Connection, frame: Frame) -> None:
        """A frame of a peer, which may not have greeted yet."""
        match frame:
            case Payload() | Ack() if connection.peer:
                if unknown := self._unknown_in(frame):
                    self._refuse(connection, unknown)
                    return
                if self._is_draining and isinstance(frame, Payload):
                    frame = _without_publications(frame)
                if self._snapshots.samplings and isinstance(frame, Payload):
                    self._snapshots.saw(connection.peer, frame)
                self.broker.receive(connection.peer, frame, now_s())
                self._pause_if_full(connection)
                if self._capacity is not None and isinstance(frame, Ack) and frame.asks:
                    self._show_life(connection, asks=False)  # what it has to say may wait long for the bandwidth
            case Hello() if not connection.peer:
                self._greeted(connection, frame)
            case StatusRequest():
                connection.send(StatusReply(self.status()))
            case _ if isinstance(frame, SingleRequest | SnapshotRequest):
                self._await_greeting_no_more(connection)
                self._requests.take(connection, frame)
            case Goodbye(reason=reason, leaves=leaves, returns=returns):
                log.info("%s: %s says goodbye: %s", self.broker.name, connection.peer or connection.address, reason)
                known = self.broker.peers.get(connection.peer)
                was_linked = known is not None and known.role == "broker"
                self._links.refused(connection, reason)
                if returns:
                    self._links.returns(connection.peer)
                self._forget(connection, leaves=leaves, returns=returns)
                connection.close()
                if connection.dialled or was_linked:  # anybody else may say anything
                    self._was_dismissed(connection, reason, was_linked=was_linked)
            case Hello():
                self._refuse(connection, "a second greeting")
            case _ if isinstance(frame, Reply):
                self._refuse(connection, "an answer that nobody asked for")
            case _:
                self._refuse(connection, "the first frame must be a greeting (hello)")

    def _unknown_in(self, frame: Payload | Ack) -> str:
        """What a program that knows no higher version than is to be spoken here would not have understood."""
        version = self.broker.config.wire_version_max
        if version == VERSION or isinstance(frame, Ack) or len(known(frame.messages, version)) == len(frame.messages):
            return ""
        return f"not a frame: a message that version {version} of the protocol does not have"

    def _pause_if_full(self, connection: Connection) -> None:
        """Read nothing more of a client that has sent far more than it may."""
        gatekeeper = self.broker.gatekeeper
        if gatekeeper is not None and gatekeeper.is_full(connection.peer):
            self._paused[connection.peer] = None
            connection.pause_reading()

    def _read_on(self) -> None:
        """Read again of those of whom enough was let in."""
        gatekeeper = self.broker.gatekeeper
        for name in list(self._paused):
            if gatekeeper is None or not gatekeeper.is_full(name):
                del self._paused[name]
                if name in self._connections:
                    self._connections[name].resume_reading()

    def bytes_handled(self, connection: Connection) -> None:
        """Whatever arrived is with the broker: it may act on it."""
        self._schedule()

    def connection_broken(self, connection: Connection, reason: str) -> None:
        """The peer broke the protocol; everybody else goes on."""
        self._refuse(connection, reason)

    def connection_writable(self, connection: Connection) -> None:
        """There is room for more frames."""
        self._schedule()

    def connection_closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self._forget(connection)

    def _greeted(self, connection: Connection, hello: Hello, silent: Connection | None = None) -> None:
        """A peer greets; one connection of its name may have been asked for a sign of life, and was silent."""
        name = hello.name
        if problem := version_problem(hello, self.broker.config.wire_version_max):
            self._refuse(connection, problem)
            return
        if connection.dialled and (name != connection.dialled or hello.role != "broker"):
            self._refuse(connection, f"broker {connection.dialled} was expected here, not {hello.role} {name[:100]!r}")
            return
        if self._links.is_to_greet_again(connection, hello):
            self._links.greets_again(connection)
            self._dismiss(connection)
            return
        if self._links.is_not_later(hello):
            self._refuse_epoch(connection, hello)
            return
        if self._must_wait(connection, hello, silent):
            return
        if self._links.has_replaced_us(hello):
            self._lose_place(self._replaced_already)
            return
        if hello.role == "broker" and self._links.is_out_of_turn(connection, hello):
            self._dismiss(connection)
            return
        known = self.broker.peers.get(name)
        is_another = hello.role == "broker" and known is not None and known.session != hello.session
        answer = self._let_in(connection, hello)
        if answer is None:
            return
        former = self._connections.pop(name, None)
        if former is not None:
            former.peer = ""
            former.close(REPLACED_ALREADY if is_another else PLACE_TAKEN)
        self._ungreeted.pop(connection, None)
        self._await_greeting_no_more(connection)
        connection.peer = name
        self._connections[name] = connection
        if not connection.dialled:
            self._greet(connection, answer if hello.role == "broker" else self._with_elsewhere(answer))
        if hello.role == "broker":
            connection.allow_frames_of_brokers()
            log.info("%s: link to %s is up", self.broker.name, name)
            self._links.went_up(connection, hello)
            self._report_links()
        self._schedule()

    def _must_wait(self, connection: Connection, hello: Hello, silent: Connection | None) -> bool:
        """Whether a greeting is put off: a neighbour of that name is connected, and is asked whether it lives."""
        present = self._connections.get(hello.name)
        if connection.dialled or present is None or present is silent or not self._probes.is_needed(hello):
            return False
        if self._probes.is_waiting(connection):
            self._refuse(connection, "a second greeting")
        elif self._probes.is_full:
            self._refuse(connection, PLACE_IS_TAKEN)
        else:

            def told(lives: bool) -> None:
                if lives:
                    self._refuse(connection, PLACE_IS_TAKEN)
                else:
                    self._greeted(connection, hello, present)

            self._probes.ask(hello.name, present, connection, told)
        return True

    def _let_in(self, connection: Connection, hello: Hello) -> Hello | None:
        """Hand a greeting to the broker; returns its own one in return, None if the connection is refused."""
        name, broker, epoch = hello.name, self.broker, self.broker.epoch
        answer = broker.greeting(name)
        effects = broker.handle(Connected(name, hello), now_s())
        if broker.epoch > epoch:
            log.info("%s is the incarnation %d of its name, as %s knows", broker.name, broker.epoch, name)
            if self._log is not None:
                self._log.begin_epoch(broker.epoch)
            self._greet_again()
            if connection.dialled:
                self._links.greets_again(connection)
                self._dismiss(connection)
                return None
            answer = msgspec.structs.replace(answer, epoch=broker.epoch)
            if hello.role == "broker":
                effects = broker.handle(Connected(name, hello), now_s())
        problem = next((effect.reason for effect in effects if isinstance(effect, Close) and effect.peer == name), None)
        if problem is not None:
            self._refuse(connection, problem)
            return None
        self._carry_out(effects)
        return answer

    def _greet_again(self) -> None:
        """This broker has a higher epoch than it has greeted with: every neighbour must know the same one."""
        for name in [name for name, peer in self.broker.peers.items() if peer.role == "broker"]:
            if name in self._connections:
                connection = self._connections[name]
                self._forget(connection)
                connection.close()

    def _refuse_epoch(self, connection: Connection, hello: Hello) -> None:
        """A neighbour's incarnation is not later than the one that is known: it must greet as a later one, or end."""
        claim = "replaced" if connection.dialled else self._links.claim_of(hello)
        if claim != "started anew":
            self._refuse(connection, REPLACED_ALREADY if claim == "replaced" else PLACE_IS_TAKEN)
            return
        log.info("%s: %s is told that its incarnation has a higher number", self.broker.name, hello.name)
        connection.send(self.broker.greeting(hello.name))
        self._dismiss(connection)

    def _dismiss(self, connection: Connection) -> None:
        """Close a connection that has no meaning yet, without a word."""
        self._ungreeted.pop(connection, None)
        connection.close()

    def _greet(self, connection: Connection, hello: Hello) -> None:
        connection.epoch = hello.epoch
        connection.send(hello)

    def _was_dismissed(self, connection: Connection, reason: str, *, was_linked: bool) -> None:
        """A neighbour has ended a connection: it may have no place for this process any more."""
        if self.broker.config.assists:
            self._stop.set()  # one that is not wanted somewhere is not wanted at all
        if reason == REPLACED_ALREADY:
            if connection.dialled and not was_linked and connection.epoch < self.broker.epoch:
                self._links.greets_again(connection)  # it has not heard the latest epoch
            else:
                self._lose_place(self._replaced_already)
        elif connection.dialled and reason == PLACE_IS_TAKEN and self._links.is_unwanted(connection):
            name = self.broker.name
            self._lose_place(f"{name} lives, as {connection.dialled} says: this replica of it is not needed, and ends")

    @property
    def _replaced_already(self) -> str:
        return f"{self.broker.name} was replaced already by another process"

    def _lose_place(self, why: str) -> None:
        """Another process has this one's place: nothing more is said or acknowledged; clients look for it."""
        if self._loss:
            return
        self._loss = why
        self._stop.set()
        for name, connection in list(self._connections.items()):
            peer = self.broker.peers.get(name)
            is_client = peer is not None and peer.role == "client"
            self._forget(connection)
            connection.close(why if is_client else "", leaves=is_client)

    def _with_elsewhere(self, answer: Hello) -> Hello:
        """A greeting for a client, which may need to know one day whom to ask where this broker is."""
        if self._replacing is None:
            return answer
        found = {name: self.broker.reach.address_of(name) for name in self._links.names}
        return msgspec.structs.replace(answer, elsewhere={name: address for name, address in found.items() if address})

    def _await_greeting_no_more(self, connection: Connection) -> None:
        if connection.greeting_timer is not None:
            connection.greeting_timer.cancel()

    def _forget(self, connection: Connection, *, leaves: bool = False, returns: bool = False) -> None:
        """The connection does not count any more; a peer that leaves does not come back, one that returns does."""
        self._ungreeted.pop(connection, None)
        name, connection.peer = connection.peer, ""
        if name and self._connections.get(name) is connection:
            del self._connections[name]
            self._links.went_down(name)
            peer = self.broker.peers.get(name)
            if peer is not None and peer.leaves:
                log.info("%s: %s has left the network", self.broker.name, name)
                self._links.left(name)
            elif name in self._links.names and not self._is_draining:
                log.info("%s: link to %s is down", self.broker.name, name)
            self._carry_out(self.broker.handle(LinkRemoved(name) if leaves else Disconnected(name, returns), now_s()))
            self._schedule()

    def _refuse(self, connection: Connection, reason: str) -> None:
        log.warning("%s: closed %s: %s", self.broker.name, connection.peer or connection.address, reason[:300])
        self._links.refused(connection, reason)
        self._forget(connection)
        connection.close(reason)

    def _show_life(self, connection: Connection, *, asks: bool) -> None:
        frame = self.broker.heartbeat(connection.peer, asks=asks)
        if frame is not None:
            connection.send(frame)

    def _give_up(self, connection: Connection) -> None:
        """A peer is silent: it is away until it comes back over another connection."""
        log.warning("%s: closed %s: %s", self.broker.name, connection.peer, SILENT)
        self._forget(connection)
        connection.give_up()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Close):
                connection = self._connections.get(effect.peer)
                if connection is not None:
                    self._refuse(connection, effect.reason)
            elif isinstance(effect, Record):
                self._record(as_record(effect.record))
            elif isinstance(effect, Append | Forget):
                if self._log is not None:
                    self._log.append(effect) if isinstance(effect, Append) else self._log.forget(effect)
            elif isinstance(effect, Replace | Assist):
                if self._replacing is not None and not self._is_draining:
                    self._replacing.asked(effect)
            elif isinstance(effect, Leave):
                log.info("%s leaves the network", self.broker.name)
                self._ending = Ending("left")
                self._stop.set()
            elif isinstance(effect, OpenStream | CloseStream | FetchResults) and self._back_end is not None:
                self._back_end.ask(effect)

    def _back_end_said(self, event: BackEndEvent) -> None:
        self._carry_out(self.broker.handle(event, now_s()))
        self._schedule()

    # ---- turns ----

    def _schedule(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

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
                self._loop.call_later(delay_s, self._turn)
            else:
                self._schedule()

    def _step(self) -> float:
        """Process messages; returns how long the next must wait for the configured capacity."""
        broker, capacity = self.broker, self._capacity
        time_s = now_s()
        wait_s = 0.0
        if capacity is None:
            self._carry_out(broker.handle(_STEPS, time_s))
        for _ in range(STEPS_PER_TURN_COUNT if capacity is not None else 0):
            if not broker.input_count:
                break
            if capacity is not None and broker.next_is_publication:
                wait_s = capacity.matching_wait_s(broker.tables.matched_count, time_s)
                if wait_s > 0:
                    break
            self._carry_out(broker.handle(_STEP, time_s))
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
            self._wake_timer = self._loop.call_later(max(0.0, wake_at_s - now_s()), self._wake)

    def _wake(self) -> None:
        self._wake_at_s, self._wake_timer = _NEVER_S, None
        self._carry_out(self.broker.handle(Wake(), now_s()))
        if self._paused:
            self._read_on()
        self._schedule()

    async def _tick(self) -> None:
        while True:
            time_s = now_s()
            counters = self.broker.counters
            self._samples.append((time_s, counters.publications_in_count, counters.publications_out_count))
            self._meters.look(time_s)
            self._tell_load(time_s)
            self._plan_wake()
            if time_s >= self._recorded_s + RECORD_EVERY_S:
                self._record_load(time_s)
            if self._companion is not None and not self._companion.is_running():
                self._stop.set()
            if self._replacing is not None:
                self._replacing.look()
            if self._membership is not None:
                self._membership.look()
            self._descriptors.look()
            if self._state_path is not None and self._has_state and not self.broker.takeover.is_learning:
                forget_state(self._state_path)
                self._has_state = False
            await asyncio.sleep(TICK_S)

    # ---- links to neighbours ----

    def _end_link(self, neighbour: str) -> None:
        connection = self._connections.get(neighbour)
        if connection is not None:
            self._forget(connection, leaves=True)
            connection.close(f"the link between {self.broker.name} and {neighbour} is removed", leaves=True)
        else:
            self._carry_out(self.broker.handle(LinkRemoved(neighbour), now_s()))
            self._schedule()

    def _report_links(self) -> None:
        if self._on_links_up is not None and not self._links.missing():
            on_links_up, self._on_links_up = self._on_links_up, None
            on_links_up()

    # ---- status and end ----

    def _load(self, time_s: float) -> LoadIndices:
        self._tell_load(time_s)
        return self.broker.read_load(time_s)

    def _tell_load(self, time_s: float) -> None:
        self._carry_out(self.broker.handle(self._meters.measured(), time_s))

    def _record_load(self, time_s: float) -> None:
        """Keep a load record."""
        if self._recorder is None:
            return
        self._recorded_s = time_s
        self._record(self._load_records.take(time_s, self._load(time_s)))

    def _record(self, record: AnyRecord) -> None:
        """Keep a record; a recorder that fails is told of once and asked no more."""
        if self._recorder is None:
            return
        try:
            self._recorder.record(record)
        except RecordsError as error:
            log.error("%s: nothing more is recorded: %s", self.broker.name, error)
            self._recorder = None

    def status(self) -> BrokerStatus:
        """How the broker is."""
        time_s = now_s()
        return status_of(
            self.broker,
            self._load(time_s),
            list(self._samples),
            time_s,
            uptime_s=time_s - self._started_s,
            links_missing=self._links.missing(),
            policy=self._policy,
            is_back_end_reached=self._back_end is not None and self._back_end.is_reached,
            failures=() if self._replacing is None else self._replacing.failures(),
            disk=self._log,
        )

    async def _drain(self) -> None:
        """Let everything that was taken over leave, as far as the peers are there and read."""
        self._is_draining = True
        self.broker.retire_agents()
        ends_s = now_s() + self._plan.options.stop_within_s
        while now_s() < ends_s:
            links = [peer.link for peer in self.broker.peers.values() if peer.link.connected]
            if not self.broker.input_count and all(link.idle for link in links):
                return
            self._schedule()
            await asyncio.sleep(0.01)

    async def _close_all(self) -> None:
        connections = [*self._connections.values(), *self._ungreeted]
        for connection in connections:
            leaves = self._ending.how == "left"
            what = "has left the network" if leaves else "stops"
            connection.close(f"broker {self.broker.name} {what}", leaves=leaves, returns=not leaves)
        if connections:
            waiting = [self._loop.create_task(connection.wait_closed()) for connection in connections]
            await asyncio.wait(waiting, timeout=CLOSE_WITHIN_S)


def _state_path(plan: NetworkPlan, name: str, file: str | Path | None) -> Path | None:
    """Where a broker leaves what it could not hand over; None if it has no place for that."""
    if plan.options.state:
        return Path(plan.options.state) / f"{name}.state"
    return None if file is None else Path(file).resolve().parent / ".trimtab" / f"{name}.state"


def _without_publications(frame: Payload) -> Payload | Ack:
    """What a broker that stops takes in: publications stay with their sender, who keeps them for the next broker."""
    messages = list(takewhile(lambda message: type(message) is not Publish, frame.messages))
    if not messages:
        return Ack(frame.ack, done=frame.done, credit=frame.credit)
    return Payload(frame.number, frame.ack, messages, frame.done, frame.credit)


def serve(
    plan: NetworkPlan,
    name: str,
    ready: Callable[[], None] | None = None,
    *,
    file: str | Path | None = None,
    order: ReplicaOrder | None = None,
    stop_with_pid: int | None = None,
    recorder: Recorder | None = None,
    replica_options: list[str] | None = None,
    stood_by: StoodBy | None = None,
) -> Ending:
    """Run one broker of the network in this process until it is asked to end; its load goes to the recorder.

    Returns what becomes of the process.
    """

    async def work() -> Ending:
        return await BrokerServer(
            plan,
            name,
            file=file,
            order=order,
            stop_with_pid=stop_with_pid,
            recorder=recorder,
            replica_options=replica_options,
            stood_by=stood_by,
        ).run(ready)

    return run(work())
