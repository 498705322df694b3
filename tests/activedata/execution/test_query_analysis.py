"""Users' queries read what is known and do nothing else: judged by Spark's own plan, on a real Spark."""

import time
from pathlib import Path

import pytest

from tests.activedata.test_channels import FEED, REPORTS, report
from trimtab.activedata import ActiveData, QueryLimits, StatementError
from trimtab.activedata.execution.query_analysis import check_query
from trimtab.activedata.spark.views import SparkViews

ALLOWED = [
    "SELECT a, count(*) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t u",
    "SELECT a FROM t WHERE x IN (SELECT y FROM t2) AND y = :p AND (a, b) IN ((1, 2)) AND a RLIKE 'x'",
    "WITH c AS (SELECT 1 AS x), d AS (SELECT * FROM c) SELECT * FROM d JOIN range(10) r ON true",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "EXPLAIN SELECT 1",
    "SELECT * FROM t TABLESAMPLE (10 PERCENT) LIMIT 3 OFFSET 2",
    "SELECT transform(arr, x -> x + 1), current_date, extract(day from d) FROM VALUES (1, 2) AS v(a, b)",
    "SELECT * EXCEPT (a) FROM t NATURAL JOIN t2",
    "SELECT * FROM t JOIN t2 USING (a) LEFT ANTI JOIN t ON t.a = t2.a ORDER BY a NULLS LAST",
    "SELECT CASE WHEN a THEN b ELSE c END, a[1], s.b.c, INTERVAL 1 DAY, a::int FROM t GROUP BY ALL HAVING a > 1",
    "SELECT a, sum(b) FROM t GROUP BY GROUPING SETS ((a), ())",
    "SELECT * FROM t PIVOT (sum(x) FOR y IN (1, 2))",
    "SELECT * FROM t UNPIVOT (v FOR n IN (a, b))",
    "SELECT a FROM t UNION SELECT b FROM t2 EXCEPT SELECT 1 INTERSECT SELECT 2",
    "SELECT (SELECT max(x) FROM t), EXISTS (SELECT 1 FROM t2) FROM t, LATERAL (SELECT t.a + 1)",
    "SELECT /*+ BROADCAST(t) */ any_value(a) FILTER (WHERE b), percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t",
    "SELECT sum(x) OVER w, distance(1, 2, 3, 4), to_json(struct(*)) FROM t WINDOW w AS (ORDER BY y)",
]
CALL = "reflect('java.lang.System', 'exit', 1)"
REFUSED = [
    (f"SELECT {CALL}", "reflect"),
    ("SELECT java_method('a', 'b')", "java_method"),
    ("SELECT builtin.reflect('a', 'b')", "builtin.reflect"),
    ("SELECT IDENTIFIER('reflect')('a', 'b')", "ExpressionWithUnresolvedIdentifier"),
    ("SELECT input_file_name() FROM t", "input_file_name"),
    ("SELECT from_xml(a, 'x INT', map('rowValidationXSDPath', '/etc/passwd')) FROM t", "from_xml"),
    (f"SELECT 1 FROM t WHERE EXISTS (SELECT {CALL})", "reflect"),
    (f"SELECT transform(array(1), x -> {CALL})", "reflect"),
    (f"SELECT count(*) FILTER (WHERE {CALL}) FROM t", "reflect"),
    (f"SELECT a FROM VALUES ({CALL}) AS v(a)", "reflect"),
    (f"SELECT * FROM t LATERAL VIEW explode({CALL}) x", "reflect"),
    (f"SELECT * FROM stack(1, {CALL})", "reflect"),
    (f"SELECT * FROM t ORDER BY (SELECT {CALL}) LIMIT 3", "reflect"),
    (f"SELECT * FROM t |> EXTEND {CALL} AS x", "reflect"),
    ("SELECT * FROM text.`/etc/passwd`", "only datasets can be read; 'text./etc/passwd'"),
    ("SELECT (SELECT max(value) FROM text.`/x`) FROM t", "only datasets"),
    ("WITH c AS (SELECT * FROM text.`/x`) SELECT * FROM c", "only datasets"),
    ("SELECT * FROM IDENTIFIER('text.`/etc/passwd`')", "only datasets"),
    ("SELECT * FROM t WITH (path = '/etc/passwd')", "without options"),
    ("SELECT * FROM _subscriptions_1", "there is no dataset '_subscriptions_1'; there are: t, t2"),
    ("WITH b AS (SELECT * FROM a), a AS (SELECT 1) SELECT * FROM b", "there is no dataset 'a'"),
    ("SELECT (WITH c AS (SELECT 1 AS a) SELECT a FROM c) FROM c", "there is no dataset 'c'"),
    ("SELECT * FROM python_worker_logs()", "python_worker_logs"),
    ("SELECT * FROM range(0, 1, 1, 1000000000)", "at most three arguments"),
    ("SELECT /*+ REPARTITION(1000000) */ * FROM t", "the hint REPARTITION"),
    ("SELECT TRANSFORM(a) USING 'cat' AS (b) FROM t", "ScriptTransformation"),
    ("FROM t INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT *", "InsertIntoDir"),
    ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "InsertIntoStatement"),
    ("EXPLAIN INSERT OVERWRITE DIRECTORY '/x' SELECT 1", "InsertIntoDir"),
    ("SHOW TABLES", "ShowTables"),
]


