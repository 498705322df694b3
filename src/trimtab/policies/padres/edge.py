"""An edge-broker's part in subscriber balancing: it tells its load, compares it with others', and exchanges clients.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), Figure 3.1.

    timer or others' load -> detection -> mediation -> sampling -> plan -> clients are asked to move

Each step is a pure function or a state machine in a file of its own; this one carries values from one to the next and
keeps the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import msgspec

from trimtab.language import Filter, Value
from trimtab.load.estimation import BrokerResources
from trimtab.load.indices import LoadIndices, smoothed_indices
from trimtab.load.profiles import Sampler
from trimtab.load.slope import SlopeMeter
from trimtab.matching import Matcher
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentReport,
    ClientCame,
    ClientLeft,
    ClientStayed,
    Heard,
    Listen,
    MoveClient,
    Note,
    Tell,
    TrafficTotals,
    Unlisten,
    Woken,
)
from trimtab.policies.padres.account import Account
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import NoAction, Status
from trimtab.policies.padres.detection import Detection, History, Trigger, detect_local, with_reading
from trimtab.policies.padres.empty_sessions import EmptySessions
from trimtab.policies.padres.measured_load import resources_of, sampled_load
from trimtab.policies.padres.mediation import Mediator
from trimtab.policies.padres.mediation_events import (
    CallHead,
    ClientMoved,
    ControlReceived,
    Detected,
    MediationAction,
    MediationEvent,
    NobodyAgreed,
    Planned,
    Refused,
    Send,
    SendOffer,
    SessionEnded,
    StartSampling,
    StatusChanged,
    StopSampling,
    Triggered,
    Wake,
)
from trimtab.policies.padres.mediation_events import ClientStayed as MediatedClientStayed
from trimtab.policies.padres.mediation_events import MoveClient as MediatedMove
from trimtab.policies.padres.messages import (
    LB_CONTROL,
    AnyControl,
    CallForHelp,
    ExchangeEnd,
    ExchangeStart,
    Offer,
    OffloadReply,
    control_filter,
    control_from_values,
    control_to_values,
    life_of,
)
from trimtab.policies.padres.offload import OffloadPlan
from trimtab.policies.padres.planning import plan_offload, without_leaving
from trimtab.policies.padres.sessions import SessionBook
from trimtab.policies.padres.snapshot import (
    LOCAL_PIE,
    BrokerLoad,
    KnownBroker,
    broker_load,
    broker_load_from_values,
    broker_load_to_values,
    has_news,
    still_believed,
    with_broker,
    without_cluster,
)


class Sampling(msgspec.Struct, frozen=True):
    """A sample under way: for which session, and what the accepting broker receives anyway."""

    request: StartSampling
    sampler: Sampler
    theirs: Matcher
    begun_s: float
    begun_with: TrafficTotals
    """What had come and gone when the sample began."""


class EdgePart:
    """What an edge-broker does."""

    def __init__(self, host: AgentHost, cluster: str, config: PadresConfig, rng: Random, now_s: float) -> None:
        self.cluster = cluster
        self.mediator = Mediator(host.name, config, life_of(now_s))
        self.known: dict[str, KnownBroker] = {}
        self.observes = False
        self._host = host
        self._config = config
        self._rng = rng
        self._book = SessionBook(host.name)
        self.account = Account()
        self._exchanges: dict[str, None] = {}
        self._leaving: dict[str, None] = {}
        """Clients that were asked to move and are still here, because what they have to get first takes its time."""
        self._told: BrokerLoad | None = None
        self._told_s = now_s
        self._history = History()
        self._fruitless = EmptySessions()
        self._slope = SlopeMeter(
            host.meter_window_s(), host.capacity().matching_s_per_subscription, config.slope_subscription_count
        )
        self._called_s: float | None = None
        self._is_relieved_soon = False
        """Whether the last plan found that the clients that are leaving are all that is too much."""
        self._smoothed: LoadIndices | None = None
        self._balanced: tuple[str, ...] = ()
        self._sampling: Sampling | None = None
        self.planned_load: LoadIndices | None = None
        """What the last plan began with."""
        self._next_pie_s = now_s + rng.uniform(0.0, config.local_pie_period_s)
        self._next_detection_s = now_s + self._detection_interval_s()

    def begin(self) -> list[AgentAction]:
        """Listen to the cluster's load and to what is said to this broker."""
        return [Listen("control", control_filter(self._host.name)), self._listen_to(self.cluster)]

    def end(self) -> list[AgentAction]:
        """The broker's role changes: listen no more."""
        return [Unlisten("control"), *(Unlisten(f"load of {name}") for name in (self.cluster, *self._exchanges))]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        times = [self._next_pie_s, self._next_detection_s]
        mediator_s = self.mediator.wake_at_s()
        if mediator_s is not None:
            times.append(mediator_s)
        if self._sampling is not None:
            times.append(self._sampling.sampler.ends_at_s)
        return min(times)

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        self._slope.saw(self._host.subscription_count(), now_s)
        match event:
            case Heard(values=values):
                return self._heard(values, now_s)
            case Woken():
                return self._woken(now_s)
            case ClientCame(client=client, cause=cause) | ClientLeft(client=client, cause=cause):
                self._leaving.pop(client, None)
                return self._mediate(ClientMoved(client, cause), now_s)
            case ClientStayed(client=client, cause=cause):
                self._leaving.pop(client, None)
                return self._mediate(MediatedClientStayed(client, cause), now_s)
            case _:
                return []

    def report(self) -> AgentReport:
        """What is done at present, and what was decided last."""
        account = self.account
        return AgentReport(
            role=f"edge-broker of {self.cluster}",
            status=self.mediator.status.value,
            doing=account.doing(self.mediator),
            decision=account.decision,
            decided_s=account.decided_s,
        )

    # ---- load information ----

    def _heard(self, values: Mapping[str, Value], now_s: float) -> list[AgentAction]:
        if values.get("class") == LOCAL_PIE:
            load = broker_load_from_values(values)
            if load.broker != self._host.name:
                self.known = with_broker(self.known, load, now_s)
                if load.status == Status.OK:
                    self._next_detection_s = now_s  # somebody is ready: look now instead of later
            return []
        if values.get("class") != LB_CONTROL:
            return []  # was on its way when this broker had another role
        message = control_from_values(values)
        match message:
            case ExchangeStart(cluster=cluster) if cluster not in self._exchanges and cluster != self.cluster:
                self._exchanges[cluster] = None
                return [self._listen_to(cluster), *self._tell_load(now_s, always=True)]
            case ExchangeEnd(cluster=cluster) if cluster in self._exchanges:
                del self._exchanges[cluster]
                self.known = without_cluster(self.known, cluster)
                return [Unlisten(f"load of {cluster}")]
            case ExchangeStart() | ExchangeEnd():  # said again
                return []
            case _:
                return self._mediate(ControlReceived(message), now_s)

    def _listen_to(self, cluster: str) -> Listen:
        return Listen(f"load of {cluster}", Filter.where({"class": LOCAL_PIE, "clusterID": cluster}))

    def _load(self, now_s: float) -> BrokerLoad:
        """The load as it is judged: smoothed readings (equation 3.4) with the present status."""
        return self._load_of(self._smoothed or self._indices(now_s))

    def _indices(self, now_s: float) -> LoadIndices:
        """The load of this moment.

        The matching delay of a broker to which nothing comes is that of the subscriptions that it has: the last one
        measured may be of clients that have left, and would keep others from giving it any.
        """
        load = self._host.load(now_s)
        if load.input_rate_per_s > 0:
            return load
        delay_s = self._resources(load, now_s).matching_delay_s
        return msgspec.structs.replace(load, matching_delay_s=delay_s)

    def _load_of(self, indices: LoadIndices) -> BrokerLoad:
        return broker_load(
            self._host.name,
            self.cluster,
            self.mediator.status,
            resources_of(self._host, indices),
            indices,
            client_count=len(self._host.clients()),
            balanced_with=self._balanced,
        )

    def _tell_load(self, now_s: float, *, always: bool = False) -> list[AgentAction]:
        current = smoothed_indices(self._indices(now_s), self._smoothed, self._config.smoothing_alpha)
        load = self._load_of(current)
        period_s = self._config.local_pie_period_s
        if not always and not has_news(load, self._told, now_s - self._told_s, period_s, self._config):
            return []
        self._told, self._told_s = load, now_s
        return [Tell(broker_load_to_values(load))]

    # ---- detection ----

    def _woken(self, now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        sampling = self._sampling
        if sampling is not None and sampling.sampler.is_over(now_s):
            actions += self._plan(sampling, now_s)
        actions += self._mediate(Wake(), now_s)
        if now_s >= self._next_detection_s:
            actions += self._detect(now_s)
        if now_s >= self._next_pie_s:
            self._next_pie_s = now_s + self._config.local_pie_period_s
            actions += self._tell_load(now_s)
        return actions

    def _detection_interval_s(self) -> float:
        return self._rng.uniform(
            self._config.local_detection_min_interval_s, self._config.local_detection_max_interval_s
        )

    def _detect(self, now_s: float) -> list[AgentAction]:
        self._next_detection_s = now_s + self._detection_interval_s()
        self._smoothed = smoothed_indices(self._indices(now_s), self._smoothed, self._config.smoothing_alpha)
        self.known = still_believed(self.known, now_s, self._config.local_pie_lifetime_s)
        self._fruitless = self._fruitless.still_believed(now_s, self._config)
        self._resources(self._host.load(now_s), now_s)  # lets the meter of slopes see this moment
        ours = self._load(now_s)
        self._history = with_reading(self._history, ours, now_s, self._config)
        detection = detect_local(ours, self.known, self._history, now_s, self._config, fruitless=self._fruitless)
        self._balanced = detection.balanced_with
        self.account.detected(detection, now_s)
        if detection.status == Status.OK and self.mediator.status == Status.STABILIZING:
            self._history = History(self._history.readings)
        actions = self._observe(ours, detection, now_s)
        actions += self._mediate(Detected(detection.status), now_s)
        if isinstance(detection.outcome, Trigger):
            self._book.triggered(detection.outcome, ours, now_s)
            actions += self._mediate(Triggered(detection.outcome), now_s)
        elif detection.call_for_help:
            actions += self._mediation_actions([CallHead()], now_s)
        return actions

    def _observe(self, ours: BrokerLoad, detection: Detection, now_s: float) -> list[AgentAction]:
        """What a session did is known when the load has settled."""
        if detection.status in (Status.BUSY, Status.STABILIZING):
            return []
        settle_s = self._config.stabilize_duration_s
        return [Note(record) for record in self._book.settled(ours, self.known, now_s, settle_s)]

    # ---- sessions ----

    def _mediate(self, event: MediationEvent, now_s: float) -> list[AgentAction]:
        return self._mediation_actions(self.mediator.handle(event, now_s), now_s)

    def _mediation_actions(self, mediated: Sequence[MediationAction], now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        for each in mediated:
            match each:
                case Send(to=to, message=message):
                    actions.append(self._say(to, message))
                case SendOffer(to=to, session=session):
                    offer = Offer(self._resources(self._host.load(now_s), now_s), tuple(self._host.covering_filters()))
                    reply = OffloadReply(session=session, sender=self._host.name, status=Status.OK, offer=offer)
                    actions.append(self._say(to, reply))
                case StartSampling():
                    actions += self._start_sampling(each, now_s)
                case StopSampling():
                    self._sampling = None
                    self.observes = False
                case MediatedMove(client=client, to_broker=to_broker, session=session):
                    self._leaving[client] = None
                    actions.append(MoveClient(client, to_broker, session))
                case StatusChanged():
                    actions += self._tell_load(now_s, always=True)
                case Refused(broker=broker, reason=reason):
                    self._book.refused(broker, reason)
                case NobodyAgreed():
                    actions += [Note(record) for record in self._book.nobody_agreed(now_s)]
                case CallHead():
                    actions += self._call_head(now_s)
                case SessionEnded():
                    if each.moved and not each.gave:
                        actions += [Note(record) for record in self._book.interrupted()]
                    self.account.ended(each, now_s)
                    if each.fruitless:
                        tries = self._fruitless
                        note = tries.gave_nothing if each.gave else tries.took_nothing
                        self._fruitless = note(each.partner, each.action, now_s)
                    if each.moved:
                        self._history = History(session_ended_s=now_s)
                        self._smoothed = None
                    actions += [Note(record) for record in self._book.ended(each, now_s)]
        return actions

    def _call_head(self, now_s: float) -> list[AgentAction]:
        """Call for help, once per detection interval however often others' news wakes detection: the head counts."""
        if self._is_relieved_soon and self._leaving:
            return []
        if self._called_s is not None and now_s - self._called_s < self._config.local_detection_min_interval_s:
            return []
        self._called_s = now_s
        return [self._say(self.cluster, CallForHelp(session=f"{self._host.name}/help", sender=self._host.name))]

    def _resources(self, load: LoadIndices, now_s: float) -> BrokerResources:
        """What planning must know of this broker, with what one subscription costs here."""
        return self._slope.with_slope(resources_of(self._host, load), now_s)

    def _say(self, to: str, message: AnyControl) -> Tell:
        return Tell(control_to_values(message, to), cause=message.session)

    def _start_sampling(self, request: StartSampling, now_s: float) -> list[AgentAction]:
        theirs: Matcher = Matcher()
        for number, filter in enumerate(request.offer.filters):
            theirs.add(number, filter)
        sampler = Sampler(self._config.press_sample_count, self._config.press_timeout_s, now_s)
        self._sampling = Sampling(request, sampler, theirs, now_s, self._host.traffic())
        self.observes = True
        partner = self.known.get(request.partner)
        is_local = partner is None or partner.load.cluster == self.cluster
        return [Note(record) for record in self._book.began(request, self._load(now_s), now_s, is_local=is_local)]

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """A publication was matched while a sample is taken."""
        sampling = self._sampling
        if sampling is None:
            return []
        neighbours = self._host.neighbours()
        sampling.sampler.saw(
            publication,
            round(self._host.matched_bytes()),
            [hop for hop in hops if hop not in neighbours],
            accepted=bool(sampling.theirs.match(values)),
            fixed=any(hop in neighbours for hop in hops),
        )
        return self._plan(sampling, now_s) if sampling.sampler.is_over(now_s) else []

    def _plan(self, sampling: Sampling, now_s: float) -> list[AgentAction]:
        self._sampling = None
        self.observes = False
        load = self.planned_load = self._sampled_load(sampling, now_s)
        request = sampling.request
        here = {client: tuple(self._host.filters_of(client)) for client in self._host.clients()}
        staying = {client: filters for client, filters in here.items() if client not in self._leaving}
        leaving = {client: filters for client, filters in here.items() if client in self._leaving}
        sample = sampling.sampler.sample(staying, now_s, load.input_rate_per_s)
        left = sampling.sampler.sample(leaving, now_s, load.input_rate_per_s)
        ours = without_leaving(self._resources(load, now_s), sample, left)
        self._is_relieved_soon = bool(leaving) and ours.highest_utilization_ratio < self._config.lower_overload_ratio
        plan: OffloadPlan | NoAction = plan_offload(
            request.action,
            ours,
            request.offer.resources,
            sample,
            request.offer.filters,
            config=self._config,
        )
        self._book.planned(plan)
        return self._mediate(Planned(request.session, plan), now_s)

    def _sampled_load(self, sampling: Sampling, now_s: float) -> LoadIndices:
        """The load that a plan begins with: an overloaded broker's rates are those of the sampling period (4.1.1).

        The means of the meters still contain what clients wanted that have left meanwhile, and an overloaded broker
        plans while clients leave it.
        """
        load = self._host.load(now_s)
        resources = resources_of(self._host, load)
        if resources.highest_utilization_ratio <= self._config.lower_overload_ratio:
            return load
        return sampled_load(
            load, sampling.begun_with, self._host.traffic(), now_s - sampling.begun_s, resources.bandwidth_bytes_per_s
        )
