"""Statements that change records, on a real Spark: what data people do with tables."""

import datetime
import decimal
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.activedata import ActiveData, StatementError
from trimtab.activedata.spark.views import SparkViews

USERS = "CREATE DATASET Users (id STRING, x DOUBLE, y DOUBLE, note STRING OPTIONAL) KEY id;"
REPORTS = "CREATE ACTIVE DATASET Reports (id STRING, event STRING, x DOUBLE OPTIONAL) KEY id;"
CHANNEL = (
    "CREATE CONTINUOUS CHANNEL All() AS SELECT r.id, r.event, r.x FROM Reports r; CREATE BROKER B AT 'test';"
    "SUBSCRIBE TO All() ON B;"
)


def rows(active: ActiveData, query: str) -> list[dict[str, Any]]:
    return active.run(query)[0].rows


def seen(active: ActiveData) -> list[tuple[str, float | None]]:
    active.settle()
    return [(each.fields["id"], each.fields["x"]) for each in active.results(1, limit=10_000)]


def test_all_types_are_stored_and_come_back(active: ActiveData) -> None:
    active.run(
        "CREATE ACTIVE DATASET T (k BIGINT, day DATE, price DECIMAL(10,2), tags ARRAY<STRING>, "
        "place STRUCT<x: DOUBLE, at: TIMESTAMP>, many ARRAY<STRUCT<n: INT>> OPTIONAL) KEY (k, day);"
        "CREATE FEED t INTO T FROM HTTP; START FEED t;"
        "INSERT INTO T VALUES (1, '2026-05-01', 12.5, ['a', null], {x: 1, at: '2026-05-01T10:00:00Z'}, [{n: 1}])"
    )
    good: dict[str, Any] = {"k": 1, "day": "2026-05-02", "price": "3.10", "tags": [], "place": {"x": None}}
    wrong: list[dict[str, Any]] = [{"price": 1.001}, {"day": "2026-5-2"}, {"tags": [1]}]
    answer = active.feed("t", [good, *({**good, **each} for each in wrong)])
    assert (answer.accepted, answer.rejected) == (1, 3)
    assert active.feed("t", [good]).repeated == 1
    reasons = [row["reason"] for row in rows(active, "SELECT reason FROM dead_letters")]
    assert reasons == [
        "field 'price' must be a number of at most 10 digits, 2 of them behind the point, and is 1.001",
        "field 'day' must be a day, such as 2026-05-01, and is '2026-5-2'",
        "field 'tags'[0] must be a string, and is 1",
    ]
    found = rows(active, "SELECT k, day, price, tags, place, many FROM T ORDER BY day")
    at = datetime.datetime(2026, 5, 1, 10, tzinfo=datetime.UTC)
    assert found[0] == {
        "k": 1,
        "day": datetime.date(2026, 5, 1),
        "price": decimal.Decimal("12.50"),
        "tags": ["a", None],
        "place": {"x": 1.0, "at": found[0]["place"]["at"]},
        "many": [{"n": 1}],
    }
    assert found[0]["place"]["at"] == at
    assert found[1]["place"] == {"x": None, "at": None}


@pytest.mark.parametrize(
    "record",
    [
        '{"k": "a", "t": "0001-01-01T00:00:00+14:00"}',
        '{"k": "a", "d": 1%s}' % ("0" * 400),
        '{"k": "a", "n": 1%s}' % ("0" * 400),
        '{"k": "\\ud800"}',
    ],
)
def test_a_value_that_no_type_can_hold_is_a_dead_letter(active: ActiveData, record: str) -> None:
    active.run(
        "CREATE ACTIVE DATASET T (k STRING, t TIMESTAMP OPTIONAL, d DOUBLE OPTIONAL, n DECIMAL(38,0) OPTIONAL) KEY k;"
        "CREATE FEED t INTO T FROM HTTP; START FEED t"
    )
    assert active.feed("t", record.encode()).rejected == 1


def test_records_are_updated_and_deleted_where_a_condition_holds(active: ActiveData) -> None:
    active.run(USERS + "INSERT INTO Users (id, x, y) VALUES ('a', 1, 1), ('b', 2, 2), ('c', 3, 3)")
    assert rows(active, "UPDATE Users SET x = x * 10, note = upper(id) WHERE y >= 2") == [
        {"changed": 2, "path": "driver"}
    ]
    assert rows(active, "DELETE FROM Users WHERE id = 'b'") == [{"deleted": 1, "path": "driver"}]
    assert rows(active, "SELECT * FROM Users ORDER BY id") == [
        {"id": "a", "x": 1.0, "y": 1.0, "note": None},
        {"id": "c", "x": 30.0, "y": 3.0, "note": "C"},
    ]
    active.run("UPSERT INTO Users VALUES ('b', 5, 5, null)")
    assert rows(active, "SELECT count(*) AS n, sum(x) AS x FROM Users") == [{"n": 3, "x": 36.0}]
    active.run("DELETE FROM Users")
    assert rows(active, "SELECT * FROM Users") == []


