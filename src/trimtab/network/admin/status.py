"""Asking a broker what needs no greeting: how it is, for a snapshot, to change a link, to move, to replace."""

from __future__ import annotations

import asyncio
from typing import Final

from trimtab.network.links.address import Address
from trimtab.network.links.connection import Connection
from trimtab.network.security.caller import Caller, present
from trimtab.network.security.errors import NotPermittedError
from trimtab.protocol.frames import (
    AssistReply,
    AssistRequest,
    BrokerStatus,
    DrainReply,
    DrainRequest,
    Frame,
    Goodbye,
    LinkReply,
    LinkRequest,
    LoginRequest,
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
    StatusReply,
    StatusRequest,
    WhereReply,
    WhereRequest,
)
from trimtab.protocol.requests import REPLIES, Reply, Request
from trimtab.protocol.snapshots import Snapshot, SnapshotRequest, joined

LINK_WITHIN_S: Final = 15.0
"""A broker needs some seconds to find out that a neighbour cannot be reached."""


async def ask_status(address: Address, within_s: float = 2.0, caller: Caller | None = None) -> BrokerStatus:
    """Ask the broker at an address how it is; raises OSError or TimeoutError if it does not say."""
    reply = await _ask(address, StatusRequest(), within_s, caller=caller)
    assert isinstance(reply, StatusReply)
    return reply.status


async def ask_link(address: Address, request: LinkRequest) -> LinkReply:
    """Ask the broker at an address to change a link; raises OSError or TimeoutError if it does not answer."""
    reply = await _ask(address, request, LINK_WITHIN_S)
    assert isinstance(reply, LinkReply)
    return reply


async def ask_move(address: Address, request: MoveRequest, within_s: float) -> MoveReply:
    """Ask the broker at an address to move a client; raises OSError or TimeoutError if it does not answer."""
    reply = await _ask(address, request, within_s)
    assert isinstance(reply, MoveReply)
    return reply


async def ask_place(address: Address, request: PlaceRequest, within_s: float = 5.0) -> PlaceReply:
    """Ask the coordinator at an address where to connect; raises OSError or TimeoutError if it does not say."""
    reply = await _ask(address, request, within_s)
    assert isinstance(reply, PlaceReply)
    return reply


async def ask_replace(address: Address, request: ReplaceRequest, within_s: float) -> ReplaceReply:
    """Ask a neighbour of a broker to have it replaced; raises OSError or TimeoutError if it does not answer."""
    reply = await _ask(address, request, within_s)
    assert isinstance(reply, ReplaceReply)
    return reply


async def ask_assist(address: Address, request: AssistRequest, within_s: float) -> AssistReply:
    """Ask a neighbour of a broker to have it assisted; raises OSError or TimeoutError if it does not answer."""
    reply = await _ask(address, request, within_s)
    assert isinstance(reply, AssistReply)
    return reply


async def ask_replica(address: Address, request: ReplicaRequest, within_s: float = 2.0) -> ReplicaReply:
    """Ask the process that stands by at an address to replace a broker; raises OSError or TimeoutError."""
    reply = await _ask(address, request, within_s)
    assert isinstance(reply, ReplicaReply)
    return reply


async def ask_where(address: Address, broker: str, within_s: float = 2.0, caller: Caller | None = None) -> str:
    """Ask the broker at an address where another is; empty if it does not know. Raises OSError or TimeoutError."""
    reply = await _ask(address, WhereRequest(broker), within_s, caller=caller)
    assert isinstance(reply, WhereReply)
    return reply.address


async def ask_policy(address: Address, policy: str, within_s: float = 10.0) -> PolicyReply:
    """Ask the broker at an address to work by a policy; raises OSError or TimeoutError if it does not answer."""
    reply = await _ask(address, PolicyRequest(policy), within_s)
    assert isinstance(reply, PolicyReply)
    return reply


async def ask_restart(address: Address, within_s: float = 10.0) -> RestartReply:
    """Ask the broker at an address to end and begin again; raises OSError or TimeoutError if it does not answer."""
    reply = await _ask(address, RestartRequest(), within_s)
    assert isinstance(reply, RestartReply)
    return reply


async def ask_reach(address: Address, broker: str, within_s: float) -> ReachReply:
    """Ask the voter at an address whether it finds a broker gone; raises OSError or TimeoutError if it does not say."""
    reply = await _ask(address, ReachRequest(broker), within_s)
    assert isinstance(reply, ReachReply)
    return reply


async def ask_drain(address: Address, request: DrainRequest, within_s: float = 10.0) -> DrainReply:
    """Ask the broker at an address to leave the network; raises OSError or TimeoutError if it does not answer."""
    reply = await _ask(address, request, within_s)
    assert isinstance(reply, DrainReply)
    return reply


async def ask_snapshot(address: Address, sample_s: float, within_s: float = 10.0) -> Snapshot:
    """Ask the broker at an address for a snapshot, which takes so much longer than the sample at most.

    Raises OSError or TimeoutError if it does not tell.
    """
    parts: list[Snapshot] = []
    reply = await _ask(address, SnapshotRequest(sample_s), sample_s + within_s, parts)
    assert isinstance(reply, Snapshot)
    if reply.problem:
        raise ConnectionError(reply.problem)
    return joined(parts)


async def _ask(
    address: Address,
    request: Request,
    within_s: float,
    parts: list[Snapshot] | None = None,
    caller: Caller | None = None,
) -> Reply:
    who = caller or present()
    asker = _Asker(request, asyncio.get_running_loop().create_future(), [] if parts is None else parts, who)
    async with asyncio.timeout(within_s):
        _, connection = await who.dial(lambda: Connection(asker), address)
        try:
            return await asker.answer
        finally:
            if who.is_encrypted:
                connection.give_up()  # all is said; to end the encryption would take the other end's word
            else:
                connection.close()


class _Asker:
    def __init__(self, request: Request, answer: asyncio.Future[Reply], parts: list[Snapshot], caller: Caller) -> None:
        self._request = request
        self._caller = caller
        self._parts = parts
        self.answer = answer

    def connection_opened(self, connection: Connection) -> None:
        try:
            credential = self._caller.credential()
        except OSError as error:
            self._fail(f"no credential: {error.strerror}")
            return
        if credential is not None:
            connection.send(LoginRequest(credential))
        connection.send(self._request)

    def frame_received(self, connection: Connection, frame: Frame) -> None:
        wanted = REPLIES[type(self._request)]
        if isinstance(frame, Goodbye) and not (frame.leaves or frame.returns):
            self._fail(frame.reason, NotPermittedError)
        if isinstance(frame, Snapshot):
            self._parts.append(frame)
            if not frame.is_last:
                return
        if isinstance(frame, wanted) and not self.answer.done():
            self.answer.set_result(frame)

    def bytes_handled(self, connection: Connection) -> None:
        pass

    def connection_broken(self, connection: Connection, reason: str) -> None:
        self._fail(f"not a broker: {reason}")
        connection.close()

    def connection_writable(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection) -> None:
        self._fail("the connection was closed")

    def _fail(self, reason: str, kind: type[ConnectionError] = ConnectionError) -> None:
        if not self.answer.done():
            self.answer.set_exception(kind(reason))
