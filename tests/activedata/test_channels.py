"""Channels on a real Spark find what plain Python finds, each pair once, all subscriptions in one query."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.activedata.emergency import City, Pairs, Record, statements
from trimtab.activedata import ActiveData, StatementError
from trimtab.activedata.definitions.fields import Scalar
from trimtab.activedata.execution.channels import RunningChannel
from trimtab.activedata.spark.views import LOCAL_ROWS_COUNT, SparkViews

REPORTS = "CREATE ACTIVE DATASET Reports (reportId STRING, event STRING, x DOUBLE, y DOUBLE) KEY reportId;"
FEED = "CREATE FEED reports INTO Reports FROM HTTP; START FEED reports; CREATE BROKER B1 AT 'here';"
OF_TYPE = "CREATE CONTINUOUS CHANNEL OfType(event STRING) AS SELECT r.reportId FROM Reports r WHERE r.event = :event;"


def report(number: int, event: str = "flood") -> dict[str, str | float]:
    return {"reportId": f"r{number}", "event": event, "x": float(number), "y": 0.0}


def found_ids(active: ActiveData, subscription: int) -> list[str]:
    return [each.fields["reportId"] for each in active.results(subscription)]


def start_city(active: ActiveData, city: City) -> dict[int, tuple[str, dict[str, str]]]:
    """Run the example with continuous channels, load users and shelters, and subscribe."""
    active.run(statements(continuous=True))
    active.run("CREATE BROKER B1 AT 'here'")
    active.feed("locations", city.users)
    active.feed("shelters", city.shelters)
    return {active.subscribe(channel, "B1", **arguments): (channel, arguments) for channel, arguments in city.wanted()}


def test_the_seven_channels_find_what_plain_python_finds(active: ActiveData) -> None:
    city = City(seed=7)
    subscriptions = start_city(active, city)
    reports: list[Record] = []
    for count in (1, 30, 60):
        batch = city.reports(count)
        active.feed("reports", batch)
        reports += batch
    active.settle()
    expected: Pairs = {
        (number, str(each["reportId"]))
        for number, (_, arguments) in subscriptions.items()
        for each in reports
        if city.matches(arguments, each)
    }
    found = [(number, id_) for number in subscriptions for id_ in found_ids(active, number)]
    assert len(found) == len(set(found))
    assert set(found) == expected
    for number, (channel, arguments) in subscriptions.items():
        shelters = city.shelters_for(channel, arguments)
        for each in active.results(number):
            named = each.fields.get("shelters")
            if shelters is None:
                assert named is None
            else:
                assert named is not None
                ids = {one["shelterId"] if isinstance(one, dict) else one for one in named}
                assert ids - {None} == shelters
    check_that_nothing_is_compared_with_everything(active)
    check_that_one_plan_is_kept(active)


def check_that_one_plan_is_kept(active: ActiveData) -> None:
    """The seven channels share a plan that reads new records when it runs again."""
    (kept,) = active.engine.executions.prepared._plans.values()
    assert kept.frame is not None
    plan = kept.frame._jdf.queryExecution().executedPlan().toString()
    assert "Union" in plan
    assert "NestedLoop" not in plan
    assert "Exchange hashpartitioning" not in plan


def check_that_nothing_is_compared_with_everything(active: ActiveData) -> None:
    """No channel pairs every record with every subscription."""
    records = active.datasets["reports"].records(0, 10)
    for channel in active.engine.channels.values():
        plan = active.engine.executions.query([channel], records)._jdf.queryExecution().executedPlan().toString()
        assert "NestedLoop" not in plan, channel.entry.name
        assert "CartesianProduct" not in plan, channel.entry.name


def test_many_subscriptions_are_cached_in_spark(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_TYPE)
    many: list[dict[str, Scalar]] = [{"event": f"e{number}"} for number in range(LOCAL_ROWS_COUNT + 10)]
    made = active.subscribe_many("OfType", many, "B1")
    channel = active.engine.channels["oftype"]
    active.feed("reports", [report(0)])
    plan = active.engine.executions.query([channel], active.datasets["reports"].records(0, 1))
    assert "InMemoryTableScan" in plan._jdf.queryExecution().executedPlan().toString()
    active.feed("reports", [report(1, "e5"), report(2, "e3005")])
    later = active.subscribe("OfType", "B1", event="later")
    active.feed("reports", [report(3, "later")])
    active.settle()
    assert found_ids(active, made[5].id) == ["r1"]
    assert found_ids(active, made[3005].id) == ["r2"]
    assert found_ids(active, later) == ["r3"]


def test_a_subscription_sees_only_records_that_came_after_it(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_TYPE)
    active.feed("reports", [report(1)])
    subscription = active.subscribe("OfType", "B1", event="flood")
    active.feed("reports", [report(2)])
    active.settle()
    assert found_ids(active, subscription) == ["r2"]
    assert active.subscribe("OfType", "B1", event="flood") == subscription


def test_an_ended_subscription_gets_nothing_more(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_TYPE)
    one = active.subscribe("OfType", "B1", event="flood")
    other = active.subscribe("OfType", "B1", event="fire")
    active.run(f"UNSUBSCRIBE {one}")
    active.feed("reports", [report(1), report(2, "fire")])
    active.settle()
    assert found_ids(active, other) == ["r2"]
    with pytest.raises(StatementError, match=f"there is no subscription {one}"):
        active.run(f"UNSUBSCRIBE {one}")
    assert active.run("SELECT subscription FROM results")[0].rows == [{"subscription": other}]


def test_a_repetitive_channel_runs_every_period(active: ActiveData) -> None:
    active.run(REPORTS + FEED)
    active.run("CREATE CHANNEL Slow(event STRING) PERIOD 1 SECONDS AS SELECT * FROM Reports r WHERE event = :event")
    subscription = active.subscribe("Slow", "B1", event="flood")
    active.feed("reports", [report(1), report(2)])
    assert active.wait([subscription], 0, 20.0) == {subscription: 2}
    assert active.results(subscription)[0].fields == report(1)
    active.feed("reports", [report(3)])
    assert active.wait([subscription], 2, 20.0) == {subscription: 3}


def test_results_and_positions_survive_and_nothing_comes_twice(spark: SparkViews, tmp_path: Path) -> None:
    with ActiveData(tmp_path, spark) as active:
        active.run(REPORTS + FEED + OF_TYPE)
        subscription = active.subscribe("OfType", "B1", event="flood")
        active.feed("reports", [report(number) for number in range(5)])
        active.settle()
        active.engine.stop()
        active.feed("reports", [report(number) for number in range(3, 8)])
    with ActiveData(tmp_path, spark) as active:
        active.settle()
        assert found_ids(active, subscription) == [f"r{number}" for number in range(8)]
        ids = [each.id for each in active.results(subscription)]
        assert len(set(ids)) == 8
        assert [each.position for each in active.results(subscription, after=6)] == [7, 8]


def test_what_the_catalog_did_not_learn_before_a_crash_is_learned_from_the_tables(
    spark: SparkViews, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ActiveData(tmp_path, spark) as active:
        active.run(REPORTS + FEED + OF_TYPE)
        subscription = active.subscribe("OfType", "B1", event="flood")
        monkeypatch.setattr(active.catalog, "set_positions", lambda positions: None)
        active.feed("reports", [report(number) for number in range(5)])
        active.settle()
    with ActiveData(tmp_path, spark) as active:
        assert active.catalog.channel("OfType").position == 0
        again = active.feed("reports", [report(number) for number in range(6)])
        assert (again.accepted, again.repeated) == (6, 5)
        active.settle()
        assert found_ids(active, subscription) == [f"r{number}" for number in range(6)]


def test_old_results_are_removed(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_TYPE.replace(" AS", " RETAIN 1 HOURS AS", 1))
    subscription = active.subscribe("OfType", "B1", event="flood")
    active.feed("reports", [report(1)])
    active.settle()
    active.engine.remove_old_results(time.time() + 3_500)
    assert active.run("SELECT count(*) AS n FROM results")[0].rows == [{"n": 1}]
    active.engine.remove_old_results(time.time() + 3_700)
    assert active.run("SELECT count(*) AS n FROM results")[0].rows == [{"n": 0}]
    active.feed("reports", [report(2)])
    active.settle()
    assert found_ids(active, subscription)[-1] == "r2"


def test_brokers_that_want_the_same_share_a_subscription_until_the_last_ends_it(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_TYPE)
    active.run("CREATE BROKER B2 AT '127.0.0.1:2'")
    one = active.subscribe("OfType", "B1", event="flood")
    assert active.subscribe("OfType", "B2", event="flood") == one
    active.feed("reports", [report(1)])
    active.settle()
    assert active.subscribe("OfType", "B2", event="flood") == one
    active.run(f"UNSUBSCRIBE {one} ON B1")
    active.feed("reports", [report(2)])
    active.settle()
    assert found_ids(active, one) == ["r1", "r2"]
    active.run(f"UNSUBSCRIBE {one} ON B2")
    with pytest.raises(StatementError, match=f"there is no subscription {one}"):
        active.run(f"UNSUBSCRIBE {one}")


def test_a_plan_that_is_kept_sees_what_changed(active: ActiveData) -> None:
    active.run(REPORTS + FEED + "CREATE DATASET Users (name STRING, x DOUBLE, y DOUBLE) KEY name")
    active.run("UPSERT INTO Users VALUES ('a', 0, 0)")
    active.run(
        "CREATE CONTINUOUS CHANNEL Near(who STRING, far DOUBLE) AS SELECT r.reportId FROM Reports r, Users u "
        "WHERE u.name = :who AND distance(r.x, r.y, u.x, u.y) <= :far"
    )
    near = active.subscribe("Near", "B1", who="a", far=1.5)
    for number in range(3):
        active.feed("reports", [report(number)])
        active.settle()
    assert found_ids(active, near) == ["r0", "r1"]
    active.run("UPSERT INTO Users VALUES ('a', 10, 0), ('b', 20, 0)")
    far = active.subscribe("Near", "B1", who="b", far=12.0)
    active.feed("reports", [report(number) for number in range(3, 12)])
    active.settle()
    assert found_ids(active, near) == ["r0", "r1", "r9", "r10", "r11"]
    assert found_ids(active, far) == ["r8", "r9", "r10", "r11"]
    active.run(f"UNSUBSCRIBE {far}")
    active.feed("reports", [report(12)])
    active.settle()
    assert active.run("SELECT max(subscription) AS last, count(*) AS n FROM results WHERE record > 12")[0].rows == [
        {"last": None, "n": 0}
    ]


def test_a_query_that_asks_for_the_time_is_planned_each_time(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_TYPE.replace("r.reportId", "r.reportId, unix_micros(now()) AS at"))
    subscription = active.subscribe("OfType", "B1", event="flood")
    for number in range(2):
        active.feed("reports", [report(number)])
        active.settle()
    first, second = [each.fields["at"] for each in active.results(subscription)]
    assert first < second
    assert active.engine.executions.prepared._plans == {}


def test_a_change_for_one_channel_plans_that_one_beside_the_others(
    active: ActiveData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.activedata.execution.query_plans.TOGETHER_AGAIN_AFTER_COUNT", 2)
    users = "CREATE DATASET Users (user STRING, event STRING) KEY user; UPSERT INTO Users VALUES ('a', 'flood');"
    of_user = (
        "CREATE CONTINUOUS CHANNEL OfUser(user STRING) AS SELECT r.reportId FROM Reports r, Users u "
        "WHERE r.event = u.event AND u.user = :user;"
    )
    active.run(REPORTS + FEED + OF_TYPE + users + of_user)
    floods, users_own = active.subscribe("OfType", "B1", event="flood"), active.subscribe("OfUser", "B1", user="a")
    plans = active.engine.executions.prepared._plans
    numbers = iter(range(100))

    def happen(event: str) -> str:
        number = next(numbers)
        active.feed("reports", [report(number, event)])
        active.settle()
        return f"r{number}"

    seen = [happen("flood")]
    (both,) = plans.values()
    fires = active.subscribe("OfType", "B1", event="fire")
    fire = happen("fire")
    seen.append(happen("flood"))
    assert [tuple(each.versions) for each in plans.values()] == [(1, 2), (1,)]
    assert both in plans.values()
    assert (found_ids(active, fires), found_ids(active, floods), found_ids(active, users_own)) == ([fire], seen, seen)
    for _ in range(2):
        seen.append(happen("flood"))
    assert both not in plans.values()
    active.run("UPSERT INTO Users VALUES ('a', 'fire')")
    fire = happen("fire")
    assert found_ids(active, users_own) == [*seen, fire]
    assert found_ids(active, floods) == seen
    active.unsubscribe(fires)
    happen("fire")
    assert active.catalog.subscriptions_count(1) == 1
    assert found_ids(active, floods) == seen


def test_many_subscriptions_are_kept_with_their_plan_when_they_rest(
    active: ActiveData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.activedata.execution.query_plans.MANY_COUNT", 1)
    active.run(REPORTS + FEED + OF_TYPE)
    flood, _ = (active.subscribe("OfType", "B1", event=event) for event in ("flood", "fire"))
    plans = active.engine.executions.prepared._plans
    kept = []
    for number in range(4):
        if number == 2:
            storms = active.subscribe("OfType", "B1", event="storm")
        active.feed("reports", [report(number), report(number + 100, "storm")])
        active.settle()
        kept.append(next(iter(plans.values()), None))
    assert kept[0] is None
    assert kept[1] is not None
    assert kept[2] is kept[1]  # it is not used, for there are others now
    assert kept[3] is not kept[1]
    assert found_ids(active, flood) == ["r0", "r1", "r2", "r3"]
    assert found_ids(active, storms) == ["r102", "r103"]


def test_a_plan_that_compares_all_with_all_is_kept_for_few(active: ActiveData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.activedata.execution.query_plans.PAIRS_MAX_COUNT", 4)
    farther = "CREATE CONTINUOUS CHANNEL Farther(x DOUBLE) AS SELECT r.reportId FROM Reports r WHERE r.x > :x;"
    active.run(REPORTS + FEED + farther)
    subscription = active.subscribe("Farther", "B1", x=1.0)
    plans = active.engine.executions.prepared._plans
    active.feed("reports", [report(1), report(2)])
    active.settle()
    (plan,) = plans.values()
    assert plan.loops
    asked: list[int] = []
    query = active.engine.executions.query

    def counted(group: list[RunningChannel], records: pa.Table) -> object:
        asked.append(records.num_rows)
        return query(group, records)

    monkeypatch.setattr(active.engine.executions, "query", counted)
    for count, asked_count in ((4, 0), (5, 1)):
        active.feed("reports", [report(10 * count + number) for number in range(count)])
        active.settle()
        assert len(asked) == asked_count
    assert len(found_ids(active, subscription)) == 10
