"""Many waiting records: Spark's tasks write the results, in batches that fit, and nobody else is held up."""

import threading
import time
from typing import Any

import pytest

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, found_ids, report
from trimtab.activedata import ActiveData
from trimtab.activedata.execution import executions, result_tasks
from trimtab.activedata.execution.executions import KEPT_PLAN, TASKS

COPIES = (
    "CREATE CONTINUOUS CHANNEL Copies(event STRING, copy INT) AS "
    "SELECT r.reportId FROM Reports r WHERE r.event = :event AND :copy >= 0;"
)


def test_tasks_write_what_a_burst_finds_and_readers_see_it_in_order(
    active: ActiveData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executions, "TASKS_FROM_RESULTS_COUNT", 1_000)
    active.run(REPORTS + FEED + COPIES)
    wanted: list[Any] = [{"event": event, "copy": copy} for event in ("flood", "fire") for copy in range(20)]
    made = active.subscribe_many("Copies", wanted, "B1")
    active.feed("reports", [report(number, "flood" if number % 2 else "fire") for number in range(1_000)])
    active.settle()
    active.feed("reports", [report(5_000)])
    active.settle()
    paths = [each.path for each in active.executions()]
    assert TASKS in paths
    assert paths[-1] == KEPT_PLAN
    assert active.run("SELECT count(*) AS n, count(DISTINCT position) AS p FROM results")[0].rows == [
        {"n": 20 * 1_000 + 20, "p": 20 * 1_000 + 20}
    ]
    floods = [f"r{number}" for number in range(1, 1_000, 2)] + ["r5000"]
    for each in (made[0], made[19]):
        results = active.results(each.id)
        assert [one.fields["reportId"] for one in results] == floods
        positions = [one.position for one in results]
        assert positions == sorted(set(positions))
        counted = active.results_store.count_of(each.id)
        assert counted.results_count == 501
        assert counted.results_bytes == sum(len(bytes(one.payload)) for one in results)
    assert len({one.id for each in made for one in active.results(each.id)}) == 20 * 1_000 + 20


def test_results_that_tasks_wrote_survive_and_nothing_comes_twice(
    spark: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executions, "TASKS_FROM_RESULTS_COUNT", 10)
    with ActiveData(tmp_path, spark) as active:
        active.run(REPORTS + FEED + OF_TYPE)
        subscription = active.subscribe("OfType", "B1", event="flood")
        active.feed("reports", [report(number) for number in range(50)])
        active.settle()
        assert active.executions()[-1].path == TASKS
    with ActiveData(tmp_path, spark) as active:
        active.feed("reports", [report(number) for number in range(40, 90)])
        active.settle()
        assert found_ids(active, subscription) == [f"r{number}" for number in range(90)]


def test_a_query_that_scatters_a_subscription_over_tasks_keeps_the_order_of_records(
    active: ActiveData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executions, "TASKS_FROM_RESULTS_COUNT", 10)
    monkeypatch.setattr(active.engine.executions.views, "slots_count", lambda: 4)
    active.run(REPORTS + FEED + "CREATE DATASET Kinds (kind STRING, event STRING) KEY kind")
    active.run("UPSERT INTO Kinds VALUES " + ", ".join(f"('k{n}', 'flood')" for n in range(6)))
    active.run(
        "CREATE CONTINUOUS CHANNEL Grouped(event STRING) AS SELECT r.reportId, count(*) AS kinds "
        "FROM Reports r, Kinds k WHERE r.event = :event AND k.event = r.event GROUP BY r.reportId;"
        "CREATE CONTINUOUS CHANNEL Each(event STRING) AS SELECT r.reportId, k.kind "
        "FROM Reports r, Kinds k WHERE r.event = :event AND k.event = r.event"
    )
    grouped, each = (active.subscribe(name, "B1", event="flood") for name in ("Grouped", "Each"))
    active.feed("reports", [report(number) for number in range(100)])
    active.settle()
    assert {one.path for one in active.executions()} == {TASKS}
    assert [one.fields for one in active.results(grouped)] == [
        {"reportId": f"r{number}", "kinds": 6} for number in range(100)
    ]
    assert [(one.fields["reportId"], one.fields["kind"]) for one in active.results(each)] == [
        (f"r{number}", f"k{kind}") for number in range(100) for kind in range(6)
    ]
    assert len({one.id for one in active.results(each)}) == 600


def test_a_task_that_finds_too_much_gives_up_and_the_batch_is_done_in_halves(
    active: ActiveData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down to parts of the subscriptions of one record, whose results are one commit."""
    monkeypatch.setattr(executions, "TASKS_FROM_RESULTS_COUNT", 1)
    monkeypatch.setattr(executions, "TASK_LIMITS", result_tasks.TaskLimits(rows_max_count=12))
    active.run(REPORTS + FEED + COPIES)
    made = active.subscribe_many("Copies", [{"event": "flood", "copy": copy} for copy in range(20)], "B1")
    active.feed("reports", [report(number) for number in range(3)])
    active.settle()
    for each in made:
        assert found_ids(active, each.id) == ["r0", "r1", "r2"]
    assert {each.results_count for each in active.executions()} == {20}
    files = {path.name for path in active.results_store.store.path.glob("tasks-*")}
    assert {name.rpartition("/")[2] for name in active.results_store.store.files()[1] if "tasks-" in name} == files


def test_a_slow_channel_runs_apart_and_a_fast_one_stays_fast(
    active: ActiveData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one waits for the test; the fast one's records get their results meanwhile."""
    active.run(REPORTS + FEED + OF_TYPE + OF_TYPE.replace("OfType", "Slow"))
    fast, slow = (active.subscribe(name, "B1", event="flood") for name in ("OfType", "Slow"))
    slow_one = active.engine.channels["slow"]
    go_on = threading.Event()
    ask = active.engine.executions.ask

    def slowly(group: Any, *arguments: Any) -> Any:
        if slow_one in group:
            go_on.wait(300.0 if len(group) == 1 else 1.1)
        return ask(group, *arguments)

    monkeypatch.setattr(active.engine.executions, "ask", slowly)
    for number in range(3):
        active.feed("reports", [report(number)])
        deadline_s = time.monotonic() + 60.0
        while active.engine.channels["oftype"].position <= number and time.monotonic() < deadline_s:
            time.sleep(0.01)
    for number in range(3, 12):
        active.feed("reports", [report(number)])
    deadline_s = time.monotonic() + 60.0
    while len(found_ids(active, fast)) < 12 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert len(found_ids(active, fast)) == 12
    assert len(found_ids(active, slow)) < 12, [(e.channels, e.took_s, e.records_count) for e in active.executions()]
    go_on.set()
    active.settle()
    assert found_ids(active, slow) == found_ids(active, fast)
