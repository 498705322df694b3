"""Which clients an overloaded edge-broker gives to whom.

Source: R. Tao, S. Poslad, J. Bigham (2013), section IV.D.2.

Brokers that may accept are tried from the least loaded on in the overloaded metric. From the front of the prioritised
list bundles are taken that do not overload the accepting broker in any metric (TH_high, for its uplink as well), until
the overload is estimated to be over. Clients of a bundle that fits nowhere are looked at one by one.

Deviations:
- If one bundle alone ends the overload, whole or shared among brokers, the first of these in the order of priorities is
  moved, and no other: the fewer clients move the better. The paper takes bundles from the front even if they are too
  small to help, and separates clients only if no bundle fits.
- If nothing ends the overload so, uplinks of accepting brokers are filled further (`full_ratio`): the paper knows no
  higher threshold for an edge's uplink, which delays nobody before it is full.
- The end of an overload of queues is estimated from the uplink: its load and what waits must fit it for the time in
  which the queues are to be cleared.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.load.profiles import Sample, and_not, only_once
from trimtab.policies.api import BrokerCapacity
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.metrics import EdgeMetrics, Metric
from trimtab.policies.delay.priorities import Bundle, Waiting, in_order


class Offering(msgspec.Struct, frozen=True, kw_only=True):
    """The overloaded broker."""

    metrics: EdgeMetrics
    metric: Metric
    capacity: BrokerCapacity
    input_rate_per_s: float
    matching_delay_s: float
    waiting_bytes: float
    """What waits in all output queues."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that may accept."""

    name: str
    metrics: EdgeMetrics
    capacity: BrokerCapacity
    input_rate_per_s: float
    matching_delay_s: float
    received_bits: int
    """The sampled publications that it receives anyway."""


class Selected(msgspec.Struct, frozen=True):
    """Clients and where they go."""

    clients: tuple[str, ...]
    to_broker: str


class OffloadPlan(msgspec.Struct, frozen=True):
    """What is to be moved, and the metrics of the overloaded broker before and after, as estimated."""

    selected: tuple[Selected, ...]
    after: EdgeMetrics
    ends_overload: bool


class NoPlan(msgspec.Struct, frozen=True):
    """Nothing can be moved."""

    reason: str


def is_relieved(after: EdgeMetrics, offering: Offering, config: DelayConfig) -> bool:
    """Whether a broker with these metrics is no longer overloaded in what it was overloaded in."""
    match offering.metric:
        case Metric.MATCHING:
            return after.matching_ratio <= config.high_ratio
        case Metric.DOWNLINK:
            return after.downlink_ratio <= config.high_ratio
        case _:
            clearing = offering.waiting_bytes / offering.capacity.bandwidth_bytes_per_s / config.clear_within_s
            return after.uplink_ratio + clearing < 1.0


def accepted_metrics(candidate: Candidate, bundle: Bundle, sample: Sample) -> EdgeMetrics:
    """The metrics of an accepting broker with a bundle (its influence on all metrics)."""
    extra = and_not(bundle.bits, candidate.received_bits)
    bandwidth = candidate.capacity.bandwidth_bytes_per_s
    slope_s = candidate.capacity.matching_s_per_subscription or 0.0
    rate_per_s = candidate.input_rate_per_s + sample.rate_per_s(extra)
    matching_s = candidate.matching_delay_s + slope_s * bundle.subscriptions_count
    return EdgeMetrics(
        candidate.metrics.downlink_ratio
        + sample.bandwidth_bytes_per_s(extra) / candidate.capacity.receivable_bytes_per_s,
        max(candidate.metrics.matching_ratio, rate_per_s * matching_s),
        candidate.metrics.uplink_ratio + bundle.output_bytes_per_s / bandwidth,
        candidate.metrics.overloaded_queues_count,
    )


def metrics_without(
    before: EdgeMetrics, bundle: Bundle, others: Sequence[Bundle], offering: Offering, sample: Sample
) -> EdgeMetrics:
    """The metrics of the overloaded broker without a bundle that it has among others."""
    spared = bundle.bits & only_once([bundle.bits, *(each.bits for each in others)])
    bandwidth, downlink = offering.capacity.bandwidth_bytes_per_s, offering.capacity.receivable_bytes_per_s
    slope_s = offering.capacity.matching_s_per_subscription or 0.0
    rate_per_s = max(offering.input_rate_per_s - sample.rate_per_s(spared), 0.0)
    matching_s = max(offering.matching_delay_s - slope_s * bundle.subscriptions_count, 0.0)
    return EdgeMetrics(
        max(before.downlink_ratio - sample.bandwidth_bytes_per_s(spared) / downlink, 0.0),
        min(before.matching_ratio, rate_per_s * matching_s),
        max(before.uplink_ratio - bundle.output_bytes_per_s / bandwidth, 0.0),
    )


