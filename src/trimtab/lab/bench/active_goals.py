"""The goals for active data, and whether a run of the benchmark meets them."""

from __future__ import annotations

from typing import Final

from trimtab.lab.bench.active import ActiveFigures, Execution
from trimtab.lab.bench.plane.goals import PlaneGoal, at_least, at_most

_TOGETHER_TIMES_MIN: Final = 300.0
_SCALE_TIMES_MAX: Final = (3.0, 15.0)
_DELAY_TIMES_MAX: Final = 4.0
_P99_TIMES_MAX: Final = 5.0
_RESULTS_MIN_PER_S: Final = 100_000.0
_IDLE_MAX_CORES: Final = 0.1
_BURST_RESULTS_MIN_PER_S: Final = 150_000.0
_QUICK_TIMES_MAX: Final = 2.0
_CORRELATION_MIN: Final = 0.99


def judge(figures: ActiveFigures) -> list[PlaneGoal]:
    """Each goal with what was measured."""
    goals = [
        at_least(
            "all subscriptions in one execution, times cheaper than one query each",
            figures.one_query_each_s / figures.together_s,
            _TOGETHER_TIMES_MIN,
            "x",
        )
    ]
    for channel in dict.fromkeys(each.channel for each in figures.executions):
        base, *larger = [each for each in figures.executions if each.channel == channel]
        goals += [_scale(base, each, limit) for each, limit in zip(larger, _SCALE_TIMES_MAX, strict=True)]
    delay_times = figures.delay_median_s / figures.bare_query_s
    goals += [
        at_most("delay to the subscriber, median, times one bare query", delay_times, _DELAY_TIMES_MAX, "x"),
        at_most(
            "delay, 99th percentile, times the median",
            figures.delay_p99_s / figures.delay_median_s,
            _P99_TIMES_MAX,
            "x",
        ),
        at_least("notifications into the table of results", figures.results_per_s, _RESULTS_MIN_PER_S, "/s"),
        at_most("processor at rest", figures.idle_cores, _IDLE_MAX_CORES, "cores"),
    ]
    burst = figures.burst
    times = burst.quick_during_median_s / burst.quick_alone_median_s
    said = f"burst of {burst.records_count:,} records"
    goals += [
        at_most(f"{said}: results that are missing", float(burst.missing_count), 0.0, ""),
        at_least(f"{said}: results", burst.results_per_s, _BURST_RESULTS_MIN_PER_S, "/s"),
        at_most(f"{said}: median delay of a quick channel, times that alone", times, _QUICK_TIMES_MAX, "x"),
        at_least(
            "rates that brokers are told of, correlation with the truth",
            burst.counted_correlation,
            _CORRELATION_MIN,
            "",
        ),
        at_least("rates by Spark, correlation with the truth", burst.spark_correlation, _CORRELATION_MIN, ""),
    ]
    return goals


def _scale(base: Execution, larger: Execution, limit: float) -> PlaneGoal:
    name = f"{larger.channel}: {larger.subscriptions_count:,} subscriptions, times {base.subscriptions_count:,}"
    return at_most(name, larger.execution_s / base.execution_s, limit, "x")
