"""Records as Parquet files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trimtab.protocol.records import TABLES, DeliveryRecord, MoveRecord, RecordsError, columns_of
from trimtab.records.files import RecordFiles, deliveries_one_in, read_records, schema_of


def delivery(sequence: int, time_s: float = 0.0) -> DeliveryRecord:
    return DeliveryRecord(time_s, "alice", "B1", "bob", sequence, 0.5, 2, 1)


def sequences(folder: Path) -> list[int]:
    return [int(each) for each in read_records(folder, "deliveries")["sequence"].to_pylist()]


def test_what_was_recorded_is_read_back_in_order(tmp_path: Path) -> None:
    with RecordFiles(tmp_path, "sim", run="first", rows_per_file_count=10) as files:
        for sequence in range(1, 26):
            files.record(delivery(sequence))
        files.record(MoveRecord(1.0, 2.0, "alice", "B1", "B2", "scenario", "moved", ""))
    assert sequences(tmp_path) == list(range(1, 26))
    names = sorted(path.name for path in (tmp_path / "deliveries").iterdir())
    assert names == ["sim-00001.parquet", "sim-00002.parquet", "sim-00003.parquet"]
    (move,) = read_records(tmp_path, "moves").to_pylist()
    assert (move["run"], move["begin_s"], move["end_s"], move["outcome"]) == ("first", 1.0, 2.0, "moved")


def test_records_can_be_read_before_the_files_are_closed(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path, "B1", write_after_s=5.0)
    for sequence in range(1, 8):
        files.record(delivery(sequence, time_s=100.0 + sequence))
    assert sequences(tmp_path) == [1, 2, 3, 4, 5, 6]
    files.close()
    files.close()
    assert sequences(tmp_path) == [1, 2, 3, 4, 5, 6, 7]
    assert len(list((tmp_path / "deliveries").iterdir())) == 1


def test_a_process_that_starts_again_keeps_what_it_wrote_before_unless_told_to_replace_it(tmp_path: Path) -> None:
    for sequence, replace in ((1, False), (2, False), (3, True)):
        with RecordFiles(tmp_path, "B1", replace=replace) as files:
            files.record(delivery(sequence))
        if not replace:
            assert sequences(tmp_path) == list(range(1, sequence + 1))
    assert sequences(tmp_path) == [3]


def test_processes_do_not_touch_each_others_files(tmp_path: Path) -> None:
    for process in ("B1", "B1-2", "B2"):
        with RecordFiles(tmp_path, process, replace=True) as files:
            files.record(delivery(1))
    assert sequences(tmp_path) == [1, 1, 1]


def test_sampled_deliveries_say_so_in_the_file(tmp_path: Path) -> None:
    with RecordFiles(tmp_path, "sim", deliveries_one_in=10) as files:
        for sequence in range(1, 101):
            files.record(delivery(sequence))
    assert sequences(tmp_path) == list(range(10, 101, 10))
    assert deliveries_one_in(tmp_path) == 10


@pytest.mark.parametrize("table", TABLES)
def test_a_table_without_records_has_its_columns(tmp_path: Path, table: str) -> None:
    empty = read_records(tmp_path, table)
    assert (empty.num_rows, empty.column_names) == (0, [column.name for column in columns_of(table)])
    assert all(field.metadata[b"description"] for field in schema_of(table))


def test_an_unknown_table_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        RecordsError, match="'speed' is not a table; expected one of load, deliveries, moves, arrivals, gaps, "
    ):
        read_records(tmp_path, "speed")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    files = RecordFiles(tmp_path / "file", "sim")
    files.record(delivery(1))
    with pytest.raises(RecordsError, match="cannot be written: Not a directory"):
        files.close()


def test_without_pyarrow_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RecordsError, match=r"pip install 'trimtab\[lab\]'"):
        RecordFiles(tmp_path, "sim")