def test_changes_survive_a_restart_and_are_taken_into_the_base(spark: SparkViews, tmp_path: Path) -> None:
    with ActiveData(tmp_path, spark) as active:
        active.run(USERS + REPORTS)
        active.run("INSERT INTO Users SELECT concat('u', id), id, id, null FROM range(5000)")
        active.run("INSERT INTO Reports SELECT concat('r', id), 'e', id FROM range(5000)")
        active.run("UPDATE Users SET x = -1 WHERE y < 10; DELETE FROM Users WHERE y >= 4990")
        active.run("UPDATE Reports SET x = -1 WHERE x < 10; DELETE FROM Reports WHERE x >= 4990")
    query = "SELECT count(*) AS n, count_if(x = -1) AS changed FROM"
    for _ in range(2):
        with ActiveData(tmp_path, spark) as active:
            for name in ("Users", "Reports"):
                assert rows(active, f"{query} {name}") == [{"n": 4990, "changed": 10}]
                assert active.datasets[name.lower()].store.rows_count() == 4990
            taken = active.datasets["reports"].take([("r4995", "e", 4995.0), ("r3", "e", -1.0), ("r20", "e", 20.0)])
            assert taken.repeated_count == 3 - taken.accepted_count
            active.run("DELETE FROM Reports WHERE id = 'r4995'")
            for dataset in active.datasets.values():
                dataset.fold()
                assert dataset.store.changes.count == 0


def test_an_update_of_many_records_is_done_by_spark(active: ActiveData) -> None:
    active.run(USERS + REPORTS)
    active.run("INSERT INTO Users SELECT concat('u', id), id, id, null FROM range(60000)")
    active.run("INSERT INTO Reports SELECT concat('r', id), 'e', id FROM range(60000)")
    assert rows(active, "UPDATE Users SET x = 0 WHERE y < 30000") == [{"changed": 30000, "path": "spark"}]
    assert rows(active, "SELECT count_if(x = 0) AS n, count(*) AS all FROM Users") == [{"n": 30000, "all": 60000}]
    assert rows(active, "UPDATE Reports SET x = 0 WHERE x < 30000") == [{"changed": 30000, "path": "spark"}]
    assert rows(active, "DELETE FROM Reports WHERE x > 0") == [{"deleted": 30000, "path": "spark"}]
    assert active.datasets["reports"].take([("r1", "e", 0.0), ("r2", "e", 2.0)]).repeated_count == 1
    assert active.datasets["reports"].take([("r59999", "e", 0.0)]).accepted_count == 1


def test_a_change_in_an_active_dataset_counts_as_new_if_said_so(active: ActiveData) -> None:
    active.run(REPORTS + CHANNEL + "INSERT INTO Reports VALUES ('a', 'e', 1), ('b', 'e', 2)")
    assert seen(active) == [("a", 1.0), ("b", 2.0)]
    active.run("UPSERT INTO Reports VALUES ('a', 'e', 10)")
    active.run("UPDATE Reports SET x = 20 WHERE id = 'b'")
    assert seen(active) == [("a", 1.0), ("b", 2.0)]
    active.run("UPSERT INTO Reports AS NEW VALUES ('a', 'e', 100), ('c', 'e', 3)")
    active.run("UPDATE Reports SET x = 200 WHERE id = 'b' AS NEW")
    assert seen(active) == [("a", 1.0), ("b", 2.0), ("a", 100.0), ("c", 3.0), ("b", 200.0)]
    assert rows(active, "SELECT id, x FROM Reports ORDER BY id") == [
        {"id": "a", "x": 100.0},
        {"id": "b", "x": 200.0},
        {"id": "c", "x": 3.0},
    ]


def test_a_dataset_gets_fields_while_it_is_used(active: ActiveData) -> None:
    active.run(REPORTS + CHANNEL + "INSERT INTO Reports VALUES ('a', 'e', 1)")
    assert seen(active) == [("a", 1.0)]
    active.run("ALTER DATASET Reports ADD FIELD level INT, tags ARRAY<STRING>")
    active.run("INSERT INTO Reports VALUES ('b', 'e', 2, 5, ['t'])")
    assert seen(active) == [("a", 1.0), ("b", 2.0)]
    assert rows(active, "SELECT id, level, tags FROM Reports ORDER BY id") == [
        {"id": "a", "level": None, "tags": None},
        {"id": "b", "level": 5, "tags": ["t"]},
    ]
    assert active.datasets["reports"].take([("a", "e", 1.0, None, None)]).repeated_count == 1