@pytest.mark.parametrize("query", ALLOWED)
def test_what_only_reads_known_relations_is_allowed(spark: SparkViews, query: str) -> None:
    check_query(spark.session, query, {"t", "t2"})


@pytest.mark.parametrize(("query", "said"), REFUSED)
def test_everything_else_is_refused_wherever_it_stands(spark: SparkViews, query: str, said: str) -> None:
    with pytest.raises(StatementError) as caught:
        check_query(spark.session, query, {"t", "t2"})
    assert said in caught.value.reason
    if CALL in query:
        assert caught.value.position == query.index(CALL)


def test_statements_of_users_are_analysed_and_tell_the_place(active: ActiveData) -> None:
    active.run(REPORTS + FEED)
    text = f"SELECT 1;\n SELECT {CALL} FROM Reports"
    with pytest.raises(StatementError, match="line 2, column 9: the function reflect does not exist here"):
        active.run(text)
    body = "CREATE CONTINUOUS CHANNEL c() AS SELECT r.x FROM Reports r WHERE r.x IN (SELECT 1 FROM text.`/x`)"
    with pytest.raises(StatementError, match="only datasets can be read") as caught:
        active.run(body)
    assert caught.value.position == body.index("text.")
    whole = (
        "CREATE REPETITIVE CHANNEL w() PERIOD 60 SECONDS AS "
        "WITH x AS (SELECT * FROM text.`/etc/passwd`) SELECT count(*) AS n FROM Reports r, x"
    )
    with pytest.raises(StatementError, match="only datasets can be read") as caught:
        active.run(whole)
    for statement in (
        "INSERT INTO Reports SELECT value, value, 1, 1 FROM text.`/etc/passwd`",
        "DELETE FROM Reports WHERE event IN (SELECT value FROM text.`/etc/passwd`)",
        "UPDATE Reports SET event = (SELECT max(value) FROM text.`/etc/passwd`)",
    ):
        with pytest.raises(StatementError, match="only datasets can be read") as caught:
            active.run(statement)
        assert caught.value.position == statement.index("text."), statement
    assert active.run("SELECT '${env:HOME}' AS home")[0].rows == [{"home": "${env:HOME}"}]
    assert active.run("SELECT 1 AS x")[0].rows == [{"x": 1}]


def test_answers_and_time_are_limited(spark: SparkViews, tmp_path: Path) -> None:
    limits = QueryLimits(statements_max_chars=200, rows_max_count=10, answer_max_bytes=2_000, at_once_count=1)
    with ActiveData(tmp_path / "data", spark, limits) as active:
        for text in (REPORTS, FEED):
            active.run(text)
        answer = active.run("SELECT id FROM range(100)")[0]
        assert (answer.said, len(answer.rows)) == ("the first 10 rows", 10)
        answer = active.run("SELECT repeat('x', 900) AS x FROM range(10)")[0]
        assert (answer.said, len(answer.rows)) == ("the first 2 rows", 2)
        with pytest.raises(Exception, match="300 characters of statements; at most 200 at once"):
            active.run(" " * 300)
    endless = "SELECT sum(sqrt(a.id * b.id)) FROM range(10000000) a, range(10000000) b"
    with ActiveData(tmp_path / "data", spark, QueryLimits(time_max_s=2.0)) as active:
        began_s = time.monotonic()
        with pytest.raises(StatementError, match=r"took longer than 2 s and was cancelled"):
            active.run(endless)
        assert time.monotonic() - began_s < 60
    with ActiveData(tmp_path / "data", spark) as active:
        active.feed("reports", [report(1)])
        assert active.run("SELECT count(*) AS n FROM Reports")[0].rows == [{"n": 1}]
