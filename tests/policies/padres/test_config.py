"""Settings of dynamic subscriber balancing: the thesis's defaults, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.policies.padres.config import PadresConfig


def test_the_defaults_are_those_of_table_5_2() -> None:
    config = PadresConfig()
    assert (config.pie_ratio_threshold, config.pie_delay_threshold) == (0.025, 0.025)
    assert (config.local_pie_period_s, config.global_pie_period_s) == (30, 60)
    assert (config.press_sample_count, config.press_timeout_s) == (50, 30)
    assert (config.lower_overload_ratio, config.higher_overload_ratio) == (0.9, 0.95)
    assert (config.local_ratio_threshold, config.local_delay_threshold) == (0.1, 0.1)
    assert (config.global_ratio_threshold, config.global_delay_threshold) == (0.15, 0.15)
    assert (config.stabilize_duration_s, config.stabilize_change) == (30, 0.05)
    assert config.delay_normalization_s == 0.1
    assert (config.local_detection_min_interval_s, config.local_detection_max_interval_s) == (20, 40)
    assert (config.global_detection_min_interval_s, config.global_detection_max_interval_s) == (50, 70)
    assert (config.balance_difference, config.smoothing_alpha) == (0.005, 0.75)
    assert (config.global_request_threshold_count, config.migration_timeout_s) == (3, 10)


def test_what_was_heard_is_believed_for_three_periods() -> None:
    assert (PadresConfig().local_pie_lifetime_s, PadresConfig().global_pie_lifetime_s) == (90, 180)


def test_a_session_waits_longer_for_more_clients_up_to_a_limit() -> None:
    config = PadresConfig()
    assert [config.migration_deadline_s(count) for count in (1, 5, 1_000)] == [10, 50, 600]


@pytest.mark.parametrize(
    "wrong",
    [
        {"lower_overload_ratio": 0.96},
        {"press_sample_count": 0},
        {"press_timeout_s": float("inf")},
        {"smoothing_alpha": 1.5},
        {"global_ratio_threshold": 0.05},
        {"global_delay_threshold": 0.05},
        {"local_detection_min_interval_s": 50},
        {"global_detection_min_interval_s": 80},
        {"balance_difference": 0.2},
        {"planning_timeout_s": 10},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        PadresConfig(**wrong)
