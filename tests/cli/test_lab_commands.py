"""`trimtab lab` on a real Spark, in processes of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trimtab", "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_runs_are_tasks_of_spark_and_are_not_repeated(tmp_path: Path) -> None:
    study = tmp_path / "mine.toml"
    study.write_text(
        '[[runs]]\nscenario = "figure-2-2"\n[[runs]]\nscenario = "stock-small"\nset = {quotes = "nowhere.csv"}\n',
        encoding="utf-8",
    )
    out = tmp_path / "results"
    first = lab("run", str(study), "--seeds", "1", "--out", str(out), "--json")
    told = json.loads(first.stdout)
    assert first.returncode == 1
    assert (told["runs_count"], told["done_before_count"]) == (2, 0)
    (failed,) = told["failed"]
    assert failed["run"] == "stock-small, quotes nowhere.csv, seed 1"
    assert "nowhere.csv" in failed["error"]
    (file,) = (out / "runs").glob("*.parquet")
    values = {row["metric"]: row["value"] for row in pq.read_table(file).to_pylist()}
    assert values["lost_count"] == 0
    assert values["deliveries_count"] > 0
    assert json.loads((out / "summaries" / f"{file.stem}.json").read_text())["scenario"] == "figure-2-2"
    again = lab("run", "figure-2-2", "--seeds", "1", "--out", str(out))
    assert again.returncode == 0
    assert "0 of 1 runs done, 1 were there already" in again.stdout


def test_mistakes_are_told_without_a_spark() -> None:
    for arguments, says in (
        (("run", "nowhere"), "nowhere: neither a file nor a scenario that comes along"),
        (("run", "stock-small", "--set", "duration_s"), "--set duration_s: expected KEY=VALUE"),
    ):
        refused = lab(*arguments)
        assert refused.returncode == 2
        assert says in refused.stderr
        assert "Traceback" not in refused.stderr


def test_the_studies_that_come_along_are_listed() -> None:
    listed = lab("list")
    assert listed.returncode == 0
    assert "relocation" in listed.stdout


def test_policies_are_compared_with_a_table_and_curves(tmp_path: Path) -> None:
    own = Path(__file__).parents[2] / "examples" / "own_policy.py"
    short = ("duration_s=60", "rate.0.at_s=60", "balance.change_s=60", "balance.joined_s=20")
    compared = lab(
        *("compare", "padres-local", "--policies", "none", "--policy", f"{own}:Even", "--seeds", "1"),
        *("--out", str(tmp_path), "--json", *(part for each in short for part in ("--set", each))),
    )
    assert compared.returncode == 0, compared.stderr
    told = json.loads(compared.stdout)
    none, even = told["policies"]
    assert (none["policy"], even["policy"]) == ("none", f"{own}:Even")
    assert none["means"]["moves"] == 0
    assert even["means"]["moves"] > 0
    assert (none["means"]["lost"], even["means"]["lost"]) == (0, 0)
    assert Path(told["picture"]).stat().st_size > 10_000
