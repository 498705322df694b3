"""Estimates of a broker's load after a change (thesis, equations 4.7 to 4.16)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.load.estimation import (
    BrokerResources,
    LoadChange,
    after_change,
    estimated_matching_delay_s,
    slope_per_subscription,
    with_matching_delay_like,
)

BROKER = BrokerResources(
    input_rate_per_s=20.0,
    input_rate_bytes_per_s=6_000.0,
    matching_delay_s=0.02,
    subscription_count=100,
    output_rate_bytes_per_s=30_000.0,
    bandwidth_bytes_per_s=60_000.0,
    cpu_utilization_ratio=0.4,
    input_queue_bytes=1_000.0,
    output_queue_bytes=2_000.0,
    matching_memory_bytes=7_000.0,
    memory_bytes=20_000.0,
)


def test_the_ratios_of_a_broker() -> None:
    assert BROKER.input_utilization_ratio == pytest.approx(0.4)
    assert BROKER.output_utilization_ratio == 0.5
    assert BROKER.memory_utilization_ratio == 0.5
    assert BROKER.highest_utilization_ratio == 0.5


def test_every_index_after_subscriptions_came() -> None:
    change = LoadChange(
        subscription_count=50, input_rate_per_s=10.0, input_rate_bytes_per_s=3_000.0, output_rate_bytes_per_s=15_000.0
    )
    later = after_change(BROKER, change)
    assert later.matching_delay_s == pytest.approx(0.03)  # 4.7
    assert later.input_utilization_ratio == pytest.approx(0.9)  # 4.8
    assert later.cpu_utilization_ratio == pytest.approx(0.9)  # 4.8
    assert later.output_utilization_ratio == pytest.approx(0.75)  # 4.9, 4.10
    assert later.input_queue_bytes == pytest.approx(1_000 * 1.5 * 1.5)  # 4.13
    assert later.output_queue_bytes == pytest.approx(2_000 * 1.5)  # 4.14
    assert later.matching_memory_bytes == pytest.approx(7_000 * 1.5)  # 4.15
    assert later.memory_used_bytes == pytest.approx(2_250 + 3_000 + 10_500)  # 4.16
    assert later.memory_utilization_ratio == pytest.approx(15_750 / 20_000)  # 4.12


def test_a_broker_that_works_off_a_backlog_stays_busy() -> None:
    backlog = msgspec.structs.replace(BROKER, cpu_utilization_ratio=1.0)
    assert after_change(backlog, LoadChange(subscription_count=-25)).cpu_utilization_ratio == pytest.approx(0.9)


def test_nothing_falls_below_zero() -> None:
    later = after_change(BROKER, LoadChange(-200, -100.0, -100_000.0, -100_000.0))
    assert later.highest_utilization_ratio == 0.0
    assert later.subscription_count == 0


def test_a_measured_slope_is_used_instead_of_the_proportion() -> None:
    assert estimated_matching_delay_s(0.02, 100, 100) == 0.04
    assert estimated_matching_delay_s(0.02, 100, 100, slope_s=0.0) == 0.02


def test_a_broker_that_told_its_delay_keeps_it() -> None:
    assert with_matching_delay_like(BROKER, BROKER) == BROKER


def test_a_broker_without_a_delay_is_lent_one() -> None:
    idle = msgspec.structs.replace(BROKER, matching_delay_s=0.0, subscription_count=0)
    assert with_matching_delay_like(idle, BROKER).matching_delay_slope_s == pytest.approx(0.0002)


def test_a_slope_needs_enough_subscriptions_and_a_sensible_direction() -> None:
    assert slope_per_subscription((150, 0.025), (100, 0.020), 20) == pytest.approx(0.0001)
    assert slope_per_subscription((100, 0.020), (150, 0.010), 20) is None
    assert slope_per_subscription((100, 0.020), (110, 0.025), 20) is None


COUNTS = st.integers(0, 50)
RATES = st.floats(0.0, 10.0)


@given(st.lists(st.builds(LoadChange, COUNTS, RATES, RATES, RATES), max_size=6))
def test_many_small_changes_estimate_the_same_as_their_sum(changes: list[LoadChange]) -> None:
    step_by_step = BROKER
    together = LoadChange()
    for change in changes:
        step_by_step = after_change(step_by_step, change)
        together = together + change
    at_once = after_change(BROKER, together)
    for name, value in msgspec.structs.asdict(at_once).items():
        if value is not None:
            assert getattr(step_by_step, name) == pytest.approx(value)
