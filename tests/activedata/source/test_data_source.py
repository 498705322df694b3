"""The Spark data source `trimtab` on a real Spark and real brokers: reading, publishing, and going on."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, report
from trimtab import BlockingClient, Filter, Network
from trimtab.activedata import ActiveData
from trimtab.activedata.service.http import Service
from trimtab.activedata.source.data_source import register
from trimtab.activedata.spark.views import SparkViews

STOCKS = "class = 'STOCK' AND n IS NOT NULL AND price IS NOT NULL"


@pytest.fixture
def session(spark: SparkViews) -> SparkSession:
    register(spark.session)
    return spark.session


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network.of(["B1", "B2"], [("B1", "B2")]) as network:
        yield network


def wait_until(holds: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    deadline_s = time.monotonic() + 90
    while not holds():
        if query is not None and (error := query.exception()) is not None:
            raise AssertionError(str(error))
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def started(frame: DataFrame, out: Path) -> StreamingQuery:
    """A query that writes what it reads, each batch once."""
    return frame.writeStream.option("checkpointLocation", str(out / "checkpoint")).start(str(out / "rows"))


def forget(file: Path) -> None:
    """Remove a file of a checkpoint, and the checksum that Spark keeps beside it."""
    file.unlink(missing_ok=True)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def numbers(session: SparkSession, out: Path) -> list[int]:
    if not (out / "rows" / "_spark_metadata").exists():
        return []
    return sorted(row.n for row in session.read.schema("n BIGINT").parquet(str(out / "rows")).collect())


def test_publications_come_once_over_stopped_and_killed_queries(
    session: SparkSession, network: Network, tmp_path: Path
) -> None:
    stream = session.readStream.format("trimtab").option("broker", network.address("B1"))
    frame = stream.option("filter", "class = 'STOCK'").schema("n BIGINT, price DOUBLE, _publisher STRING").load()
    query = started(frame, tmp_path)
    with BlockingClient(network.address("B2")) as client:
        client.advertise(Filter.parse(STOCKS))
        wait_until(lambda: bool(query.lastProgress), query)
        for number in range(50):
            client.publish({"class": "STOCK", "n": number, "price": number / 2})
        client.drain()
        wait_until(lambda: numbers(session, tmp_path) == [*range(50)], query)
        query.stop()
        for number in range(50, 100):  # while nobody reads
            client.publish({"class": "STOCK", "n": number, "price": 1})
        client.drain()
        query = started(frame, tmp_path)
        wait_until(lambda: numbers(session, tmp_path) == [*range(100)], query)
        query.stop()
        # As if it had been killed between the offsets and the commit of its last batch: that is done again.
        last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        forget(last)
        batch = tmp_path / "rows" / "_spark_metadata" / last.name
        again = batch.exists()
        forget(batch)
        client.publish({"class": "STOCK", "n": 100, "price": 1})
        client.drain()
        query = started(frame, tmp_path)
        wait_until(lambda: numbers(session, tmp_path)[-1:] == [100], query)
        assert again and numbers(session, tmp_path) == [*range(101)]
        query.stop()
    row = session.read.schema("n BIGINT, price DOUBLE, _publisher STRING").parquet(str(tmp_path / "rows")).first()
    assert row is not None and row._publisher


def test_a_batch_read_listens_for_a_while_and_gives_everything_as_json(session: SparkSession, network: Network) -> None:
    stop = threading.Event()

    def publish() -> None:
        with BlockingClient(network.address("B2")) as client:
            client.advertise(Filter.parse(STOCKS))
            while not stop.is_set():
                client.publish({"class": "STOCK", "n": 1, "price": 2.5})
                time.sleep(0.05)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        reader = session.read.format("trimtab").option("broker", network.address("B1"))
        rows = reader.option("filter", "class = 'STOCK' AND price > 2").option("seconds", 2).load().collect()
    finally:
        stop.set()
        thread.join()
    assert rows[0].attributes == '{"class":"STOCK","n":1,"price":2.5}'
    assert [row.sequence for row in rows] == sorted(row.sequence for row in rows)


def test_results_of_a_channel_are_read_at_once_and_as_they_come(
    active: ActiveData, session: SparkSession, tmp_path: Path
) -> None:
    register(active.views.session)
    active.run(REPORTS + FEED + OF_TYPE)
    service = Service(active)
    service.start()
    try:
        options = {
            "service": f"http://127.0.0.1:{service.port}",
            "channel": "OfType",
            "arguments": '{"event": "flood"}',
        }
        frame = (
            session.readStream.format("trimtab").options(**options).schema("reportId STRING, _position BIGINT").load()
        )
        seen: list[Any] = []

        def see(batch: DataFrame, number: int) -> None:
            seen.extend((row.reportId, row._position) for row in batch.collect())

        writing = frame.writeStream.foreachBatch(see).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.start()
        wait_until(lambda: bool(active.catalog.subscriptions()), query)
        active.feed("reports", [report(1), report(2, "fire"), report(3)])
        wait_until(lambda: len(seen) == 2, query)
        query.stop()
        active.feed("reports", [report(4)])
        active.settle()
        query = writing.start()
        wait_until(lambda: len(seen) == 3, query)
        query.stop()
        assert seen == [("r1", 1), ("r3", 2), ("r4", 3)]
        rows = session.read.format("trimtab").options(**options).load().orderBy("position").collect()
        assert [row.fields for row in rows] == ['{"reportId":"r1"}', '{"reportId":"r3"}', '{"reportId":"r4"}']
    finally:
        service.close()


def test_tables_and_streams_are_published_each_row_once_over_a_batch_that_is_done_again(
    session: SparkSession, network: Network, tmp_path: Path
) -> None:
    heard: list[dict[str, Any]] = []
    with BlockingClient(network.address("B2")) as client:
        client.subscribe(Filter.parse("class = 'ALERT'"), callback=lambda each: heard.append(dict(each.publication)))
        options = {"broker": network.address("B1"), "advertisement": "class = 'ALERT' AND n IS NOT NULL"}
        table = session.range(5).selectExpr("'ALERT' AS class", "id AS n", "CAST(NULL AS STRING) AS nothing")
        table.write.format("trimtab").mode("append").options(**options).save()
        wait_until(lambda: len(heard) == 5)
        assert sorted(each["n"] for each in heard) == [*range(5)]
        assert set(heard[0]) == {"class", "n"}
        heard.clear()
        source = tmp_path / "in"
        source.mkdir()
        (source / "a.json").write_text('{"n": 10}\n{"n": 11}\n')
        stream = session.readStream.schema("n BIGINT").json(str(source)).selectExpr("'ALERT' AS class", "n")
        writing = stream.writeStream.format("trimtab").options(**options)
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.start()
        wait_until(lambda: len(heard) == 2, query)
        wait_until((tmp_path / "checkpoint" / "commits" / "0").exists, query)
        query.stop()
        forget(tmp_path / "checkpoint" / "commits" / "0")  # as if it had been killed before it could commit
        (source / "b.json").write_text('{"n": 12}\n')
        query = writing.start()
        wait_until(lambda: any(each["n"] == 12 for each in heard), query)
        query.stop()
        assert [each["n"] for each in heard] == [10, 11, 12]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "the option 'broker' is missing"),
        ({"broker": "127.0.0.1:1", "filter": "x >"}, "the option 'filter'"),
        ({"broker": "127.0.0.1:1", "filter": "x > 1", "seconds": "no"}, "'seconds' must be a number"),
        ({"broker": "127.0.0.1:1", "filter": "x > 1"}, "no broker at 127.0.0.1:1"),
        ({"service": "ftp://x"}, "'service' must be http://HOST:PORT"),
        ({"service": "127.0.0.1:1", "subscription": "1"}, "no active data at 127.0.0.1:1"),
    ],
)
def test_what_is_missing_or_wrong_is_said(session: SparkSession, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=r".+") as caught:
        session.read.format("trimtab").options(**options).load().collect()
    assert said in str(caught.value)
