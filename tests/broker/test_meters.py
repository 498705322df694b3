"""Meters turn what a world tells into the load indices of thesis section 3.3.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.broker.meters import MeterConfig, Meters, WindowSum, bucket_of_s
from trimtab.load.indices import smoothed_indices
from trimtab.load.queue_delay import QueueDelay


def test_a_broker_at_twenty_publications_a_second_and_twenty_milliseconds_is_loaded_to_two_fifths() -> None:
    meters = Meters(MeterConfig(bandwidth_bytes_per_s=62_500))
    for number in range(400):
        now_s = number / 20
        meters.arrived(now_s)
        meters.matched(0.02, 0.0, now_s)
        meters.queued_output(320, now_s)
    indices = meters.read(20.0, input_count=0, output_count=0)
    assert indices.matching_delay_s == pytest.approx(0.02)
    assert indices.input_utilization_ratio == pytest.approx(0.4, rel=0.06)
    assert indices.output_utilization_ratio == pytest.approx(20 * 320 / 62_500, rel=0.06)
    assert indices.cpu_utilization_ratio == pytest.approx(0.4, rel=0.06)


def test_smoothing_takes_three_quarters_of_the_present() -> None:
    meters = Meters(MeterConfig(window_s=1.0, bucket_s=0.5))
    meters.matched(0.1, 0.0, 0.9)
    for _ in range(10):
        meters.arrived(0.9)
    first = smoothed_indices(meters.read(1.0, input_count=0, output_count=0), None, 0.75)
    second = smoothed_indices(meters.read(5.0, input_count=0, output_count=0), first, 0.75)
    assert first.input_rate_per_s == 10.0
    assert second.input_rate_per_s == pytest.approx(2.5)
    assert second.matching_delay_s == pytest.approx(0.1)


def test_queue_delays_are_zero_when_nothing_waits() -> None:
    meters = Meters(MeterConfig())
    meters.matched(0.1, 3.0, 1.0)
    assert meters.read(1.0, input_count=0, output_count=0).input_queue_delay_s == 0.0
    assert meters.read(1.0, input_count=2, output_count=0).input_queue_delay_s == 3.0


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 100)), max_size=50))
def test_a_window_sum_is_the_sum_of_what_lies_in_the_window_up_to_one_bucket(steps: list[tuple[float, float]]) -> None:
    window = WindowSum(window_s=10.0, bucket_s=1.0)
    told: list[tuple[float, float]] = []
    now_s = 0.0
    for wait_s, amount in steps:
        now_s += wait_s
        window.add(amount, now_s)
        told.append((now_s, amount))
    total = window.total(now_s)
    surely = sum(amount for at_s, amount in told if at_s > now_s - 10.0)
    perhaps = sum(amount for at_s, amount in told if at_s > now_s - 12.0)
    assert surely - 1e-6 <= total <= perhaps + 1e-6


@pytest.mark.parametrize("wrong", [{"bucket_s": 0}, {"bandwidth_bytes_per_s": 0}])
def test_a_meter_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"bucket|bandwidth"):
        MeterConfig(**wrong)


def test_the_delay_of_a_queue_is_what_its_messages_wait() -> None:
    """100 messages come and go each second, each after a quarter of a second."""
    delay, delays_s = QueueDelay(), []
    for tick in range(1, 40):
        now_s = tick / 4
        entered_count = int(100 * now_s)
        left_count = int(100 * max(0.0, now_s - 0.25))
        delays_s.append(delay.read(now_s, entered_count=entered_count, queued_count=entered_count - left_count))
    assert delays_s[-1] == pytest.approx(0.25, rel=0.01)


def test_messages_that_nobody_takes_wait_ever_longer() -> None:
    delay = QueueDelay()
    delays_s = [delay.read(float(second), entered_count=10, queued_count=10) for second in range(5)]
    assert delays_s == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert delay.read(5.0, entered_count=10, queued_count=0) == 0.0


def test_short_windows_read_a_steady_rate_as_it_is() -> None:
    """The oldest bucket counts as a whole, so that buckets must be short against their window."""
    for window_s in (2.0, 5.0, 10.0, 60.0):
        rates = WindowSum(window_s, bucket_of_s(window_s))
        for number in range(20 * 100):
            rates.add(1.0, number / 20)
        assert 20 <= rates.per_second(100.0, 0.0) <= 20 * 1.05
