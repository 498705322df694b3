"""Datasets stay small and quick: upserts cost what changes, files are put together, old records and their keys go."""

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimtab.activedata.definitions.fields import Field
from trimtab.activedata.errors import StorageError
from trimtab.activedata.storage.backup import back_up, restore
from trimtab.activedata.storage.catalog_entries import DatasetOptions
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.maintenance import Maintenance
from trimtab.activedata.storage.stored_data import StoredData

FIELDS = (Field("id", "STRING"), Field("n", "BIGINT"))
TIMED = (*FIELDS, Field("at", "TIMESTAMP"))


def opened(stored: StoredData, active: bool, **options: object) -> StoredDataset:
    fields = TIMED if options else FIELDS
    entry = stored.catalog.add_dataset("D", fields, ("id",), active, DatasetOptions(**options))  # type: ignore[arg-type]
    return stored.open_dataset(entry)


def size_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def contents(dataset: StoredDataset) -> dict[str, int]:
    table = dataset.store.read(["id", "n"])
    found = dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))
    assert len(found) == table.num_rows == dataset.store.rows_count()
    return found


def test_upserts_of_one_row_cost_one_row_and_are_put_together(tmp_path: Path) -> None:
    stored = StoredData(tmp_path)
    dataset = opened(stored, active=False)
    dataset.take([(f"r{n}", n) for n in range(100_000)])
    before = size_bytes(dataset.directory)
    expected = {f"r{n}": n for n in range(100_000)}
    for number in range(150):
        dataset.take([(f"r{number * 7}", -number)])
        expected[f"r{number * 7}"] = -number
    assert size_bytes(dataset.directory) < 3 * before
    assert contents(dataset) == expected
    stored.close()
    stored = StoredData(tmp_path)  # what is due is known after a restart, too
    dataset = stored.datasets["d"]
    assert contents(dataset) == expected
    assert dataset.store.is_compaction_due()
    Maintenance(stored.datasets.values, [stored.results.store]).look_once(time.time())
    assert not dataset.store.is_compaction_due()
    assert len(dataset.store.table_files()) == 2
    assert contents(dataset) == expected
    dataset.fold()
    assert len(dataset.store.table_files()) == 2
    assert contents(dataset) == expected
    stored.close()


