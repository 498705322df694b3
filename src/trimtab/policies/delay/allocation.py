"""Which edge-broker a new subscriber is allocated to, by the head of the cluster.

Source: R. Tao, S. Poslad, J. Bigham (2013), section IV.A: subscribers of one topic together, correlated topics apart,
and otherwise where capacity is used least.

A head sees all publications of its cluster. From a sample of them it knows what a new subscriber will be sent, how much
of that arrives at each edge-broker anyway, and what joins there in bursts. Subscribers that come together and want the
same are allocated as one bundle, so that the broker has room for all of them.

Deviations:
- Similarity of interest is the share of a subscriber's bytes that a broker receives already, not the name of a topic.
- The least utilised capacity is the lowest of the brokers' highest utilisations, each as it would be with the bundle;
  among equals, the lowest sum of all utilisations.
- A broker that the bundle would take beyond TH_low is chosen only if all are so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from trimtab.language import Filter, Value
from trimtab.policies.api import BrokerCapacity
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.correlation import correlation, counts_in_slices
from trimtab.policies.delay.metrics import EdgeMetrics, State


class Seen(msgspec.Struct, frozen=True):
    """A sampled publication."""

    values: dict[str, Value]
    size_bytes: float
    at_s: float


class Interest(msgspec.Struct, frozen=True):
    """What filters want of a sample."""

    numbers: tuple[int, ...]
    """The places in the sample."""

    rate_per_s: float
    bytes_per_s: float


class EdgeView(msgspec.Struct, frozen=True, kw_only=True):
    """An edge-broker as its head sees it, with the subscribers that are on their way to it."""

    name: str
    metrics: EdgeMetrics
    state: State
    capacity: BrokerCapacity
    matching_delay_s: float
    input_rate_per_s: float
    wanted: Interest
    """What it receives of the sample."""


class Allocation(msgspec.Struct, frozen=True):
    """Where a bundle goes, and by which principle."""

    broker: str
    reason: str
    metrics_after: EdgeMetrics


def interest_of(filters: Sequence[Filter], sample: Sequence[Seen], duration_s: float) -> Interest:
    """What filters want of a sample, and at which rate it comes."""
    numbers = tuple(
        number for number, seen in enumerate(sample) if any(filter.matches(seen.values) for filter in filters)
    )
    over_s = duration_s if duration_s > 0 else 1.0
    total_bytes = sum(sample[number].size_bytes for number in numbers)
    return Interest(numbers, len(numbers) / over_s, total_bytes / over_s)


def similarity_ratio(wanted: Interest, received: Interest, sample: Sequence[Seen]) -> float:
    """The share of what is wanted, in bytes, that is received already."""
    received_numbers = frozenset(received.numbers)
    total = sum(sample[number].size_bytes for number in wanted.numbers)
    common = sum(sample[number].size_bytes for number in wanted.numbers if number in received_numbers)
    return common / total if total else 0.0


def metrics_with(
    edge: EdgeView, wanted: Interest, clients_count: int, subscriptions_count: int, sample: Sequence[Seen]
) -> EdgeMetrics:
    """The metrics of an edge-broker with so many more clients, each of which wants this."""
    bandwidth = edge.capacity.bandwidth_bytes_per_s
    new_share = 1 - similarity_ratio(wanted, edge.wanted, sample)
    slope_s = edge.capacity.matching_s_per_subscription or 0.0
    rate_per_s = edge.input_rate_per_s + new_share * wanted.rate_per_s
    return EdgeMetrics(
        edge.metrics.downlink_ratio + new_share * wanted.bytes_per_s / edge.capacity.receivable_bytes_per_s,
        max(edge.metrics.matching_ratio, rate_per_s * (edge.matching_delay_s + slope_s * subscriptions_count)),
        edge.metrics.uplink_ratio + clients_count * wanted.bytes_per_s / bandwidth,
        edge.metrics.overloaded_queues_count,
    )


def allocate(  # noqa: PLR0917 (all that is known)
    wanted: Interest,
    clients_count: int,
    subscriptions_count: int,
    edges: Sequence[EdgeView],
    sample: Sequence[Seen],
    config: DelayConfig,
) -> Allocation | None:
    """The edge-broker for a bundle of new subscribers, each of which wants the same; None without any broker."""
    if not edges:
        return None
    after = {edge.name: metrics_with(edge, wanted, clients_count, subscriptions_count, sample) for edge in edges}

    def least_utilized(edge: EdgeView) -> tuple[float, float]:
        metrics = after[edge.name]
        sum_ratio = metrics.downlink_ratio + metrics.matching_ratio + metrics.uplink_ratio
        return round(metrics.highest_ratio, 3), sum_ratio

    able = [
        edge for edge in edges if edge.state is not State.OVERLOAD and after[edge.name].highest_ratio < config.low_ratio
    ]
    candidates, reason = (able, "") if able else (list(edges), "no broker has room; ")
    similar = {edge.name: similarity_ratio(wanted, edge.wanted, sample) for edge in candidates}
    most = max(similar.values())
    if most >= config.similar_ratio:
        alike = [edge for edge in candidates if similar[edge.name] == most]
        chosen = min(alike, key=least_utilized)
        return Allocation(chosen.name, f"{reason}{most:.0%} of it arrives there already", after[chosen.name])
    apart = [edge for edge in candidates if _correlation(wanted, edge, sample, config) <= config.correlated_ratio]
    if apart and len(apart) < len(candidates):
        reason += "not where it bursts together with others; "
    chosen = min(apart or candidates, key=least_utilized)
    return Allocation(
        chosen.name, f"{reason}least utilised, {after[chosen.name].highest_ratio:.0%} with it", after[chosen.name]
    )


def _correlation(wanted: Interest, edge: EdgeView, sample: Sequence[Seen], config: DelayConfig) -> float:
    if not sample or not wanted.numbers or not edge.wanted.numbers:
        return 0.0
    begin_s, end_s = sample[0].at_s, sample[-1].at_s
    counted: Callable[[Interest], list[int]] = lambda interest: counts_in_slices(  # noqa: E731
        [sample[number].at_s for number in interest.numbers], begin_s, end_s, config.correlation_slices_count
    )
    return correlation(counted(wanted), counted(edge.wanted), config.bursty_dispersion)
