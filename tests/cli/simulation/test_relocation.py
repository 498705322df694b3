"""Scenarios of publisher relocation on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from trimtab.cli.main import app

SMALL = [
    f"--set={setting}"
    for setting in (
        "brokers_count=7",
        "publishers_count=2",
        "subscribers_count=10",
        "threshold=10",
        "join_s=5",
        "duration_s=90",
        "measure_s=20",
        "rate_per_min=120",
    )
]


def test_every_run_is_compared_with_none_on_the_same_seed(tmp_path: Path) -> None:
    arguments = ["sim", "run", "relocation-clustered", "--set", "policy=pop,grape-load100", "--set", "spread=1,2"]
    result = CliRunner().invoke(app, [*arguments, *SMALL, "--seeds", "2", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    runs = json.loads(result.stdout)["runs"]
    assert runs == json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert len(runs) == (2 + 2 * 2) * 2
    for run in runs:
        assert ("hops_mean" in run["details"]["reductions"]) == (run["policy"] != "none")
        assert (run["lost"], run["duplicated"], run["reordered"]) == (0, 0, 0)
    drawn = CliRunner().invoke(app, ["figures", str(tmp_path), "--json"])
    assert drawn.exit_code == 0, drawn.output
    names = [Path(path).name for path in json.loads(drawn.stdout)]
    assert names == ["relocation-clustered-by-spread.png", "relocation-clustered-waits.png"]


def test_the_table_tells_reductions(tmp_path: Path) -> None:
    arguments = ["sim", "run", "relocation-random", "--set", "policy=grape-delay75", "--set", "spread=1"]
    result = CliRunner().invoke(app, [*arguments, *SMALL, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["none", "grape-delay75"]
    assert "%)" in lines[4]
    assert lines[-1] == "lost 0, delivered twice 0, out of order 0 in 2 runs"
    drawn = CliRunner().invoke(app, ["figures", str(tmp_path), "--json"])
    names = [Path(path).name for path in json.loads(drawn.stdout)]
    assert names[:2] == ["relocation-random-policies.png", "relocation-random-over-time.png"]


def test_an_unknown_policy_is_refused() -> None:
    wrong = CliRunner().invoke(app, ["sim", "run", "relocation-random", "--set", "policy=grapes"])
    assert wrong.exit_code == 2
    assert "no policy is called grapes" in wrong.output
