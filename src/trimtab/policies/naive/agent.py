"""The naive balancer as a policy: brokers tell their load, and each now and then sends random clients elsewhere.

Load is told and heard as in A. Cheung's thesis (2006, section 3.3.1.1), but by all edge-brokers of the network: there
are no clusters, no sessions and no samples. `selection.py` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from trimtab.language import Filter
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentPlace,
    ClientLeft,
    ClientStayed,
    ClientSubscribed,
    Heard,
    Listen,
    MoveClient,
    Note,
    Unlisten,
    WithoutSamples,
    Woken,
)
from trimtab.policies.naive.selection import NaivePlan, plan_naively
from trimtab.policies.padres.agent import PadresAgent
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex as Index
from trimtab.policies.padres.decisions import NoAction, Status
from trimtab.policies.padres.detection import overload_action
from trimtab.policies.padres.load_report import LoadReporter
from trimtab.policies.padres.messages import life_of
from trimtab.policies.padres.snapshot import (
    LOCAL_PIE,
    BrokerLoad,
    KnownBroker,
    broker_load_from_values,
    still_believed,
    with_broker,
)
from trimtab.protocol.records import SessionRecord

_ALL_LOADS: Final = Filter.where({"class": LOCAL_PIE})
_KEY: Final = "load of all"


class _Round:
    """Clients that were sent to a broker, and how it all was before."""

    def __init__(self, session: str, plan: NaivePlan, ours: BrokerLoad, theirs: BrokerLoad, now_s: float) -> None:
        self.session = session
        self.plan = plan
        self.ours = ours
        self.theirs = theirs
        self.begin_s = now_s
        self.waiting = dict.fromkeys(plan.clients)
        self.moved_count = 0


class NaiveEdge(WithoutSamples):
    """What an edge-broker does."""

    def __init__(self, host: AgentHost, cluster: str, config: PadresConfig, rng: Random, now_s: float) -> None:
        self.cluster = cluster
        self.known: dict[str, KnownBroker] = {}
        self._host = host
        self._config = config
        self._rng = rng
        self._telling = LoadReporter(host, cluster, config, config.local_pie_period_s, now_s)
        self._round: _Round | None = None
        self._life = life_of(now_s)
        self._rounds_count = 0
        self._next_pie_s = now_s + rng.uniform(0.0, config.local_pie_period_s)
        self._next_detection_s = now_s + self._interval_s()

    def begin(self) -> list[AgentAction]:
        """Listen to everybody's load."""
        return [Listen(_KEY, _ALL_LOADS)]

    def end(self) -> list[AgentAction]:
        """The broker's role changes: listen no more."""
        return [Unlisten(_KEY)]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        return min(self._next_pie_s, self._next_detection_s)

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values):
                load = broker_load_from_values(values)
                if load.broker != self._host.name:
                    self.known = with_broker(self.known, load, now_s)
                return []
            case Woken():
                return self._woken(now_s)
            case ClientLeft(client=client, cause=cause):
                return self._move_ended(client, cause, now_s, moved=True)
            case ClientStayed(client=client, cause=cause):
                return self._move_ended(client, cause, now_s, moved=False)
            case _:
                return []

    def _interval_s(self) -> float:
        return self._rng.uniform(
            self._config.local_detection_min_interval_s, self._config.local_detection_max_interval_s
        )

    def _woken(self, now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        if now_s >= self._next_detection_s:
            self._next_detection_s = now_s + self._interval_s()
            actions += self._detect(now_s)
        if now_s >= self._next_pie_s:
            self._next_pie_s = now_s + self._config.local_pie_period_s
            actions += self._telling.tell(now_s)
        return actions

    def _detect(self, now_s: float) -> list[AgentAction]:
        self.known = still_believed(self.known, now_s, self._config.local_pie_lifetime_s)
        if self._round is None:
            beyond = overload_action(self._telling.read(now_s), self._config.lower_overload_ratio)
            self._telling.status = Status.OK if beyond is None else Status.NOT_AVAILABLE
        ours = self._telling.load(now_s)
        plan = plan_naively(ours, self.known, self._host.clients(), self._rng, self._config)
        if isinstance(plan, NoAction):
            return []
        self._rounds_count += 1
        session = f"{self._host.name}/{self._life}/naive{self._rounds_count}"
        self._round = _Round(session, plan, ours, self.known[plan.to_broker].load, now_s)
        self._telling.status = Status.BUSY
        return [
            *self._telling.tell(now_s, always=True),
            *(MoveClient(client, plan.to_broker, session) for client in plan.clients),
        ]

    def _move_ended(self, client: str, cause: str, now_s: float, *, moved: bool) -> list[AgentAction]:
        going = self._round
        if going is None or cause != going.session or client not in going.waiting:
            return []
        del going.waiting[client]
        going.moved_count += moved
        if going.waiting:
            return []
        self._round = None
        self._telling.status = Status.OK
        return [*self._telling.tell(now_s, always=True), Note(_record(self._host.name, going, now_s))]


def _record(broker: str, going: _Round, now_s: float) -> SessionRecord:
    """What was done, for the story; a naive balancer estimates and observes nothing."""
    ours, theirs = going.ours, going.theirs
    names = {Index.INPUT: "input", Index.MATCH: "matching", Index.OUTPUT: "output"}
    columns = {
        f"{side}_{when}_{index}": None if when == "observed" else getattr(load, index)
        for side, load in (("initiator", ours), ("acceptor", theirs))
        for when in ("before", "estimated", "observed")
        for index in ("input_utilization_ratio", "matching_delay_s", "output_utilization_ratio")
    }
    return msgspec.convert(
        {
            "session": going.session,
            "kind": "local" if ours.cluster == theirs.cluster else "global",
            "index": names[going.plan.action],
            "begin_s": going.begin_s,
            "end_s": now_s,
            "initiator": broker,
            "acceptor": going.plan.to_broker,
            "reason": "a random broker that is less loaded",
            "outcome": "done",
            "subscribers_moved_count": going.moved_count,
            "candidates_json": "[]",
            "offload_json": msgspec.json.encode({"moves": [{"client": name} for name in going.plan.clients]}).decode(),
            **columns,
        },
        SessionRecord,
    )


class NaiveHead(WithoutSamples):
    """What a cluster-head does: it sends subscribers that came to it to one of its edge-brokers, at random."""

    def __init__(self, host: AgentHost, cluster: str, config: PadresConfig, rng: Random, now_s: float) -> None:
        self.cluster = cluster
        self._host = host
        self._rng = rng
        self._edges: dict[str, None] = {}

    def begin(self) -> list[AgentAction]:
        """Listen to the load of the cluster, which tells who its edge-brokers are."""
        return [Listen(_KEY, Filter.where({"class": LOCAL_PIE, "clusterID": self.cluster}))]

    def end(self) -> list[AgentAction]:
        """The broker's role changes: listen no more."""
        return [Unlisten(_KEY)]

    def wake_at_s(self) -> None:
        """There is nothing to do at any time."""
        return None

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values):
                load = broker_load_from_values(values)
                if load.cluster != self.cluster:  # asked for in a former role
                    return []
                first = not self._edges
                self._edges[load.broker] = None
                return self._send_on(self._host.clients()) if first else []
            case ClientSubscribed(client=client):
                return self._send_on([client])
            case _:
                return []

    def _send_on(self, clients: Sequence[str]) -> list[AgentAction]:
        edges = list(self._edges)
        return [MoveClient(each, self._rng.choice(edges), f"{self._host.name}/redirect") for each in clients if edges]


def agent_of(config: PadresConfig, place: AgentPlace) -> PadresAgent:
    """The agent of one broker."""
    return PadresAgent(config, place.rng("naive"), name="naive", edge=NaiveEdge, head=NaiveHead)
