"""The nemesis for some seconds over real processes: nothing is lost; `trimtab bench nemesis` is the same at length."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.lab.bench.nemesis.run import NemesisBench, run_nemesis
from trimtab.lab.bench.nemesis.schedule import Level

SECONDS = float(os.environ.get("TRIMTAB_NEMESIS_SECONDS", "12"))
RATE_PER_S = 120.0


def processes_of(folder: Path) -> list[str]:
    """Processes that name a folder on their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words and b"pytest" not in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found


@pytest.mark.parametrize(("level", "seed"), [("safe", 21), ("durable", 22)])
def test_what_was_acknowledged_is_delivered_whatever_happens(level: Level, seed: int, tmp_path: Path) -> None:
    bench = NemesisBench(
        minutes=SECONDS / 60,
        seed=seed,
        level=level,
        rate_per_s=RATE_PER_S,
        kinds=("kill", "terminate", "restart", "pause"),
        pause_max_s=0.5,
        stay_min_s=3.0,
        stay_max_s=9.0,
        moves_every_s=0.7,
        lease_s=30.0,
        stalls_within_s=60.0,
    )
    told: list[str] = []
    outcome = run_nemesis(bench, tmp_path, told.append)
    findings = (tmp_path / "findings.txt").read_text(encoding="utf-8")
    assert (outcome.problems, outcome.not_at_rest, findings) == ([], [], "")
    assert outcome.is_right
    assert outcome.acknowledged_count == outcome.published_count >= RATE_PER_S * SECONDS / 2
    assert outcome.owed_count > 100
    assert outcome.deaths_count > 0
    assert outcome.moved_count > 0
    assert processes_of(tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} >= {
        *("network.toml", "brokers.log", "schedule.jsonl", "events.jsonl", "history.jsonl", "findings.txt"),
        "outcome.json",
    }


def test_it_sees_what_is_lost_where_losses_are_allowed(tmp_path: Path) -> None:
    """At `received` a broker that dies takes with it what it holds: a nemesis that finds nothing there is blind."""
    bench = NemesisBench(
        minutes=0.2,
        seed=1308,  # links of inner brokers are silent before these die
        level="received",
        rate_per_s=400.0,
        kinds=("kill",),
        has_link_faults=False,
        laden_ratio=1.0,
        pause_max_s=0.5,
        stalls_within_s=20.0,
    )
    outcome = run_nemesis(bench, tmp_path, lambda text: None)
    assert outcome.lost_count + outcome.gaps_count > 0
    assert (outcome.doubled_count, outcome.reordered_count, outcome.wrong_count) == (0, 0, 0)
    findings = (tmp_path / "findings.txt").read_text(encoding="utf-8")
    assert "told: P" in findings or "lost: P" in findings
    assert " killed" in findings  # what was done around the loss stands beside it


def test_the_command_tells_what_came_of_it(tmp_path: Path) -> None:
    options = ["--minutes", "0.05", "--seed", "5", "--rate", "60", "--only", "pause", "--json"]
    result = CliRunner().invoke(app, ["bench", "nemesis", *options, "--no-links", "--out", str(tmp_path)])
    found = json.loads(result.stdout)
    assert (result.exit_code, found["is_right"]) == ((0, True) if found["is_right"] else (1, False))
    assert (found["seed"], found["level"]) == (5, "safe")
    assert Path(found["out"]).parent == tmp_path


def test_ctrl_c_ends_it_early_and_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trimtab", "bench", "nemesis", "--minutes", "9", "--rate", "50"]
    with subprocess.Popen([*command, "--out", str(tmp_path)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if " published" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 1
    ends_s = time.monotonic() + 10
    while processes_of(tmp_path) and time.monotonic() < ends_s:
        time.sleep(0.1)
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--damage"], "--damage is for --level durable: at safe brokers have no log"),
        (["--faketime", "/nowhere/libfaketimeMT.so.1"], "--faketime: there is no file /nowhere/libfaketimeMT.so.1"),
        (["--out", "/proc/nowhere"], "--out: /proc/nowhere/safe-"),
        (["--level", "certain"], "certain"),
        (["--minutes", "0"], "0"),
        (["--only", "kill,burn"], "--only: burn is not known; expected kill, replace, terminate, restart, pause, hang"),
    ],
)
def test_bad_input_is_refused(options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["bench", "nemesis", *options])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output
