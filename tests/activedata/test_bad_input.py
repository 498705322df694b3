"""What is wrong with input, disk or Spark is told to whom it concerns, and nothing is lost."""

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark import SparkContext

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, found_ids, report
from trimtab.activedata import ActiveData, StatementError, StorageError

RATIO = (
    "CREATE CONTINUOUS CHANNEL Ratio(event STRING) AS "
    "SELECT r.reportId, 1 / r.x AS z FROM Reports r WHERE event = :event;"
)


def test_a_malformed_record_goes_to_the_dead_letters_with_the_reason(active: ActiveData) -> None:
    active.run(REPORTS + FEED)
    records = b'{"reportId": "a", "event": "e", "x": 1, "y": 2}\n{"reportId": "b", "event": "e", "x": "1", "y": 2}\n'
    records += b'{"reportId": "c", "x": 1, "y": 2}\n{"reportId": "d"\n[1]\n'
    records += b'{"reportId": "a", "event": "other", "x": 1, "y": 2}\n'
    records += b'{"reportId": "f", "event": "e", "x": 1, "y": 2, "z": 3}\n'
    answer = active.feed("reports", records)
    assert (answer.accepted, answer.rejected) == (1, 6)
    rows = active.run("SELECT reason, record FROM dead_letters ORDER BY place")[0].rows
    assert [row["reason"] for row in rows] == [
        "field 'x' must be a number, and is '1'",
        "field 'event' is missing",
        "Input data was truncated",
        "a record is a JSON object",
        "another record has the reportId 'a' already",
        "there is no field 'z' in Reports",
    ]
    assert rows[3]["record"] == "[1]"
    assert active.run("SELECT count(*) AS n FROM Reports")[0].rows == [{"n": 1}]


def test_a_record_that_a_channel_fails_on_is_put_aside_and_the_others_come_through(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_TYPE + RATIO)
    ratio = active.subscribe("Ratio", "B1", event="flood")
    of_type = active.subscribe("OfType", "B1", event="flood")
    active.feed("reports", [report(1), report(2), report(0), report(3)])
    active.settle()
    assert found_ids(active, ratio) == ["r1", "r2", "r3"]
    assert found_ids(active, of_type) == ["r1", "r2", "r0", "r3"]
    assert active.engine.channels["ratio"].meters.put_aside_count == 1
    (row,) = active.run("SELECT feed, source, place, reason, record FROM dead_letters")[0].rows
    assert (row["feed"], row["source"], row["place"]) == ("Ratio", "channel", 3)
    assert "DIVIDE_BY_ZERO" in row["reason"]
    assert '"r0"' in row["record"]


@pytest.mark.parametrize(
    ("text", "marked", "reason"),
    [
        ("SUBSCRIBE TO OfType('a', 'b') ON B1", "OfType", "takes 1 arguments (event), 2 are given"),
        ("SUBSCRIBE TO OfType(5) ON B1", "OfType", "argument 'event' must be a string, and is 5"),
        ("SUBSCRIBE TO OfType(evnt => 'a') ON B1", "OfType", "no parameter 'evnt'"),
        ("SUBSCRIBE TO OffType('a') ON B1", "OffType", "there is no channel 'OffType'; there are: OfType"),
        ("SUBSCRIBE TO OfType('a') ON B9", "OfType", "there is no broker 'B9'"),
        ("CREATE FEED f INTO Nothing FROM HTTP", "Nothing", "there is no dataset"),
        ("CREATE FEED f INTO Reports FROM DIRECTORY '/no/such/place'", "Reports", "is no directory"),
        ("CREATE CONTINUOUS CHANNEL c() AS SELECT r.nope FROM Reports r", "r.nope", "UNRESOLVED_COLUMN"),
        ("CREATE CONTINUOUS CHANNEL c() AS SELECT r.x r.y 2 FROM Reports r", ".y 2", "PARSE_SYNTAX_ERROR"),
        ("CREATE CONTINUOUS CHANNEL c(n INT) AS SELECT 1 FROM Reports r WHERE r.x + :n", "SELECT", "DATATYPE_MISMATCH"),
        ("CREATE CONTINUOUS CHANNEL c() AS SELECT r.x, r.y AS x FROM Reports r", "SELECT", "two result fields"),
        ("CREATE CONTINUOUS CHANNEL OfType() AS SELECT r.x FROM Reports r", "CREATE", "a channel 'OfType' already"),
        ("DROP DATASET Reports", "DROP", "feed reports, channel OfType depend on it"),
        ("DROP CHANNEL nope", "DROP", "there is no channel"),
        ("INSERT INTO Reports VALUES ('a', 'b', 'c', 1)", "Reports", "field 'x' must be a number"),
        ("SELECT * FROM Reports WHERE nope = 1", "nope", "UNRESOLVED_COLUMN"),
    ],
)
def test_a_wrong_statement_is_refused_with_the_place_of_the_mistake(
    active_with_channel: ActiveData, text: str, marked: str, reason: str
) -> None:
    with pytest.raises(StatementError) as caught:
        active_with_channel.run(text)
    assert reason in caught.value.reason
    assert caught.value.position == text.index(marked)


