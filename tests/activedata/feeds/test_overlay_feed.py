"""A feed from the overlay over a killed process: nothing between broker and commit is lost, nothing is there twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from deltalake import DeltaTable

from tests.activedata.feeds.test_feeds import TRIMTAB, trimtab, wait_for_count
from tests.activedata.test_channels import REPORTS, report
from trimtab import BlockingClient, Filter, Network
from trimtab.activedata import ActiveData
from trimtab.activedata.spark.views import SparkViews
from trimtab.network.admin.local_network import free_ports

THERE = "class = 'REPORT' AND n IS NOT NULL AND reportId IS NOT NULL AND event IS NOT NULL AND x IS NOT NULL"
FEEDS = (
    REPORTS
    + """
    CREATE DATASET Latest (event STRING, n INT) KEY event;
    CREATE FEED net INTO Reports FROM OVERLAY "class = 'REPORT'" AT '{0}';
    CREATE FEED last INTO Latest FROM OVERLAY "class = 'REPORT'" AT '{0}';
    START FEED net; START FEED last
"""
)


@contextlib.contextmanager
def publishing(broker: str) -> Iterator[list[int]]:
    """Publishes a report every few milliseconds, after each tenth a malformed one; gives what was said."""
    said: list[int] = []
    stop = threading.Event()

    def work() -> None:
        with BlockingClient(broker) as client:
            client.advertise(Filter.parse(f"{THERE} AND y IS NOT NULL"))
            while not stop.is_set():
                number = len(said)
                client.publish({"class": "REPORT", "n": number, **report(number)})
                if number % 10 == 0:
                    client.publish({"class": "REPORT", "n": number, "reportId": f"bad{number}", "event": "flood"})
                said.append(number)
                time.sleep(0.002)
            client.drain()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield said
    finally:
        stop.set()
        thread.join()


def wait_for_more(said: list[int], count: int) -> None:
    """Let publishing go on for a while."""
    until, deadline_s = len(said) + count, time.monotonic() + 30
    while len(said) < until:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def stored_count(data: Path, dataset: str) -> int:
    """How many records of a dataset are on the disk while nothing runs there."""
    (folder,) = (data / "datasets").glob(f"{dataset}-*")
    count: int = DeltaTable(folder).to_pyarrow_dataset().count_rows()
    return count


def wait_until_taken(active: ActiveData, last: int) -> None:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        if active.run(f"SELECT * FROM Reports WHERE reportId = 'r{last}'")[0].rows:
            if active.run(f"SELECT * FROM Latest WHERE n = {last}")[0].rows:
                return
        time.sleep(0.2)
    raise AssertionError(f"report {last} did not come")


def test_nothing_is_lost_or_doubled_when_the_process_is_killed(spark: SparkViews, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    at = f"127.0.0.1:{free_ports(1)[0]}"
    command = [*TRIMTAB, "start", "--dir", data, "--listen", at, "--memory", "1024", "--quick-start"]
    with Network.of(["B1", "B2"], [("B1", "B2")]) as network:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"ready http://{at}\n"
            answer = trimtab("sql", FEEDS.format(network.address("B1")), "--at", at)
            assert answer.exit_code == 0, answer.stderr
            with publishing(network.address("B2")) as said:
                deadline_s = time.monotonic() + 30
                while '"accepted_count": 0' in trimtab("status", "--at", at, "--json").stdout:
                    assert time.monotonic() < deadline_s
                    time.sleep(0.1)
                wait_for_more(said, 200)
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                killed_at = len(said)
                wait_for_more(said, 100)
                stored = stored_count(Path(data), "Reports")
                assert stored <= killed_at + 1  # what is said may be stored before it is written down as said
                with ActiveData(data, spark) as active:
                    wait_for_count(active, "reports", stored + 200)
        with ActiveData(data, spark) as active:
            wait_until_taken(active, said[-1])
            rows = active.run("SELECT reportId FROM Reports ORDER BY _sequence")[0].rows
            first = int(rows[0]["reportId"][1:])
            assert first < killed_at
            assert [row["reportId"] for row in rows] == [f"r{number}" for number in range(first, said[-1] + 1)]
            letters = active.run("SELECT feed, record FROM dead_letters")[0].rows
            assert {letter["feed"] for letter in letters} == {"net"}
            bad = sorted(int(letter["record"].split("bad")[1].split('"')[0]) for letter in letters)
            assert bad == [number for number in range(bad[0], said[-1] + 1) if number % 10 == 0]
            assert bad[0] <= first + 10
            events = {row["event"]: row["n"] for row in active.run("SELECT event, n FROM Latest")[0].rows}
            assert max(events.values()) == said[-1]


def test_a_broker_that_was_started_again_is_told_anew_and_the_gap_is_written_down(
    spark: SparkViews, tmp_path: Path
) -> None:
    with Network.of(["B1"]) as network, ActiveData(tmp_path / "data", spark) as active:
        active.run(FEEDS.format(network.address("B1")))
        with publishing(network.address("B1")) as said:
            wait_for_count(active, "reports", 20)
            network.stop_broker("B1")
            network.start_broker("B1")
            network.wait_until_ready()
            deadline_s = time.monotonic() + 30
            gap = "SELECT DISTINCT feed, reason FROM dead_letters WHERE source = 'overlay'"
            while len(letters := active.run(gap)[0].rows) < 2 and time.monotonic() < deadline_s:
                time.sleep(0.1)
            for feed in ("net", "last"):
                before = active.catalog.feed(feed).accepted_count
                while active.catalog.feed(feed).accepted_count == before and time.monotonic() < deadline_s:
                    time.sleep(0.05)
        wait_until_taken(active, said[-1])
        assert {letter["feed"] for letter in letters} == {"net", "last"}
        assert "publications may be missing: B1 has forgotten the client" in letters[0]["reason"]
