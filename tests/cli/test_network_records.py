"""The records of a running network: `trimtab up --records` and `trimtab sub --records`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from typer.testing import CliRunner

from trimtab import Network
from trimtab.cli.main import app
from trimtab.lab.record_files import read_records
from trimtab.network.local_network import plan_text

WITHIN_S = 20.0


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trimtab", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_load_and_deliveries_of_a_network_are_recorded_and_can_be_read_while_it_runs(tmp_path: Path) -> None:
    plan = Network.of(["B1", "B2"], [("B1", "B2")]).plan
    file, records = tmp_path / "pair.toml", tmp_path / "records"
    file.write_text(plan_text(plan), encoding="utf-8")
    network = start("up", str(file), "--records", str(records))
    assert network.stdout is not None
    assert network.stdout.readline() == "ready\n"
    ends_s = time.monotonic() + WITHIN_S
    while set(read_records(records, "load")["broker"].to_pylist()) != {"B1", "B2"} and time.monotonic() < ends_s:
        time.sleep(0.05)
    assert set(read_records(records, "load")["broker"].to_pylist()) == {"B1", "B2"}
    near, far = (str(plan.broker(name).listen) for name in ("B1", "B2"))
    subscriber = start("sub", "--broker", far, "n > 0 OR n > 1", "--count", "3", "--records", str(records))
    assert subscriber.stderr is not None
    assert subscriber.stderr.readline() == "subscribed\n"
    assert CliRunner().invoke(app, ["pub", "--broker", near, "[n,1]", "[n,2]", "[n,3]"]).exit_code == 0
    subscriber.communicate(timeout=WITHIN_S)
    assert subscriber.returncode == 0
    network.send_signal(signal.SIGTERM)
    network.communicate(timeout=WITHIN_S)
    assert network.returncode == 0

    deliveries = read_records(records, "deliveries").to_pylist()
    assert [(each["sequence"], each["broker"], each["hops"]) for each in deliveries] == [
        (1, "B2", 2),
        (2, "B2", 2),
        (3, "B2", 2),
    ]
    assert [each["subscriptions_count"] for each in deliveries] == [1, 2, 2]
    load = read_records(records, "load").to_pylist()
    assert {each["run"] for each in load} == {"pair"}
    for broker in ("B1", "B2"):
        ours = [each for each in load if each["broker"] == broker]
        assert sum(each["publications_in_count"] for each in ours) == 3
        assert sum(each["publications_out_count"] for each in ours) == 3
        assert sum(each["control_in_count"] for each in ours) > 0
        assert all(each["memory_bytes"] > 1_000_000 for each in ours)
    assert not list(records.rglob("*.unfinished"))
