"""Plans with everything together: what is drawn, shrunk, kept, and run in several processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.simulation.faults.deaths import Asked, Restart
from trimtab.simulation.faults.faults import Crash, Cut, Hang, Pause
from trimtab.simulation.fuzz.bugs.core_bugs import bug_named
from trimtab.simulation.fuzz.endless import Endless, finding_of
from trimtab.simulation.fuzz.findings import (
    FindingError,
    decode_finding,
    encode_finding,
    plan_lines,
    read_finding,
    write_finding,
)
from trimtab.simulation.fuzz.full_plans import draw_plan_with_replication
from trimtab.simulation.fuzz.fuzz import fuzz, run_with_bug
from trimtab.simulation.fuzz.plans import FuzzPlan, draw_plan
from trimtab.simulation.fuzz.run import run_plan
from trimtab.simulation.fuzz.shrink import shrink, signature
from trimtab.simulation.fuzz.weights import WEIGHTS

BUG = bug_named("confirm-too-early")
RUNNER = CliRunner()


def _ingredients(plan: FuzzPlan) -> set[str]:
    assert plan.deaths is not None
    deaths = plan.deaths
    found: set[str] = {deaths.acknowledges, deaths.replication.protocol}
    found |= {type(fault).__name__.lower() for fault in (*plan.faults, *deaths.failures)}
    for is_there, name in (
        (plan.is_balanced, "balancing"),
        (bool(plan.coordinator), "coordinator"),
        (bool(plan.relocation), "relocation"),
        (bool(plan.channel_acts), "channels"),
        (bool(plan.guests), "guests"),
        (any(act.what == "move" for act in plan.acts), "moves"),
        (any(act.what == "leave-acknowledged" for act in plan.acts), "leave with backlog"),
        (any(act.what == "unadvertise" and act.which < 0 for act in plan.acts), "unadvertise with backlog"),
        (bool(deaths.helped), "assistant"),
        (bool(deaths.helped) and bool(deaths.failures), "deaths with assistant"),
        (not deaths.waits_for_takeovers, "overlapping deaths"),
        (len(deaths.failures) > 3, "rolling restart"),
        (any(isinstance(fault, Pause) and fault.for_s > 5.0 for fault in plan.faults), "false suspicion"),
    ):
        if is_there:
            found.add(name)
    return found


def test_every_ingredient_of_the_table_occurs_in_500_plans() -> None:
    found = Counter(name for seed in range(500) for name in _ingredients(draw_plan_with_replication(seed)))
    wanted = {
        *WEIGHTS.acknowledges,
        *WEIGHTS.protocol,
        *WEIGHTS.failing,
        *WEIGHTS.fault,
        *WEIGHTS.feature_kept,
        "moves",
        "leave with backlog",
        "unadvertise with backlog",
        "assistant",
        "deaths with assistant",
        "overlapping deaths",
        "false suspicion",
        "flipbit",
        "fulldisk",
        "slowdisk",
        "rolling restart",
    }
    assert wanted - set(found) == set()


def test_nothing_but_death_looks_like_death() -> None:
    suspected_count = 0
    for seed in range(200):
        plan = draw_plan_with_replication(seed)
        assert plan.deaths is not None
        replication = plan.deaths.replication
        for fault in plan.faults:
            if isinstance(fault, Cut) and all(name[0] in "BG" for name in fault.between):
                assert fault.for_s < replication.crash_after_s
            if isinstance(fault, Pause) and fault.for_s >= replication.hang_after_s:
                suspected_count += 1
        assert all(isinstance(failure, Crash | Hang | Restart | Asked) for failure in plan.deaths.failures)
    assert 0 < suspected_count < 30, "brokers that are taken for dead, on purpose"


def test_shrinking_keeps_the_violation_and_makes_the_plan_smaller() -> None:
    plan = draw_plan(1)
    report = run_with_bug(plan, BUG)
    shrunk = shrink(plan, report, lambda smaller: run_with_bug(smaller, BUG), runs_max_count=120, within_s=30.0)
    assert signature(report.violations[0]) in map(signature, run_with_bug(shrunk.plan, BUG).violations)
    assert len(shrunk.plan.acts) < len(plan.acts) / 2
    assert run_plan(shrunk.plan).violations == []
    assert shrunk.runs_count <= 120


@pytest.mark.parametrize("seed", range(20))
def test_plans_round_trip_through_json(seed: int) -> None:
    plan = draw_plan_with_replication(seed)
    report = run_with_bug(draw_plan(1), BUG)
    finding = finding_of(plan, report, "replication", BUG, shrinks=False)
    assert decode_finding(encode_finding(finding)) == finding
    assert list(plan_lines(plan))


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"seed": "x"}')
    with pytest.raises(FindingError, match=r"plan\.json"):
        read_finding(path)
    assert RUNNER.invoke(app, ["sim", "fuzz", "--plan", str(path)]).exit_code == 2
    assert RUNNER.invoke(app, ["sim", "fuzz", "--plan", str(tmp_path / "none.json")]).exit_code == 2


def test_a_kept_plan_runs_again_with_its_bug(tmp_path: Path) -> None:
    report = run_with_bug(draw_plan(1), BUG)
    path = write_finding(finding_of(draw_plan(1), report, "", BUG, shrinks=False), tmp_path)
    result = RUNNER.invoke(app, ["sim", "fuzz", "--plan", str(path), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["trace_hash"] == report.trace_hash


def test_several_jobs_show_the_same_as_one() -> None:
    one = fuzz(300, 6, bug=BUG)
    assert fuzz(300, 6, bug=BUG, jobs_count=2) == one


def test_endless_runs_keep_what_they_find(tmp_path: Path) -> None:
    lines: list[str] = []
    endless = Endless(draw_plan, "", BUG, shrinks=False, folder=tmp_path, say=lines.append)
    endless.run(jobs_count=1, for_s=8.0)
    assert endless.runs_count > 0
    assert 0 < len(list(tmp_path.glob("plain-*.json"))) <= endless.failures_count
    assert lines[-1].startswith(f"stopped: {endless.runs_count:,} runs")


def test_an_interrupt_ends_endless_runs_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trimtab", "sim", "fuzz", "--endless", "--jobs", "1", "--out", str(tmp_path)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert "Ctrl-C ends" in process.stdout.readline()
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
    rest, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert "stopped: " in rest
