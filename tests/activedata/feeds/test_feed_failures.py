"""One record never stops a feed, and a feed whose thread fails is started again and says so."""

import threading
import time
from pathlib import Path

import pytest

from tests.activedata.test_channels import REPORTS, report
from trimtab import BlockingClient, Filter, Network
from trimtab.activedata import ActiveData
from trimtab.activedata.feeds.directory_feed import DirectoryFeed
from trimtab.activedata.service.status import status
from trimtab.activedata.spark.views import SparkViews

THINGS = (
    "CREATE ACTIVE DATASET Things (id STRING, t TIMESTAMP OPTIONAL, n BIGINT OPTIONAL, d DOUBLE OPTIONAL) KEY id;"
    "CREATE FEED files INTO Things FROM DIRECTORY '{0}'; START FEED files;"
    "CREATE FEED posted INTO Things FROM HTTP; START FEED posted"
)
POISON = (
    b'{"id": "a", "t": "0001-01-01T00:00:00+14:00"}',
    b'{"id": "b", "n": ' + b"9" * 400 + b"}",
    b'{"id": "c", "d": ' + b"9" * 400 + b"}",
    b'{"id": "d", "d": 1e999}',
    b'{"id": "\\ud800"}',
    b'{"id": "f", "n": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b'\xff{"id": "g"}',
    b"null",
)


def test_whatever_one_record_does_it_becomes_a_dead_letter_and_the_feed_goes_on(
    active: ActiveData, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    active.run(THINGS.format(source))
    good = [b'{"id": "good%d"}' % number for number in range(len(POISON))]
    mixed = [line + b"\n" for pair in zip(POISON, good, strict=True) for line in pair]
    (source / "a.jsonl").write_bytes(b"".join(mixed))
    deadline_s = time.monotonic() + 30
    while active.datasets["things"].last_sequence < len(good) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    answer = active.feed("posted", b"\n".join(POISON))
    assert (answer.accepted, answer.rejected) == (0, len(POISON))
    rows = active.run("SELECT feed, reason FROM dead_letters; SELECT count(*) AS n FROM Things")
    assert [len(rows[0].rows), rows[1].rows] == [2 * len(POISON), [{"n": len(good)}]]
    assert all(row["reason"] for row in rows[0].rows)
    assert [each.restarts_count for each in status(active).feeds] == [0, 0]


def test_a_publication_that_cannot_be_stored_does_not_stop_a_feed_from_the_overlay(
    spark: SparkViews, tmp_path: Path
) -> None:
    with Network.of(["B1"]) as network, ActiveData(tmp_path, spark) as active:
        broker = network.address("B1")
        active.run("CREATE ACTIVE DATASET Things (id STRING, t TIMESTAMP OPTIONAL) KEY id")
        active.run(f"CREATE FEED net INTO Things FROM OVERLAY 'id IS NOT NULL' AT '{broker}'; START FEED net")
        deadline_s = time.monotonic() + 30
        with BlockingClient(broker) as client:
            client.advertise(Filter.parse("id IS NOT NULL AND t IS NOT NULL"))
            while not active.datasets["things"].last_sequence and time.monotonic() < deadline_s:
                client.publish({"id": "first", "t": "2026-01-01"})
                time.sleep(0.05)
            client.publish({"id": "bad", "t": "0001-01-01T00:00:00+14:00"})
            client.publish({"id": "last", "t": "2026-01-01"})
            client.drain()
            while active.datasets["things"].last_sequence < 2 and time.monotonic() < deadline_s:
                time.sleep(0.02)
        rows = active.run("SELECT id FROM Things ORDER BY _sequence; SELECT reason FROM dead_letters")
        assert [row["id"] for row in rows[0].rows] == ["first", "last"]
        assert len(rows[1].rows) == 1


def test_a_feed_whose_thread_fails_says_so_and_is_started_again(
    active: ActiveData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    follow = DirectoryFeed.follow
    failing = threading.Event()
    failing.set()

    def fail(feed: DirectoryFeed, stop: threading.Event) -> None:
        if failing.is_set():
            raise SystemExit("something nobody thought of")
        follow(feed, stop)

    monkeypatch.setattr(DirectoryFeed, "follow", fail)
    active.run(REPORTS + f"CREATE FEED files INTO Reports FROM DIRECTORY '{source}'; START FEED files")
    deadline_s = time.monotonic() + 30
    while not status(active).feeds[0].restarts_count and time.monotonic() < deadline_s:
        time.sleep(0.02)
    (feed,) = status(active).feeds
    assert feed.running and feed.restarts_count
    assert feed.error == "SystemExit: something nobody thought of"
    failing.clear()
    (source / "a.jsonl").write_text(str(report(1)).replace("'", '"') + "\n")
    while not active.datasets["reports"].last_sequence and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert status(active).feeds[0].error is None


def test_fields_may_be_named_end_and_case(active: ActiveData) -> None:
    active.run("CREATE ACTIVE DATASET Shifts (id STRING, start INT, end INT) KEY id; CREATE BROKER B1 AT 'here'")
    active.run("CREATE FEED shifts INTO Shifts FROM HTTP; START FEED shifts")
    active.run(
        "CREATE CONTINUOUS CHANNEL Long(end INT) AS SELECT s.id, s.end, CASE WHEN s.end > 9 THEN end ELSE 0 END AS late"
        " FROM Shifts s WHERE end > :end AND s.end - s.start > 2"
    )
    subscription = active.run("SUBSCRIBE TO Long(end => 5) ON B1")[0].rows[0]["subscription"]
    active.feed("shifts", [{"id": "a", "start": 1, "end": 10}, {"id": "b", "start": 9, "end": 10}])
    active.settle()
    assert [each.fields for each in active.results(subscription)] == [{"id": "a", "end": 10, "late": 10}]
    assert active.run("SELECT max(end) AS end FROM Shifts")[0].rows == [{"end": 10}]