def test_a_channel_may_use_a_field_that_was_added(active: ActiveData) -> None:
    active.run(REPORTS + "CREATE BROKER B AT 'test'; ALTER DATASET Reports ADD FIELD level INT")
    active.run("CREATE CONTINUOUS CHANNEL High(low INT) AS SELECT r.id, r.x FROM Reports r WHERE r.level >= :low")
    active.run("SUBSCRIBE TO High(3) ON B; INSERT INTO Reports VALUES ('a', 'e', 1, 2), ('b', 'e', 2, 3)")
    assert seen(active) == [("b", 2.0)]


def written(folder: Path, form: str) -> Path:
    records = [{"id": f"r{n}", "event": "e", "x": n / 2} for n in range(100)]
    records += [records[3], {**records[4], "event": "other"}, {"id": "bad", "event": None, "x": 1.0}]
    path = folder / f"records.{form}"
    match form:
        case "jsonl":
            path.write_text("".join(json.dumps(each) + "\n" for each in records) + '{"id": 5, "x": "no"\n')
        case "jsonl.gz":
            path.write_bytes(gzip.compress("".join(json.dumps(each) + "\n" for each in records).encode()))
        case "csv":
            lines = [f'{each["x"]},"{each["id"]}",{each["event"] or ""},more' for each in records]
            path.write_text("x,id,event,unknown\n" + "\n".join(lines) + "\n")
        case "parquet":
            pq.write_table(pa.Table.from_pylist(records), path)
    return path


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "csv", "parquet"])
def test_files_are_copied_by_spark_with_duplicates_and_bad_records_told(
    active: ActiveData, tmp_path: Path, form: str
) -> None:
    path = written(tmp_path, form)
    active.run(REPORTS + CHANNEL + "INSERT INTO Reports VALUES ('r0', 'e', 0), ('r1', 'e', 77)")
    bad_count = 4 if form == "jsonl" else 3
    assert rows(active, f"COPY INTO Reports FROM '{path}'") == [
        {"accepted": 98, "repeated": 2, "rejected": bad_count, "path": "spark"}
    ]
    assert rows(active, "SELECT count(*) AS n, max(_sequence) AS last FROM Reports") == [{"n": 100, "last": 100}]
    assert len(set(seen(active))) == 100
    reasons = [row["reason"] for row in rows(active, "SELECT reason FROM dead_letters")]
    assert sorted(reason.partition(" already")[0] for reason in reasons)[:2] == [
        "another record has the id 'r1'",
        "another record has the id 'r4'",
    ]
    assert "field 'event' is missing" in reasons
    again = rows(active, f"COPY INTO Reports FROM '{path}'")[0]
    assert (again["accepted"], again["repeated"]) == (0, 100)
    active.run("INSERT INTO Reports VALUES ('later', 'e', 1)")
    assert rows(active, "SELECT max(_sequence) AS last FROM Reports") == [{"last": 101}]


def test_a_copy_into_a_dataset_that_is_not_active_replaces_by_key(active: ActiveData, tmp_path: Path) -> None:
    active.run(USERS + "INSERT INTO Users VALUES ('a', 1, 1, 'old'), ('b', 2, 2, 'old')")
    path = tmp_path / "users.jsonl"
    path.write_text('{"id": "b", "x": 5, "y": 5}\n{"id": "c", "x": 6, "y": 6}\n{"id": "c", "x": 7, "y": 7}\n')
    active.run(f"COPY INTO Users FROM '{path}'")
    assert rows(active, "SELECT id, x FROM Users ORDER BY id") == [
        {"id": "a", "x": 1.0},
        {"id": "b", "x": 5.0},
        {"id": "c", "x": 7.0},
    ]


def test_a_dataset_without_a_key_takes_everything(active: ActiveData, tmp_path: Path) -> None:
    active.run("CREATE ACTIVE DATASET Log (id STRING, x INT); INSERT INTO Log VALUES ('a', 1), ('a', 1)")
    path = tmp_path / "log.jsonl"
    path.write_text('{"id": "a", "x": 1}\n' * 10)
    active.run(f"COPY INTO Log FROM '{path}'")
    assert rows(active, "SELECT count(*) AS n, max(_sequence) AS last FROM Log") == [{"n": 12, "last": 12}]
    active.run("DELETE FROM Log WHERE _sequence <= 2")
    assert rows(active, "SELECT count(*) AS n FROM Log") == [{"n": 10}]


