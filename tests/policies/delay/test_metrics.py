"""Load states of heads and edges (Tables I to III)."""

from __future__ import annotations

import pytest

from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.metrics import (
    EdgeMetrics,
    HeadMetrics,
    Metric,
    State,
    edge_overload,
    edge_state,
    head_overload,
    head_state,
)

CONFIG = DelayConfig()


@pytest.mark.parametrize(
    ("metrics", "state"),
    [
        (EdgeMetrics(0.89, 0.89, 0.89), State.LOW),
        (EdgeMetrics(0.91, 0.1, 0.1), State.HIGH),
        (EdgeMetrics(0.1, 0.1, 0.94), State.HIGH),
        (EdgeMetrics(0.1, 0.1, 1.5), State.HIGH),  # an uplink has no higher threshold
        (EdgeMetrics(0.1, 0.1, 0.1, 1), State.OVERLOAD),
        (EdgeMetrics(0.96, 0.1, 0.1), State.OVERLOAD),
        (EdgeMetrics(0.1, 0.96, 0.1), State.OVERLOAD),
    ],
)
def test_states_of_an_edge(metrics: EdgeMetrics, state: State) -> None:
    assert edge_state(metrics, CONFIG) is state


@pytest.mark.parametrize(
    ("metrics", "state"),
    [
        (HeadMetrics(0.5, 0.5), State.LOW),
        (HeadMetrics(0.92, 0.5), State.HIGH),
        (HeadMetrics(0.5, 0.96), State.OVERLOAD),
        (HeadMetrics(0.96, 0.5), State.OVERLOAD),
    ],
)
def test_states_of_a_head(metrics: HeadMetrics, state: State) -> None:
    assert head_state(metrics, CONFIG) is state


def test_the_two_links_of_a_head_are_told_apart() -> None:
    assert head_overload(HeadMetrics(0.99, 0.97), CONFIG) is Metric.DOWNLINK
    assert head_overload(HeadMetrics(0.5, 0.97), CONFIG) is Metric.UPLINK
    assert head_overload(HeadMetrics(0.9, 0.9), CONFIG) is None


def test_queues_are_looked_at_before_utilizations() -> None:
    assert edge_overload(EdgeMetrics(0.99, 0.99, 0.99, 2), CONFIG) is Metric.QUEUE_DEPTH
    assert edge_overload(EdgeMetrics(0.99, 0.96, 0.99), CONFIG) is Metric.MATCHING
    assert edge_overload(EdgeMetrics(0.99, 0.5, 0.99), CONFIG) is Metric.DOWNLINK
