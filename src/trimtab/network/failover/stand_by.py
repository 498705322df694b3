"""A process that stands by: it has loaded everything and waits to be told which broker to become.

Starting a process takes a good part of a second, more on a busy machine. One that waits takes over in milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import signal

from trimtab.broker.replication.config import PROTOCOLS
from trimtab.network.failover.membership import Membership, StoodBy
from trimtab.network.failover.process_identity import ProcessIdentity
from trimtab.network.failover.replication_settings import ReplicaOrder
from trimtab.network.links.address import Address, is_of_this_host
from trimtab.network.links.connection import CLOSE_WITHIN_S, Connection
from trimtab.network.network_file import NetworkPlan
from trimtab.network.security import caller
from trimtab.network.security.access_control import AccessControl, stand_by_name
from trimtab.network.security.listener import Listener
from trimtab.protocol.frames import Frame, ReachRequest, ReplicaReply, ReplicaRequest, VoiceRequest

LOOK_AGAIN_AFTER_S = 0.5

log = logging.getLogger("trimtab.broker")


class StandBy:
    """Waits at an address for an order."""

    def __init__(self, plan: NetworkPlan, address: Address, stop_with_pid: int | None = None) -> None:
        self._plan = plan
        self._address = address
        self._companion = ProcessIdentity.of_process(stop_with_pid) if stop_with_pid is not None else None
        self._order: asyncio.Future[ReplicaOrder | None] = asyncio.get_running_loop().create_future()
        self._connections: dict[Connection, None] = {}
        self._name = stand_by_name(plan, address)
        self._access = AccessControl(
            plan, self._name, go_on=self.frame_received, refuse=self._refuse, happened=lambda event: None
        )
        limits = plan.limits
        self._listener = Listener(
            address, lambda: Connection(self, frame_max_bytes=limits.greeting_max_bytes), limits, self._access, self
        )
        self._finding: set[asyncio.Task[None]] = set()
        self._membership: Membership | None = None
        """Where majorities decide: this process as a voter."""
        voters = plan.voters()
        if str(address) in voters and plan.replication is not None:
            fence_after_s = plan.replication.fences_after_s
            self._membership = Membership(str(address), voters, fence_after_s, is_stand_by=True)

    async def wait(self) -> ReplicaOrder | None:
        """Wait for an order; None if the process is asked to end before one comes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if self._plan.security.is_on:
            caller.become(caller.Caller.of_broker(self._plan.security.certificates, self._name))
        await self._listener.begin()
        log.info("a process stands by at %s", self._address)
        watching = loop.create_task(self._watch_companion())
        looking = loop.create_task(self._look())
        if self._membership is not None:
            self._membership.begin()
        try:
            return await self._order
        finally:
            watching.cancel()
            for task in (*self._finding, *(() if self._membership is None else self._membership.tasks)):
                task.cancel()
            self._listener.close()
            looking.cancel()
            await self._close_all()

    def make_room(self) -> bool:
        """Close the oldest connection, to make room for another; whether there was one."""
        oldest = next((each for each in self._connections if self._access.is_bare(each)), None)
        if oldest is not None:
            self._refuse(oldest, "too many connections")
        return oldest is not None

    async def _look(self) -> None:
        while True:
            self._access.look()
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)

    def _refuse(self, connection: Connection, reason: str) -> None:
        log.warning("closed %s: %s", connection.address, reason[:300])
        connection.close(reason)

    def _await_request(self, connection: Connection, within_s: float) -> None:
        """Close a connection over which nothing is asked by then."""
        if connection.greeting_timer is not None:
            connection.greeting_timer.cancel()
        connection.greeting_timer = asyncio.get_running_loop().call_later(
            within_s, self._refuse, connection, f"no request within {within_s:g} s"
        )

    @property
    def stood_by(self) -> StoodBy | None:
        """What this process was as a voter, for the broker that it becomes."""
        return None if self._membership is None else self._membership.as_stood_by()

    def _stop(self) -> None:
        if not self._order.done():
            self._order.set_result(None)

    async def _watch_companion(self) -> None:
        while self._companion is None or self._companion.is_running():
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        self._stop()

    async def _close_all(self) -> None:
        """Close what is left, so that whoever gave the order has read the answer before the address is taken."""
        waiting = [asyncio.ensure_future(connection.wait_closed()) for connection in self._connections]
        for connection in list(self._connections):
            connection.close("this process has become a broker", returns=True)
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_WITHIN_S)

    def _answer(self, request: ReplicaRequest) -> str:
        """Take an order; returns why not."""
        if self._order.done():
            return "it has another order"
        if self._plan.replication is None:
            return "its network file has no section [replication]"
        if request.broker not in [entry.name for entry in self._plan.brokers]:
            return f"its network file has no broker {request.broker}"
        if request.protocol not in PROTOCOLS:
            return f"no protocol of replication is called {request.protocol}"
        try:
            wanted = Address.parse(request.listen)
            for _, address in request.neighbours:
                Address.parse(address)
        except ValueError as error:
            return str(error)
        listen = wanted if is_of_this_host(wanted.host) and not request.assists else self._address
        self._order.set_result(
            ReplicaOrder(
                request.broker,
                request.protocol,
                request.neighbours,
                str(listen),
                assists=request.assists,
                reorders=request.reorders,
                epoch=request.epoch,
            )
        )
        return ""

    async def _find(self, connection: Connection, membership: Membership, broker: str) -> None:
        connection.send(await membership.find(broker))

    # ---- connections ----

    def connection_opened(self, connection: Connection) -> None:
        """Somebody calls."""
        self._connections[connection] = None
        if problem := self._access.opened(connection):
            self._refuse(connection, problem)
            return
        while len(self._connections) > self._plan.limits.ungreeted_max_count and self.make_room():
            pass
        self._await_request(connection, self._plan.limits.greet_within_s)

    def frame_received(self, connection: Connection, frame: Frame) -> None:
        """Only orders are understood here."""
        if not self._access.admits(connection, frame):
            return
        self._await_request(connection, self._plan.limits.idle_within_s)
        if isinstance(frame, ReplicaRequest):
            problem = self._answer(frame)
            connection.send(ReplicaReply(not problem, problem))
        elif isinstance(frame, VoiceRequest) and self._membership is not None:
            connection.send(self._membership.answer(frame))
        elif isinstance(frame, ReachRequest) and self._membership is not None:
            task = asyncio.get_running_loop().create_task(self._find(connection, self._membership, frame.broker))
            self._finding.add(task)
            task.add_done_callback(self._finding.discard)
        else:
            connection.close("this process stands by and serves nobody yet")

    def bytes_handled(self, connection: Connection) -> None:
        """Nothing more to do."""

    def connection_broken(self, connection: Connection, reason: str) -> None:
        """What is not a frame ends its connection."""
        connection.close(reason)

    def connection_writable(self, connection: Connection) -> None:
        """Nothing waits to be written."""

    def connection_closed(self, connection: Connection) -> None:
        """Whoever called has gone."""
        self._connections.pop(connection, None)
        self._access.closed(connection)
