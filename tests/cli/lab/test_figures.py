"""The command `trimtab figures`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trimtab.cli.main import app
from trimtab.protocol.records import MoveRecord
from trimtab.records.files import RecordFiles
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario

PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def record(folder: Path, scenario: str, settings: dict[str, str], deliveries_one_in: int) -> None:
    with RecordFiles(folder, "sim", run=scenario, deliveries_one_in=deliveries_one_in) as files:
        ScenarioRun(read_scenario(scenario, settings), 1, files).run()


def names(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    paths = [Path(text) for text in json.loads(result.stdout)]
    assert all(path.read_bytes().startswith(PNG) for path in paths)
    assert all(3_000 < path.stat().st_size < 100_000 for path in paths)
    return [path.stem for path in paths]


def test_figures_of_a_run_are_drawn_from_its_records(tmp_path: Path) -> None:
    few = {"duration_s": "240", "subscribers.0.count": "300", "subscribers.0.join_s": "[10, 80]", "rate": "[]"}
    record(tmp_path, "padres-local", few, 10)
    drawn = names(run("figures", str(tmp_path), "--json"))
    assert drawn == [
        "input-ratio",
        "output-ratio",
        "matching-delay",
        "input-queue-delay",
        "output-queue-delay",
        "subscribers",
        "ratio-deviation",
        "delay-deviation",
        "overhead",
        "delivery-delay",
        "estimates",
        "sessions",
    ]
    assert (tmp_path / "figures" / "input-ratio.png").is_file()


def test_figures_that_lack_records_are_left_out(tmp_path: Path) -> None:
    record(tmp_path, "stock-small", {"duration_s": "60"}, 0)
    result = run("figures", str(tmp_path), "--to", str(tmp_path / "elsewhere"))
    assert result.exit_code == 0, result.output
    drawn = [Path(line).stem for line in result.stdout.splitlines()]
    assert "input-ratio" in drawn
    assert not {"delivery-delay", "estimates", "sessions"} & set(drawn)
    assert all((tmp_path / "elsewhere" / f"{name}.png").is_file() for name in drawn)


def test_a_study_is_drawn_over_its_parameter(tmp_path: Path) -> None:
    study = tmp_path / "pace.toml"
    study.write_text(
        'kind = "study"\nbase = "padres-local"\nparameter = "clusters"\n'
        "[set]\nbroker = []\nlink = []\nrate = []\nduration_s = 40.0\n"
        '"clusters.edge_brokers_count" = 2\n"clusters.head" = { cpu_mhz = 900, memory_mb = 32, bandwidth_mbps = 9 }\n'
        '"clusters.edges" = [{ cpu_mhz = 500, memory_mb = 32, bandwidth_mbps = 3 }]\n'
        '"publishers.0.broker" = "B10"\n"subscribers.0.broker" = "B11"\n'
        '[grid]\n"clusters.count" = [2, 3]\n'
        '[[figure]]\nnumber = "5.47"\ntitle = "Delivery delay"\nmetrics = ["delivery_delay_s"]\n'
        '[[figure]]\nnumber = "5.48"\ntitle = "Convergence"\nmetrics = ["converged_at_s", "last_session_s"]\n'
    )
    out = tmp_path / "out"
    assert run("sim", "run", str(study), "--seeds", "1", "--out", str(out)).exit_code == 0
    assert names(run("figures", str(out), "--json")) == ["pace-5.47", "pace-5.48"]
    assert "cluster-input-ratio" in names(run("figures", str(out / "3-seed-1"), "--json"))


def test_mistakes_are_told_with_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RecordFiles(tmp_path / "moves-only", "sim") as files:
        files.record(MoveRecord(10.0, 11.0, "S1", "B1", "B2", "scenario", "moved", ""))
    file = tmp_path / "file"
    file.write_text("")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "summary.json").write_text('{"study": 1}')
    for arguments, text in (
        ((str(tmp_path / "nothing"),), "there is no such folder"),
        ((str(file),), "not a folder"),
        ((str(tmp_path / "moves-only"),), "no load is recorded here"),
        ((str(broken),), "summary.json: Expected `str`"),
    ):
        result = run("figures", *arguments)
        assert result.exit_code == 2, arguments
        assert text in result.stderr


def test_without_matplotlib_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, "figure-2-2", {}, 0)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("figures", str(tmp_path))
    assert (result.exit_code, "pip install 'trimtab[lab]'" in result.stderr) == (2, True)


def test_uplinks_and_the_worst_queue_of_a_run_with_topics_are_drawn(tmp_path: Path) -> None:
    few = ("duration_s=36", "crisis.coarseness=20", "crisis.checked_moves_max_count=0")
    settings = [part for each in few for part in ("--set", each)]
    assert run("sim", "run", "ews-burst", *settings, "--out", str(tmp_path), "--json").exit_code == 0
    assert names(run("figures", str(tmp_path), "--json")) == ["delay-uplinks", "delay-worst-queue"]
