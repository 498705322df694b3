"""The agent of subscriber balancing in a broker: a cluster-head, an edge-broker, or neither, as the topology has it.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 3.2.

What a head and an edge-broker do is theirs: a policy is a name and two parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, Protocol, TypeAlias

from trimtab.language import Filter, Value
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentPlace,
    AgentReport,
    Announce,
    ClientAdvertised,
    MoveClient,
    NeighboursChanged,
    Reporting,
)
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.edge import EdgePart
from trimtab.policies.padres.head import HeadPart
from trimtab.policies.padres.messages import LB_CONTROL
from trimtab.policies.padres.snapshot import GLOBAL_PIE, LOCAL_PIE

_ANNOUNCED: Final = (
    Filter.parse(f"[class,eq,'{LOCAL_PIE}'],[clusterID,isPresent,'']"),
    Filter.parse(f"[class,eq,'{GLOBAL_PIE}'],[sentBy,isPresent,'']"),
    Filter.parse(f"[class,eq,'{LB_CONTROL}'],[brokerID,isPresent,'']"),
)
"""What these agents say, as far as anybody asks for it; the same for all, so that one announcement covers the rest."""

_BROKERS_MIN_COUNT: Final = 3
"""Roles exist from the third broker on."""


class Part(Protocol):
    """What a broker does in its role, as long as it has it."""

    cluster: str
    """The cluster that it belongs to, named after its head."""

    @property
    def observes(self) -> bool:
        """Whether it wants to see publications as they are matched."""
        ...

    def begin(self) -> list[AgentAction]:
        """The broker has taken the role."""
        ...

    def end(self) -> list[AgentAction]:
        """The broker gives the role up."""
        ...

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        ...

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """A publication was matched."""
        ...

    def wake_at_s(self) -> float | None:
        """When something is to be done next."""
        ...


MakePart: TypeAlias = Callable[[AgentHost, str, PadresConfig, Random, float], Part]
"""Makes a part from the broker, the cluster, the settings, a source of random choices and the time."""


def _head_part(host: AgentHost, cluster: str, config: PadresConfig, rng: Random, now_s: float) -> HeadPart:
    return HeadPart(host, config, rng, now_s)


class PadresAgent:
    """Balances the subscribers of its broker with those of others; by the thesis's rules unless other parts are given.

    >>> PadresAgent(PadresConfig(), Random(1)).part is None
    True
    """

    def __init__(
        self,
        config: PadresConfig,
        rng: Random,
        *,
        name: str = "padres",
        edge: MakePart = EdgePart,
        head: MakePart = _head_part,
        announced: Sequence[Filter] = _ANNOUNCED,
    ) -> None:
        self.name = name
        self.config = config
        self.part: Part | None = None
        self._rng = rng
        self._host: AgentHost | None = None
        self._edge = edge
        self._head = head
        self._announced = announced
        self._role: tuple[bool, str] | None = None
        self._redirects_count = 0

    @property
    def observes(self) -> bool:
        """Whether a sample is being taken."""
        return self.part is not None and self.part.observes

    def start(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        """The broker begins its work."""
        self._host = host
        return [*(Announce(filter) for filter in self._announced), *self._take_role(host, now_s)]

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        actions: list[AgentAction] = []
        if isinstance(event, NeighboursChanged) and self._host is not None:
            actions += self._take_role(self._host, now_s)
        if isinstance(event, ClientAdvertised):
            actions += self._send_to_head([event.client])
        if self.part is not None:
            actions += self.part.handle(event, now_s)
        return actions

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """A publication was matched while a sample is taken."""
        return [] if self.part is None else self.part.matched(publication, values, hops, now_s)

    def wake_at_s(self) -> float | None:
        """When something is to be done next."""
        return None if self.part is None else self.part.wake_at_s()

    def report(self) -> AgentReport:
        """What is done at present, and what was decided last."""
        if self.part is None:
            return AgentReport(role="none", status="", doing=f"waiting for {_BROKERS_MIN_COUNT} brokers to be known")
        if isinstance(self.part, Reporting):
            return self.part.report()
        role = "cluster-head" if self._role is not None and self._role[0] else "edge-broker"
        return AgentReport(role=role, status="", doing=f"balances by {self.name}")

    def objection_to_leaving(self, publisher: str) -> str:
        """A client that subscribes as well stays where it is (section 3.2)."""
        subscribes = self._host is not None and self._role is not None and bool(self._host.filters_of(publisher))
        return "it subscribes as well, and such a client stays where it is" if subscribes else ""

    def objection_to_coming(self, publisher: str) -> str:
        """Publishers are served by cluster-heads."""
        if self._host is None or self._role is None or self._role[0]:
            return ""
        return f"{self._host.name} is an edge-broker, and publishers go to cluster-heads"

    def _take_role(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        neighbours = host.neighbours()
        role: tuple[bool, str] | None = None
        if len(host.brokers()) >= _BROKERS_MIN_COUNT and neighbours:
            is_head = len(neighbours) > 1
            role = (is_head, host.name if is_head else neighbours[0])
        if role == self._role:
            return []
        actions = self.part.end() if self.part is not None else []
        self._role, self.part = role, None
        if role is not None:
            is_head, cluster = role
            make = self._head if is_head else self._edge
            self.part = make(host, cluster, self.config, self._rng, now_s)
            actions += self.part.begin()
            actions += self._send_to_head(host.publishers())
        return actions

    def _send_to_head(self, publishers: Sequence[str]) -> list[AgentAction]:
        """Ask publishers at an edge-broker to go to its cluster-head (section 3.2); those that subscribe too stay."""
        if self._host is None or self._role is None or self._role[0]:
            return []
        actions: list[AgentAction] = []
        for client in publishers:
            if not self._host.filters_of(client):
                self._redirects_count += 1
                cause = f"{self._host.name}/publisher/{self._redirects_count}"
                actions.append(MoveClient(client, self._role[1], cause))
        return actions


def agent_of(config: PadresConfig, place: AgentPlace) -> PadresAgent:
    """The agent of one broker."""
    return PadresAgent(config, place.rng("padres"))
