"""An edge-broker's part with a rival's way of deciding: it tells its load, decides now and then, and asks clients to
move.

Roles are as in `trimtab.policies.padres`, so that scenarios are the same for all policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from trimtab.language import Filter, Value
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    ClientLeft,
    ClientStayed,
    Heard,
    Listen,
    MoveClient,
    Unlisten,
    Woken,
)
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.load_report import LoadReporter
from trimtab.policies.padres.messages import life_of
from trimtab.policies.padres.snapshot import (
    LOCAL_PIE,
    broker_load_from_values,
    still_believed,
    with_broker,
)
from trimtab.policies.padres.snapshot import KnownBroker as Known
from trimtab.policies.rivals.decision import Deciding, ServedClient

TELL_EVERY_S: Final = 10.0
"""How often load is told; Pulsar's brokers report at such intervals when it changes, EMQX's know counts at once."""

_KEY: Final = "load of all"


class RivalEdge:
    """What an edge-broker does."""

    def __init__(
        self, host: AgentHost, cluster: str, config: PadresConfig, rng: Random, now_s: float, *, way: Deciding
    ) -> None:
        self.cluster = cluster
        self.observes = way.wants_rates
        self.known: dict[str, Known] = {}
        self._host = host
        self._config = config
        self._rng = rng
        self._way = way
        self._telling = LoadReporter(host, cluster, config, TELL_EVERY_S, now_s)
        self._leaving: dict[str, None] = {}
        self._sent_counts: dict[str, int] = {}
        self._counted_since_s = now_s
        self._life = life_of(now_s)
        self._rounds_count = 0
        self._next_tell_s = now_s + rng.uniform(0.0, TELL_EVERY_S)
        self._next_decision_s = now_s + way.every_s

    def begin(self) -> list[AgentAction]:
        """Listen to everybody's load."""
        return [Listen(_KEY, Filter.where({"class": LOCAL_PIE}))]

    def end(self) -> list[AgentAction]:
        """The broker's role changes: listen no more."""
        return [Unlisten(_KEY)]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        return min(self._next_tell_s, self._next_decision_s)

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """Count what each client is sent."""
        counts = self._sent_counts
        for hop in hops:
            counts[hop] = counts.get(hop, 0) + 1
        return []

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values):
                load = broker_load_from_values(values)
                if load.broker != self._host.name:
                    self.known = with_broker(self.known, load, now_s)
            case Woken():
                return self._woken(now_s)
            case ClientLeft(client=client) | ClientStayed(client=client):
                self._leaving.pop(client, None)
            case _:
                pass
        return []

    def _woken(self, now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        if now_s >= self._next_tell_s:
            self._next_tell_s = now_s + TELL_EVERY_S
            self._telling.read(now_s)
            actions += self._telling.tell(now_s, always=True)
        if now_s >= self._next_decision_s:
            self._next_decision_s = now_s + self._way.every_s
            actions += self._decide(now_s)
        return actions

    def _decide(self, now_s: float) -> list[AgentAction]:
        self.known = still_believed(self.known, now_s, self._config.local_pie_lifetime_s)
        others = [entry.load for _, entry in sorted(self.known.items())]
        clients = self._served(now_s)
        if not others or not clients:
            return []
        moves = self._way.decide(self._telling.load(now_s), others, clients, self._rng, now_s)
        if not moves:
            return []
        self._rounds_count += 1
        cause = f"{self._host.name}/{self._life}/round{self._rounds_count}"
        self._leaving.update(dict.fromkeys(client for client, _ in moves))
        return [MoveClient(client, broker, cause) for client, broker in moves]

    def _served(self, now_s: float) -> list[ServedClient]:
        """The clients that stay, with what each was sent since the last decision."""
        over_s = max(now_s - self._counted_since_s, 1e-9)
        counts, self._sent_counts, self._counted_since_s = self._sent_counts, {}, now_s
        return [
            ServedClient(name, tuple(self._host.filters_of(name)), counts.get(name, 0) / over_s)
            for name in self._host.clients()
            if name not in self._leaving
        ]
