"""Statements are understood, and what is wrong with one is told with its place."""

import pytest

from trimtab.activedata import StatementError
from trimtab.activedata.definitions.fields import Field
from trimtab.activedata.definitions.statements import (
    CreateBroker,
    CreateChannel,
    CreateDataset,
    CreateFeed,
    DirectorySource,
    Drop,
    HttpSource,
    OverlaySource,
    Put,
    Query,
    Statement,
    Subscribe,
    parse_statements,
)
from trimtab.activedata.execution.channel_queries import Dataset, compile_channel
from trimtab.operations.emergency.city import statements

DATASETS = {
    "reports": Dataset("Reports", (Field("id", "STRING"), Field("x", "DOUBLE"), Field("y", "DOUBLE")), True),
    "users": Dataset("Users", (Field("name", "STRING"), Field("x", "DOUBLE"), Field("y", "DOUBLE")), False),
}


def only(text: str) -> Statement:
    (placed,) = parse_statements(text)
    return placed.statement


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "CREATE ACTIVE DATASET R (id STRING, x double OPTIONAL) KEY id",
            CreateDataset("R", (Field("id", "STRING"), Field("x", "DOUBLE", True)), ("id",), True),
        ),
        ("create feed f into R from http;", CreateFeed("f", "R", HttpSource(), position=19)),
        ("CREATE FEED f INTO R FROM DIRECTORY '/tmp/x'", CreateFeed("f", "R", DirectorySource("/tmp/x"), position=19)),
        (
            "CREATE FEED f INTO R FROM OVERLAY 'class = ''A''' AT 'h:1' -- why not",
            CreateFeed("f", "R", OverlaySource("class = 'A'", "h:1"), position=19),
        ),
        (
            "CREATE CHANNEL C(e STRING) PERIOD 2 MINUTES RETAIN 1 DAYS AS SELECT ';' FROM R",
            CreateChannel("C", (Field("e", "STRING"),), 120.0, 86_400.0, "SELECT ';' FROM R", 61),
        ),
        ("CREATE CONTINUOUS CHANNEL C() AS SELECT 1 FROM R", CreateChannel("C", (), None, None, "SELECT 1 FROM R", 33)),
        ("CREATE BROKER B AT '127.0.0.1:7001'", CreateBroker("B", "127.0.0.1:7001", position=19)),
        ("CREATE PUBLISHING BROKER B AT 'h:1'", CreateBroker("B", "h:1", publishes=True, position=30)),
        ("SUBSCRIBE TO C('a', -2.5, true) ON B", Subscribe("C", ("a", -2.5, True), {}, "B", 13)),
        ('SUBSCRIBE TO C(e => "a") ON B', Subscribe("C", (), {"e": "a"}, "B", 13)),
        ("DROP BROKER IF EXISTS B CASCADE", Drop("BROKER", "B", True, True)),
        ("UPSERT INTO U (a, b) VALUES (1, NULL)", Put("U", ("a", "b"), ((1, None),), True, 12)),
        ("/* all */ SELECT * FROM R", Query("SELECT * FROM R")),
    ],
)
def test_a_statement_is_understood(text: str, expected: Statement) -> None:
    assert only(text) == expected


