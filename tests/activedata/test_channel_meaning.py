"""Aggregates, windows and whole bodies mean the same for each subscription as if it were the only one."""

import contextlib
import time
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from tests.activedata.test_channels import FEED, REPORTS, report
from trimtab.activedata import ActiveData, StatementError
from trimtab.activedata.definitions.aggregates import AGGREGATES
from trimtab.activedata.execution.result_tasks import TaskLimits

USERS = "CREATE DATASET Users (user STRING, district STRING, age INT) KEY user;"


def fields(active: ActiveData, subscription: int) -> list[dict[str, Any]]:
    return [each.fields for each in active.results(subscription)]


def wait_for(active: ActiveData, subscription: int, count: int) -> list[dict[str, Any]]:
    deadline_s = time.monotonic() + 90.0
    while len(fields(active, subscription)) < count and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return fields(active, subscription)


def test_aggregates_are_per_subscription_and_per_execution(active: ActiveData) -> None:
    active.run(REPORTS + FEED)
    active.run(
        "CREATE CONTINUOUS CHANNEL Counts(low DOUBLE) AS "
        "SELECT r.event, count(*) AS n, max(r.x) AS far FROM Reports r WHERE r.x >= :low GROUP BY r.event;"
        "CREATE CONTINUOUS CHANNEL Total(low DOUBLE) AS SELECT count(*) AS n FROM Reports r WHERE r.x >= :low"
    )
    counts = [active.subscribe("Counts", "B1", low=low) for low in (0.0, 3.0)]
    totals = [active.subscribe("Total", "B1", low=low) for low in (0.0, 3.0)]
    active.feed("reports", [report(number, "flood" if number % 2 else "fire") for number in range(6)])
    active.settle()
    found = [sorted(fields(active, each), key=lambda row: str(row["event"])) for each in counts]
    assert found[0] == [{"event": "fire", "n": 3, "far": 4.0}, {"event": "flood", "n": 3, "far": 5.0}]
    assert found[1] == [{"event": "fire", "n": 1, "far": 4.0}, {"event": "flood", "n": 2, "far": 5.0}]
    assert [fields(active, each) for each in totals] == [[{"n": 6}], [{"n": 3}]]
    active.feed("reports", [report(6)])
    active.settle()
    assert fields(active, counts[1])[-1] == {"event": "flood", "n": 1, "far": 6.0}
    assert [fields(active, each)[-1] for each in totals] == [{"n": 1}, {"n": 1}]


def test_a_group_that_holds_the_key_is_one_record(active: ActiveData) -> None:
    active.run(REPORTS + FEED + USERS)
    active.run("UPSERT INTO Users VALUES ('a', 'flood', 3), ('b', 'flood', 4)")
    active.run(
        "CREATE CONTINUOUS CHANNEL With(event STRING) AS SELECT r.reportId, collect_list(u.user) AS users "
        "FROM Reports r LEFT JOIN Users u ON u.district = r.event WHERE r.event = :event GROUP BY r.reportId"
    )
    subscription = active.subscribe("With", "B1", event="flood")
    active.feed("reports", [report(1), report(2)])
    active.settle()
    found = active.results(subscription)
    assert [(each.record, sorted(each.fields["users"])) for each in found] == [(1, ["a", "b"]), (2, ["a", "b"])]


def test_windows_hold_rows_of_one_subscription(active: ActiveData) -> None:
    active.run(REPORTS + FEED)
    active.run(
        "CREATE CONTINUOUS CHANNEL Ranked(low DOUBLE) AS SELECT r.reportId, "
        "row_number() OVER (PARTITION BY r.event ORDER BY r.x) AS k, count(*) OVER () AS n "
        "FROM Reports r WHERE r.x >= :low"
    )
    some, fewer = (active.subscribe("Ranked", "B1", low=low) for low in (0.0, 2.0))
    active.feed("reports", [report(number) for number in range(4)])
    active.settle()
    assert fields(active, some) == [{"reportId": f"r{n}", "k": n + 1, "n": 4} for n in range(4)]
    assert fields(active, fewer) == [{"reportId": f"r{n}", "k": n - 1, "n": 2} for n in (2, 3)]