@pytest.mark.parametrize("active", [True, False])
def test_small_files_become_one_and_what_is_not_needed_goes(
    tmp_path: Path, active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = StoredData(tmp_path)
    dataset = opened(stored, active)
    for number in range(30):
        dataset.take([(f"r{number}-{each}", each) for each in range(50)])
    dataset.fold()
    files = {each.path for each in dataset.store.table_files()}
    dataset.store.compact()
    assert len(dataset.store.table_files()) == 1
    assert len(contents(dataset)) == 1_500
    if active:
        assert dataset.records(10, 20)["_sequence"].to_pylist() == list(range(11, 21))
    assert files < {each.name for each in dataset.directory.glob("*.parquet")}  # readers may need them for an hour
    dataset.store.vacuum(0)
    assert len(list(dataset.directory.glob("*.parquet"))) == 1
    stored.close()


def test_a_base_that_is_written_anew_while_it_is_compacted_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = StoredData(tmp_path)
    dataset = opened(stored, active=True)
    for number in range(5):
        dataset.take([(f"r{number}", number)])
    write = dataset.store._written

    def write_late(tables: Any) -> Any:
        monkeypatch.setattr(dataset.store, "_written", write)
        rows = dataset.store.read().sort_by("n")
        dataset.delete_rows(rows.slice(0, 2))
        dataset.fold()
        return write(tables)

    monkeypatch.setattr(dataset.store, "_written", write_late)
    dataset.store.compact()
    assert sorted(contents(dataset).values()) == [2, 3, 4]
    stored.close()


def test_records_go_when_their_time_is_over_and_with_them_their_keys(tmp_path: Path) -> None:
    stored = StoredData(tmp_path)
    dataset = opened(stored, active=True, retain_s=86_400.0, retain_by="at")
    dataset.take([(f"old{n}", n, "2026-05-01T00:00:00Z") for n in range(10)])
    assert dataset.keys is not None
    dataset.keys.index.flush(10, 0)
    dataset.take([("old10", 10, "2026-05-01T00:00:00Z"), ("new", 1, "2026-05-03T00:00:00Z")])
    now_s = 1_777_766_400.0  # 2026-05-03
    assert dataset.remove_old(now_s) == 11
    assert contents(dataset) == {"new": 1}
    assert dataset.remove_old(now_s) == 0
    assert dataset.take([("old1", 1, "2026-05-03T00:00:00Z")]).accepted_count == 1
    assert dataset.take([("new", 2, "2026-05-03T00:00:00Z")]).refused
    stored.close()


def test_without_a_field_for_it_records_go_by_when_they_came(tmp_path: Path) -> None:
    stored = StoredData(tmp_path)
    dataset = opened(stored, active=True, retain_s=3_600.0)
    dataset.take([("a", 1, "2026-05-01T00:00:00Z")])
    assert dataset.remove_old(time.time() + 3_000) == 0
    assert dataset.remove_old(time.time() + 4_000) == 1
    assert contents(dataset) == {}
    dataset.take([("b", 1, "2026-05-01T00:00:00Z")])
    stored.close()
    stored = StoredData(tmp_path)
    assert contents(stored.datasets["d"]) == {"b": 1}
    stored.close()


@pytest.mark.parametrize("active", [True, False])
def test_a_key_of_several_fields_tells_records_apart(tmp_path: Path, active: bool) -> None:
    stored = StoredData(tmp_path)
    dataset = stored.open_dataset(stored.catalog.add_dataset("D", TIMED, ("id", "n"), active))
    at = "2026-05-01T00:00:00Z"
    dataset.take([("a", 1, at), ("a", 2, at), ("b", 1, at)])
    taken = dataset.take([("a", 1, "2026-05-01T02:00:00+02:00"), ("b", 2, at), ("a", 2, "2026-05-02T00:00:00Z")])
    assert dataset.store.rows_count() == 4
    if active:
        assert (taken.accepted_count, taken.repeated_count) == (1, 1)
        assert taken.refused == ((2, "another record has the id, n ('a', 2) already"),)
    stored.close()


@pytest.mark.parametrize("when", ["before the commit", "before the runs", "before the fold is known"])
def test_keys_are_learned_from_the_table_whatever_a_crash_has_left_out(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = StoredData(tmp_path)
    dataset = opened(stored, active=True)
    dataset.take([(f"r{n}", n) for n in range(1_500)])
    assert dataset.keys is not None
    match when:
        case "before the runs":
            dataset.keys.index.flush(1_500, 0)
            for path in dataset.keys.index.folder.iterdir():
                path.unlink()
        case "before the fold is known":
            dataset.keys.index.flush(1_500, 0)
            monkeypatch.setattr(dataset.keys.index, "flush", lambda *_: None)
            dataset.put([(f"r{n}", -n) for n in range(1_200)], as_new=False)
            assert dataset.store.folded_change == 1
    stored.close()
    monkeypatch.undo()
    stored = StoredData(tmp_path)
    dataset = stored.datasets["d"]
    sign = -1 if "fold" in when else 1
    taken = dataset.take([("r7", 7 * sign), ("r1400", 1_400), ("r1500", 1_500), ("r8", 8 * -sign)])
    assert (taken.accepted_count, taken.repeated_count, len(taken.refused)) == (1, 2, 1)
    stored.close()


def test_a_backup_of_a_directory_in_use_is_whole_and_comes_back(tmp_path: Path) -> None:
    stored = StoredData(tmp_path / "data")
    dataset = opened(stored, active=True)
    for number in range(20):
        dataset.take([(f"r{number}", number)])
    dataset.put([("r3", 33)], as_new=False)
    figures = back_up(tmp_path / "data", tmp_path / "copy")
    assert figures.files_count == 21
    dataset.take([("later", 1)])
    stored.close()
    restore(tmp_path / "copy", tmp_path / "again")
    stored = StoredData(tmp_path / "again")
    assert contents(stored.datasets["d"]) == {**{f"r{n}": n for n in range(20)}, "r3": 33}
    assert stored.datasets["d"].take([("r19", 19), ("r20", 20)]).repeated_count == 1
    stored.close()


def test_a_backup_of_what_is_damaged_is_refused(tmp_path: Path) -> None:
    stored = StoredData(tmp_path / "data")
    opened(stored, active=True).take([("a", 1)])
    stored.close()
    (file,) = (tmp_path / "data").glob("datasets/*/*.parquet")
    os.truncate(file, 100)
    with pytest.raises(StorageError, match="100 bytes instead of"):
        back_up(tmp_path / "data", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def old_directory(folder: Path) -> None:
    """A directory of format 1: keys in the catalog, tables without the columns of changes."""
    from deltalake import CommitProperties, Transaction, write_deltalake

    stored = StoredData(folder)
    opened(stored, active=True)
    (table,) = (folder / "datasets").iterdir()
    stored.close()
    for each in sorted(table.rglob("*"), reverse=True):
        each.unlink() if each.is_file() else each.rmdir()
    rows = pa.table({"id": ["a", "b"], "n": [1, 2], "_sequence": [1, 2]})
    marks = [Transaction("records", 2), Transaction("end", 0)]
    write_deltalake(str(table), rows, commit_properties=CommitProperties(app_transactions=marks))
    with sqlite3.connect(folder / "catalog.sqlite") as connection:
        connection.execute("UPDATE datasets SET key = 'id'")
        connection.execute("ALTER TABLE datasets DROP COLUMN options")
        connection.execute("CREATE TABLE keys (dataset INTEGER, key BLOB, content BLOB, sequence INTEGER)")
        connection.execute("UPDATE acknowledged SET version = 0 WHERE name = ?", (table.name,))
        connection.execute("PRAGMA user_version = 0")
    connection.close()


def test_a_directory_of_the_format_before_is_brought_forward(tmp_path: Path) -> None:
    old_directory(tmp_path)
    for _ in range(2):
        stored = StoredData(tmp_path)
        dataset = stored.datasets["d"]
        assert contents(dataset)["b"] == 2
        assert dataset.take([("a", 1), ("b", 3)]).repeated_count == 1
        dataset.put([("b", 2)], as_new=False)
        stored.close()


def test_a_directory_of_a_later_format_is_refused_as_it_is(tmp_path: Path) -> None:
    StoredData(tmp_path).close()
    with sqlite3.connect(tmp_path / "catalog.sqlite") as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(StorageError, match="has format 3, and this version of Trimtab knows formats up to 2"):
        StoredData(tmp_path)


def test_what_a_crash_left_of_a_dropped_dataset_goes_at_the_next_start(tmp_path: Path) -> None:
    stored = StoredData(tmp_path)
    dataset = opened(stored, active=True)
    dataset.take([("a", 1)])
    stranger = tmp_path / "datasets" / "Other-9"
    stranger.mkdir()
    stored.catalog.drop("DATASET", dataset.entry.id)  # and then the process is killed
    stored.close()
    assert dataset.directory.exists()
    stored = StoredData(tmp_path)
    assert not dataset.directory.exists()
    assert stranger.exists()  # nobody has dropped it
    assert stored.catalog.dropped_folders() == {}
    stored.close()
