"""Load metrics and load states of head and edge brokers.

Source: R. Tao, S. Poslad, J. Bigham (2013), section IV.B, Tables I, II and III.

Heads route, so they are judged by their two links, down and up. Edges match as well, and hold the subscribers' queues.
Two static thresholds divide the utilisations into three states; queues of an edge have a dynamic higher threshold
(`thresholds.py`) and no lower one, its uplink a lower threshold and no higher one, because a full uplink alone delays
nobody beyond what the queues show.

Up and down are separate resources, each with a bandwidth of its own.

Deviations: of the downlink no queue is known, only how much of it is in use.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from trimtab.policies.delay.config import DelayConfig


class Metric(Enum):
    """What can be overloaded."""

    DOWNLINK = "downlink utilization"
    UPLINK = "uplink utilization"
    MATCHING = "matching utilization"
    QUEUE_DEPTH = "queue depth"


class State(Enum):
    """How loaded a broker is (Table III)."""

    LOW = "LOW LOAD"
    HIGH = "HIGH LOAD"
    OVERLOAD = "OVERLOAD"


class HeadMetrics(msgspec.Struct, frozen=True):
    """Table I."""

    downlink_ratio: float
    uplink_ratio: float


class EdgeMetrics(msgspec.Struct, frozen=True):
    """Table II; of all output queues only how many are beyond their thresholds."""

    downlink_ratio: float
    matching_ratio: float
    uplink_ratio: float
    overloaded_queues_count: int = 0

    @property
    def highest_ratio(self) -> float:
        """The largest of the utilisations."""
        return max(self.downlink_ratio, self.matching_ratio, self.uplink_ratio)


def link_ratio(rate_bytes_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """The share of a link in use: Input-Rate / Downlink-Bandwidth, Output-Rate / Uplink-Bandwidth.

    >>> link_ratio(500_000.0, 1_000_000.0)
    0.5
    """
    return rate_bytes_per_s / bandwidth_bytes_per_s


def head_overload(metrics: HeadMetrics, config: DelayConfig) -> Metric | None:
    """The metric in which a head is overloaded, the worse if both are."""
    worse = Metric.UPLINK if metrics.uplink_ratio >= metrics.downlink_ratio else Metric.DOWNLINK
    return worse if max(metrics.uplink_ratio, metrics.downlink_ratio) > config.high_ratio else None


def head_state(metrics: HeadMetrics, config: DelayConfig) -> State:
    """Table III for a head.

    >>> [head_state(HeadMetrics(0.2, ratio), DelayConfig()).value for ratio in (0.5, 0.92, 0.96)]
    ['LOW LOAD', 'HIGH LOAD', 'OVERLOAD']
    """
    if head_overload(metrics, config) is not None:
        return State.OVERLOAD
    return State.LOW if max(metrics.uplink_ratio, metrics.downlink_ratio) < config.low_ratio else State.HIGH


def edge_overload(metrics: EdgeMetrics, config: DelayConfig) -> Metric | None:
    """The metric in which an edge is overloaded; queues first, for there messages are late."""
    if metrics.overloaded_queues_count:
        return Metric.QUEUE_DEPTH
    if metrics.matching_ratio > config.high_ratio:
        return Metric.MATCHING
    return Metric.DOWNLINK if metrics.downlink_ratio > config.high_ratio else None


def edge_state(metrics: EdgeMetrics, config: DelayConfig) -> State:
    """Table III for an edge: a full uplink makes it HIGH, queues that are too long make it OVERLOAD.

    >>> [edge_state(EdgeMetrics(0.1, 0.1, 1.2, queues), DelayConfig()).value for queues in (0, 3)]
    ['HIGH LOAD', 'OVERLOAD']
    """
    if edge_overload(metrics, config) is not None:
        return State.OVERLOAD
    return State.LOW if metrics.highest_ratio < config.low_ratio else State.HIGH