def test_a_repetitive_channel_runs_its_whole_body_over_any_dataset(active: ActiveData) -> None:
    active.run("CREATE BROKER B1 AT 'here';" + USERS)
    active.run("UPSERT INTO Users VALUES ('a', 'north', 30), ('b', 'north', 20), ('c', 'south', 50)")
    active.run(
        "CREATE REPETITIVE CHANNEL Oldest(district STRING, least INT) PERIOD 1 SECONDS AS "
        "WITH old AS (SELECT * FROM Users WHERE age >= :least) "
        "SELECT o.user, o.age, row_number() OVER (ORDER BY o.age DESC) AS k FROM old o WHERE o.district = :district;"
        "CREATE REPETITIVE CHANNEL Count(district STRING) PERIOD 1 SECONDS AS "
        "SELECT count(*) AS n FROM Users u WHERE u.district = :district;"
        "CREATE REPETITIVE CHANNEL Places(least INT) PERIOD 1 SECONDS AS "
        "SELECT DISTINCT u.district FROM Users u WHERE u.age >= :least;"
        "CREATE REPETITIVE CHANNEL First(district STRING) PERIOD 1 SECONDS AS "
        "SELECT u.* FROM Users u WHERE u.district = :district ORDER BY u.age LIMIT 1"
    )
    north = active.subscribe("Oldest", "B1", district="north", least=10)
    counts = [active.subscribe("Count", "B1", district=district) for district in ("north", "west")]
    places = active.subscribe("Places", "B1", least=1)
    first = active.subscribe("First", "B1", district="north")
    rows = wait_for(active, north, 4)
    a, b = {"user": "a", "age": 30, "k": 1}, {"user": "b", "age": 20, "k": 2}
    assert rows[:2] in ([a, b], [b, a])
    assert rows[2:4] in ([a, b], [b, a])
    assert wait_for(active, counts[0], 2)[:2] == [{"n": 2}, {"n": 2}]
    assert wait_for(active, counts[1], 1)[0] == {"n": 0}
    assert sorted(row["district"] for row in wait_for(active, places, 2)[:2]) == ["north", "south"]
    assert wait_for(active, first, 1)[0] == {"user": "b", "district": "north", "age": 20}
    active.run("UPSERT INTO Users VALUES ('d', 'west', 1)")
    deadline_s = time.monotonic() + 60.0
    while fields(active, counts[1])[-1] == {"n": 0} and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert fields(active, counts[1])[-1] == {"n": 1}
    results = active.results(counts[0])
    assert len({each.id for each in results}) == len(results)
    assert [each.record for each in results] == list(range(results[0].record, results[0].record + len(results)))


def test_new_records_of_several_datasets_meet_and_times_of_executions_can_be_asked_for(active: ActiveData) -> None:
    active.run(REPORTS + FEED)
    active.run(
        "CREATE ACTIVE DATASET Calls (callId STRING, event STRING) KEY callId; CREATE FEED calls INTO Calls FROM HTTP; "
        "START FEED calls;"
        "CREATE CONTINUOUS CHANNEL Either(event STRING) AS SELECT r.reportId, c.callId FROM Reports r, Calls c "
        "WHERE r.event = c.event AND r.event = :event AND (is_new(r) OR is_new(c));"
        "CREATE CONTINUOUS CHANNEL Timed(event STRING) AS SELECT r.reportId, "
        "previous_execution_time() < current_execution_time() AS later FROM Reports r "
        "WHERE r.event = :event AND is_new(r)"
    )
    either = active.subscribe("Either", "B1", event="flood")
    timed = active.subscribe("Timed", "B1", event="flood")
    active.feed("reports", [report(1)])
    active.settle()
    active.feed("calls", [{"callId": "c1", "event": "flood"}])
    active.settle()
    active.feed("reports", [report(2)])
    active.settle()
    assert fields(active, either) == [{"reportId": "r1", "callId": "c1"}, {"reportId": "r2", "callId": "c1"}]
    assert fields(active, timed) == [{"reportId": "r1", "later": True}, {"reportId": "r2", "later": True}]


def test_a_whole_body_goes_on_after_a_restart_and_sees_nothing_twice(spark: Any, tmp_path: Any) -> None:
    new = (
        "CREATE REPETITIVE CHANNEL New(event STRING) PERIOD 0.2 SECONDS AS "
        "SELECT r.reportId FROM Reports r WHERE r.event = :event AND is_new(r)"
    )
    with ActiveData(tmp_path, spark) as active:
        active.run(REPORTS + FEED + new)
        subscription = active.subscribe("New", "B1", event="flood")
        active.feed("reports", [report(1)])
        wait_for(active, subscription, 1)
        execution = active.engine.channels["new"].state.execution
    with ActiveData(tmp_path, spark) as active:
        assert active.engine.channels["new"].state.execution >= execution
        active.feed("reports", [report(2)])
        assert wait_for(active, subscription, 2) == [{"reportId": "r1"}, {"reportId": "r2"}]
        later = active.subscribe("New", "B1", event="fire")
        active.feed("reports", [report(3, "fire")])
        assert wait_for(active, later, 1) == [{"reportId": "r3"}]
        assert fields(active, subscription) == [{"reportId": "r1"}, {"reportId": "r2"}]


