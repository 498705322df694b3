"""An edge-broker's part (EMA): it detects overload, plans which subscribers to give away, and has them move.

Source: R. Tao, S. Poslad, J. Bigham (2013), sections III.B and IV.B to IV.D.

    readings -> overload -> request to the head -> candidates' metrics and a sample -> plan -> head -> clients move

One phase at a time; late and repeated messages of other phases are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimtab.language import Filter, Value
from trimtab.load.profiles import Sample, Sampler, union
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentReport,
    AskRoundTrips,
    ClientLeft,
    ClientStayed,
    Heard,
    Listen,
    MoveClient,
    Note,
    RoundTripsTold,
    Tell,
    Unlisten,
    Woken,
)
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.messages import (
    FILTERS_MAX_COUNT,
    Answer,
    Ask,
    Begin,
    Candidates,
    Content,
    Done,
    EdgeLoad,
    Go,
    Moved,
    OffloadList,
    Ping,
    Pong,
    Refusal,
    Request,
    cluster_address,
    filter_for,
    from_values,
    to_values,
)
from trimtab.policies.delay.metrics import EdgeMetrics, Metric, State, edge_overload, edge_state, link_ratio
from trimtab.policies.delay.phase_records import PhaseNotes
from trimtab.policies.delay.priorities import Bundle, grouped, reach_of
from trimtab.policies.delay.queues import Queues, Ways
from trimtab.policies.delay.selection import Candidate, NoPlan, Offering, OffloadPlan, plan_offload
from trimtab.policies.delay.thresholds import expected_balancing_s, one_way_s
from trimtab.policies.padres.messages import life_of


class Phase:
    """A load-balancing phase of an overloaded broker."""

    def __init__(self, id: str, metric: Metric, reason: str, config: DelayConfig, now_s: float) -> None:
        self.id = id
        self.metric = metric
        self.reason = reason
        self.begin_s = now_s
        self.sampler = Sampler(config.sample_count, config.sample_timeout_s, now_s)
        self.samples = True
        """Whether publications are still sampled."""
        self.values: list[Mapping[str, Value]] = []
        self.loads: dict[str, EdgeLoad] | None = None
        self.plan: OffloadPlan | None = None
        self.ends_at_s = now_s + config.reply_timeout_s + config.sample_timeout_s
        """When it is given up if nobody answers."""
        self.is_moving = False


class DelayEdge:
    """What an edge-broker does."""

    def __init__(self, host: AgentHost, cluster: str, config: DelayConfig, now_s: float) -> None:
        self.cluster = cluster
        self.phase: Phase | None = None
        self.known: dict[str, tuple[EdgeLoad, float]] = {}
        self.queues = Queues(host, config)
        self.ways = Ways()
        self._host = host
        self._config = config
        self._life = life_of(now_s)
        self._phases_count = 0
        self._accepting: dict[str, float] = {}
        """Phases of others that this broker accepts clients in, with the time until which that is believed."""
        self._settles_until_s = 0.0
        self._balancing_s: float | None = None
        """What balancing took on average (t_LB); None before the first time."""
        self._message_bytes: float | None = None
        self._local_publishers: frozenset[str] = frozenset()
        self._has_other_clusters = False
        self._local_was_not_enough = False
        """Whether the last plan found no room in this cluster: then other clusters are asked."""
        self._metrics = EdgeMetrics(0.0, 0.0, 0.0)
        self._load = host.load(now_s)
        self._pinged_s = now_s
        self._pings_count = 0
        self._next_read_s = now_s + config.read_every_s
        self._next_tell_s = now_s
        self._next_measure_s = now_s
        self._learnt: set[tuple[str, str]] = set()
        """Publishers and clients of whom nothing more is to be learnt until the next measurement."""
        self._notes = PhaseNotes(host.name)
        self._doing, self._decision = "measures its load", ""
        self._decided_s: float | None = None

    @property
    def observes(self) -> bool:
        """Always: who publishes what each filter wants is seen from what is matched."""
        return True

    def begin(self) -> list[AgentAction]:
        """Listen to the cluster and to what is said to this broker."""
        return [
            Listen("own", filter_for(self._host.name)),
            Listen("cluster", filter_for(cluster_address(self.cluster))),
        ]

    def end(self) -> list[AgentAction]:
        """The broker's role changes."""
        return [Unlisten("own"), Unlisten("cluster")]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        times = [self._next_read_s, self._next_tell_s, self._next_measure_s]
        if self.phase is not None:
            times.append(self.phase.ends_at_s)
            if self.phase.samples:
                times.append(self.phase.sampler.ends_at_s)
        return min(times)

    def report(self) -> AgentReport:
        """What is done at present, and what was decided last."""
        return AgentReport(
            role=f"edge-broker of {self.cluster}",
            status=edge_state(self._metrics, self._config).value,
            doing=self._doing,
            decision=self._decision,
            decided_s=self._decided_s,
        )

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values):
                received = from_values(values)
                return [] if received is None else self._heard(received.sender, received.content, now_s)
            case Woken():
                return self._woken(now_s)
            case RoundTripsTold(client=client, round_trips_s=round_trips_s):
                if self._host.name in round_trips_s:
                    self.ways.subscriber_round_trips_s[client] = round_trips_s[self._host.name]
                return []
            case ClientLeft(client=client, cause=cause) if self.phase is not None and cause == self.phase.id:
                self._balancing_took(now_s - self.phase.begin_s)
                return [self._say(self.cluster, Moved(phase=cause, client=client))]
            case ClientStayed(client=client, cause=cause, reason=reason) if self._is_phase(cause):
                return [self._say(self.cluster, Moved(phase=cause, client=client, reason=reason))]
            case _:
                return []

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """A publication was matched; some are sampled."""
        self._learn(publication[0], values, hops)
        phase = self.phase
        if phase is None or not phase.samples:
            return []
        neighbours = self._host.neighbours()
        clients = [hop for hop in hops if hop not in neighbours]
        size_bytes = round(self._host.matched_bytes())
        phase.sampler.saw(publication, size_bytes, clients, fixed=len(clients) < len(hops))
        if phase.sampler.seen_count > len(phase.values):
            phase.values.append(values)
        return self._sampled(phase, now_s) if phase.sampler.is_over(now_s) else []

    def _learn(self, publisher: str, values: Mapping[str, Value], hops: Sequence[str]) -> None:
        """Note which filters with a requirement this publisher's publications satisfy."""
        for hop in hops:
            if (publisher, hop) in self._learnt:
                continue
            filters = self._host.filters_of(hop)
            for filter in filters:
                if filter.matches(values):
                    self.ways.heard(filter, publisher)
            heard = self.ways.heard_by_filter
            if all(publisher in heard.get(filter, ()) for filter in filters):
                self._learnt.add((publisher, hop))

    def _sampled(self, phase: Phase, now_s: float) -> list[AgentAction]:
        phase.samples = False
        return self._plan_if_ready(phase, now_s)

    # ---- detection ----

    @property
    def balancing_s(self) -> float:
        """What balancing takes (t_LB): measured, or expected from the ways."""
        if self._balancing_s is not None:
            return self._balancing_s
        farthest_s = max(self.ways.subscriber_round_trips_s.values(), default=0.0)
        return expected_balancing_s(self.ways.head_edge_s, one_way_s(farthest_s), self._config.sample_timeout_s)

    def _balancing_took(self, took_s: float) -> None:
        before_s = self._balancing_s
        self._balancing_s = took_s if before_s is None else (before_s + took_s) / 2

    def _woken(self, now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        phase = self.phase
        if phase is not None and phase.samples and phase.sampler.is_over(now_s):
            actions += self._sampled(phase, now_s)
        if self.phase is not None and now_s >= self.phase.ends_at_s:
            actions += self._give_up(self.phase, "nobody answered in time", now_s)
        if now_s >= self._next_measure_s:
            self._next_measure_s = now_s + self._config.measure_every_s
            actions += self._measure(now_s)
        if now_s >= self._next_read_s:
            self._next_read_s = now_s + self._config.read_every_s
            actions += self._read(now_s)
        if now_s >= self._next_tell_s:
            self._next_tell_s = now_s + self._config.tell_every_s
            actions.append(self._say(cluster_address(self.cluster), self._edge_load()))
        return actions

    def _measure(self, now_s: float) -> list[AgentAction]:
        """Find out how long it takes to the head, and to the subscribers that have requirements."""
        name, host = self._host.name, self._host
        demanding = [client for client in host.clients() if any(host.requirements_of(client))]
        known = self.ways.subscriber_round_trips_s
        self.ways.subscriber_round_trips_s = {client: known[client] for client in demanding if client in known}
        self._learnt.clear()
        wanted = {filter for client in host.clients() for filter in host.filters_of(client)}
        heard = self.ways.heard_by_filter
        self.ways.heard_by_filter = {filter: heard[filter] for filter in heard if filter in wanted}
        self._pings_count += 1
        self._pinged_s = now_s
        asked: list[AgentAction] = [AskRoundTrips(client, (name,), f"{name}/ways") for client in demanding]
        return [self._say(self.cluster, Ping(number=self._pings_count)), *asked]

    def _read(self, now_s: float) -> list[AgentAction]:
        host, config = self._host, self._config
        load = self._load = host.load(now_s)
        message_bytes = self._message_bytes or host.publication_bytes()
        unmeasured = [
            client
            for client in host.clients()
            if client not in self.ways.subscriber_round_trips_s and any(host.requirements_of(client))
        ]
        if unmeasured:
            self._next_measure_s = min(self._next_measure_s, now_s + config.tell_every_s)
        self.queues.read(load, self.ways, self.balancing_s, message_bytes, now_s)
        overloaded = self.queues.overloaded()
        downlink = host.capacity().receivable_bytes_per_s
        self._metrics = EdgeMetrics(
            link_ratio(load.input_rate_per_s * message_bytes, downlink),
            load.input_utilization_ratio,
            load.output_utilization_ratio,
            len(overloaded),
        )
        metric = edge_overload(self._metrics, config)
        if metric is None:
            self._doing = f"{edge_state(self._metrics, config).value.lower()}: nothing is to be done"
            return []
        if self.phase is not None or self._is_accepting(now_s) or now_s < self._settles_until_s:
            return []
        return self._begin_phase(metric, overloaded, now_s)

    def _edge_load(self) -> EdgeLoad:
        load = self._load
        return EdgeLoad(
            metrics=self._metrics,
            state=edge_state(self._metrics, self._config),
            capacity=self._host.capacity(),
            matching_delay_s=load.matching_delay_s,
            input_rate_per_s=load.input_rate_per_s,
            is_busy=self.phase is not None or bool(self._accepting),
            filters=tuple(self._host.covering_filters()[:FILTERS_MAX_COUNT]),
        )

    def _is_accepting(self, now_s: float) -> bool:
        self._accepting = {phase: until_s for phase, until_s in self._accepting.items() if now_s < until_s}
        return bool(self._accepting)

    def _is_phase(self, id: str) -> bool:
        return self.phase is not None and self.phase.id == id

    def _say(self, to: str, content: Content) -> Tell:
        cause = self.phase.id if self.phase is not None else ""
        return Tell(to_values(content, self._host.name, to), cause=cause)

    # ---- a phase ----

    def _begin_phase(self, metric: Metric, overloaded: Sequence[str], now_s: float) -> list[AgentAction]:
        """Step 1: look for brokers with little load, and ask the head."""
        config = self._config
        self.known = {
            name: (load, heard_s) for name, (load, heard_s) in self.known.items() if now_s - heard_s < config.believed_s
        }
        candidates = [name for name, (load, _) in self.known.items() if load.state is State.LOW and not load.is_busy]
        queues = f", {len(overloaded)} queues too long" if overloaded else ""
        reason = f"overloaded in {metric.value}{queues}, uplink {self._metrics.uplink_ratio:.0%}"
        if self._has_other_clusters and (self._local_was_not_enough or not candidates):
            candidates = []
        elif not candidates:
            self._decide(f"{reason}; no broker of the cluster is in a low load state", now_s)
            self._settles_until_s = now_s + config.tell_every_s
            return []
        self._phases_count += 1
        id = f"{self._host.name}/{self._life}/delay{self._phases_count}"
        self.phase = Phase(id, metric, reason, config, now_s)
        self._notes.began(id, metric, reason, self._metrics, now_s, kind="local" if candidates else "global")
        self._local_was_not_enough = False
        self._decide(f"{reason}; asks {', '.join(candidates) or 'for brokers of other clusters'}", now_s)
        return [self._say(self.cluster, Request(phase=id, candidates=tuple(candidates)))]

    def _heard(self, sender: str, content: Content, now_s: float) -> list[AgentAction]:
        phase = self.phase
        match content:
            case EdgeLoad():
                if sender != self._host.name:
                    self.known[sender] = (content, now_s)
            case Pong(number=number) if number == self._pings_count:
                self.ways.head_edge_s = one_way_s(now_s - self._pinged_s)
                self.ways.publisher_head_s, self.ways.head_s = content.publisher_head_s, content.head_s
                self.ways.publishers = content.ways
                self._local_publishers = frozenset(content.local_publishers)
                self._has_other_clusters = content.has_other_clusters
            case Ask(phase=id):
                return [self._say(self.cluster, Answer(phase=id, load=self._edge_load()))]
            case Begin(phase=id):
                self._accepting[id] = now_s + self._config.migration_timeout_s
            case Candidates(phase=id, loads=loads) if phase is not None and phase.id == id:
                phase.loads = loads
                return self._plan_if_ready(phase, now_s)
            case Refusal(phase=id, reason=reason) if phase is not None and phase.id == id:
                return self._refused(phase, reason, now_s)
            case Go(phase=id, selected=selected) if phase is not None and phase.id == id:
                phase.is_moving = True
                phase.ends_at_s = now_s + 2 * self._config.migration_timeout_s
                return [MoveClient(client, each.to_broker, id) for each in selected for client in each.clients]
            case Done(phase=id):
                self._accepting.pop(id, None)
                if phase is not None and phase.id == id:
                    return self._end_phase(phase, "done", now_s)
            case _:  # late, repeated, or for heads
                pass
        return []

    def _plan_if_ready(self, phase: Phase, now_s: float) -> list[AgentAction]:
        """Step 2: choose clients, once the sample is taken and the candidates have answered."""
        if phase.samples or phase.loads is None or phase.plan is not None:
            return []
        host = self._host
        load = host.load(now_s)
        served = {client: tuple(host.filters_of(client)) for client in host.clients()}
        sample = phase.sampler.sample(served, now_s, load.input_rate_per_s)
        self._message_bytes = sample.mean_size_bytes or None
        plan = plan_offload(
            Offering(
                metrics=msgspec.structs.replace(self._metrics, uplink_ratio=load.output_utilization_ratio),
                metric=phase.metric,
                capacity=host.capacity(),
                input_rate_per_s=load.input_rate_per_s,
                matching_delay_s=load.matching_delay_s,
                waiting_bytes=load.output_queue_count * sample.mean_size_bytes,
            ),
            self._bundles(sample),
            [_candidate(name, told, phase.values) for name, told in phase.loads.items()],
            sample,
            self._config,
        )
        if isinstance(plan, NoPlan):
            self._local_was_not_enough = any(name in self.known for name in phase.loads)
            actions = [self._say(self.cluster, OffloadList(phase=phase.id, selected=()))]
            return [*actions, *self._give_up(phase, plan.reason, now_s)]
        phase.plan = plan
        phase.ends_at_s = now_s + self._config.reply_timeout_s
        told = ", ".join(f"{len(each.clients)} clients to {each.to_broker}" for each in plan.selected)
        self._decide(f"{phase.reason}; moves {told}", now_s)
        self._notes.planned(plan)
        return [self._say(self.cluster, OffloadList(phase=phase.id, selected=plan.selected))]

    def _bundles(self, sample: Sample) -> list[Bundle]:
        local = self._local_publishers
        bundles: list[Bundle] = []
        for group in grouped(sample.clients, self._config.bundle_ratio):
            clients = tuple(profile.client for profile in group)
            bits = union(profile.bits for profile in group)
            publishers = {sample.publications[place][0] for place in _places(bits)}
            bundles.append(
                Bundle(
                    clients=clients,
                    bits=bits,
                    output_bytes_per_s=sum(sample.bandwidth_bytes_per_s(profile.bits) for profile in group),
                    subscriptions_count=sum(len(profile.filters) for profile in group),
                    allowed_wait_s=self.queues.wait_s(clients),
                    reach=reach_of(has_local=bool(publishers & local), has_remote=bool(publishers - local)),
                    waiting=self.queues.waiting(clients),
                )
            )
        return bundles

    def _give_up(self, phase: Phase, reason: str, now_s: float) -> list[AgentAction]:
        self._decide_nothing(phase, reason, now_s)
        return self._end_phase(phase, reason, now_s)

    def _refused(self, phase: Phase, reason: str, now_s: float) -> list[AgentAction]:
        """Nothing has changed by asking: what is overloaded still is, and asks again with the next reading."""
        self._decide_nothing(phase, reason, now_s)
        self._settles_until_s = now_s
        return self._ended(phase, reason, now_s)

    def _end_phase(self, phase: Phase, outcome: str, now_s: float) -> list[AgentAction]:
        self.queues.forget()
        self._settles_until_s = now_s + self._config.settle_s
        return self._ended(phase, outcome, now_s)

    def _ended(self, phase: Phase, outcome: str, now_s: float) -> list[AgentAction]:
        self.phase = None
        record = self._notes.ended(phase.id, outcome, self._metrics, now_s)
        return [] if record is None else [Note(record)]

    def _decide_nothing(self, phase: Phase, reason: str, now_s: float) -> None:
        self._decide(f"{phase.reason}; nothing moved: {reason}", now_s)

    def _decide(self, decision: str, now_s: float) -> None:
        self._decision, self._decided_s = decision, now_s


def _candidate(name: str, load: EdgeLoad, values: Sequence[Mapping[str, Value]]) -> Candidate:
    received = 0
    for place, each in enumerate(values):
        if _any_matches(load.filters, each):
            received |= 1 << place
    return Candidate(
        name=name,
        metrics=load.metrics,
        capacity=load.capacity,
        input_rate_per_s=load.input_rate_per_s,
        matching_delay_s=load.matching_delay_s,
        received_bits=received,
    )


def _any_matches(filters: Sequence[Filter], values: Mapping[str, Value]) -> bool:
    return any(filter.matches(values) for filter in filters)


def _places(bits: int) -> list[int]:
    places: list[int] = []
    while bits:
        lowest = bits & -bits
        places.append(lowest.bit_length() - 1)
        bits ^= lowest
    return places
