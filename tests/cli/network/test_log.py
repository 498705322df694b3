"""`trimtab log verify`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.broker.log.log_contents import as_write, checkpoint_records, end_record, epoch_record, publication_record
from trimtab.broker.log.log_format import header
from trimtab.cli.main import app
from trimtab.network.loops import run as run_loop
from trimtab.network.server.publication_log import PublicationLog
from trimtab.protocol.effects import Append
from trimtab.protocol.messages import ClientRecord, Publish


def publication(sequence: int) -> Publish:
    return Publish(publisher="p", sequence=sequence, values={"n": sequence}, origin_s=1.5, session="s1")


def write_log(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    records = [epoch_record(1), *checkpoint_records([ClientRecord("ann", "s1", 1)])]
    records += [publication_record(publication(number)) for number in (1, 2, 3)]
    path = folder / "000000000001.log"
    path.write_bytes(header(b"mark") + as_write([*records, end_record("p", "s1", 1)], b"mark"))
    return path


def verify(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["log", "verify", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_a_whole_log_is_described_file_by_file(tmp_path: Path) -> None:
    path = write_log(tmp_path)
    code, output = verify(tmp_path)
    assert (code, output.splitlines()) == (
        0,
        [
            str(tmp_path),
            f"  {path.name}: {path.stat().st_size} bytes, format 3: writes 1, epochs 1, checkpoints 1, clients 1, "
            "checkpoint ends 1, publications 3, ends 1",
            "    publications that have not ended: 2",
        ],
    )


def test_a_torn_tail_is_shown_and_is_no_damage(tmp_path: Path) -> None:
    path = write_log(tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"torn")
    code, output = verify(tmp_path)
    assert (code, output.splitlines()[-1]) == (0, f"    torn tail: 4 bytes from byte {size} on")


def test_damage_is_shown_with_its_place_for_each_broker_of_a_folder(tmp_path: Path) -> None:
    write_log(tmp_path / "B1")
    damaged = write_log(tmp_path / "B2")
    data = bytearray(damaged.read_bytes())
    data[30] ^= 1
    damaged.write_bytes(data)
    (tmp_path / "B2" / "000000000000.log.damaged").write_bytes(b"")
    code, output = verify(tmp_path)
    assert code == 1
    assert [line for line in output.splitlines() if not line.startswith("  ")] == [
        str(tmp_path / "B1"),
        str(tmp_path / "B2"),
    ]
    assert output.count("DAMAGE") == 1
    assert "    DAMAGE: 19 bytes from byte 20 on: no whole record" in output
    assert "  000000000000.log.damaged: was found damaged at a start, and is kept" in output


def test_json_tells_the_same(tmp_path: Path) -> None:
    path = write_log(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:44] + b"?" + data[45:-1])
    code, output = verify(tmp_path, "--json")
    [log] = json.loads(output)["logs"]
    [file] = log["files"]
    assert code == 1
    assert (log["folder"], file["name"], file["version"], file["unended_count"]) == (str(tmp_path), path.name, 3, 3)
    assert file["records"] == {"writes": 1, "checkpoints": 1, "clients": 1, "checkpoint_ends": 1, "publications": 3}
    assert [each["offset_bytes"] for each in file["damage"]] == [39]
    assert file["torn"]["offset_bytes"] > 39


@pytest.mark.parametrize("name", ["missing", "empty", "file", "others", "no\0name"])
def test_what_is_no_log_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text", encoding="utf-8")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "notes.log").write_text("text", encoding="utf-8")
    code, output = verify(f"{tmp_path}/{name}")
    assert (code, output.count("\n")) == (2, 1)


def test_files_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    write_log(tmp_path)
    (tmp_path / "000000000002.log").mkdir()
    (tmp_path / "000000000003.log").write_bytes(b"\x89PNG and so on, which is no log at all")
    (tmp_path / "000000000004.log").symlink_to("/proc/self/mem")
    os.mkfifo(tmp_path / "000000000005.log")
    code, output = verify(tmp_path)
    assert code == 1
    assert "000000000002.log: cannot be read: not a regular file" in output
    assert "000000000003.log: 38 bytes, no known format: no records" in output
    assert "000000000004.log: cannot be read: Input/output error" in output
    assert "000000000005.log: cannot be read: not a regular file" in output


def test_a_log_may_be_verified_while_it_is_in_use(tmp_path: Path) -> None:
    async def work() -> None:
        log = PublicationLog(tmp_path, lambda number: None, pytest.fail)
        log.open()
        log.append(Append(1, publication(1)))
        assert verify(tmp_path)[0] == 0
        log.close()

    run_loop(work())
    assert "publications that have not ended: 1" in verify(tmp_path)[1]
