"""The voters of a network as one of its processes sees them: it asks for their voices and gives its own.

What is decided stands in `trimtab.broker.replication.membership`; here are the connections. Each broker, and each
process that stands by, keeps one connection to every other voter and asks over it three times within `fence_after_s`.
A voter is asked where the network file says that it is, or where its neighbours know it to be.

A voter of an earlier version does not know the question and closes the connection with a reason. That counts as a
voice: such a broker has no place to lose, and a network may be upgraded one broker after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from trimtab.broker.core import Broker
from trimtab.broker.replication.membership import (
    ASKS_PER_VOICE_COUNT,
    Candidacy,
    Claim,
    Voice,
    Voter,
    majority_of,
    vote_problem,
)
from trimtab.network.admin.status import ask_reach, ask_status
from trimtab.network.clock import now_s
from trimtab.network.failover.process_identity import ProcessIdentity
from trimtab.network.failover.replication_settings import BROKER_NAME
from trimtab.network.links.address import Address
from trimtab.network.links.connection import Connection
from trimtab.network.network_plan import NetworkPlan
from trimtab.network.security import caller
from trimtab.network.server.descriptors import are_exhausted
from trimtab.protocol.frames import Frame, Goodbye, ReachReply, VoiceReply, VoiceRequest

PROBE_WITHIN_S: Final = 1.0
"""A broker that runs says how it is much sooner."""

VOTE_WITHIN_S: Final = 2.0
"""A voter that was asked about a broker has looked for it by then."""

PLACES_MAX_COUNT: Final = 10_000
"""A voter keeps so many brokers in mind; more than any network has."""

log = logging.getLogger("trimtab.broker")


class StoodBy(NamedTuple):
    """What a process that stood by was as a voter."""

    name: str
    voter: Voter


class Membership:
    """One process among the voters."""

    def __init__(
        self,
        name: str,
        voters: Mapping[str, Address],
        fence_after_s: float,
        *,
        nonce: str = "",
        epoch: Callable[[], int] = lambda: 0,
        address_of: Callable[[str], str] = lambda _: "",
        changed: Callable[[str], None] = lambda _: None,
        replaced: Callable[[], None] = lambda: None,
        granted: Callable[[str], int] = lambda _: 0,
        is_stand_by: bool = False,
        stood_by: StoodBy | None = None,
    ) -> None:
        """`changed` is told why this broker does not hold its place, and, with an empty text, that it does again.

        `replaced` is told when a later incarnation of it has its place. A process that stood by goes on as that voter
        as well, with what it has promised.
        """
        self._name = name
        self._voters = dict(voters)
        self._fence_after_s = fence_after_s
        self._nonce = nonce
        self._epoch = epoch
        self._address_of = address_of
        self._changed = changed
        self._replaced = replaced
        self._granted = granted
        self._is_stand_by = is_stand_by
        self._stood_by = stood_by
        self._voter = Voter(name, fence_after_s, now_s(), majority_of(len(self._voters)))
        self._place = None if is_stand_by else Candidacy(name, self._voters, fence_after_s)
        self._claimed_epoch = epoch()
        self._probes: dict[str, asyncio.Task[bool]] = {}
        self.problem = ""
        self._has_held = False
        """Whether this broker has held its place; until then it only begins."""
        self.tasks: list[asyncio.Task[None]] = []
        """What is under way, to be ended with the process."""

    def begin(self) -> None:
        """Ask all other voters from now on; until enough have given their voices, this broker is fenced."""
        loop = asyncio.get_running_loop()
        before = None if self._stood_by is None else self._stood_by.name
        others = [voter for voter in self._voters if voter not in (self._name, before)]
        self.tasks = [loop.create_task(self._ask(voter)) for voter in others]
        if self._stood_by is not None and self._stood_by.name in self._voters:
            self.tasks.append(loop.create_task(self._ask_oneself(self._stood_by)))
        self.look()

    def look(self) -> None:
        """See whether this broker holds its place at this moment."""
        if self._place is None:
            return
        problem = self._place.problem(now_s())
        if problem == self.problem:
            return
        if not problem:
            log.info("%s is not fenced any more", self._name)
        elif not self.problem:
            level = logging.WARNING if self._has_held else logging.INFO
            log.log(level, "%s is fenced, and acknowledges nothing: %s", self._name, problem)
        self.problem = problem
        self._has_held |= not problem
        self._changed(problem)

    # ---- the place of this broker ----

    async def _ask(self, voter: str) -> None:
        every_s = self._fence_after_s / ASKS_PER_VOICE_COUNT
        line: _VoterConnection | None = None
        try:
            while True:
                try:
                    if line is None or not line.is_open():
                        line = await _VoterConnection.open(self._where(voter), self._fence_after_s)
                    await self._ask_once(voter, line)
                except (OSError, TimeoutError, ValueError):
                    if line is not None:
                        line.close()
                    line = None
                await asyncio.sleep(every_s)
        finally:
            if line is not None:
                line.close()

    async def _ask_once(self, voter: str, line: _VoterConnection) -> None:
        asked_s, epoch = now_s(), self._epoch()
        self._claim(epoch)
        request = VoiceRequest() if self._place is None else VoiceRequest(self._name, epoch, self._nonce)
        try:
            reply = await line.ask(request, self._fence_after_s)
        except _OldVersionError:
            self._told(voter, VoiceReply(True), asked_s)
            return
        if reply.voter == ("" if voter == str(self._voters[voter]) else voter) and epoch == self._epoch():
            self._told(voter, reply, asked_s)

    async def _ask_oneself(self, stood_by: StoodBy) -> None:
        """Ask for the voice that this process has as one that stood by."""
        while True:
            asked_s, epoch = now_s(), self._epoch()
            self._claim(epoch)
            given = stood_by.voter.ask(self._name, Claim(epoch, self._nonce), asked_s)
            self._told(stood_by.name, VoiceReply(given, known=dict(stood_by.voter.known)), asked_s)
            await asyncio.sleep(self._fence_after_s / ASKS_PER_VOICE_COUNT)

    def as_stood_by(self) -> StoodBy:
        """This process as a voter that stands by, for the broker that it becomes."""
        return StoodBy(self._name, self._voter)

    def _claim(self, epoch: int) -> None:
        if epoch != self._claimed_epoch and self._place is not None:
            self._claimed_epoch = epoch
            self._place.begin_again()

    def _told(self, voter: str, reply: VoiceReply, asked_s: float) -> None:
        voice = Voice(reply.given, reply.epoch, reply.known)
        self._voter.learn(voter, voice)
        if self._place is not None:
            self._place.told(voter, voice, asked_s)
            if self._place.is_taken(self._claimed_epoch, reply.granted):
                self._replaced()
        self.look()

    def _where(self, voter: str) -> Address:
        told = self._address_of(voter)
        return Address.parse(told) if told else self._voters[voter]

    # ---- this process as a voter ----

    def answer(self, request: VoiceRequest) -> VoiceReply:
        """Give this process's voice, or say that it is not given."""
        voter, epoch = self._voter, self._epoch()
        if not self._is_stand_by:
            voter.learn(self._name, Voice(False, known={self._name: epoch}))
        given = False
        is_known = request.broker in voter.known or len(voter.known) < PLACES_MAX_COUNT
        if is_known and BROKER_NAME.fullmatch(request.broker):
            given = voter.ask(request.broker, Claim(request.epoch, request.nonce), now_s())
        granted = self._granted(request.broker)
        return VoiceReply(given, "" if self._is_stand_by else self._name, epoch, dict(voter.known), granted)

    async def find(self, broker: str) -> ReachReply:
        """Say whether this process finds a broker gone: it has no voice of this one any more, and does not answer."""
        if broker not in self._voters or BROKER_NAME.fullmatch(broker) is None:
            return ReachReply(False, f"{broker[:100]} is no broker of the network file")
        probe = self._probes.get(broker)
        if probe is None:
            probe = self._probes[broker] = asyncio.get_running_loop().create_task(self._is_there(broker))
            probe.add_done_callback(lambda _: self._probes.pop(broker, None))
        if await asyncio.shield(probe):
            return ReachReply(False, f"{broker} answers")
        if not self._voter.has_let_go(broker, now_s()):
            return ReachReply(False, f"{broker} has asked for this voice lately")
        return ReachReply(True)

    async def _is_there(self, broker: str) -> bool:
        try:
            return (await ask_status(self._where(broker), PROBE_WITHIN_S)).name == broker
        except (OSError, TimeoutError, ValueError) as error:
            return are_exhausted(error)  # who can call nobody says of nobody that it is gone

    async def vote(self, broker: str) -> str:
        """Ask all voters whether they find a broker gone; returns why it may not be replaced, empty if it may."""
        others = [voter for voter in self._voters if voter != broker]
        found = await asyncio.gather(*(self._vote_of(voter, broker) for voter in others))
        return vote_problem(broker, self._voters, (voter for voter, gone in zip(others, found, strict=True) if gone))

    async def _vote_of(self, voter: str, broker: str) -> bool:
        try:
            if voter == self._name:
                return (await self.find(broker)).gone
            return (await ask_reach(self._where(voter), broker, VOTE_WITHIN_S)).gone
        except (OSError, TimeoutError, ValueError):
            return False


