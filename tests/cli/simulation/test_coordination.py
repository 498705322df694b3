"""Scenarios of coordination on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from trimtab.cli.main import app


def test_one_run_writes_its_summary_and_prints_it_as_json(tmp_path: Path) -> None:
    arguments = ["sim", "run", "bad-emergency-load", "--set", "policy=gsh", "--set", "placement=nearest"]
    more = ["--set", "subscribers_count=60", "--set", "duration_s=300", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, [*arguments, *more])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed == json.loads((tmp_path / "summary.json").read_text())
    assert printed["policy"] == "gsh"
    details = printed["details"]
    assert details["max_load"] >= details["lower_bound"] > 0
    assert {"cov", "total_load", "ratio"} <= details.keys()


def test_lists_make_a_table_with_each_policy_in_relation_to_none(tmp_path: Path) -> None:
    arguments = ["sim", "run", "bad-emergency-load", "--set", "policy=none,ldm", "--seeds", "2"]
    more = ["--set", "subscribers_count=60", "--set", "duration_s=300", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*arguments, *more])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0][0] == "bad-emergency-load:"
    assert [line[0] for line in lines[3:]] == ["none", "ldm"]
    assert lines[3][2] == "1.000"
    assert len(json.loads((tmp_path / "summary.json").read_text())["runs"]) == 4
    drawn = CliRunner().invoke(app, ["figures", str(tmp_path), "--json"])
    assert drawn.exit_code == 0, drawn.output
    names = [Path(path).name for path in json.loads(drawn.stdout)]
    assert names == [f"bad-emergency-load-{each}.png" for each in ("nearest-loads", "nearest-cov", "policies")]
    assert all((tmp_path / "figures" / name).stat().st_size > 1000 for name in names)


def test_an_unknown_policy_is_refused() -> None:
    result = CliRunner().invoke(app, ["sim", "run", "bad-scale", "--set", "policy=best"])
    assert result.exit_code == 2
    assert "policy: best is none of none, ldm" in result.output


def test_the_effect_of_alpha_is_drawn(tmp_path: Path) -> None:
    arguments = [
        "sim",
        "run",
        "bad-emergency-load",
        "--set",
        "policy=ldm",
        "--set",
        "policy.multistage.migrate_cov=0.05,0.3",
    ]
    more = ["--set", "subscribers_count=60", "--set", "duration_s=300", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, [*arguments, *more]).exit_code == 0
    drawn = CliRunner().invoke(app, ["figures", str(tmp_path), "--json"])
    assert [Path(path).name for path in json.loads(drawn.stdout)] == ["bad-emergency-load-alpha.png"]


def test_the_benchmark_tells_times_and_that_the_bar_is_kept() -> None:
    arguments = ["bench", "multistage", "--subscribers", "2000", "--brokers", "5", "--subscriptions", "200", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert [plan["policy"] for plan in figures["plans"]] == ["gsh", "ldm", "sdm"]
    assert figures["is_within"]
    assert all(plan["cov"] <= 0.15 < figures["before"]["cov"] for plan in figures["plans"])
