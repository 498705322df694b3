"""One record or one subscription that fails stops nobody else, and whoever is concerned is told."""

import os
import signal
import time
from typing import Any

import pytest
from pyspark import SparkContext

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, found_ids, report
from trimtab.activedata import ActiveData, NotFoundError
from trimtab.activedata.execution.failures import blame

RATIO = "CREATE CONTINUOUS CHANNEL Ratio(d INT) AS SELECT r.reportId, r.x / :d AS z FROM Reports r;"
OF_EVENT = (
    "CREATE CONTINUOUS CHANNEL OfEvent(event STRING) AS "
    "SELECT r.reportId, 1 / r.x AS z FROM Reports r WHERE r.event = :event;"
)


def test_a_subscription_that_its_channel_fails_with_is_suspended_and_the_others_get_everything(
    active: ActiveData,
) -> None:
    active.run(REPORTS + FEED + RATIO + OF_TYPE)
    bad, good, other = (active.subscribe("Ratio", "B1", d=d) for d in (0, 2, 4))
    of_type = active.subscribe("OfType", "B1", event="flood")
    active.feed("reports", [report(number) for number in range(5)])
    active.settle()
    for each in (good, other, of_type):
        assert found_ids(active, each) == [f"r{number}" for number in range(5)]
    assert found_ids(active, bad) == []
    assert "DIVIDE_BY_ZERO" in active.suspended()[bad]
    assert list(active.suspended()) == [bad]
    assert active.run("SELECT count(*) AS n FROM dead_letters")[0].rows == [{"n": 0}]
    active.feed("reports", [report(5)])
    active.settle()
    assert found_ids(active, good)[-1] == "r5"


def test_a_suspended_subscription_stays_so_and_goes_on_when_it_is_resumed(spark: Any, tmp_path: Any) -> None:
    with ActiveData(tmp_path, spark) as active:
        active.run(REPORTS + FEED + RATIO)
        bad, good = (active.subscribe("Ratio", "B1", d=d) for d in (0, 2))
        active.feed("reports", [report(1)])
        active.settle()
        assert list(active.suspended()) == [bad]
    with ActiveData(tmp_path, spark) as active:
        active.feed("reports", [report(2)])
        active.settle()
        assert found_ids(active, good) == ["r1", "r2"]
        active.resume(bad)
        assert active.suspended() == {}
        with pytest.raises(NotFoundError, match="is not suspended"):
            active.resume(bad)
        active.feed("reports", [report(3)])
        active.settle()
        assert list(active.suspended()) == [bad]
        active.unsubscribe(bad)
        assert active.suspended() == {}


def test_a_record_that_fails_for_one_subscription_reaches_the_others(active: ActiveData) -> None:
    active.run(REPORTS + FEED)
    active.run("CREATE CONTINUOUS CHANNEL From(x DOUBLE) AS SELECT r.reportId, 1 / (r.x - :x) AS z FROM Reports r")
    at_two, at_nine = (active.subscribe("From", "B1", x=x) for x in (2.0, 9.0))
    active.feed("reports", [report(number) for number in range(6)])
    active.settle()
    assert found_ids(active, at_two) == ["r0", "r1", "r3", "r4", "r5"]
    assert found_ids(active, at_nine) == [f"r{number}" for number in range(6)]
    assert active.suspended() == {}
    (row,) = active.run("SELECT feed, place, reason FROM dead_letters")[0].rows
    assert (row["feed"], row["place"]) == ("From", 3)


def test_a_subscription_alone_in_its_channel_is_suspended_after_three_records(active: ActiveData) -> None:
    active.run(REPORTS + FEED + RATIO)
    bad = active.subscribe("Ratio", "B1", d=0)
    active.feed("reports", [report(number) for number in range(8)])
    active.settle()
    assert list(active.suspended()) == [bad]
    assert active.run("SELECT count(*) AS n FROM dead_letters")[0].rows == [{"n": 2}]


def test_records_that_fail_for_everybody_are_dead_letters_and_nobody_is_suspended(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_EVENT)
    floods, fires = (active.subscribe("OfEvent", "B1", event=event) for event in ("flood", "fire"))
    bad = [{**report(number), "x": 0.0} for number in (100, 101)]
    active.feed("reports", [report(1), *bad, report(2, "fire"), report(3)])
    active.settle()
    assert found_ids(active, floods) == ["r1", "r3"]
    assert found_ids(active, fires) == ["r2"]
    assert active.suspended() == {}
    assert active.run("SELECT count(*) AS n FROM dead_letters")[0].rows == [{"n": 2}]


def test_spark_is_started_again_by_whoever_notices_that_it_died(active: ActiveData) -> None:
    """A query notices, and without one the watch does; no record needs to come."""
    active.run(REPORTS + FEED + OF_TYPE)
    gateway: Any = SparkContext._gateway
    starts_count = active.views.starts_count
    os.kill(gateway.proc.pid, signal.SIGKILL)
    gateway.proc.wait()
    deadline_s = time.monotonic() + 120.0
    while active.views.starts_count == starts_count and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert active.views.starts_count == starts_count + 1
    gateway = SparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)
    assert active.run("SELECT count(*) AS n FROM Reports")[0].rows == [{"n": 0}]


def test_an_execution_that_takes_too_long_is_cancelled_and_the_channel_says_so(
    active: ActiveData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription with which one record takes too long is suspended; the others get theirs."""
    monkeypatch.setattr("trimtab.activedata.execution.lanes.EXECUTION_MAX_S", 8.0)

    def nap(seconds: float) -> float:
        import time

        time.sleep(seconds)
        return seconds

    active.views.add_python_function("nap", nap, "double")
    active.run(REPORTS + FEED)
    active.run("CREATE CONTINUOUS CHANNEL Naps(s DOUBLE) AS SELECT r.reportId, nap(:s) AS slept_s FROM Reports r")
    short = active.subscribe("Naps", "B1", s=0.0)
    active.feed("reports", [report(0)])
    active.settle()
    long = active.subscribe("Naps", "B1", s=1_000.0)
    active.feed("reports", [report(1)])
    active.settle(240.0)
    assert found_ids(active, short) == ["r0", "r1"]
    assert list(active.suspended()) == [long]
    assert "longer than" in active.suspended()[long]


def test_who_is_at_fault() -> None:
    def decided(failing: list[int], gave_results: bool, right: set[int], strikes: int) -> tuple[tuple[int, ...], bool]:
        found = blame(
            failing, gave_results=gave_results, is_right=lambda each: each in right, strikes=lambda each: strikes
        )
        return found.subscriptions, found.is_record

    assert decided([7], True, set(), 1) == ((7,), False)
    assert decided([7], False, set(), 1) == ((), True)
    assert decided([7], False, set(), 3) == ((7,), False)
    assert decided([7], False, {7}, 3) == ((), True)
    assert decided([7, 8], True, {8}, 1) == ((7,), True)
    assert decided(list(range(20)), True, set(), 3) == ((), True)
