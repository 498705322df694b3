"""The matching benchmark measures, verifies and judges."""

from collections.abc import Hashable

import msgspec
import pytest

from trimtab.lab.bench import match as bench_match
from trimtab.lab.bench.call_times import CallTimer, percentile
from trimtab.lab.bench.match import MatchBench, MatchFigures, run_match_bench
from trimtab.lab.bench.match_goals import judge
from trimtab.lab.bench.matching_memory import MeasurementError, MemoryQuestion, ask_fresh_process
from trimtab.lab.bench.workloads import WorkloadName
from trimtab.language import Filter
from trimtab.matching import BruteForceMatcher


@pytest.fixture(scope="module")
def figures() -> MatchFigures:
    return run_match_bench(MatchBench(filters_count=600, publications_count=100, scale=True))


def test_both_workloads_are_verified(figures: MatchFigures) -> None:
    assert [workload.workload for workload in figures.workloads] == list(WorkloadName)
    assert figures.verified and all(workload.verified for workload in figures.workloads)


def test_every_figure_is_positive(figures: MatchFigures) -> None:
    assert figures.trimtab_import_ms > 0
    for workload in figures.workloads:
        for name, value in msgspec.to_builtins(workload).items():
            if isinstance(value, float) and name != "memory_bytes_per_filter":
                assert value > 0, name
        for times in (
            workload.add,
            workload.remove,
            workload.add_and_check,
            workload.covering_add,
            workload.covering_remove,
        ):
            assert times.calls_count == 600
            assert 0 < times.median_us <= times.p99_us <= times.max_us


def test_ratios_are_those_of_the_times(figures: MatchFigures) -> None:
    for workload in figures.workloads:
        ratio = workload.numpy_scan_us_per_publication / workload.match_us_per_publication
        assert workload.times_faster_than_numpy_scan == pytest.approx(ratio)
        ratio = workload.numpy_table_scan_us_per_publication / workload.match_us_per_publication
        assert workload.times_faster_than_numpy_table_scan == pytest.approx(ratio)
        assert workload.scale is not None
        assert workload.scale.larger_filters_count == 6_000


def test_every_goal_is_judged_with_its_figure(figures: MatchFigures) -> None:
    goals = judge(figures)
    assert len(goals) == 2 * 7 + 1
    for goal in goals:
        assert goal.met == (goal.measured >= goal.limit if goal.bound == ">=" else goal.measured <= goal.limit)


def test_adding_is_judged_with_the_covering_check_and_not_with_the_covering_set(figures: MatchFigures) -> None:
    judged = [goal.measured for goal in judge(figures) if goal.name == "add + covering check, p99"]
    assert judged == [workload.add_and_check.p99_us for workload in figures.workloads]


def test_speed_is_judged_against_the_faster_scan(figures: MatchFigures) -> None:
    judged = [goal.measured for goal in judge(figures) if goal.name == "faster than the NumPy scan"]
    assert judged == [workload.times_faster_than_numpy_scan for workload in figures.workloads]


def test_the_scale_goal_is_judged_only_if_it_was_measured(figures: MatchFigures) -> None:
    without = msgspec.structs.replace(
        figures, workloads=[msgspec.structs.replace(workload, scale=None) for workload in figures.workloads]
    )
    assert len(judge(without)) == len(judge(figures)) - 2


def test_a_matcher_that_misses_a_filter_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(BruteForceMatcher):
        def __init__(self, engine: str) -> None:
            super().__init__()

        def add(self, key: Hashable, filter: Filter) -> None:
            super().add(key, Filter.parse("[class,eq,'STOCK']") if key == 7 else filter)

    monkeypatch.setattr(bench_match, "Matcher", Forgetful)
    bench = MatchBench(workloads=(WorkloadName.STOCK,), filters_count=300, publications_count=64)
    assert run_match_bench(bench).verified is False


def test_memory_is_measured_in_a_process_of_its_own() -> None:
    answer = ask_fresh_process(MemoryQuestion(WorkloadName.RANGES, seed=1, filters_count=5_000))
    assert 0 < answer.bytes_per_filter < 20_000
    assert "resident memory" in answer.method


def test_a_process_that_fails_is_reported_with_its_last_words() -> None:
    question = MemoryQuestion(WorkloadName.STOCK, seed=1, filters_count=10, quotes="no-such-file.csv")
    with pytest.raises(MeasurementError, match=r"failed: .*no-such-file\.csv"):
        ask_fresh_process(question)


def test_each_step_is_reported() -> None:
    steps: list[str] = []
    run_match_bench(MatchBench(workloads=(WorkloadName.STOCK,), filters_count=50, publications_count=4), steps.append)
    assert steps[0] == "import time"
    assert "stock: making 50 filters" in steps and "stock: memory" in steps


def test_percentiles_are_nearest_ranks() -> None:
    values = list(range(1, 101))
    assert [percentile(values, percent) for percent in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([5], 99) == 5


def test_the_longest_call_counts_even_if_it_was_not_among_the_last() -> None:
    timer = CallTimer()
    timer.call(sum, range(300_000))
    for _ in range(10):
        timer.call(len, "")
    summary = timer.summary(last_count=10)
    assert summary.calls_count == 10
    assert summary.max_us > summary.p99_us
