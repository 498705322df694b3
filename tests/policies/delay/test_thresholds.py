"""The dynamic threshold of queue depth (formulas 1 and 2), with its floor and its exception."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.thresholds import (
    QueueRates,
    Transmission,
    allowed_wait_s,
    is_queue_overloaded,
    predicted_wait_s,
    queue_threshold_count,
)

CONFIG = DelayConfig()
RATES = st.floats(1.0, 10_000.0)


@given(st.integers(0, 100_000), st.floats(0.01, 100.0), st.floats(0.0, 10.0), RATES, RATES)
def test_formula_2_is_formula_1_solved_for_the_queue(
    queued: int, wait_s: float, balancing_s: float, input_per_s: float, output_per_s: float
) -> None:
    left_side_s = (queued + input_per_s - output_per_s) / output_per_s
    threshold = queue_threshold_count(wait_s, balancing_s, input_per_s, output_per_s)
    if not math.isclose(left_side_s, wait_s - balancing_s, rel_tol=1e-6, abs_tol=1e-6):
        assert (left_side_s <= wait_s - balancing_s) == (queued <= threshold)


def test_the_slowest_publisher_and_all_links_count_for_the_transmission_time() -> None:
    way = Transmission(publisher_head_s=0.05, head_head_s=0.02, head_edge_s=0.1, edge_subscriber_s=0.2)
    assert math.isclose(way.total_s, 0.37)


def test_time_in_other_brokers_and_on_links_is_taken_from_what_may_be_waited() -> None:
    wait_s = allowed_wait_s(1.1, 0.3, other_brokers_s=0.1, arrival_s=0.01, matching_s=0.02, departure_s=0.03)
    assert math.isclose(wait_s, 0.64)


def test_a_tolerant_subscriber_with_a_long_queue_is_not_overloaded() -> None:
    assert not is_queue_overloaded(2_000, 49.7, 1.9, 200.0, 100.0, CONFIG)


def test_a_strict_subscriber_with_the_same_queue_is() -> None:
    assert is_queue_overloaded(2_000, 0.8, 0.5, 200.0, 100.0, CONFIG)


def test_a_queue_that_is_almost_empty_is_not_overloaded_though_balancing_takes_longer_than_messages_may_wait() -> None:
    assert queue_threshold_count(0.8, 1.9, 105.0, 100.0) < 0
    assert not is_queue_overloaded(3, 0.8, 1.9, 105.0, 100.0, CONFIG)
    assert is_queue_overloaded(20, 0.8, 1.9, 105.0, 100.0, CONFIG)


def test_a_queue_that_is_being_cleared_in_time_is_left_alone() -> None:
    assert not is_queue_overloaded(30, 0.8, 1.9, 95.0, 100.0, CONFIG)
    assert is_queue_overloaded(120, 0.8, 1.9, 95.0, 100.0, CONFIG), "its messages will be late"


def test_nothing_leaves_a_queue_with_messages() -> None:
    assert predicted_wait_s(5, 0.0, 0.0) == math.inf
    assert predicted_wait_s(0, 0.0, 0.0) == 0.0


def test_predicted_rates_follow_a_step_within_two_readings() -> None:
    rates = QueueRates(CONFIG.smoothing_alpha)
    entered = 0
    for number in range(5):
        rates.read(number * 0.5, entered_count=entered, left_count=entered)
        entered += 50
    for number in range(5, 7):
        entered += 50
        rates.read(number * 0.5, entered_count=entered, left_count=entered)
        entered += 50
    assert rates.input_per_s is not None
    assert 190 < rates.input_per_s <= 200
