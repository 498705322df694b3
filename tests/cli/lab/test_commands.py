"""`trimtab lab` on a real Spark, in processes of its own."""

import json
import subprocess
import sys
import time
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
    assert values["lost"] == 0
    assert values["deliveries"] > 0
    assert json.loads((out / "summaries" / f"{file.stem}.json").read_text())["scenario"] == "figure-2-2"
    again = lab("run", "figure-2-2", "--seeds", "1", "--out", str(out))
    assert again.returncode == 0
    assert "0 of 1 runs done, 1 were there already" in again.stdout


def test_mistakes_are_told_without_a_spark() -> None:
    for arguments, says in (
        (("run", "nowhere"), "nowhere: neither a file nor a bundled scenario"),
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
    own = Path(__file__).parents[3] / "examples" / "own_policy.py"
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


CLAIMS = """
paper = "Mine <and> others"

[[claim]]
where = "here"
says = "more brokers with subscribers cost more messages, in relation to one"
scenario = "relocation-clustered"
metric = "details.message_rate_mean_per_s"
of = {spread = "4"}
relation_to = {spread = "1"}
theirs = 2.0
holds = "> 1"

[[claim]]
where = "here"
says = "nothing is ever delivered"
scenario = "figure-2-2"
metric = "deliveries"
of = {}
holds = "<= 0"

[[claim]]
where = "elsewhere"
says = "nobody ran this"
scenario = "padres-local"
metric = "moves"
of = {policy = "none"}
holds = "<= 0"

[[claim]]
where = "here"
says = "it is level at last"
scenario = "figure-2-2"
metric = "details.balance.converged_at_s"
of = {policy = ""}
holds = "<= 1"

[[claim]]
where = "here"
says = "nothing is lost, in relation to nothing"
scenario = "figure-2-2"
metric = "lost"
of = {}
relation_to = {}
holds = "<= 0.5"

[[figure]]
title = "Messages"
scenario = "relocation-clustered"
x = "spread"
metric = "details.message_rate_mean_per_s"
"""


def test_a_report_says_of_each_claim_whether_it_holds(tmp_path: Path) -> None:
    study, claims, out = tmp_path / "mine.toml", tmp_path / "claims.toml", tmp_path / "results"
    study.write_text(
        '[[runs]]\nscenario = "figure-2-2"\n[[runs]]\nscenario = "relocation-clustered"\n'
        "set = {policy = 'none', brokers_count = 7, publishers_count = 2, subscribers_count = 8, duration_s = 120, "
        "join_s = 10, measure_s = 60}\nvary = {spread = [1, 4]}\n",
        encoding="utf-8",
    )
    claims.write_text(CLAIMS, encoding="utf-8")
    ran = lab("run", str(study), "--seeds", "2", "--out", str(out), "--records")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    reported = lab("report", str(out), "--claims", str(claims), "--json")
    assert reported.returncode == 0, reported.stderr
    told = json.loads(reported.stdout)
    assert (told["runs_count"], told["violations_count"], told["claims_count"]) == (6, 0, 5)
    assert (told["hold_count"], told["fail_count"], told["unknown_count"]) == (2, 2, 1)
    page = Path(told["page"]).read_text(encoding="utf-8")
    assert "Mine &lt;and&gt; others" in page
    assert "data:image/png;base64," in page
    assert page.count("<td class=yes>holds") == 2
    assert "2 seeds" in page
    assert f"Made on {time.strftime('%Y-')}" in page
    assert "0 of 2 seeds" in page, "what never came does not hold"
    assert told["records"]["runs_count"] == 2, "those of the one scenario that keeps records"
    assert told["figures_count"] == len(list((out / "figures").glob("*.png"))) == 1 + 2 * 2
    assert f"{told['records']['rows_count']:,} rows of records" in page


def test_a_report_of_nothing_and_wrong_claims_are_refused(tmp_path: Path) -> None:
    nothing = lab("report", str(tmp_path))
    assert nothing.returncode == 2
    assert "no runs are here" in nothing.stderr
    wrong = tmp_path / "claims.toml"
    wrong.write_text(CLAIMS.replace('"> 1"', '"about 1"'), encoding="utf-8")
    refused = lab("report", str(tmp_path), "--claims", str(wrong))
    assert refused.returncode == 2
    assert "holds: expected something like '<= 0.5', not 'about 1'" in refused.stderr
