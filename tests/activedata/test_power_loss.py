"""What was acknowledged is there after a loss of power, and a damaged disk is told of, not read as if it were whole."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.activedata.power_loss import compiler, make_recorder, rebuild_synced, rebuild_torn, recording
from tests.activedata.power_loss_writer import FIELDS, lines
from trimtab.activedata.errors import StorageError
from trimtab.activedata.feeds.feeds import Feeds
from trimtab.activedata.overlay import Overlay
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.stored_data import StoredData


def acknowledged_until_killed(
    environment: dict[str, str], root: Path, seed: int, first_results_count: int
) -> list[dict[str, Any]]:
    """What a process has acknowledged that is killed after some time and so many results."""
    draw = Random(seed)
    arguments = (str(root), str(seed), str(first_results_count))
    command = [sys.executable, "-m", "tests.activedata.power_loss_writer", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as process:
        assert process.stdout is not None
        said = [json.loads(process.stdout.readline()) for _ in range(first_results_count + draw.randrange(30, 130))]
        time.sleep(draw.random() * 0.03)
        process.kill()
        return said + [json.loads(line) for line in process.stdout]


def check_all_is_there(data: Path, said: list[dict[str, Any]]) -> None:
    def of(kind: str) -> list[Any]:
        return [each[kind] for each in said if kind in each]

    stored = StoredData(data)
    fed = [number for batch in of("fed") for number in batch]
    table = stored.datasets["reports"].store.read().sort_by("_sequence")
    numbers = table["n"].to_pylist()
    assert set(fed) <= set(numbers)
    assert table["_sequence"].to_pylist() == list(range(1, len(numbers) + 1))
    users = {row["id"]: row["n"] for row in stored.datasets["users"].store.read().to_pylist()}
    assert users.get("u", 0) >= max(of("replaced"), default=0)
    things = stored.datasets["things"]
    numbers_of_things = dict(
        zip(*(things.store.read(["id", "n"])[name].to_pylist() for name in ("id", "n")), strict=True)
    )
    last = max(of("changed"), default=0)
    assert numbers_of_things.get("t", 0) >= last
    if last and numbers_of_things["t"] == last:
        assert set(numbers_of_things) == {"t"}
    for name, number in numbers_of_things.items():
        assert things.take([(name, number)]).repeated_count == 1
        assert things.take([(name, -1)]).refused
    assert users.get("p", 0) >= max(of("published"), default=0)
    assert int(stored.catalog.note("FEED", stored.catalog.feed("net").id) or 0) >= max(of("published"), default=0)
    assert {f"bad{batch[0]}" for batch in of("fed")} <= {
        json.loads(record)["id"] for record in stored.dead_letters.store.read()["record"].to_pylist()
    }
    assert set(of("subscribed")) <= {each.id for each in stored.catalog.subscriptions()}
    results = [each.record for each in stored.results.fetch(7, 0, 10_000)]
    assert results == sorted(set(results))
    assert set(of("result")) <= set(results)
    assert stored.results.channel_position(1) >= max(of("result"), default=0)
    feeds = Feeds(stored.catalog, stored.datasets, stored.dead_letters, lambda: None, Overlay())
    for batch in of("fed"):
        answer = feeds.take_lines(stored.catalog.feed("reports"), lines(batch[0], len(batch)), "http", 0)
        assert (answer.accepted, answer.repeated) == (len(batch), len(batch))
    stored.close()


@pytest.mark.skipif(compiler() is None, reason="what a process syncs is recorded by a library in C")
@pytest.mark.parametrize(("seed", "first_results_count"), [(1, 0), (2, 100)])
def test_what_was_acknowledged_is_there_after_a_loss_of_power(
    tmp_path: Path, seed: int, first_results_count: int
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    environment = recording(make_recorder(tmp_path), root, tmp_path / "image")
    said = acknowledged_until_killed(environment, root, seed, first_results_count)
    assert len(said) >= 30
    rebuild_synced(tmp_path / "image", root, tmp_path / "synced")
    check_all_is_there(tmp_path / "synced" / "data", said)
    for number in range(3):
        rebuild_torn(tmp_path / "image", root, tmp_path / f"torn{number}", Random(100 * seed + number))
        check_all_is_there(tmp_path / f"torn{number}" / "data", said)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A directory with a dataset of three commits."""
    stored = StoredData(tmp_path / "data")
    dataset = stored.open_dataset(stored.catalog.add_dataset("Reports", FIELDS, ("id",), True))
    for number in range(3):
        dataset.take([(f"r{number}", number)])
    stored.close()
    yield tmp_path / "data"


def table_of(data: Path) -> Path:
    (table,) = (data / "datasets").iterdir()
    return table


def commit_of(data: Path, version: int) -> Path:
    return table_of(data) / "_delta_log" / f"{version:020}.json"


def refused(data: Path) -> str:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    with pytest.raises(StorageError) as told:
        StoredData(data)
    after = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert before == {path: after[path] for path in before}
    assert "from a backup" in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("size_bytes", [0, 100])
