"""The command `trimtab bench match`."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trimtab.cli.main import app

SMALL = ("--filters", "300", "--publications", "64")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "match", *arguments])


def test_json_holds_the_figures_and_the_goals_of_one_workload() -> None:
    result = run("--workload", "ranges", *SMALL, "--json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert figures["verified"] is True
    (workload,) = figures["workloads"]
    assert (workload["workload"], workload["filters_count"]) == ("ranges", 300)
    assert workload["match_us_per_publication"] > 0
    for name in ("add_and_check", "covering_add"):
        assert {"median_us", "p99_us", "max_us"} <= workload[name].keys()
    assert {goal["workload"] for goal in figures["goals"]} == {"ranges", None}


def test_people_see_both_workloads_and_whether_each_goal_is_met() -> None:
    result = run(*SMALL)
    assert result.exit_code == 0
    for text in (
        "stock",
        "ranges",
        "faster than the NumPy scan",
        "as one table",
        "covering check and add",
        "covering set: add",
        "memory per filter",
        "Goals, set for 100,000 filters",
    ):
        assert text in result.stdout


def test_quotes_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv"
    rows = [f"S{n % 7},2014-01-{1 + n // 7:02d},5.{n},6.5,4.5,5.5,{100 + n}" for n in range(70)]
    path.write_text("\n".join(["symbol,date,open,high,low,close,volume", *rows]), encoding="utf-8")
    result = run("--workload", "stock", *SMALL, "--quotes", str(path), "--json")
    assert (result.exit_code, json.loads(result.stdout)["quotes"]) == (0, "quotes.csv")


def test_a_bad_row_of_quotes_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv"
    path.write_text("symbol,date,open,high,low,close,volume\nABX,2014-01-02,x,1,1,1,1\n", encoding="utf-8")
    result = run("--workload", "stock", *SMALL, "--quotes", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{path}:2: open: 'x' is not a number\n"


@pytest.mark.parametrize("arguments", [("--filters", "0"), ("--workload", "nonsense"), ("--publications", "x")])
def test_impossible_options_are_refused(arguments: tuple[str, str]) -> None:
    assert run(*arguments).exit_code == 2


def test_without_numpy_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "trimtab.lab.numpy_scan", raising=False)
    result = run(*SMALL)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pip install 'trimtab[lab]'" in result.stderr
