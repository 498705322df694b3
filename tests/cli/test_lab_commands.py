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
