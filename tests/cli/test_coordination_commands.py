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
    assert printed["max_load"] >= printed["lower_bound"] > 0
    assert {"cov", "moves", "total_load", "ratio"} <= printed.keys()


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


def test_an_unknown_policy_is_refused() -> None:
    result = CliRunner().invoke(app, ["sim", "run", "bad-scale", "--set", "policy=best"])
    assert result.exit_code == 2
    assert "policy: best is none of none, ldm" in result.output
