"""A cluster-head's part in subscriber balancing: it tells its cluster's load, and lets two clusters balance.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), sections 3.2,
3.3.1.2, 3.3.2.2 and 3.4.3.

Subscribers that came to a head are sent to an edge-broker of its cluster that is not overloaded, at random (3.2). A
head without edge-brokers sends them to the nearest cluster, and passes on what clusters tell of their load, as it is
itself no cluster that could balance.

Deviations:
- Load of another cluster is passed on by an unavailable cluster once per period, so that two unavailable clusters do
  not send it to and fro for ever.
- A cluster that a neighbour has left because it could not relieve an overloaded broker there passes load on and starts
  sessions as an unavailable one does, for the time that load is believed. Its brokers are full, but by estimates that
  keep them just below the lower threshold, so that they need not be unavailable by their own measure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import msgspec

from trimtab.language import Filter, Value
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentReport,
    ClientSubscribed,
    Heard,
    Listen,
    MoveClient,
    NeighboursChanged,
    Note,
    Tell,
    Unlisten,
    WithoutSamples,
    Woken,
)
from trimtab.policies.padres.account import Account, counted
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import Status
from trimtab.policies.padres.detection_global import GlobalTrigger, cluster_load, cluster_status, detect_global
from trimtab.policies.padres.mediation_events import ControlReceived, Send, StatusChanged, Wake
from trimtab.policies.padres.mediation_global import (
    ClusterDetected,
    DetectNow,
    GlobalAction,
    GlobalEvent,
    GlobalMediator,
    GlobalPhase,
    GlobalSessionEnded,
    GlobalTriggered,
    LoadTold,
    MemberGone,
    Saturated,
    StopListening,
)
from trimtab.policies.padres.mediation_global import Listen as ListenToCluster
from trimtab.policies.padres.messages import (
    LB_CONTROL,
    control_filter,
    control_from_values,
    control_to_values,
    life_of,
)
from trimtab.policies.padres.sessions import ClusterSessionBook
from trimtab.policies.padres.snapshot import (
    GLOBAL_PIE,
    LOCAL_PIE,
    BrokerLoad,
    ClusterLoad,
    KnownBroker,
    KnownCluster,
    broker_load_from_values,
    cluster_load_from_values,
    cluster_load_to_values,
    has_news,
    may_pass_on,
    still_believed,
    with_broker,
    with_cluster,
)


class HeadPart(WithoutSamples):
    """What a cluster-head does."""

    def __init__(self, host: AgentHost, config: PadresConfig, rng: Random, now_s: float) -> None:
        self.cluster = host.name
        self.mediator = GlobalMediator(host.name, host.name, config, life_of(now_s))
        self.known: dict[str, KnownBroker] = {}
        self.known_clusters: dict[str, KnownCluster] = {}
        self.account = Account()
        self._host = host
        self._config = config
        self._rng = rng
        self._book = ClusterSessionBook(host.name)
        self._told: ClusterLoad | None = None
        self._told_s = now_s
        self._passed_on_s: dict[str, float] = {}
        self._passed_over_until_s: dict[str, float] = {}
        """Clusters that could not help an overloaded broker of ours, and until when others are asked instead."""
        self._saturated_until_s = now_s
        """Until when this cluster, unable to help another one, lets that one see past it."""
        self._heads: tuple[str, ...] = ()
        self._redirects_count = 0
        self._began_s = now_s
        self._next_pie_s = now_s + rng.uniform(0.0, config.global_pie_period_s)
        self._next_detection_s = now_s + self._detection_interval_s()

    def begin(self) -> list[AgentAction]:
        """Listen to the cluster's load, to neighbouring clusters, and to what is said to this broker."""
        self._heads = tuple(self._host.neighbours())
        return [
            Listen("control", control_filter(self._host.name)),
            self._listen_to(self.cluster),
            *(self._listen_to_head(name) for name in self._heads),
        ]

    def end(self) -> list[AgentAction]:
        """The broker's role changes: listen no more."""
        clusters = [self.cluster]
        if self.mediator.phase == GlobalPhase.BALANCING:
            clusters.append(self.mediator.partner_cluster)
        return [
            Unlisten("control"),
            *(Unlisten(f"load of {name}") for name in clusters),
            *(Unlisten(f"clusters through {name}") for name in self._heads),
        ]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        mediator_s = self.mediator.wake_at_s()
        own_s = min(self._next_pie_s, self._next_detection_s)
        return own_s if mediator_s is None else min(own_s, mediator_s)

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values):
                return self._heard(values, now_s)
            case Woken():
                return self._woken(now_s)
            case ClientSubscribed(client=client):
                return self._send_to_edge([client], now_s)
            case NeighboursChanged():
                return self._follow_neighbours()
            case _:
                return []

    # ---- subscribers that came to the head ----

    def _edges(self) -> list[BrokerLoad]:
        return [
            entry.load
            for name, entry in sorted(self.known.items())
            if entry.load.cluster == self.cluster and name != self._host.name
        ]

    def _send_to_edge(self, clients: Sequence[str], now_s: float) -> list[AgentAction]:
        edges = self._edges()
        available = [load.broker for load in edges if load.status != Status.NOT_AVAILABLE]
        targets = available or [load.broker for load in edges] or self._towards_nearest_cluster(now_s)
        actions: list[AgentAction] = []
        for client in clients if targets else ():
            self._redirects_count += 1
            target = self._rng.choice(targets)
            actions.append(MoveClient(client, target, f"{self._host.name}/redirect/{self._redirects_count}"))
        if actions:
            sent = counted(self._redirects_count, "subscriber")
            self.account.decide(f"sent {sent} on to edge-brokers so far, the last one to {target}", now_s)
        return actions

    def _has_no_edges(self, now_s: float) -> bool:
        """Whether all neighbours are heads: by now every edge-broker would have told its load."""
        return not self._edges() and now_s - self._began_s >= self._config.local_pie_lifetime_s

    def _towards_nearest_cluster(self, now_s: float) -> list[str]:
        """For a head without edge-brokers: the head next to it by which subscribers come to the nearest cluster."""
        if not self._has_no_edges(now_s):
            return []
        loads = [entry.load for _, entry in sorted(self.known_clusters.items())]
        next_to_us = [load.head for load in loads if load.sent_by == load.head]
        return (next_to_us or [load.sent_by for load in loads])[:1]

    def report(self) -> AgentReport:
        """What is done at present, and what was decided last."""
        ours = self._cluster_load()
        partner = self.mediator.partner_cluster
        return AgentReport(
            role="cluster-head",
            status=ours.status.value if ours is not None else Status.OK.value,
            doing=f"balancing with the cluster of {partner}"
            if self.mediator.phase == GlobalPhase.BALANCING
            else f"looking after {counted(len(self._edges()), 'edge-broker')}",
            decision=self.account.decision,
            decided_s=self.account.decided_s,
        )

    # ---- load information ----

    def _heard(self, values: Mapping[str, Value], now_s: float) -> list[AgentAction]:
        match values.get("class"):
            case kind if kind == LOCAL_PIE:
                load = broker_load_from_values(values)
                self.known = with_broker(self.known, load, now_s)
                seen = self._mediate(self._seen_now(), now_s) if self.mediator.phase == GlobalPhase.BALANCING else []
                return [*seen, *self._mediate(LoadTold(load), now_s)]
            case kind if kind == GLOBAL_PIE:
                return self._heard_of_cluster(cluster_load_from_values(values), now_s)
            case kind if kind == LB_CONTROL:
                return self._mediate(ControlReceived(control_from_values(values)), now_s)
            case _:
                return []

    def _heard_of_cluster(self, load: ClusterLoad, now_s: float) -> list[AgentAction]:
        if load.cluster == self.cluster:
            return []
        self.known_clusters = with_cluster(self.known_clusters, load, now_s)
        if load.status == Status.OK:
            self._next_detection_s = min(self._next_detection_s, now_s)
        ours = self._cluster_load()
        passed_on_s = self._passed_on_s.get(load.cluster)
        is_due = passed_on_s is None or now_s - passed_on_s >= self._config.global_pie_period_s / 2
        saturated = now_s < self._saturated_until_s
        if ours is None:
            return [self._pass_on(load, now_s)] if is_due and self._has_no_edges(now_s) else []
        if not is_due or not may_pass_on(ours.status, load, self.cluster, saturated=saturated):
            return []
        return [self._pass_on(load, now_s)]

    def _pass_on(self, load: ClusterLoad, now_s: float) -> Tell:
        self._passed_on_s[load.cluster] = now_s
        return Tell(cluster_load_to_values(msgspec.structs.replace(load, sent_by=self._host.name)))

    def _listen_to(self, cluster: str) -> Listen:
        return Listen(f"load of {cluster}", Filter.where({"class": LOCAL_PIE, "clusterID": cluster}))

    def _listen_to_head(self, name: str) -> Listen:
        return Listen(f"clusters through {name}", Filter.where({"class": GLOBAL_PIE, "sentBy": name}))

    def _follow_neighbours(self) -> list[AgentAction]:
        neighbours = tuple(self._host.neighbours())
        gone = [name for name in self._heads if name not in neighbours]
        new = [name for name in neighbours if name not in self._heads]
        self._heads = neighbours
        return [
            *(Unlisten(f"clusters through {name}") for name in gone),
            *(self._listen_to_head(name) for name in new),
        ]

    def _cluster_load(self) -> ClusterLoad | None:
        in_session = self.mediator.phase == GlobalPhase.BALANCING
        return cluster_load(self.cluster, self._host.name, in_session, self._edges(), self._config)

    def _tell_load(self, now_s: float, *, always: bool = False) -> list[AgentAction]:
        load = self._cluster_load()
        period_s = self._config.global_pie_period_s
        if load is None:
            return []
        if not always and not has_news(load, self._told, now_s - self._told_s, period_s, self._config):
            return []
        self._told, self._told_s = load, now_s
        return [Tell(cluster_load_to_values(load))]

    # ---- detection and sessions ----

    def _woken(self, now_s: float) -> list[AgentAction]:
        actions = self._mediate(Wake(), now_s)
        if now_s >= self._next_detection_s:
            actions += self._detect(now_s)
            actions += self._send_to_edge(self._host.clients(), now_s)
        if now_s >= self._next_pie_s:
            self._next_pie_s = now_s + self._config.global_pie_period_s
            actions += self._tell_load(now_s)
        return actions

    def _detection_interval_s(self) -> float:
        return self._rng.uniform(
            self._config.global_detection_min_interval_s, self._config.global_detection_max_interval_s
        )

    def _detect(self, now_s: float, *, called_for_help: bool = False) -> list[AgentAction]:
        self._next_detection_s = now_s + self._detection_interval_s()
        actions: list[AgentAction] = []
        believed = still_believed(self.known, now_s, self._config.local_pie_lifetime_s)
        for name in [name for name in self.known if name not in believed]:
            actions += self._mediate(MemberGone(name), now_s)
        self.known = believed
        self.known_clusters = still_believed(self.known_clusters, now_s, self._config.global_pie_lifetime_s)
        ours = self._cluster_load()
        if ours is None:
            return actions
        actions += self._mediate(self._seen_now(), now_s)
        others = {
            name: each
            for name, each in self.known_clusters.items()
            if now_s >= self._passed_over_until_s.get(name, 0.0)
        }
        found = detect_global(
            ours, others, self._config, called_for_help=called_for_help, saturated=now_s < self._saturated_until_s
        )
        if isinstance(found, GlobalTrigger):
            self._book.triggered(found, ours)
            heads = tuple(self.known_clusters[cluster].load.head for cluster in found.ask)
            actions += self._mediate(GlobalTriggered(heads), now_s)
        return actions

    def _seen_now(self) -> ClusterDetected:
        """How the cluster is apart from any session with another one."""
        edges = self._edges()
        return ClusterDetected(cluster_status(False, edges, self._config), tuple(load.broker for load in edges))

    def _mediate(self, event: GlobalEvent, now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        for each in self.mediator.handle(event, now_s):
            actions += self._global_action(each, now_s)
        return actions

    def _global_action(self, action: GlobalAction, now_s: float) -> list[AgentAction]:
        match action:
            case Send(to=to, message=message):
                return [Tell(control_to_values(message, to), cause=message.session)]
            case StatusChanged():
                return self._tell_load(now_s, always=True)
            case ListenToCluster(cluster=cluster):
                self._book.began(self.mediator.session, cluster, self.known_clusters, now_s)
                return [self._listen_to(cluster)]
            case StopListening(cluster=cluster):
                self.known = {name: known for name, known in self.known.items() if known.load.cluster != cluster}
                return [Unlisten(f"load of {cluster}")]
            case DetectNow(instead_of=cluster):
                if cluster:
                    self._passed_over_until_s[cluster] = now_s + self._config.global_pie_lifetime_s
                return self._detect(now_s, called_for_help=True)
            case Saturated():
                self._saturated_until_s = now_s + self._config.global_pie_lifetime_s
                return [self._pass_on(each.load, now_s) for _, each in sorted(self.known_clusters.items())]
            case GlobalSessionEnded(session=session, reason=reason):
                records = self._book.ended(session, reason, self._cluster_load(), self.known_clusters, now_s)
                return [Note(record) for record in records]