@pytest.mark.parametrize(
    ("text", "marked", "reason"),
    [
        ("CREATE TABLE x", "TABLE", "expected"),
        ("CREATE DATASET d (a TEXT) KEY a", "TEXT", "unknown type"),
        ("CREATE DATASET d (a INT, A INT) KEY a", "A INT)", "two fields named"),
        ("CREATE DATASET d (a INT) KEY b", "b", "is no field"),
        ("CREATE DATASET d (a INT OPTIONAL) KEY a", "a", "cannot be optional"),
        ("CREATE DATASET results (a INT) KEY a", "results", "reserved"),
        ("CREATE CHANNEL c() AS SELECT 1", "AS", "PERIOD"),
        ("CREATE CONTINUOUS CHANNEL c() PERIOD 5 SECONDS AS SELECT 1", "PERIOD", "no period"),
        ("CREATE CHANNEL c() PERIOD 0 SECONDS AS SELECT 1", "0", "above 0"),
        ("CREATE CHANNEL c() PERIOD 5 WEEKS AS SELECT 1", "WEEKS", "SECONDS"),
        ("SUBSCRIBE TO c(a => 1, a => 2) ON b", "a => 2", "twice"),
        ("SUBSCRIBE TO c(1, a => 2) ON b", "c(", "by position or all by name"),
        ("SUBSCRIBE TO c(x) ON b", "x", "expected a value"),
        ("UNSUBSCRIBE x", "x", "number of a subscription"),
        ("DROP FEED f CASCADE", "CASCADE", "only a broker"),
        ("INSERT INTO d (a) VALUES (1, 2)", "(1", "2 values for 1 fields"),
        ("SELECT 'open", "'open", "no closing"),
        ("DROP FEED f DROP FEED g", "DROP FEED g", "';'"),
        ("CREATE FEED f INTO d FROM FILE 'x'", "FILE", "DIRECTORY"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, marked: str, reason: str) -> None:
    with pytest.raises(StatementError) as caught:
        parse_statements(text)
    assert reason in caught.value.reason
    assert caught.value.position == text.rindex(marked)


@pytest.mark.parametrize(
    ("body", "marked", "reason"),
    [
        ("SELECT 1 FROM Nothing n", "Nothing", "no dataset"),
        ("SELECT 1 FROM Users u", "Users", "ACTIVE DATASET"),
        ("SELECT 1 FROM Reports a, Reports b", "Reports b", "two active datasets"),
        ("SELECT 1 FROM Reports r, Users r", "Reports", "two relations"),
        ("SELECT 1 FROM Reports r WHERE r.id = :nobody", ":nobody", "no parameter"),
        ("SELECT 1 FROM Reports r WHERE is_new(u)", "u)", "no active dataset"),
        ("SELECT 1 FROM Reports r ORDER BY 1", "ORDER", "no order"),
        ("SELECT 1 FROM Reports r LIMIT 5", "LIMIT", "LIMIT"),
        ("SELECT DISTINCT r.id FROM Reports r", "DISTINCT", "every match"),
        ("SELECT (1 FROM Reports r", "", "not closed"),
        ("SELECT 1) FROM Reports r", ")", "closing bracket"),
        ("SELECT 1 FROM Reports r, (SELECT * FROM Users WHERE name = :who) u", ":who", "own conditions"),
    ],
)
def test_a_channel_that_cannot_be_evaluated_together_is_refused(body: str, marked: str, reason: str) -> None:
    with pytest.raises(StatementError) as caught:
        compile_channel(body, (Field("who", "STRING"),), DATASETS)
    assert reason in caught.value.reason
    assert caught.value.position == (body.index(marked) if marked else len(body))


def test_the_example_has_seven_channels_that_can_be_made_continuous() -> None:
    kinds = [placed.statement for placed in parse_statements(statements(continuous=True))]
    assert sum(isinstance(each, CreateChannel) and each.period_s is None for each in kinds) == 7


def test_a_distance_becomes_an_equality_of_cells() -> None:
    body = "SELECT r.id FROM Reports r, Users u WHERE u.name = :who AND distance(r.x, r.y, u.x, u.y) < 5"
    query, _ = compile_channel(body, (Field("who", "STRING"),), DATASETS)
    text = query.text("new", "subs", {})
    assert "explode(array(" in text
    assert "+ `r`.`_step0` = " in text
    assert "sqrt(pow((r.x) - (u.x), 2) + pow((r.y) - (u.y), 2)) < 5" in text
    assert text.index("subs _s") < text.index("`Users` `u`") < text.index("explode")
    assert query.lookups == ("Users",)


def test_the_width_of_cells_follows_the_largest_radius_that_is_subscribed() -> None:
    body = "SELECT r.id FROM Reports r WHERE distance(r.x, r.y, :x, :y) <= :far"
    parameters = (Field("x", "DOUBLE"), Field("y", "DOUBLE"), Field("far", "DOUBLE"))
    query, _ = compile_channel(body, parameters, DATASETS)
    assert "/ 70.0D" in query.text("new", "subs", {"far": 70.0})


def test_of_two_active_datasets_one_is_named_as_the_new_one() -> None:
    datasets = {**DATASETS, "places": Dataset("Places", (Field("name", "STRING"),), True)}
    body = "SELECT r.id FROM Reports r, Places p WHERE is_new(p) AND r.id = p.name"
    query, _ = compile_channel(body, (), datasets)
    assert query.driver == "Places"
    assert query.lookups == ("Reports",)
