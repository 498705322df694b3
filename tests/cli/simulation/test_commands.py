"""The commands `trimtab sim list`, `sim run` and `sim fuzz`."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from trimtab.cli.main import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sim", *arguments])


def test_list_groups_the_bundled_scenarios_by_paper() -> None:
    result = run("list")
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.stdout.splitlines() if line.strip()]
    assert {"ews-burst", "figure-2-2", "padres-local", "relocation-clustered"} <= set(names)
    assert {entry["name"] for entry in json.loads(run("list", "--json").stdout)} >= {"figure-2-2", "stock-small"}


def test_run_sums_up_for_people_and_for_programs(tmp_path: Path) -> None:
    result = run("run", "figure-2-2", "--out", str(tmp_path / "results"))
    assert result.exit_code == 0
    assert "deliveries    3" in result.stdout
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    printed = json.loads(run("run", "figure-2-2", "--json").stdout)
    assert printed.pop("cpu_s") > 0 and summary.pop("cpu_s") > 0
    assert summary == printed
    assert summary["deliveries"] == 3


def test_run_takes_a_seed_settings_and_quotes(tmp_path: Path) -> None:
    quotes = tmp_path / "quotes.csv"
    rows = [f"S{number},2014-01-0{day},1,3,1,2,{number * 100}" for number in range(1, 45) for day in (2, 3)]
    quotes.write_text("symbol,date,open,high,low,close,volume\n" + "\n".join(rows) + "\n")
    result = run("run", "stock-small", "--seed", "5", "--set", "duration_s=20", "--quotes", str(quotes), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["seed"] == 5


def test_mistakes_end_with_exit_code_2_and_say_what_is_wrong() -> None:
    for arguments, text in (
        (("run", "nothing"), "neither a file nor a bundled scenario"),
        (("run", "figure-2-2", "--set", "x"), "expected KEY=VALUE"),
        (("run", "figure-2-2", "--set", "colour=red"), "colour: there is no such key"),
        (("run", "stock-small", "--quotes", "no-such-file.csv"), "no-such-file.csv"),
        (("fuzz", "--bug", "nonsense"), "no bug is called nonsense"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert text in result.stderr


def test_fuzz_sums_up() -> None:
    result = run("fuzz", "--runs", "3", "--seed", "11", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["kind"], report["lost"], report["violations"]) == ("fuzz", 0, [])
    assert (report["details"]["runs"], report["details"]["failures"]) == (3, [])
    assert "violations    0 in 0 runs" in run("fuzz", "--runs", "3", "--seed", "11").stdout


def test_a_failure_is_shown_with_the_command_that_replays_it() -> None:
    result = run("fuzz", "--runs", "1", "--seed", "1", "--bug", "confirm-too-early")
    assert result.exit_code == 1
    replay = "trimtab sim fuzz --runs 1 --seed 1 --bug confirm-too-early"
    assert replay in result.stdout
    assert run(*replay.split()[2:]).stdout == result.stdout


def test_the_table_of_bugs_tells_the_run_that_found_each() -> None:
    result = run("fuzz", "--bugs", "--json")
    assert result.exit_code == 0
    bugs = json.loads(result.stdout)["bugs"]
    assert len(bugs) >= 10
    assert all(bug["found_after_runs_count"] <= 200 for bug in bugs)
