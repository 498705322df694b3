"""A cluster-head's part (HMA): it allocates new subscribers to edge-brokers and coordinates load-balancing phases.

Source: R. Tao, S. Poslad, J. Bigham (2013), sections III.B, IV.A and IV.D.

Subscribers that come to the head wait a moment while publications are sampled, and are sent on in bundles. A phase is
asked for by an overloaded edge; the head asks the candidates, passes their answers on, has the clients of the plan
moved, counts them, and tells all involved when it is over. One phase at a time in a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimtab.language import Filter, Value
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentReport,
    AskRoundTrips,
    ClientStayed,
    ClientSubscribed,
    Heard,
    Listen,
    MoveClient,
    RoundTripsTold,
    Tell,
    Unlisten,
    Woken,
)
from trimtab.policies.delay.allocation import Allocation, EdgeView, Interest, Seen, allocate, interest_of
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.messages import (
    PUBLISHERS_MAX_COUNT,
    Answer,
    Ask,
    Begin,
    Candidates,
    Content,
    Done,
    EdgeLoad,
    Go,
    HeadLoad,
    Moved,
    OffloadList,
    Ping,
    Pong,
    PublisherWay,
    Refusal,
    Request,
    cluster_address,
    filter_for,
    from_values,
    to_values,
)
from trimtab.policies.delay.metrics import HeadMetrics, head_state, link_ratio
from trimtab.policies.delay.publishers import PublisherOffload
from trimtab.policies.delay.thresholds import one_way_s
from trimtab.policies.padres.messages import life_of

LEDGER_S = 30.0
"""A subscriber that was allocated counts at its broker for so long by what it wants; then by what the broker tells."""


class Phase(msgspec.Struct):
    """A load-balancing phase under way."""

    id: str
    requester: str
    begin_s: float
    ends_at_s: float
    awaited: dict[str, None]
    """Candidates that have not answered."""
    loads: dict[str, EdgeLoad]
    clients: dict[str, str]
    """Clients that are to move and have not been told of, with their targets."""
    involved: dict[str, None]
    are_candidates_told: bool = False


class Sampling:
    """Publications that a head looks at."""

    def __init__(self, config: DelayConfig, now_s: float) -> None:
        self._config = config
        self.begin_s = now_s
        self.ends_at_s = now_s + config.sample_timeout_s
        self.seen: list[Seen] = []

    def is_over(self, now_s: float) -> bool:
        """Whether enough was seen, or the time has passed."""
        return len(self.seen) >= self._config.sample_count or now_s >= self.ends_at_s


class DelayHead:
    """What a cluster-head does."""

    def __init__(self, host: AgentHost, config: DelayConfig, now_s: float) -> None:
        self.cluster = host.name
        self.edges: dict[str, tuple[EdgeLoad, float]] = {}
        self.phase: Phase | None = None
        self._host = host
        self._config = config
        self._life = life_of(now_s)
        self._newcomers: dict[str, None] = {}
        self._ledger: dict[str, tuple[str, float]] = {}
        """Subscribers that were allocated or moved lately: where, and since when."""
        self._ledger_filters: dict[str, tuple[Filter, ...]] = {}
        self._allocations_count = 0
        self._sampling: Sampling | None = None
        self._allocates_at_s: float | None = None
        """When those who have come are allocated, if publications were sampled just before they came."""
        self._sample: tuple[list[Seen], float, float] = ([], 0.0, -1e9)
        """The last sample, how long it took, and when it ended."""
        self._publisher_round_trips_s: dict[str, float] = {}
        self._next_measure_s = now_s + config.tell_every_s
        self._remote_ways: dict[str, dict[str, PublisherWay]] = {}
        """By other head its publishers' ways, up to the arrival here."""
        self._pings_count = 0
        self._pinged_s = now_s
        self._decision = ""
        self._decided_s: float | None = None
        self._offload = PublisherOffload(host, config, now_s)

    @property
    def observes(self) -> bool:
        """Whether publications are sampled."""
        return self._sampling is not None or self._offload.observes

    def begin(self) -> list[AgentAction]:
        """Listen to the cluster and to what is said to this broker."""
        return [
            Listen("own", filter_for(self._host.name)),
            Listen("cluster", filter_for(cluster_address(self.cluster))),
            *self._offload.begin(),
        ]

    def end(self) -> list[AgentAction]:
        """The broker's role changes."""
        return [Unlisten("own"), Unlisten("cluster"), *self._offload.end()]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        times = [self._next_measure_s, self._offload.wake_at_s()]
        if self.phase is not None:
            times.append(self.phase.ends_at_s)
        if self._sampling is not None:
            times.append(self._sampling.ends_at_s)
        if self._allocates_at_s is not None:
            times.append(self._allocates_at_s)
        return min(times)

    def report(self) -> AgentReport:
        """What is done at present, and what was decided last."""
        doing = "coordinates its cluster"
        if self.phase is not None:
            doing = f"balances {self.phase.requester}: {len(self.phase.clients)} clients are on their way"
        return AgentReport(
            role="cluster-head", status="", doing=doing, decision=self._decision, decided_s=self._decided_s
        )

    def metrics(self, now_s: float) -> HeadMetrics:
        """Table I, of this moment."""
        load, downlink = self._host.load(now_s), self._host.capacity().receivable_bytes_per_s
        size_bytes = self._host.publication_bytes()
        return HeadMetrics(link_ratio(load.input_rate_per_s * size_bytes, downlink), load.output_utilization_ratio)

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values):
                received = from_values(values)
                return [] if received is None else self._heard(received.sender, received.content, now_s)
            case Woken():
                return self._woken(now_s)
            case ClientSubscribed(client=client):
                if client in self._host.clients():
                    self._newcomers[client] = None
                return self._look(now_s)
            case RoundTripsTold(client=client, round_trips_s=round_trips_s):
                if self._host.name in round_trips_s:
                    self._publisher_round_trips_s[client] = round_trips_s[self._host.name]
            case ClientStayed(client=client):
                self._ledger.pop(client, None)
            case _:
                pass
        return []

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """A publication was matched while a sample is taken."""
        self._offload.matched(publication[0], self._host.matched_bytes(), hops, self.edges)
        sampling = self._sampling
        if sampling is None:
            return []
        sampling.seen.append(Seen(dict(values), self._host.matched_bytes(), now_s))
        return self._sampled(sampling, now_s) if sampling.is_over(now_s) else []

    def _woken(self, now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        if self._sampling is not None and self._sampling.is_over(now_s):
            actions += self._sampled(self._sampling, now_s)
        if self._allocates_at_s is not None and now_s >= self._allocates_at_s:
            self._allocates_at_s = None
            actions += self._allocate(now_s)
        if self.phase is not None and now_s >= self.phase.ends_at_s:
            actions += self._phase_is_late(self.phase, now_s)
        actions += self._look_after_itself(now_s)
        if now_s >= self._next_measure_s:
            self._next_measure_s = now_s + self._config.measure_every_s
            name, publishers = self._host.name, self._host.publishers()
            known = self._publisher_round_trips_s
            self._publisher_round_trips_s = {client: known[client] for client in publishers if client in known}
            actions += [AskRoundTrips(client, (name,), f"{name}/ways") for client in publishers]
            self._pings_count += 1
            self._pinged_s = now_s
            heads = self._offload.other_heads(now_s)
            self._remote_ways = {head: ways for head, ways in self._remote_ways.items() if head in heads}
            actions += [self._say(head, Ping(number=self._pings_count)) for head in heads]
        return actions

    def _look_after_itself(self, now_s: float) -> list[AgentAction]:
        """Tell other heads the own load, and give publishers to them if it is too much."""
        before = self._offload.decision
        told = {name: load for name, (load, heard_s) in self.edges.items() if now_s - heard_s < self._config.believed_s}
        actions = self._offload.woken(self.metrics(now_s), told, now_s)
        if self._offload.decision != before:
            self._decision, self._decided_s = self._offload.decision, now_s
        return actions

    def _say(self, to: str, content: Content, cause: str = "") -> Tell:
        return Tell(to_values(content, self._host.name, to), cause=cause)

    # ---- allocation ----

    def _look(self, now_s: float) -> list[AgentAction]:
        """Sample publications for newcomers, unless that was done just now or nobody knows where they could go."""
        if not self._newcomers or not self.edges or self._sampling is not None or self._allocates_at_s is not None:
            return []
        if now_s - self._sample[2] < self._config.sample_lifetime_s:
            self._allocates_at_s = now_s + self._config.gather_s
        else:
            self._sampling = Sampling(self._config, now_s)
        return []

    def _sampled(self, sampling: Sampling, now_s: float) -> list[AgentAction]:
        self._sampling = None
        self._sample = (sampling.seen, now_s - sampling.begin_s, now_s)
        return self._allocate(now_s)

    def _allocate(self, now_s: float) -> list[AgentAction]:
        sample, duration_s, _ = self._sample
        bundles: dict[frozenset[Filter], list[str]] = {}
        for client in self._newcomers:
            filters = self._host.filters_of(client)
            if filters:
                bundles.setdefault(frozenset(filters), []).append(client)
        self._newcomers = {}
        actions: list[AgentAction] = []
        for clients in bundles.values():
            wants = tuple(self._host.filters_of(clients[0]))
            wanted = interest_of(wants, sample, duration_s)
            views = self._views(sample, duration_s, now_s)
            allocation = allocate(wanted, len(clients), len(clients) * len(wants), views, sample, self._config)
            if allocation is not None:
                actions += self._send_on(clients, wants, allocation, now_s)
        return actions

    def _send_on(
        self, clients: Sequence[str], filters: tuple[Filter, ...], allocation: Allocation, now_s: float
    ) -> list[AgentAction]:
        self._allocations_count += 1
        self._decision = f"{len(clients)} subscribers of {filters[0]} to {allocation.broker}: {allocation.reason}"
        self._decided_s = now_s
        cause = f"{self._host.name}/{self._life}/allocation{self._allocations_count}"
        for client in clients:
            self._ledger[client] = (allocation.broker, now_s)
            self._ledger_filters[client] = filters
        return [MoveClient(client, allocation.broker, cause) for client in clients]

    def _views(self, sample: Sequence[Seen], duration_s: float, now_s: float) -> list[EdgeView]:
        """The edge-brokers with what they told and what was sent to them since."""
        self._ledger = {
            client: (edge, since_s) for client, (edge, since_s) in self._ledger.items() if now_s - since_s < LEDGER_S
        }
        self._ledger_filters = {client: self._ledger_filters[client] for client in self._ledger}
        interests: dict[tuple[Filter, ...], Interest] = {}
        views: list[EdgeView] = []
        for name, (load, heard_s) in self.edges.items():
            if now_s - heard_s >= self._config.believed_s:
                continue
            booked_bytes_per_s, booked_filters = 0.0, dict.fromkeys(load.filters)
            for client, (edge, _) in self._ledger.items():
                if edge == name:
                    filters = self._ledger_filters[client]
                    if filters not in interests:
                        interests[filters] = interest_of(filters, sample, duration_s)
                    booked_bytes_per_s += interests[filters].bytes_per_s
                    booked_filters.update(dict.fromkeys(filters))
            bandwidth = load.capacity.bandwidth_bytes_per_s
            received = interest_of(tuple(booked_filters), sample, duration_s)
            metrics = msgspec.structs.replace(
                load.metrics,
                uplink_ratio=max(load.metrics.uplink_ratio, booked_bytes_per_s / bandwidth),
                downlink_ratio=max(
                    load.metrics.downlink_ratio, received.bytes_per_s / load.capacity.receivable_bytes_per_s
                ),
            )
            views.append(
                EdgeView(
                    name=name,
                    metrics=metrics,
                    state=load.state,
                    capacity=load.capacity,
                    matching_delay_s=load.matching_delay_s,
                    input_rate_per_s=max(load.input_rate_per_s, received.rate_per_s),
                    wanted=received,
                )
            )
        return views

    # ---- phases ----

    def _heard(self, sender: str, content: Content, now_s: float) -> list[AgentAction]:
        phase = self.phase
        match content:
            case EdgeLoad():
                is_first = not self.edges
                self.edges[sender] = (content, now_s)
                if is_first:
                    self._newcomers.update(dict.fromkeys(self._host.clients()))
                return self._look(now_s)
            case HeadLoad():
                self._offload.heard(sender, content, now_s)
                return []
            case Ping(number=number):
                return [self._say(sender, self._pong(number, now_s, is_edge=sender in self.edges))]
            case Pong(number=number) if number == self._pings_count:
                head_head_s = one_way_s(now_s - self._pinged_s)
                self._remote_ways[sender] = {
                    publisher: PublisherWay(way.links_s + head_head_s, way.heads_s)
                    for publisher, way in content.ways.items()
                }
                return []
            case Request(phase=id, candidates=candidates):
                return self._begin_phase(id, sender, candidates, now_s)
            case Answer(phase=id, load=load) if phase is not None and phase.id == id:
                phase.awaited.pop(sender, None)
                if not load.is_busy:
                    phase.loads[sender] = load
                return [] if phase.awaited else self._tell_candidates(phase)
            case OffloadList(phase=id, selected=selected) if phase is not None and phase.id == id:
                if not selected:
                    self.phase = None
                    return []
                phase.clients = {client: each.to_broker for each in selected for client in each.clients}
                phase.involved.update(dict.fromkeys(each.to_broker for each in selected))
                phase.ends_at_s = now_s + self._config.migration_timeout_s
                begins = [self._say(each, Begin(phase=id), id) for each in phase.involved if each != sender]
                return [*begins, self._say(sender, Go(phase=id, selected=selected), id)]
            case Moved(phase=id, client=client, reason=reason) if phase is not None and phase.id == id:
                target = phase.clients.pop(client, None)
                if target is not None and not reason and client in self._ledger:
                    self._ledger[client] = (target, now_s)
                return [] if phase.clients else self._end_phase(phase, now_s)
            case _:  # late, repeated, or for edges
                return []

    def _pong(self, number: int, now_s: float, *, is_edge: bool) -> Pong:
        """What this head knows of the ways before it: of its own publishers, and for edges of those of other clusters,
        whose publications pass through this head too (t_remote-h)."""
        load = self._host.load(now_s)
        head_s = load.matching_delay_s + load.input_queue_delay_s + load.output_queue_delay_s
        round_trips_s = self._publisher_round_trips_s
        ways = {name: PublisherWay(one_way_s(trip_s), head_s) for name, trip_s in round_trips_s.items()}
        if is_edge:
            for remote in self._remote_ways.values():
                for name, way in remote.items():
                    ways.setdefault(name, PublisherWay(way.links_s, way.heads_s + head_s))
        return Pong(
            number=number,
            publisher_head_s=one_way_s(max(round_trips_s.values(), default=0.0)),
            ways=dict(list(ways.items())[:PUBLISHERS_MAX_COUNT]),
            head_s=head_s,
            local_publishers=tuple(self._host.publishers()),
            has_other_clusters=self._offload.knows_others,
        )

    def _begin_phase(self, id: str, requester: str, candidates: Sequence[str], now_s: float) -> list[AgentAction]:
        known = [name for name in candidates if name in self.edges and name != requester]
        elsewhere = {} if candidates else self._offload.free_edges(now_s)
        reason = "" if known or elsewhere else "the head knows none of the candidates"
        if not candidates and not elsewhere:
            reason = "no other cluster has a broker in a low load state"
        if self.phase is not None:
            reason = f"{self.phase.requester} is being balanced"
        if reason:
            return [self._say(requester, Refusal(phase=id, reason=reason), id)]
        until_s = now_s + self._config.reply_timeout_s / 2
        self.phase = Phase(id, requester, now_s, until_s, dict.fromkeys(known), elsewhere, {}, {requester: None})
        if elsewhere:
            return self._tell_candidates(self.phase)
        return [self._say(name, Ask(phase=id), id) for name in known]

    def _tell_candidates(self, phase: Phase) -> list[AgentAction]:
        phase.are_candidates_told = True
        phase.ends_at_s += self._config.reply_timeout_s + self._config.sample_timeout_s
        return [self._say(phase.requester, Candidates(phase=phase.id, loads=phase.loads), phase.id)]

    def _phase_is_late(self, phase: Phase, now_s: float) -> list[AgentAction]:
        """Go on with those who answered, or end a phase whose clients do not answer."""
        if not phase.are_candidates_told:
            return self._tell_candidates(phase)
        return self._end_phase(phase, now_s)

    def _end_phase(self, phase: Phase, now_s: float) -> list[AgentAction]:
        self.phase = None
        self._decision = f"{phase.requester} was balanced within {now_s - phase.begin_s:.1f} s"
        self._decided_s = now_s
        done = Done(phase=phase.id, took_s=now_s - phase.begin_s)
        return [self._say(name, done, phase.id) for name in phase.involved]

    def state(self, now_s: float) -> str:
        """The head's own load state (Table III)."""
        return head_state(self.metrics(now_s), self._config).value