def test_a_full_disk_acknowledges_nothing_and_loses_nothing(
    active: ActiveData, monkeypatch: pytest.MonkeyPatch
) -> None:
    active.run(REPORTS + FEED + OF_TYPE)
    subscription = active.subscribe("OfType", "B1", event="flood")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write = deltalake.write_deltalake
    monkeypatch.setattr(deltalake, "write_deltalake", full)
    with pytest.raises(StorageError, match="No space left"):
        active.feed("reports", [report(1)])
    assert active.datasets["reports"].last_sequence == 0
    monkeypatch.setattr(deltalake, "write_deltalake", write)
    active.feed("reports", [report(2)])
    active.settle()
    # The disk is full again when the next results are to be written: they come when there is room.
    engine_write = active.results_store.store.append
    failed: list[int] = []

    def full_once(rows: Any, marks: Any) -> None:
        if not failed:
            failed.append(1)
            raise StorageError("the disk did not take it: No space left on device")
        engine_write(rows, marks)

    monkeypatch.setattr(active.results_store.store, "append", full_once)
    active.feed("reports", [report(3)])
    active.settle()
    assert failed == [1]
    assert found_ids(active, subscription) == ["r2", "r3"]


def test_a_spark_that_was_killed_is_started_again_and_nothing_is_lost(active: ActiveData) -> None:
    active.run(REPORTS + FEED + OF_TYPE)
    subscription = active.subscribe("OfType", "B1", event="flood")
    active.feed("reports", [report(1)])
    active.settle()
    gateway: Any = SparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)
    active.feed("reports", [report(2)])
    active.settle(timeout_s=120.0)
    assert found_ids(active, subscription) == ["r1", "r2"]


def test_a_directory_is_used_by_one_process_at_a_time(active: ActiveData, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="in use by another process"):
        ActiveData(tmp_path / "data", active.views)


def test_a_channel_that_overruns_its_period_runs_again_at_once_and_counts_what_it_skipped(active: ActiveData) -> None:
    active.run(REPORTS + FEED)
    active.run(OF_TYPE.replace("CONTINUOUS", "").replace(" AS", " PERIOD 0.01 SECONDS AS").replace("OfType", "Often"))
    subscription = active.subscribe("Often", "B1", event="flood")
    channel = active.engine.channels["often"]
    for number in range(5):
        active.feed("reports", [report(number)])
        time.sleep(0.05)
    deadline_s = time.monotonic() + 20
    while channel.position < 5 and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert found_ids(active, subscription) == [f"r{number}" for number in range(5)]
    assert channel.meters.skipped_count > 0
    assert channel.meters.skipped_s > 0
