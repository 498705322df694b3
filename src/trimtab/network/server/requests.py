"""What a broker's process does for people and programs that do not greet it: changes of links, moves, replacements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trimtab.broker.core import Broker
from trimtab.network.clock import now_s
from trimtab.network.failover.membership import Membership
from trimtab.network.failover.replacing import Replacing
from trimtab.network.links.connection import Connection
from trimtab.network.links.neighbour_links import NeighbourLinks
from trimtab.network.server.snapshots import Snapshots
from trimtab.protocol.frames import (
    AssistReply,
    AssistRequest,
    DrainReply,
    DrainRequest,
    Frame,
    LinkReply,
    LinkRequest,
    MoveReply,
    MoveRequest,
    PlaceReply,
    PlaceRequest,
    PolicyReply,
    PolicyRequest,
    ReachReply,
    ReachRequest,
    ReplaceReply,
    ReplaceRequest,
    ReplicaReply,
    ReplicaRequest,
    RestartReply,
    RestartRequest,
    VoiceReply,
    VoiceRequest,
    WhereReply,
    WhereRequest,
)
from trimtab.protocol.requests import SingleRequest
from trimtab.protocol.snapshots import SnapshotRequest

LOOK_AGAIN_AFTER_S: Final = 0.02
"""How often it is looked whether a client that was asked to move has answered."""


class Requests:
    """Requests to one broker; each is answered when it is known what came of it."""

    def __init__(
        self,
        broker: Broker,
        links: NeighbourLinks,
        replacing: Replacing | None,
        *,
        end_link: Callable[[str], None],
        schedule: Callable[[], None],
        change_policy: Callable[[str], str],
        restart: Callable[[], str],
        membership: Membership | None = None,
        ended: Callable[[Connection, SingleRequest | SnapshotRequest, Frame], None] = lambda *_: None,
    ) -> None:
        self._broker = broker
        self._links = links
        self._replacing = replacing
        self._end_link = end_link
        self._schedule = schedule
        self._change_policy = change_policy
        self._restart = restart
        self._membership = membership
        self._ended = ended
        self.snapshots = Snapshots(broker)
        """Those who want to know for a while what clients publish."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is under way, to be ended with the process."""
        return list(self._tasks)

    def take(self, connection: Connection, request: SingleRequest | SnapshotRequest) -> None:
        """Do what is asked for, and answer then."""
        task = asyncio.get_running_loop().create_task(self._answer(connection, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, connection: Connection, request: SingleRequest | SnapshotRequest) -> None:
        if isinstance(request, SnapshotRequest):
            async for part in self.snapshots.take(request):
                connection.send(part)
            self._ended(connection, request, part)
        else:
            reply = await self._do(request)
            connection.send(reply)
            self._ended(connection, request, reply)

    async def _do(self, request: SingleRequest) -> Frame:
        here = self._broker.name
        match request:
            case PlaceRequest(client=client, site=site):
                place = self._broker.agents.place(client, site, now_s())
                return PlaceReply(place.broker, place.address, place.reason)
            case PolicyRequest(policy=policy):
                problem = self._change_policy(policy)
                return PolicyReply(not problem, problem)
            case RestartRequest():
                problem = self._restart()
                return RestartReply(not problem, problem)
            case DrainRequest(targets=targets, carries=carries, cancel=cancel):
                problem = (
                    self._broker.drain_no_more() if cancel else self._broker.drain(targets, now_s(), carries=carries)
                )
                self._schedule()
                return DrainReply(not problem, problem)
            case WhereRequest(broker=broker):
                address = self._broker.config.address if broker == here else self._broker.topology.address_of(broker)
                return WhereReply(address)
            case ReplicaRequest():
                return ReplicaReply(False, f"this is broker {here}, it does not stand by")
            case LinkRequest(change="add", neighbour=neighbour, address=address):
                problem = await self._add_link(neighbour, address)
                return LinkReply(not problem, problem)
            case LinkRequest(neighbour=neighbour):
                problem = self._remove_link(neighbour)
                return LinkReply(not problem, problem)
            case MoveRequest(client=client, to_broker=to_broker):
                problem = await self._move_client(client, to_broker)
                return MoveReply(not problem, problem)
            case ReplaceRequest(broker=broker, protocol=protocol):
                problem = self._nobody_watches()
                if self._replacing is not None:
                    problem = await self._replacing.by_hand(broker, protocol)
                return ReplaceReply(not problem, problem)
            case VoiceRequest() | ReachRequest():
                return await self._as_voter(request)
            case AssistRequest(broker=broker, protocol=protocol, reorders=reorders):
                problem = self._nobody_watches()
                if self._replacing is not None:
                    problem = await self._replacing.assist_by_hand(broker, protocol, reorders=reorders)
                return AssistReply(not problem, problem)

    async def _as_voter(self, request: VoiceRequest | ReachRequest) -> Frame:
        """One whose own file fences nobody objects to nobody's place, and finds nobody gone."""
        here, membership = self._broker.name, self._membership
        if isinstance(request, VoiceRequest):
            return VoiceReply(True, here, self._broker.epoch) if membership is None else membership.answer(request)
        if membership is None:
            return ReachReply(False, f"by the network file of {here} nobody is replaced that cannot be reached")
        return await membership.find(request.broker)

    def _nobody_watches(self) -> str:
        return f"broker {self._broker.name} watches nobody: its network file has no section [replication]"

    async def _move_client(self, client: str, to_broker: str) -> str:
        """Ask a client to move; returns why it has not moved."""
        admission = self._broker.admission
        cause, problem = admission.move_by_hand(client, to_broker, now_s())
        self._schedule()
        if problem:
            return problem
        while (outcome := admission.outcome(cause)) is None:
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        return outcome

    async def _add_link(self, neighbour: str, address: str) -> str:
        was_known = neighbour in self._links.names
        problem = await self._links.add(neighbour, address)
        if problem and not was_known and neighbour in self._links.names:
            self._remove_link(neighbour)
        return problem

    def _remove_link(self, neighbour: str) -> str:
        return self._links.remove(neighbour, lambda: self._end_link(neighbour))