@pytest.mark.parametrize(
    ("text", "marked", "reason"),
    [
        ("COPY INTO Reports FROM '/no/such/file.json'", "Reports", "no file or directory"),
        ("COPY INTO Reports FROM 'x.dat'", "'x.dat'", "the format cannot be known"),
        ("UPDATE Reports SET id = 'a'", "Reports", "does not change"),
        ("UPDATE Reports SET x = nope", "nope", "UNRESOLVED_COLUMN"),
        ("UPDATE Reports SET y = 1", "Reports", "no field 'y'"),
        ("DELETE FROM Reports WHERE nope = 1", "nope", "UNRESOLVED_COLUMN"),
        ("INSERT INTO Reports SELECT 1", "SELECT", "1 columns for 3 fields"),
        ("ALTER DATASET Reports ADD FIELD event INT", "Reports", "a field 'event' in Reports already"),
        ("CREATE DATASET T (a INT, b STRUCT<x: INT>) KEY b", "b", "cannot be an array or a struct"),
        ("CREATE DATASET T (a DECIMAL(50)) KEY a", "50", "1 to 38 digits"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    active_with_reports: ActiveData, text: str, marked: str, reason: str
) -> None:
    with pytest.raises(StatementError) as caught:
        active_with_reports.run(text)
    assert reason in caught.value.reason
    assert text[caught.value.position :].startswith(marked)


@pytest.fixture
def active_with_reports(active: ActiveData) -> ActiveData:
    active.run(REPORTS)
    return active


def test_a_drop_removes_the_files(active: ActiveData) -> None:
    active.run(REPORTS + "INSERT INTO Reports VALUES ('a', 'e', 1)")
    folder = active.datasets["reports"].directory
    assert folder.exists()
    active.run("DROP DATASET Reports")
    assert not folder.exists()
    active.run(REPORTS)
    assert rows(active, "SELECT * FROM Reports") == []


@pytest.mark.parametrize("active_word", ["ACTIVE", ""])
def test_a_dataset_is_partitioned_by_a_field_and_by_days(active: ActiveData, tmp_path: Path, active_word: str) -> None:
    active.run(
        f"CREATE {active_word} DATASET P (id STRING, event STRING, at TIMESTAMP, x INT OPTIONAL) KEY id "
        "PARTITION BY event, DAY(at)"
    )
    path = tmp_path / "p.jsonl"
    records = [
        {"id": f"r{n}", "event": ["a b/é", "fire"][n % 2], "at": f"2026-05-0{1 + n % 3}T12:00:00Z"} for n in range(12)
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    active.run(f"COPY INTO P FROM '{path}'")
    active.run("INSERT INTO P VALUES ('s', 'a b/é', '2026-05-09T00:00:00Z', 5)")
    active.run("UPSERT INTO P VALUES ('r1', 'fire', '2026-05-09T00:00:00Z', 7); DELETE FROM P WHERE id = 'r2'")
    folder = active.datasets["p"].directory
    places = {each.parent.relative_to(folder).as_posix() for each in folder.rglob("*.parquet")}
    assert "event=fire/_day_at=2026-05-09" in places
    assert len(places) >= 7

    def check() -> None:
        found = rows(active, "SELECT id, event, at, x FROM P")
        assert len(found) == 12 == active.datasets["p"].store.rows_count()
        assert {row["event"] for row in found} == {"a b/é", "fire"}
        assert rows(active, "SELECT x FROM P WHERE event = 'fire' AND x IS NOT NULL") == [{"x": 7}]
        assert sorted(active.datasets["p"].store.read(["id"])["id"].to_pylist()) == sorted(row["id"] for row in found)

    check()
    active.datasets["p"].fold()
    check()
    active.datasets["p"].store.compact()
    check()
    assert rows(active, "SELECT count(*) AS n FROM P WHERE at < '2026-05-02T00:00:00Z'") == [{"n": 4}]


def test_an_evolving_dataset_gets_the_fields_that_a_feed_brings(active: ActiveData) -> None:
    active.run("CREATE ACTIVE DATASET E (id STRING) KEY id EVOLVING; CREATE FEED e INTO E FROM HTTP; START FEED e")
    answer = active.feed("e", [{"id": "a", "n": 1, "tags": ["x"]}, {"id": "b", "n": 2.5, "at": {"x": 1}}, {"id": "c"}])
    assert (answer.accepted, answer.rejected) == (3, 0)
    assert active.feed("e", [{"id": "d", "n": "text"}, {"id": "e", "what?": 1}]).rejected == 2
    assert [(field.name, field.type) for field in active.datasets["e"].entry.fields[1:]] == [
        ("n", "DOUBLE"),
        ("tags", "ARRAY<STRING>"),
        ("at", "STRUCT<x: BIGINT>"),
    ]
    assert rows(active, "SELECT n, tags FROM E ORDER BY id") == [
        {"n": 1.0, "tags": ["x"]},
        {"n": 2.5, "tags": None},
        {"n": None, "tags": None},
    ]
