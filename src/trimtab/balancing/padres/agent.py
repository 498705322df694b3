"""The agent of subscriber balancing in a broker: a cluster-head, an edge-broker, or neither, as the topology has it.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from trimtab.balancing.padres.config import PadresConfig
from trimtab.balancing.padres.edge import EdgePart
from trimtab.balancing.padres.head import HeadPart
from trimtab.balancing.padres.messages import LB_CONTROL
from trimtab.balancing.padres.snapshot import GLOBAL_PIE, LOCAL_PIE
from trimtab.language import Filter, Value
from trimtab.load.agents import Action, AgentEvent, Announce, Host, NeighboursChanged

_ANNOUNCED: Final = (
    Filter.parse(f"[class,eq,'{LOCAL_PIE}'],[clusterID,isPresent,'']"),
    Filter.parse(f"[class,eq,'{GLOBAL_PIE}'],[sentBy,isPresent,'']"),
    Filter.parse(f"[class,eq,'{LB_CONTROL}'],[brokerID,isPresent,'']"),
)
"""What these agents say, as far as anybody asks for it; the same for all, so that one announcement covers the rest."""

_BROKERS_MIN_COUNT: Final = 3
"""Roles exist from the third broker on."""


class PadresAgent:
    """Balances the subscribers of its broker with those of others."""

    name = "padres"

    def __init__(self, config: PadresConfig, rng: Random) -> None:
        self.config = config
        self.part: EdgePart | HeadPart | None = None
        self._rng = rng
        self._host: Host | None = None

    @property
    def observes(self) -> bool:
        """Whether a sample is being taken."""
        return self.part is not None and self.part.observes

    def start(self, host: Host, now_s: float) -> list[Action]:
        """The broker begins its work."""
        self._host = host
        return [*(Announce(filter) for filter in _ANNOUNCED), *self._take_role(host, now_s)]

    def handle(self, event: AgentEvent, now_s: float) -> list[Action]:
        """Something has happened."""
        actions: list[Action] = []
        if isinstance(event, NeighboursChanged) and self._host is not None:
            actions += self._take_role(self._host, now_s)
        if self.part is not None:
            actions += self.part.handle(event, now_s)
        return actions

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[Action]:
        """A publication was matched while a sample is taken."""
        return [] if self.part is None else self.part.matched(publication, values, hops, now_s)

    def wake_at_s(self) -> float | None:
        """When something is to be done next."""
        return None if self.part is None else self.part.wake_at_s()

    def _take_role(self, host: Host, now_s: float) -> list[Action]:
        neighbours = host.neighbours()
        wanted: type[EdgePart | HeadPart] | None
        if len(host.brokers()) < _BROKERS_MIN_COUNT or not neighbours:
            wanted, cluster = None, ""
        elif len(neighbours) > 1:
            wanted, cluster = HeadPart, host.name
        else:
            wanted, cluster = EdgePart, neighbours[0]
        part = self.part
        if part is None and wanted is None:
            return []
        if part is not None and type(part) is wanted and part.cluster == cluster:
            return []
        actions = part.end() if part is not None else []
        if wanted is None:
            self.part = None
        elif wanted is HeadPart:
            self.part = HeadPart(host, self.config, self._rng, now_s)
        else:
            self.part = EdgePart(host, cluster, self.config, self._rng, now_s)
        return [*actions, *(self.part.begin() if self.part is not None else [])]
