"""A broker that begins again loads the program if that has changed on the disk, and its network file in any case."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import trimtab
from trimtab import Network
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text
from trimtab.network.server.ending import are_unchanged, loaded_files


def restart(file: Path) -> Result:
    return CliRunner().invoke(app, ["restart", str(file), "--rolling"])


def test_a_changed_program_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "src" / "trimtab"
    assert trimtab.__file__ is not None
    shutil.copytree(Path(trimtab.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(copy.parent))
    file = tmp_path / "network.toml"
    file.write_text(plan_text(Network.of(["B1", "B2"], [("B1", "B2")]).plan), encoding="utf-8")
    told = copy / "network" / "server" / "broker_status.py"
    with Network.from_file(file) as network:
        pids = {name: network.pid(name) for name in ("B1", "B2")}
        assert restart(file).exit_code == 0
        assert [status.disk_problem for status in network.status().values() if status is not None] == ["", ""]
        text = told.read_text(encoding="utf-8")
        changed = text.replace('disk_problem="" if disk is None', 'disk_problem="the new program" if disk is None')
        assert changed != text
        told.write_text(changed, encoding="utf-8")
        assert restart(file).exit_code == 0
        statuses = network.status()
        assert {name: status.disk_problem for name, status in statuses.items() if status is not None} == dict.fromkeys(
            pids, "the new program"
        )
        assert {name: status.pid for name, status in statuses.items() if status is not None} == pids


def test_a_changed_network_file_is_read_and_one_that_is_wrong_refuses_the_restart(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    plan = Network.of(["B1", "B2"], [("B1", "B2")]).plan
    file.write_text(plan_text(plan).replace('name = "none"', 'name = "padres"'), encoding="utf-8")
    with Network.from_file(file) as network:
        sessions = {name: status.session for name, status in network.status().items() if status is not None}
        file.write_text(plan_text(plan), encoding="utf-8")
        assert restart(file).exit_code == 0
        assert [status.policy for status in network.status().values() if status is not None] == ["none", "none"]
        right = file.with_name("right.toml")
        right.write_text(plan_text(plan), encoding="utf-8")
        file.write_text("[network]\nsilent_after_s = 0\n", encoding="utf-8")
        refused = restart(right)
        assert refused.exit_code == 1
        assert refused.stderr.startswith(f"B1 would not come back: {file}:2: silent_after_s: ")
        network.check_alive()
        assert {name: status.session for name, status in network.status().items() if status is not None} != sessions


def test_files_that_were_written_again_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("a = 1\n", encoding="utf-8")
    files = {str(file): (file.stat().st_mtime_ns, file.stat().st_size, file.stat().st_ino)}
    assert are_unchanged(files)
    os.utime(file, ns=(1, 1))
    assert not are_unchanged(files)
    assert trimtab.__file__ in loaded_files()