def membership_of(
    plan: NetworkPlan,
    broker: Broker,
    changed: Callable[[str], None],
    replaced: Callable[[], None],
    stood_by: StoodBy | None,
) -> Membership | None:
    """A broker among those that decide about brokers that cannot be reached, where anybody does."""
    voters, config = plan.voters(), broker.config
    if config.replication is None or config.name not in voters:
        return None
    life = ProcessIdentity.of_session(config.session)

    def granted(name: str) -> int:
        peer = broker.peers.get(name)
        return 0 if peer is None or peer.role != "broker" else peer.incarnation

    return Membership(
        config.name,
        voters,
        config.replication.fences_after_s,
        nonce=config.session if life is None else life.nonce,
        epoch=lambda: broker.epoch,
        address_of=broker.topology.address_of,
        changed=changed,
        replaced=replaced,
        granted=granted,
        stood_by=stood_by,
    )


class _OldVersionError(Exception):
    """A voter does not know the question."""


class _VoterConnection:
    """A connection to one voter, over which one question after the other is asked."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._answer: asyncio.Future[VoiceReply] | None = None

    @staticmethod
    async def open(address: Address, within_s: float) -> _VoterConnection:
        """Call a voter; raises OSError or TimeoutError."""
        line = _VoterConnection()
        connection = line._connection = Connection(line)
        try:
            async with asyncio.timeout(within_s):
                await caller.present().dial(lambda: connection, address)
        except BaseException:
            connection.give_up()
            raise
        return line

    def is_open(self) -> bool:
        """Whether the next question can be asked."""
        return self._connection is not None and self._connection.is_open()

    def close(self) -> None:
        """End."""
        if self._connection is not None:
            self._connection.give_up()

    async def ask(self, request: VoiceRequest, within_s: float) -> VoiceReply:
        """Ask; raises OSError or TimeoutError if no answer comes, and `_OldVersionError` if it cannot."""
        assert self._connection is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._connection.send(request)
        try:
            async with asyncio.timeout(within_s):
                return await self._answer
        finally:
            self._answer = None

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # ---- told by the connection ----

    def connection_opened(self, connection: Connection) -> None:
        pass

    def frame_received(self, connection: Connection, frame: Frame) -> None:
        if isinstance(frame, VoiceReply) and self._answer is not None and not self._answer.done():
            self._answer.set_result(frame)
        elif isinstance(frame, Goodbye):
            is_away = frame.leaves or frame.returns
            self._fail(ConnectionError(frame.reason) if is_away else _OldVersionError(frame.reason))
            connection.close()

    def bytes_handled(self, connection: Connection) -> None:
        pass

    def connection_broken(self, connection: Connection, reason: str) -> None:
        self._fail(ConnectionError(f"no voter: {reason}"))
        connection.close()

    def connection_writable(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection) -> None:
        self._fail(ConnectionError("the connection was closed"))
