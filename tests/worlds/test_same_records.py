"""The same story in both worlds gives the same records: `up --records`, `sub --records` and `sim run --out`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from typer.testing import CliRunner

from trimtab import Network
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text
from trimtab.records.files import read_records

WITHIN_S = 20.0
STORY = """
name = "pair"
record_every_s = 1.0

[[broker]]
name = "B1"

[[broker]]
name = "B2"

[[link]]
between = ["B1", "B2"]

[[publisher]]
name = "publisher"
broker = "B1"
at_s = 1.0
advertise = "[n,isPresent,0]"

[[subscriber]]
name = "subscriber"
broker = "B2"
at_s = 2.0
filters = ["n > 0", "n > 1"]

[[publish]]
publisher = "publisher"
at_s = 3.0
publications = ["[n,1]", "[n,2]", "[n,3]"]
"""
SAME = ("broker", "sequence", "hops", "subscriptions_count")
"""What does not depend on names and times."""


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trimtab", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_network_and_a_simulation_record_the_same_and_a_network_can_be_read_while_it_runs(tmp_path: Path) -> None:
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
    assert [tuple(each[name] for name in SAME) for each in deliveries] == [
        ("B2", 1, 2, 1),
        ("B2", 2, 2, 2),
        ("B2", 3, 2, 2),
    ]
    load = read_records(records, "load").to_pylist()
    assert {each["run"] for each in load} == {"pair"}
    for broker in ("B1", "B2"):
        ours = [each for each in load if each["broker"] == broker]
        assert sum(each["control_in_count"] for each in ours) > 0
        assert all(0 <= each["memory_bytes"] < 40_000_000 for each in ours), "the program itself does not count"
    assert not list(records.rglob("*.unfinished"))

    story, simulated = tmp_path / "story.toml", tmp_path / "simulated"
    story.write_text(STORY, encoding="utf-8")
    assert CliRunner().invoke(app, ["sim", "run", str(story), "--out", str(simulated)]).exit_code == 0
    for table in ("load", "deliveries"):
        assert read_records(simulated, table).schema.equals(read_records(records, table).schema, check_metadata=True)
    same = read_records(simulated, "deliveries").select(SAME)
    assert same.to_pylist() == read_records(records, "deliveries").select(SAME).to_pylist()
    assert passed_on(simulated) == passed_on(records) == {"B1": (3, 3), "B2": (3, 3)}


def passed_on(folder: Path) -> dict[str, tuple[int, int]]:
    """By broker, the publications that came in and went out."""
    counts: dict[str, tuple[int, int]] = {}
    for each in read_records(folder, "load").to_pylist():
        in_count, out_count = counts.get(each["broker"], (0, 0))
        counts[each["broker"]] = (in_count + each["publications_in_count"], out_count + each["publications_out_count"])
    return counts
