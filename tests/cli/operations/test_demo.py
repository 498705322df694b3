"""The demonstration: it runs, accounts for everything, cleans up after itself and says what is wrong with its input."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.cli.operations.demo_view import live_view, progress_line, summary_lines
from trimtab.network.admin.local_network import Network, plan_text
from trimtab.network.client.client import Client
from trimtab.operations.demonstration import demonstration
from trimtab.operations.demonstration.channels import EmergencyChannels
from trimtab.operations.demonstration.demonstration import Bundle, Demonstration, DemoOptions, DemoSummary
from trimtab.operations.emergency.channel_account import ChannelCounts
from trimtab.operations.load.load_report import LoadReport
from trimtab.operations.own_process import ActiveProcess

ENDS_WITHIN_S = 120.0


def trimtab(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def start(out: Path, *arguments: str) -> subprocess.Popen[str]:
    """With a folder that is named as seen from where it starts, as `make demo` does."""
    command = [sys.executable, "-m", "trimtab", "demo", "--out", out.name, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=out.parent
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder whose name no other process has in its command line."""
    return tmp_path / f"demo-{secrets.token_hex(6)}"


def started_for(out: Path) -> list[str]:
    """Processes of brokers, active data and Java that belong to a demonstration, by their command lines."""
    return [text for _, text in command_lines() if out.name in text]


def command_lines() -> Iterator[tuple[int, str]]:
    """Those of all processes, with their numbers; where there is no /proc, `ps` is part of the system."""
    if not Path("/proc/self/cmdline").exists():
        listed = subprocess.run(["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            number, _, text = line.strip().partition(" ")
            yield int(number), text
        return
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield int(path.parent.name), path.read_bytes().replace(b"\0", b" ").decode(errors="replace")


def is_started(out: Path, name: str) -> bool:
    return any(name in text for text in started_for(out))


def until(is_so: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + ENDS_WITHIN_S
    while not is_so():
        assert time.monotonic() < ends_s, "not in time"
        time.sleep(0.1)


def test_a_short_run_with_spark_accounts_for_every_delivery_and_notification(out: Path) -> None:
    process = start(out, "--minutes", "0.25", "--subscribers", "40", "--quick-start")
    output, errors = process.communicate(timeout=2 * ENDS_WITHIN_S)
    assert errors == "" and "\x1b" not in output  # there is no terminal
    assert "lost 0, doubled 0, out of order 0" in output and f"Report: {out / 'report.html'}" in output
    summary = json.loads((out / "demonstration.json").read_text(encoding="utf-8"))
    load, channels = summary["load"], summary["channels"]
    assert (load["lost_count"], load["duplicated_count"], load["reordered_count"]) == (0, 0, 0)
    assert load["other_violations"] == []
    assert load["delivered_count"] >= load["expected_count"] > 0
    assert (channels["missing_count"], channels["twice_count"], channels["wrong_count"]) == (0, 0, 0)
    if summary["channels_problem"] is None:  # a slow machine may have no time left for channels, and says so
        assert channels["arrived_count"] == channels["expected_count"] > 0
    is_level = load["level_after_s"] is not None
    assert process.returncode == (0 if is_level and summary["channels_problem"] is None else 1)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Deliveries: " in page and "data:image/png" in page and "http" not in page
    assert started_for(out) == []


class EndsWhileTheyAsk:
    """A load whose time is over while people ask for channels."""

    all_joined = True

    def __init__(self) -> None:
        self.ends = asyncio.Event()

    @property
    def subscribers(self) -> list[Client]:
        self.ends.set()
        return []


def test_channels_that_nobody_was_told_through_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    active = ActiveProcess.__new__(ActiveProcess)  # never started: what it would be asked is answered here
    for name in ("wait_until_ready", "run", "feed"):
        monkeypatch.setattr(active, name, lambda *_: None)
    channels = EmergencyChannels(active, people_count=0, for_s=10.0, seed=1)
    asyncio.run(channels.run(EndsWhileTheyAsk()))  # type: ignore[arg-type]
    assert channels.problem is not None and channels.problem.startswith("Spark was ready too late")


@pytest.mark.parametrize(("number", "waits_for"), [(signal.SIGINT, "java"), (signal.SIGTERM, "trimtab broker")])
def test_a_signal_at_any_time_leaves_no_process_behind(out: Path, number: signal.Signals, waits_for: str) -> None:
    process = start(out, "--subscribers", "40", *(["--no-spark"] if waits_for != "java" else []))
    until(lambda: is_started(out, waits_for))
    os.killpg(process.pid, number)  # as a terminal does with Ctrl-C
    _, errors = process.communicate(timeout=ENDS_WITHIN_S)
    assert (process.returncode, errors) == (128 + number, "stopped; all processes have ended\n")
    assert started_for(out) == []


GETS_THE_SIGNAL_TOO = """
import os, signal
from trimtab.cli.main import main
from trimtab.network.admin.local_network import Network, NetworkError

def has_ended(self):
    os.kill(os.getpid(), signal.SIGTERM)
    raise NetworkError("broker B1 has ended with exit code -15")

Network.check_alive = has_ended
main()
"""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["demo", "--no-spark", "--out", "out"], 128 + signal.SIGTERM, "stopped; all processes have ended\n"),
        (["up", "two.toml"], 0, ""),
    ],
    ids=["demo", "up"],
)
def test_a_broker_that_the_signal_reaches_first_is_no_mistake(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    """A process that is being started is in the group of who starts it for a moment."""
    plan = Network.of(["B1", "B2"], [("B1", "B2")]).plan
    (tmp_path / "two.toml").write_text(plan_text(plan), encoding="utf-8")
    command = [sys.executable, "-c", GETS_THE_SIGNAL_TOO, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stderr) == (code, said)


def test_a_broker_that_dies_is_the_end_and_is_told_in_one_line(out: Path) -> None:
    process = start(out, "--subscribers", "10", "--no-spark")
    until(lambda: is_started(out, "trimtab broker B3"))
    killed = next(number for number, text in command_lines() if "trimtab broker B3" in text and out.name in text)
    os.kill(killed, signal.SIGKILL)
    _, errors = process.communicate(timeout=ENDS_WITHIN_S)
    log = Path(out.name) / "brokers.log"
    said = f"broker B3 has ended with exit code -9; what the brokers said is in {log}\n"
    assert (process.returncode, errors) == (1, said)
    assert started_for(out) == []


def test_brokers_end_when_the_demonstration_is_killed(out: Path) -> None:
    process = start(out, "--subscribers", "10", "--no-spark")
    until(lambda: is_started(out, "trimtab broker"))
    process.kill()
    process.communicate(timeout=ENDS_WITHIN_S)
    until(lambda: not started_for(out))


def test_wrong_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    (tmp_path / "file").write_text("")
    for arguments, said in (
        (["--minutes", "0"], "--minutes: "),
        (["--minutes", "nan"], "--minutes: "),
        (["--subscribers", "0"], "--subscribers: "),
        (["--out", str(tmp_path / "mine")], "is not empty, and is not from an earlier demonstration"),
        (["--out", str(tmp_path / "file")], "cannot be written"),
    ):
        code, output = trimtab("demo", "--out", str(tmp_path / "out"), *arguments)
        assert code == 2 and said in output and output.count("\n") == 1, (arguments, output)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_missing_packages_are_told_and_the_rest_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstration, "missing_for_spark", lambda: ["pyspark"])
    shown = Demonstration(DemoOptions(out=tmp_path), lambda: False)
    assert not shown.has_spark
    assert shown.note == "no channels, for want of pyspark; pip install 'trimtab[active]' brings that"
    live_view(shown)
    assert progress_line(shown).endswith("starting")


