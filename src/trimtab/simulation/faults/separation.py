"""Two halves of a simulated network that cannot reach each other: brokers ask for voices, are fenced, and vote.

A broker that is missed by the larger half is replaced there, and nobody can end the one before it, which goes on in the
other half with the clients that are there. When the halves meet again it learns from a majority that it was replaced,
and ends. What is decided stands in `trimtab.broker.replication.membership`; here are the ways between the voters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.broker.replication.config import ReplicationConfig
from trimtab.broker.replication.membership import (
    ASKS_PER_VOICE_COUNT,
    Candidacy,
    Claim,
    Voice,
    Voter,
    majority_of,
    vote_problem,
)
from trimtab.protocol.effects import Assist, Replace
from trimtab.protocol.events import FenceChanged
from trimtab.simulation.world.broker_host import BrokerHost

if TYPE_CHECKING:
    from trimtab.simulation.world.world import World

_LOOKS_PER_QUESTION_COUNT: Final = 4
"""A broker looks so often between two questions whether its voices have run out."""


class Separation(msgspec.Struct, frozen=True, kw_only=True):
    """For a while the way is cut between these brokers, with their clients, and all others."""

    brokers: tuple[str, ...]
    at_s: float
    for_s: float


class _Member:
    """One process of a broker among the voters."""

    def __init__(self, host: BrokerHost, voters: Sequence[str], fence_after_s: float, *, is_inside: bool) -> None:
        self.host = host
        self.is_inside = is_inside
        self.name, self.epoch = host.name, host.broker.epoch
        self.claim = Claim(self.epoch, host.broker.config.session)
        self.voter = Voter(host.name, fence_after_s, host.broker.now_s, majority_of(len(voters)))
        self.voter.learn(host.name, Voice(False, known={host.name: self.epoch}))
        self.place = Candidacy(host.name, voters, fence_after_s)
        self.problem = ""

    @property
    def runs(self) -> bool:
        """Whether it asks and answers."""
        return not self.host.is_paused


class Fencing:
    """All brokers of a world as voters."""

    def __init__(self, world: World, config: ReplicationConfig, start_after_s: float, until_s: float) -> None:
        """Brokers ask each other until a time, when nothing is to happen any more."""
        self._world = world
        self._fence_after_s = config.fences_after_s
        self._start_after_s = start_after_s
        self._until_s = until_s
        self._voters = list(world.brokers)
        self._members: list[_Member] = []
        self._is_separated = False
        self._looks_count = 0
        self.refused: list[str] = []
        """Why brokers were not replaced."""
        for host in world.brokers.values():
            self._add(host, is_inside=False)
        self._look()

    def _add(self, host: BrokerHost, *, is_inside: bool) -> None:
        member = _Member(host, self._voters, self._fence_after_s, is_inside=is_inside)
        self._members.append(member)
        host.provide = partial(self._asked_to_replace, member)

    # ---- the way between the halves ----

    def declare(self, separation: Separation) -> None:
        """Let it happen."""
        self._world.at(separation.at_s, self._separate, separation)

    def _separate(self, separation: Separation) -> None:
        for member in self._members:
            member.is_inside = member.name in separation.brokers
        self._is_separated = True
        self._world.at(self._world.now_s + separation.for_s, self._meet)
        self._world.transport.partition(frozenset(separation.brokers), separation.for_s)

    def _meet(self) -> None:
        self._is_separated = False

    def _reach(self, one: _Member, other: _Member) -> bool:
        return one.runs and other.runs and (not self._is_separated or one.is_inside == other.is_inside)

    # ---- voices ----

    def _look(self) -> None:
        now_s = self._world.now_s
        running = [member for member in self._members if member.runs]
        if self._looks_count % _LOOKS_PER_QUESTION_COUNT == 0:
            for one in running:
                for other in running:
                    if one.name != other.name and self._reach(one, other):
                        self._ask(one, other, now_s)
        self._looks_count += 1
        for member in running:
            if member.place.is_taken(member.epoch):
                self._end(member)
                continue
            problem = member.place.problem(now_s)
            if problem != member.problem:
                member.problem = problem
                member.host.tell(FenceChanged(problem))
                member.host.pump()
        if now_s < self._until_s:
            every_s = self._fence_after_s / ASKS_PER_VOICE_COUNT / _LOOKS_PER_QUESTION_COUNT
            self._world.at(now_s + every_s, self._look)

    def _ask(self, one: _Member, other: _Member, now_s: float) -> None:
        given = other.voter.ask(one.name, one.claim, now_s)
        voice = Voice(given, other.epoch, dict(other.voter.known))
        one.place.told(other.name, voice, now_s)
        one.voter.learn(other.name, voice)

    # ---- replacing ----

    def _asked_to_replace(self, asker: _Member, request: Replace | Assist) -> None:
        world = self._world
        world.failures.requests.append((world.now_s, request))
        before = next((member for member in self._members if member.host is world.brokers[request.broker]), None)
        if isinstance(request, Assist) or before is None or before.claim.nonce != request.session:
            return
        gone_for = [
            voter.name
            for voter in self._members
            if (voter is asker or self._reach(asker, voter))
            and not self._reach(voter, before)
            and voter.voter.has_let_go(before.name, world.now_s)
        ]
        problem = vote_problem(before.name, self._voters, gone_for)
        if problem:
            self.refused.append(problem)
        else:
            world.at(world.now_s + self._start_after_s, self._replace, asker, before, request)

    def _replace(self, asker: _Member, before: _Member, request: Replace) -> None:
        world, host = self._world, before.host
        if world.brokers[before.name] is not host:
            return
        if host.is_stopped or self._reach(asker, before):
            world.failures.replace(request)
            self._add(world.brokers[before.name], is_inside=asker.is_inside)
            return
        world.failures.replaced_count += 1
        config = msgspec.structs.replace(
            host.broker.config,
            session=f"{request.session}+",
            epoch=request.epoch + 1,
            neighbours=tuple(name for name, _ in request.neighbours),
            replica=request.protocol,
        )
        self._add(world.start_broker(config, host.capacity, world.agents_for(before.name)), is_inside=asker.is_inside)
        near = [each.name for each in self._members if each.is_inside == asker.is_inside and each.host is not host]
        self._hand_over(host, [peer for peer in host.connections if peer in near and peer in world.brokers])

    def _end(self, member: _Member) -> None:
        """It has heard that it was replaced: its clients go to the one in its place, and its links with them."""
        world, host = self._world, member.host
        hosts = world.clients
        clients = [name for name in host.broker.peers if name in hosts and hosts[name].session.broker == host.name]
        host.stop(is_dead=True)
        world.checker.broker_died(clients, ())
        for connection in host.connections.values():
            if host in (connection.first, connection.second) and connection.is_up:
                world.transport.take_down(connection)
        self._hand_over(host, list(host.connections))

    def _hand_over(self, before: BrokerHost, peers: Sequence[str]) -> None:
        """Connections with these peers are those of the incarnation that is found under the name from now on."""
        world, after = self._world, self._world.brokers[before.name]
        for peer in peers:
            connection = before.connections[peer]
            client = world.clients.get(peer)
            is_elsewhere = client is not None and client.connections.get(before.name) is not connection
            if is_elsewhere or before not in (connection.first, connection.second):
                continue
            connection.hand_to(after)
            after.connections[peer] = connection
            connection.stays_down = False
            delay_s = 0.0 if client is None else world.rng.uniform(0.0, world.failures.clients_return_s)
            world.at(world.now_s + delay_s, world.transport.bring_up, connection)
