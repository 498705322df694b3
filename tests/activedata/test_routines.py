"""Functions of SQL and Python in channels and queries, and procedures that run when told to or by themselves."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.activedata.test_channels import FEED, REPORTS, found_ids, report
from trimtab.activedata import ActiveData, StatementError

USERS = "CREATE DATASET Users (name STRING, age INT) KEY name;"


def test_functions_of_sql_and_python_are_called_by_channels_and_are_there_after_a_restart(
    spark: Any, tmp_path: Path
) -> None:
    def shout(text: str) -> str:
        return text.upper()

    functions = {"shout": (shout, "string")}
    with ActiveData(tmp_path, spark, functions=functions) as active:
        active.run(REPORTS + FEED)
        active.run(
            "CREATE FUNCTION far(x DOUBLE, limit DOUBLE) RETURNS BOOLEAN AS abs(x) > limit;"
            "CREATE CONTINUOUS CHANNEL Far(least DOUBLE) AS SELECT r.reportId, shout(r.event) AS event "
            "FROM Reports r WHERE far(r.x, :least)"
        )
        subscription = active.subscribe("Far", "B1", least=2.0)
        active.feed("reports", [report(number) for number in range(4)])
        active.settle()
        assert [each.fields for each in active.results(subscription)] == [{"reportId": "r3", "event": "FLOOD"}]
    with ActiveData(tmp_path, spark, functions=functions) as active:
        active.feed("reports", [report(5)])
        active.settle()
        assert found_ids(active, subscription) == ["r3", "r5"]
        assert active.run("SELECT far(3, 1) AS a, shout('b') AS b")[0].rows == [{"a": True, "b": "B"}]
        with pytest.raises(StatementError, match="Far depend on it"):
            active.run("DROP FUNCTION far")


def test_procedures_run_when_told_to_and_by_themselves(active: ActiveData) -> None:
    active.run(USERS)
    active.run("CREATE PROCEDURE put(name STRING, age INT) AS UPSERT INTO Users VALUES (:name, :age)")
    active.run("EXECUTE put('it''s', 7); EXECUTE put(age => 200, name => 'old')")
    assert active.run("SELECT * FROM Users ORDER BY age")[0].rows == [
        {"name": "it's", "age": 7},
        {"name": "old", "age": 200},
    ]
    active.run("CREATE PROCEDURE forget() PERIOD 0.1 SECONDS AS DELETE FROM Users WHERE age > 100")
    deadline_s = time.monotonic() + 60.0
    while active.run("SELECT count(*) AS n FROM Users")[0].rows != [{"n": 1}] and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert active.run("SELECT name FROM Users")[0].rows == [{"name": "it's"}]
    active.run("DROP PROCEDURE forget; EXECUTE put('old', 300)")
    assert active.run("SELECT count(*) AS n FROM Users")[0].rows == [{"n": 2}]


@pytest.mark.parametrize(
    ("text", "marked", "reason"),
    [
        ("CREATE FUNCTION f(x INT) RETURNS INT AS x + nope", "x + nope", "UNRESOLVED_COLUMN"),
        ("CREATE FUNCTION f(x INT) RETURNS STRING AS reflect('java.lang.System', 'exit')", "reflect", "reflect"),
        ("CREATE FUNCTION upper(x STRING) RETURNS STRING AS x", "upper", "Spark has a function 'upper' already"),
        ("CREATE PROCEDURE p(x INT) PERIOD 1 SECONDS AS DELETE FROM Users", "PERIOD", "has no parameters"),
        ("CREATE PROCEDURE p() AS SELECT 1", "SELECT", "expected INSERT, UPSERT"),
        ("CREATE PROCEDURE p() AS DELETE FROM Users WHERE age = :x", ":x", "is no parameter of the procedure"),
        ("EXECUTE nope()", "nope", "there is no procedure 'nope'"),
        ("DROP FUNCTION nope", "DROP", "there is no function 'nope'"),
    ],
)
def test_what_is_wrong_with_a_routine_is_told_with_its_place(
    active: ActiveData, text: str, marked: str, reason: str
) -> None:
    active.run(USERS)
    with pytest.raises(StatementError) as caught:
        active.run(text)
    assert reason in caught.value.reason
    assert caught.value.position == text.index(marked)
