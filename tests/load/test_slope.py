"""What one subscription costs a broker (thesis, section 4.1.2)."""

from __future__ import annotations

import msgspec
import pytest

from tests.load.test_estimation import BROKER
from trimtab.load.estimation import BrokerResources, LoadChange, after_change
from trimtab.load.slope import SlopeMeter

IDLE = msgspec.structs.replace(BROKER, input_rate_per_s=0.0, matching_delay_s=0.0, subscription_count=10)


def test_a_delay_measured_while_subscribers_come_is_divided_by_the_mean_of_their_numbers() -> None:
    meter = SlopeMeter(window_s=30.0)
    for second in range(61):
        meter.saw(100 + 2 * second, float(second))
    assert abs(meter.mean_count(60.0) - 190.0) < 2.5


def test_the_delay_told_is_that_of_the_present_number_of_subscriptions() -> None:
    meter = SlopeMeter(window_s=30.0)
    meter.saw(50, 0.0)
    meter.saw(100, 30.0)
    told = meter.with_slope(msgspec.structs.replace(BROKER, matching_delay_s=0.015, subscription_count=100), 45.0)
    assert told.matching_delay_slope_s == pytest.approx(0.015 / 75)
    assert told.matching_delay_s == pytest.approx(0.02)


def test_the_slope_is_that_between_two_moments_which_differ_by_s_subscriptions() -> None:
    """Sections 4.1.2 and 4.1.5: matching takes 1 ms and 0.1 ms for each subscription, memory 1 MB and 2 kB for each."""

    def measured(count: int) -> BrokerResources:
        return msgspec.structs.replace(
            BROKER,
            matching_delay_s=0.001 + 0.0001 * count,
            subscription_count=count,
            matching_memory_bytes=1e6 + 2_000.0 * count,
        )

    meter = SlopeMeter(window_s=10.0, least_change_count=20)
    meter.saw(100, 0.0)
    first = meter.with_slope(measured(100), 20.0)
    assert first.matching_delay_slope_s == pytest.approx(0.00011), "proportional as long as nothing else is known"
    meter.saw(119, 20.0)
    assert meter.with_slope(measured(119), 40.0).matching_memory_slope_bytes is None
    meter.saw(120, 40.0)
    told = meter.with_slope(measured(120), 60.0)
    assert told.matching_delay_slope_s == pytest.approx(0.0001)
    assert told.matching_memory_slope_bytes == pytest.approx(2_000.0)
    later = after_change(told, LoadChange(subscription_count=-60))
    assert (later.matching_delay_s, later.matching_memory_bytes) == pytest.approx((0.007, 1_120_000.0))


def test_a_broker_that_never_matched_goes_by_what_is_known_of_its_machine() -> None:
    assert SlopeMeter(window_s=30.0).with_slope(IDLE, 10.0) == IDLE
    told = SlopeMeter(window_s=30.0, known_s=0.0001).with_slope(IDLE, 10.0)
    assert told.matching_delay_slope_s == 0.0001
    assert told.matching_delay_s == pytest.approx(0.001)


def test_what_is_known_of_a_machine_is_not_measured_again() -> None:
    """All 100 clients have left a third of the window ago, and since then nothing came: the mean delay is theirs."""
    meter = SlopeMeter(window_s=30.0, known_s=0.0001)
    meter.saw(100, 0.0)
    meter.saw(0, 50.0)
    meter.saw(75, 60.0)
    told = meter.with_slope(msgspec.structs.replace(BROKER, matching_delay_s=0.01, subscription_count=75), 60.0)
    assert told.matching_delay_slope_s == 0.0001
    assert told.matching_delay_s == pytest.approx(0.0075)


def test_a_broker_that_matches_nothing_any_more_goes_by_what_it_measured_last() -> None:
    meter = SlopeMeter(window_s=30.0)
    meter.saw(100, 0.0)
    meter.with_slope(BROKER, 50.0)
    meter.saw(10, 60.0)
    stale = msgspec.structs.replace(IDLE, matching_delay_s=0.02)
    assert meter.with_slope(stale, 200.0).matching_delay_s == pytest.approx(0.002)