def plan_offload(
    offering: Offering,
    bundles: Sequence[Bundle],
    candidates: Sequence[Candidate],
    sample: Sample,
    config: DelayConfig,
) -> OffloadPlan | NoPlan:
    """The clients to move, and where."""
    if not candidates:
        return NoPlan("no broker is in a low load state")
    ordered = in_order(bundles, offering.metric)
    attempts = [
        *(([bundle], False) for bundle in ordered),
        *(([bundle], True) for bundle in ordered if bundle.waiting is not Waiting.TOO_LONG),
        (ordered, False),
        (ordered, True),
    ]
    fallback: OffloadPlan | None = None
    for uplink_limit_ratio in (config.high_ratio, config.full_ratio):
        for wanted, splits in attempts:
            trial = _Trial(offering, ordered, candidates, sample, config, uplink_limit_ratio=uplink_limit_ratio)
            trial.take(wanted, splits=splits)
            plan = trial.plan()
            if plan.ends_overload:
                return plan
        if fallback is None and plan.selected:
            fallback = plan
    return fallback or NoPlan("no broker in a low load state has room for any client")


def singles(bundle: Bundle) -> list[Bundle]:
    """The clients of a bundle as bundles of their own."""
    count = len(bundle.clients)
    return [
        msgspec.structs.replace(
            bundle,
            clients=(client,),
            output_bytes_per_s=bundle.output_bytes_per_s / count,
            subscriptions_count=max(round(bundle.subscriptions_count / count), 1),
        )
        for client in bundle.clients
    ]


class _Trial:
    """A plan while it is made."""

    def __init__(
        self,
        offering: Offering,
        present: Sequence[Bundle],
        candidates: Sequence[Candidate],
        sample: Sample,
        config: DelayConfig,
        *,
        uplink_limit_ratio: float,
    ) -> None:
        self._offering = offering
        self._uplink_limit_ratio = uplink_limit_ratio
        self._sample = sample
        self._config = config
        self._after = offering.metrics
        self._left = list(present)
        self._places = {candidate.name: candidate for candidate in candidates}
        self._selected: list[Selected] = []

    @property
    def is_relieved(self) -> bool:
        return is_relieved(self._after, self._offering, self._config)

    def take(self, wanted: Sequence[Bundle], *, splits: bool) -> None:
        """Take bundles in their order until the overload is over, and single clients of those that fit nowhere."""
        for bundle in wanted:
            if self.is_relieved or self._place(bundle) or not splits:
                continue
            parts = singles(bundle)
            self._left.remove(bundle)
            self._left.extend(parts)
            for part in parts:
                if not self.is_relieved:
                    self._place(part)

    def plan(self) -> OffloadPlan:
        return OffloadPlan(tuple(self._selected), self._after, bool(self._selected) and self.is_relieved)

    def _place(self, bundle: Bundle) -> bool:
        """Give a bundle to the least loaded broker that can bear it."""
        metric = self._offering.metric
        for candidate in sorted(self._places.values(), key=lambda each: _value(each.metrics, metric)):
            metrics = accepted_metrics(candidate, bundle, self._sample)
            if self._can_bear(metrics):
                self._selected.append(Selected(bundle.clients, candidate.name))
                self._left.remove(bundle)
                self._after = metrics_without(self._after, bundle, self._left, self._offering, self._sample)
                self._places[candidate.name] = msgspec.structs.replace(
                    candidate, metrics=metrics, received_bits=candidate.received_bits | bundle.bits
                )
                return True
        return False

    def _can_bear(self, metrics: EdgeMetrics) -> bool:
        others_ratio = max(metrics.downlink_ratio, metrics.matching_ratio)
        return others_ratio < self._config.high_ratio and metrics.uplink_ratio < self._uplink_limit_ratio


def _value(metrics: EdgeMetrics, metric: Metric) -> float:
    match metric:
        case Metric.MATCHING:
            return metrics.matching_ratio
        case Metric.DOWNLINK:
            return metrics.downlink_ratio
        case _:
            return metrics.uplink_ratio