def test_an_acknowledged_commit_that_is_cut_off_is_refused_with_its_name(
    data: Path, version: int, size_bytes: int
) -> None:
    os.truncate(commit_of(data, version), size_bytes)
    assert str(commit_of(data, version)) in refused(data)


def test_an_acknowledged_commit_that_is_missing_is_refused_with_its_name(data: Path) -> None:
    commit_of(data, 3).unlink()
    assert f"{commit_of(data, 3)}: it is missing" in refused(data)


def test_a_table_that_is_missing_is_not_made_anew(data: Path) -> None:
    table_of(data).rename(data / "elsewhere")
    assert "00000000000000000000.json: it is missing" in refused(data)


@pytest.mark.parametrize("size_bytes", [None, 0, 300])
def test_a_file_of_a_table_that_is_missing_or_cut_off_is_refused_with_its_name(
    data: Path, size_bytes: int | None
) -> None:
    file = min(table_of(data).glob("*.parquet"))
    if size_bytes is None:
        file.unlink()
    else:
        os.truncate(file, size_bytes)
    assert f"{file}: " in refused(data)


@pytest.mark.parametrize("size_bytes", [50, 5_000, 20_000])
def test_a_catalog_that_is_cut_off_is_refused(data: Path, size_bytes: int) -> None:
    os.truncate(data / "catalog.sqlite", size_bytes)
    assert refused(data).startswith(f"{data / 'catalog.sqlite'}: ")


def test_the_command_says_what_is_damaged_before_it_starts_spark(data: Path) -> None:
    os.truncate(commit_of(data, 3), 10)
    command = [sys.executable, "-m", "trimtab", "active", "start", "--dir", str(data), "--listen", "127.0.0.1:1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{commit_of(data, 3)}: ")
    assert done.stderr.count("\n") == 1
    assert not (data / "spark").exists()


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_catalog_that_is_missing_or_empty_is_not_made_anew_beside_its_tables(data: Path, is_missing: bool) -> None:
    (data / "catalog.sqlite").unlink()
    if not is_missing:
        (data / "catalog.sqlite").touch()
    assert refused(data).startswith(f"{data / 'catalog.sqlite'} is missing or empty")


def test_what_is_no_catalog_is_refused(data: Path) -> None:
    (data / "catalog.sqlite").write_bytes(b"something else" * 1_000)
    assert f"{data / 'catalog.sqlite'}: file is not a database" in refused(data)


@pytest.mark.parametrize("content", [b"", b"\0" * 300, b'{"commitInfo":{"operation":"WRITE"}}'])
def test_a_commit_that_nobody_was_told_of_and_is_not_whole_is_left_out(
    data: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    commit_of(data, 4).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        stored = StoredData(data)
    assert str(commit_of(data, 4)) in caplog.text
    dataset = stored.datasets["reports"]
    assert dataset.take([("r3", 3), ("r0", 0)]).accepted_count == 1
    stored.close()
    stored = StoredData(data)
    assert sorted(stored.datasets["reports"].store.read()["n"].to_pylist()) == [0, 1, 2, 3]
    stored.close()


@pytest.mark.parametrize("hint", [b'{"version":4,"size":1}', b"\0" * 20, b""])
def test_a_checkpoint_that_nobody_waited_for_is_left_out(data: Path, hint: bytes) -> None:
    log = commit_of(data, 0).parent
    (log / f"{4:020}.checkpoint.parquet").write_bytes(b"PAR1 and no more")
    (log / "_last_checkpoint").write_bytes(hint)
    stored = StoredData(data)
    assert sorted(stored.datasets["reports"].store.read()["n"].to_pylist()) == [0, 1, 2]
    stored.close()


class FullDisk(Catalog):
    """A catalog whose disk takes no version when it is full."""

    is_full = False

    def acknowledge_version(self, table: str, version: int) -> None:
        if self.is_full:
            raise StorageError("the catalog cannot be written: database or disk is full")
        super().acknowledge_version(table, version)


def test_a_commit_that_cannot_be_written_down_is_taken_back(tmp_path: Path) -> None:
    catalog = FullDisk(tmp_path / "catalog.sqlite")
    dataset = StoredDataset(catalog.add_dataset("Reports", FIELDS, ("id",), True), tmp_path / "Reports-1", catalog)
    dataset.take([("r0", 0)])
    catalog.is_full = True
    for _ in range(2):
        with pytest.raises(StorageError, match="disk is full"):
            dataset.take([("r1", 1)])
        assert dataset.store.read()["n"].to_pylist() == [0]
    catalog.is_full = False
    assert dataset.take([("r1", 1)]).accepted_count == 1
    assert sorted(dataset.store.read()["n"].to_pylist()) == [0, 1]
    assert dataset.store.version == catalog.acknowledged_version("Reports-1") == 2


def test_a_directory_without_acknowledged_versions_is_taken_as_it_is(data: Path) -> None:
    import sqlite3

    with sqlite3.connect(data / "catalog.sqlite") as connection:
        connection.execute("DROP TABLE acknowledged")
    connection.close()
    stored = StoredData(data)
    assert stored.datasets["reports"].last_sequence == 3
    assert stored.catalog.acknowledged_version(table_of(data).name) == 3
    stored.close()