def test_what_the_whole_needs_is_told_in_one_line(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = "trimtab.operations.demonstration.demonstration"
    monkeypatch.setitem(sys.modules, imported, None)  # as if something that it imports were missing
    code, output = trimtab("demo", "--out", str(out))
    assert code == 2 and output.startswith("the demonstration needs ") and output.count("\n") == 1


def test_a_spark_that_does_not_start_is_a_problem_and_not_the_end(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_JAVA_HOME", str(tmp_path))
    code, output = trimtab("demo", "--minutes", "0.05", "--subscribers", "20", "--out", str(out), "--json")
    summary = json.loads(output)  # nothing else is printed
    assert code == 1 and summary["load"]["lost_count"] == 0 and summary["load"]["expected_count"] > 0
    problem = f"trimtab active start did not start: TRIMTAB_JAVA_HOME is {tmp_path}"
    assert summary["channels_problem"].startswith(problem)
    assert f"Not reached: {problem}" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_view_fits_the_terminal(tmp_path: Path, width: int, height: int) -> None:
    shown = Demonstration(DemoOptions(out=tmp_path), lambda: False)
    shown.statuses = {f"B{number}": None for number in range(5)}
    for number in range(30):
        shown.bundles.append(Bundle(float(number), "B1", "B2", str(number), 3))
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True)
    lines = console.render_lines(live_view(shown, width, height - 1), pad=False)
    assert len(lines) < height
    text = "".join(segment.text for line in lines for segment in line)
    assert "B4" in text and "B1 gave 3 subscribers to B2" in text


def a_summary(**changes: object) -> DemoSummary:
    load = LoadReport(
        subscribers_count=400, published_count=1_500, expected_count=62_650, delivered_count=62_684, lost_count=0,
        duplicated_count=0, reordered_count=0, other_violations=[], moves_count=523, stayed_count=0, last_move_s=74.0,
        delay_median_s=0.0046, delay_p99_s=0.26, level_after_s=69.0, clients={"B0": 0, "B1": 93}, seconds=[],
    )  # fmt: skip
    given = {"load": load, "joined_after_s": 10.0, "channels": None, "reports_count": 0, "channels_problem": None}
    return DemoSummary(**{**given, "note": None, "took_s": 123.0, **changes})  # type: ignore[arg-type]


def test_it_is_good_only_if_nothing_is_lost_and_the_load_became_level() -> None:
    good = a_summary()
    assert good.is_good and good.balanced_within_s == 59.0
    for changes in (
        {"level_after_s": None},
        {"lost_count": 1},
        {"duplicated_count": 1},
        {"other_violations": ["wrong"]},
    ):
        assert not a_summary(load=msgspec.structs.replace(good.load, **changes)).is_good
    counts = ChannelCounts(
        expected_count=5, arrived_count=4, missing_count=1, twice_count=0, wrong_count=0, out_of_order_count=0
    )
    assert not a_summary(channels=counts).is_good
    assert not a_summary(channels_problem="Spark did not start").is_good


def test_what_was_not_reached_is_said() -> None:
    summary = a_summary(load=msgspec.structs.replace(a_summary().load, level_after_s=None, lost_count=3))
    text = "\n".join(summary_lines(summary))
    assert "Time to balance: not reached" in text and "lost 3, doubled 0, out of order 0" in text
