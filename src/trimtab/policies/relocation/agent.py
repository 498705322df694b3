"""The agent of publisher relocation in a broker: it tags, traces, selects, and asks for moves.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), sections 3 and 4.

What POP and GRAPE do is theirs (`pop_part.py`, `grape_part.py`); this file is what both need: the standing of the
broker's publishers, and the ears of the agent, which hears its neighbours' agents only.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Protocol

from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentPlace,
    AgentReport,
    Announce,
    ClientCame,
    ClientLeft,
    ClientStayed,
    Heard,
    Listen,
    NeighboursChanged,
    PublisherTurned,
    RoundTripsTold,
    Tell,
    Unlisten,
    Way,
    WithoutSamples,
    Woken,
)
from trimtab.policies.relocation.config import RelocationConfig, relocation_of
from trimtab.policies.relocation.grape_part import GrapePart
from trimtab.policies.relocation.messages import (
    AnyRelocation,
    announced_by,
    relocation_from_values,
    relocation_to_values,
    wanted_from,
)
from trimtab.policies.relocation.pop_part import PopPart
from trimtab.policies.relocation.standing import Account, Phase, Standing


class Part(Protocol):
    """What POP or GRAPE does in a broker."""

    def tag(self, standing: Standing, sequence: int, now_s: float) -> str:
        """The tag for a publication of a client here; empty if it is not traced."""
        ...

    def traced(self, tag: str, publication: tuple[str, int], way: Way, now_s: float) -> list[AgentAction]:
        """A publication with a tag was matched."""
        ...

    def heard(self, message: AnyRelocation, now_s: float) -> list[AgentAction]:
        """A neighbour's agent says something."""
        ...

    def round_trips(self, told: RoundTripsTold, now_s: float) -> list[AgentAction]:
        """A publisher has measured round-trip times."""
        ...

    def forget(self, publisher: str) -> None:
        """A publisher's stream comes from another side from now on."""
        ...

    def woken(self, now_s: float) -> list[AgentAction]:
        """A time that was asked for has come."""
        ...

    def wake_at_s(self) -> float | None:
        """When something is to be done next."""
        ...

    @property
    def kept_bytes(self) -> int:
        """What tracing keeps in memory, about."""
        ...


class Desk:
    """What the parts share: the broker, the settings, the publishers, and a way to say things."""

    def __init__(self, config: RelocationConfig, host: AgentHost, rng: Random) -> None:
        self.config = config
        self.host = host
        self.rng = rng
        self.account = Account(host.name, config)
        self.standings: dict[str, Standing] = {}
        self.told_counts: Counter[str] = Counter()
        """Messages to neighbours, by kind."""

    def tell(self, message: AnyRelocation, to: str, cause: str = "") -> Tell:
        """Say something to a neighbour's agent."""
        values = relocation_to_values(message, to)
        self.told_counts[str(values["kind"])] += 1
        return Tell(values, cause)


class RelocationAgent(WithoutSamples):
    """Moves the publishers of its broker to where their publications are wanted.

    >>> RelocationAgent(RelocationConfig(algorithm="pop"), Random(1)).name
    'pop'
    """

    def __init__(self, config: RelocationConfig, rng: Random) -> None:
        self.name = config.algorithm
        self.config = config
        self.traced_count = 0
        """Publications of this broker's clients that were tagged."""
        self._rng = rng
        self._desk: Desk | None = None
        self._part: Part | None = None
        self._ears: dict[str, None] = {}

    @property
    def told_counts(self) -> Counter[str]:
        """Messages that this agent has sent, by kind."""
        return Counter() if self._desk is None else self._desk.told_counts

    @property
    def kept_bytes(self) -> int:
        """What tracing keeps in memory, about."""
        return 0 if self._part is None else self._part.kept_bytes

    def start(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        """Announce what this agent says, and listen to the neighbours' agents."""
        self._desk = Desk(self.config, host, self._rng)
        self._part = PopPart(self._desk) if self.config.algorithm == "pop" else GrapePart(self._desk)
        return [Announce(announced_by(host.name)), *self._listen()]

    def _listen(self) -> list[AgentAction]:
        assert self._desk is not None
        host = self._desk.host
        neighbours = host.neighbours()
        new = [name for name in neighbours if name not in self._ears]
        old = [name for name in self._ears if name not in neighbours]
        self._ears = dict.fromkeys(neighbours)
        return [
            *(Unlisten(f"from {name}") for name in old),
            *(Listen(f"from {name}", wanted_from(name, host.name)) for name in new),
        ]

    # ---- publications ----

    def tag(self, publisher: str, sequence: int, now_s: float) -> str:
        """The tag for a publication of a client here; empty if it is not traced."""
        desk, part = self._desk, self._part
        if desk is None or part is None:
            return ""
        standing = desk.standings.get(publisher)
        if standing is None:
            if len(desk.standings) >= self.config.traces_max_count:
                del desk.standings[next(iter(desk.standings))]
            standing = desk.standings[publisher] = Standing(publisher, rests_until_s=now_s)
        if standing.phase in {Phase.SELECTING, Phase.MOVING}:
            return ""
        if standing.phase == Phase.RESTING and now_s < standing.rests_until_s:
            return ""
        tag = part.tag(standing, sequence, now_s)
        self.traced_count += bool(tag)
        return tag

    def traced(self, tag: str, publication: tuple[str, int], way: Way, now_s: float) -> list[AgentAction]:
        """A publication with a tag was matched."""
        return [] if self._part is None else self._part.traced(tag, publication, way, now_s)

    # ---- events ----

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        desk, part = self._desk, self._part
        if desk is None or part is None:
            return []
        match event:
            case Heard(values=values):
                return part.heard(relocation_from_values(values), now_s)
            case Woken():
                return part.woken(now_s)
            case NeighboursChanged():
                return self._listen()
            case RoundTripsTold():
                return part.round_trips(event, now_s)
            case PublisherTurned(client=client):
                part.forget(client)
            case ClientCame(client=client, cause=cause):
                desk.standings[client] = Standing(client, now_s + self.config.rest_s, cause, now_s)
            case ClientLeft(client=client):
                part.forget(client)
                desk.standings.pop(client, None)
            case ClientStayed(client=client, cause=cause, reason=reason):
                self._stayed(desk, client, cause, reason, now_s)
            case _:
                pass
        return []

    def _stayed(self, desk: Desk, client: str, cause: str, reason: str, now_s: float) -> None:
        standing = desk.standings.get(client)
        if standing is not None and standing.phase == Phase.MOVING and standing.evidence == cause:
            standing.rest(self.config, now_s)
            desk.account.decision = f"{client} stays: {reason}"
            desk.account.decided_s = now_s

    def wake_at_s(self) -> float | None:
        """When something is to be done next."""
        return None if self._part is None else self._part.wake_at_s()

    def report(self) -> AgentReport:
        """What it does and why."""
        standings = [] if self._desk is None else list(self._desk.standings.values())
        phases = Counter(standing.phase.value for standing in standings)
        doing = ", ".join(f"{count} {phase}" for phase, count in phases.items()) or "no publisher has published"
        account = None if self._desk is None else self._desk.account
        return AgentReport(
            role="relocation of publishers",
            status="OK",
            doing=doing,
            decision="" if account is None else account.decision,
            decided_s=None if account is None else account.decided_s,
        )


def agent_of(config: RelocationConfig, place: AgentPlace) -> RelocationAgent:
    """The agent of one broker, with the algorithm and the aim that the policy's name asks for."""
    config = relocation_of(place.policy, config) or config
    return RelocationAgent(config, place.rng(config.algorithm))
