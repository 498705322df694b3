"""Feeds take each record once and durably: from files, after a killed process, and from a broker network."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.activedata.test_channels import FEED, OF_TYPE, REPORTS, found_ids, report
from trimtab import BlockingClient, Filter, Network
from trimtab.activedata import ActiveData, StatementError
from trimtab.activedata.spark.views import SparkViews
from trimtab.cli.main import app
from trimtab.network.admin.local_network import free_ports

TRIMTAB = (sys.executable, "-m", "trimtab", "active")


def wait_for_count(active: ActiveData, dataset: str, count: int) -> None:
    deadline_s = time.monotonic() + 20
    while active.datasets[dataset].last_sequence < count and time.monotonic() < deadline_s:
        time.sleep(0.02)


def test_lines_of_files_are_taken_once_as_they_come(spark: SparkViews, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.jsonl").write_text(json.dumps(report(1)) + "\nnonsense\n" + json.dumps(report(2))[:20])
    with ActiveData(tmp_path / "data", spark) as active:
        active.run(REPORTS + f"CREATE FEED files INTO Reports FROM DIRECTORY '{source}'; START FEED files")
        wait_for_count(active, "reports", 1)
        with (source / "1.jsonl").open("a") as file:
            file.write(json.dumps(report(2))[20:] + "\n")
        wait_for_count(active, "reports", 2)
    (source / "2.jsonl").write_text(json.dumps(report(3)) + "\n")
    with ActiveData(tmp_path / "data", spark) as active:
        wait_for_count(active, "reports", 3)
        time.sleep(0.1)
        (feed,) = active.catalog.feeds()
        assert (feed.accepted_count, feed.repeated_count, feed.rejected_count) == (3, 0, 1)
        rows = active.run("SELECT reportId FROM Reports ORDER BY 1; SELECT source, place FROM dead_letters")
        assert [row["reportId"] for row in rows[0].rows] == ["r1", "r2", "r3"]
        assert rows[1].rows == [{"source": "1.jsonl", "place": len(json.dumps(report(1))) + 1}]


def test_a_record_of_another_dataset_takes_the_place_of_the_one_with_its_key(active: ActiveData) -> None:
    active.run("CREATE DATASET Users (name STRING, x DOUBLE, at TIMESTAMP OPTIONAL) KEY name")
    active.run("CREATE FEED places INTO Users FROM HTTP; START FEED places; UPSERT INTO Users VALUES ('a', 1, NULL)")
    active.feed("places", [{"name": "a", "x": 2}, {"name": "b", "x": 3}, {"name": "a", "x": 4}])
    active.feed("places", [{"name": "b", "x": 5, "at": "2026-05-01T12:00:00+02:00"}])
    rows = active.run("SELECT name, x, date_format(at, 'HH:mm') AS at FROM Users ORDER BY name")[0].rows
    assert rows == [{"name": "a", "x": 4.0, "at": None}, {"name": "b", "x": 5.0, "at": "10:00"}]


def trimtab(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["active", *arguments])


def check_the_commands(at: str, directory: Path) -> None:
    """The commands on a running process say what they did, and what was wrong."""
    file = directory / "definitions.sql"
    file.write_text(f"{REPORTS}\n{FEED}\n{OF_TYPE}\n\n  SUBSCRIBE TO OfType('flood', 2) ON B1;")
    answer = trimtab("run", str(file), "--at", at)
    assert "active dataset Reports created" in answer.stdout
    assert answer.exit_code == 2
    assert "line 5, column 16: OfType takes 1 arguments (event), 2 are given" in answer.stderr
    answer = trimtab("sql", "SUBSCRIBE TO OfType('flood') ON B1", "--at", at, "--json")
    assert json.loads(answer.stdout) == {"subscription": 1}
    records = directory / "records.jsonl"
    records.write_text(json.dumps(report(-1)) + "\n{}\n")
    answer = trimtab("feed", "reports", str(records), "--at", at)
    assert (answer.stdout, answer.exit_code) == ("1 accepted, 1 rejected\n", 1)
    assert "r-1" in trimtab("sql", "SELECT * FROM Reports", "--at", at).stdout
    assert "OfType" in trimtab("status", "--at", at).stdout
    assert json.loads(trimtab("status", "--at", at, "--json").stdout)["feeds"][0]["rejected_count"] == 1
    answer = trimtab("status", "--at", "127.0.0.1:1")
    assert answer.exit_code == 2
    assert "trimtab active start" in answer.stderr


def test_what_was_acknowledged_survives_a_killed_process_and_comes_once(spark: SparkViews, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    at = f"127.0.0.1:{free_ports(1)[0]}"
    command = [*TRIMTAB, "start", "--dir", data, "--listen", at, "--memory", "1024", "--quick-start"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == f"ready http://{at}\n"
        check_the_commands(at, tmp_path)
        port = int(at.partition(":")[2])
        killer = threading.Timer(1.5, lambda: os.kill(process.pid, signal.SIGKILL))
        killer.start()
        acknowledged = sent = 0
        try:
            while True:
                records = [report(number) for number in range(sent, sent + 3)]
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                sent += 3
                connection.request("POST", "/feeds/reports", b"\n".join(json.dumps(each).encode() for each in records))
                assert json.loads(connection.getresponse().read())["accepted"] == 3
                acknowledged = sent
                connection.close()
        except (OSError, http.client.HTTPException):
            killer.cancel()
        assert process.stderr.read() == ""
    assert acknowledged > 10
    with ActiveData(data, spark) as active:
        stored = active.datasets["reports"].last_sequence - 1
        assert acknowledged <= stored <= sent
        assert stored % 3 == 0
        again = active.feed("reports", [report(number) for number in range(sent)])
        assert (again.accepted, again.repeated) == (sent, stored)
        active.settle()
        assert found_ids(active, 1) == [f"r{number}" for number in range(-1, sent)][:1000]


def test_publications_of_a_broker_network_become_records(spark: SparkViews, tmp_path: Path) -> None:
    with Network.of(["B1"]) as network, ActiveData(tmp_path, spark) as active:
        broker = network.address("B1")
        active.run(REPORTS + f'CREATE FEED net INTO Reports FROM OVERLAY "class = \'REPORT\'" AT "{broker}"')
        active.run("START FEED net")
        with BlockingClient(broker) as client:
            there = "class = 'REPORT' AND reportId IS NOT NULL AND x IS NOT NULL AND y IS NOT NULL"
            client.advertise(Filter.parse(there))
            client.advertise(Filter.parse(f"{there} AND event IS NOT NULL"))
            deadline_s = time.monotonic() + 20
            while not active.datasets["reports"].last_sequence and time.monotonic() < deadline_s:
                client.publish({"class": "REPORT", **report(1)})
                time.sleep(0.05)
            client.publish({"class": "REPORT", "reportId": "r3", "x": 1, "y": 2})
            client.publish({"class": "REPORT", **report(4)})
            client.drain()
            wait_for_count(active, "reports", 2)
        rows = active.run("SELECT reportId FROM Reports ORDER BY 1; SELECT reason FROM dead_letters")
        assert rows[0].rows == [{"reportId": "r1"}, {"reportId": "r4"}]
        assert rows[1].rows == [{"reason": "field 'event' is missing"}]
        with pytest.raises(StatementError, match="is not an address"):
            active.run("CREATE FEED bad INTO Reports FROM OVERLAY 'x > 1' AT 'nowhere'")