def test_a_subscription_that_a_whole_body_fails_with_is_suspended(active: ActiveData) -> None:
    active.run("CREATE BROKER B1 AT 'here';" + USERS + "UPSERT INTO Users VALUES ('a', 'north', 30)")
    active.run(
        "CREATE REPETITIVE CHANNEL Shares(d INT) PERIOD 0.2 SECONDS AS SELECT u.user, u.age / :d AS share FROM Users u"
    )
    bad, good = (active.subscribe("Shares", "B1", d=d) for d in (0, 2))
    assert wait_for(active, good, 2)[1] == {"user": "a", "share": 15.0}
    assert list(active.suspended()) == [bad]


def test_a_whole_body_that_gives_too_much_is_executed_for_parts_of_the_subscriptions(
    active: ActiveData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.activedata.execution.executions.TASK_LIMITS", TaskLimits(rows_max_count=8))
    active.run("CREATE BROKER B1 AT 'here';" + USERS)
    active.run("UPSERT INTO Users VALUES " + ", ".join(f"('u{n}', 'north', {n})" for n in range(5)))
    active.run("CREATE REPETITIVE CHANNEL All(d STRING) PERIOD 1 SECONDS AS SELECT u.user FROM Users u WHERE :d <> ''")
    some = [active.subscribe("All", "B1", d=f"d{n}") for n in range(4)]
    for each in some:
        assert sorted(row["user"] for row in wait_for(active, each, 5)[:5]) == [f"u{n}" for n in range(5)]
    first = active.executions()[0]
    assert (first.path, first.results_count) == ("tasks", 20)
    assert active.suspended() == {}


@pytest.mark.parametrize(
    ("text", "marked", "reason"),
    [
        (
            "CREATE REPETITIVE CHANNEL c(d STRING) PERIOD 1 SECONDS AS SELECT u.user FROM Users u "
            "WHERE EXISTS (SELECT 1 FROM Users v WHERE v.district = :d)",
            ":d",
            "parameters cannot stand in this place",
        ),
        (
            "CREATE REPETITIVE CHANNEL c() PERIOD 1 SECONDS AS SELECT u.user FROM Users u WHERE is_new(u)",
            "u)",
            "Users is no active dataset",
        ),
        (
            "CREATE REPETITIVE CHANNEL c(d STRING) PERIOD 1 SECONDS AS SELECT u.nope FROM Users u WHERE u.user = :d",
            "u.nope",
            "UNRESOLVED_COLUMN",
        ),
        ("CREATE REPETITIVE CHANNEL c() AS SELECT 1 FROM Users u", "AS", "expected PERIOD"),
        (
            "CREATE CONTINUOUS CHANNEL c() AS SELECT r.x, current_execution_time() AS t FROM Reports r",
            "SELECT",
            "say of which dataset",
        ),
        (
            "CREATE CONTINUOUS CHANNEL c() AS SELECT r.x, count(*) AS n FROM Reports r",
            "SELECT",
            "MISSING_GROUP_BY",
        ),
    ],
)
def test_what_cannot_have_this_meaning_is_refused_with_its_place(
    active: ActiveData, text: str, marked: str, reason: str
) -> None:
    active.run(REPORTS + USERS)
    with pytest.raises(StatementError) as caught:
        active.run(text)
    assert reason in caught.value.reason
    assert caught.value.position == text.index(marked)


def test_the_aggregates_are_those_that_spark_knows(active: ActiveData) -> None:
    session = active.views.session
    rows = session.sql("SHOW SYSTEM FUNCTIONS").collect()
    names = [row[0] for row in rows if row[0].isidentifier()]
    catalog = session._jsparkSession.sessionState().catalog()
    identifier = session._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier  # type: ignore[union-attr]
    kinds = {}
    for name in names:
        with contextlib.suppress(AnalysisException):
            kinds[name] = catalog.lookupFunctionInfo(identifier(name)).getGroup()
    assert {name for name, kind in kinds.items() if kind == "agg_funcs"} <= AGGREGATES
    assert kinds["count"] == "agg_funcs"
