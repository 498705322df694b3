"""Studies on the command line: `trimtab sim run STUDY`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trimtab.cli.main import app
from trimtab.records.files import read_records

STUDY = """
kind = "study"
description = "How many subscribers there are."
base = "padres-local"
parameter = "subscribers"

[set]
duration_s = 60.0
rate = []
"subscribers.0.join_s" = [10.0, 20.0]
"balance.joined_s" = 20.0

[grid]
"subscribers.0.count" = [50, 150]

[[figure]]
number = "5.23"
title = "Convergence time"
metrics = ["converged_at_s", "moves"]
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Result]:
    folder = tmp_path_factory.mktemp("study")
    file = folder / "subscribers.toml"
    file.write_text(STUDY)
    return file, folder / "out", run("sim", "run", str(file), "--seeds", "2", "--out", str(folder / "out"))


def test_a_study_runs_every_point_with_every_seed(study: tuple[Path, Path, Result]) -> None:
    _, out, result = study
    assert result.exit_code == 0, result.output
    assert "4 of 4:" in result.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert [point["value"] for point in summary["points"]] == [50, 150]
    assert [[each["seed"] for each in point["runs"]] for point in summary["points"]] == [[1, 2], [1, 2]]
    for point in summary["points"]:
        moves = [each["metrics"]["moves"] for each in point["runs"]]
        assert point["means"]["moves"] == sum(moves) / 2
        assert all(each["metrics"]["lost"] == 0 for each in point["runs"])
    assert "(b) moves: moves of subscribers; figure 5.23" in result.stdout
    assert "lost 0, delivered twice 0, out of order 0 in 4 runs" in result.stdout
    times = read_records(out / "150-seed-2", "load")["time_s"].to_pylist()
    assert max(times) >= 60


def test_one_seed_and_settings_give_the_same_numbers_again(study: tuple[Path, Path, Result]) -> None:
    file, out, _ = study
    again = run("sim", "run", str(file), "--seed", "2", "--seeds", "1", "--processes", "1", "--json")
    assert again.exit_code == 0
    before = json.loads((out / "summary.json").read_text())
    first, second = json.loads(again.stdout)["points"][1]["runs"][0], before["points"][1]["runs"][1]
    assert first["metrics"] == second["metrics"]


def test_studies_are_listed() -> None:
    assert "padres-press-samples" in run("sim", "list").stdout
    kinds = {entry["name"]: entry["kind"] for entry in json.loads(run("sim", "list", "--json").stdout)}
    assert (kinds["padres-press-samples"], kinds["padres-local"]) == ("study", "messages")


def test_mistakes_are_told_before_anything_runs(tmp_path: Path, study: tuple[Path, Path, Result]) -> None:
    file, _, _ = study
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(STUDY.replace('"subscribers.0.count"', '"subscribers.7.count"'))
    blocked = tmp_path / "file"
    blocked.write_text("")
    for arguments, text in (
        ((str(wrong),), "there is no number 7"),
        ((str(file), "--set", "colour=red"), "colour: there is no such key"),
        ((str(file), "--quotes", "x.csv"), "x.csv: No such file"),
        ((str(file), "--out", str(blocked)), "cannot be written"),
        (("figure-2-2", "--quick"), "--quick is for studies"),
    ):
        result = run("sim", "run", *arguments)
        assert result.exit_code == 2, arguments
        assert text in result.stderr
