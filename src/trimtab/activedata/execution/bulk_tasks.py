"""What tasks of Spark do in a bulk load: check, leave out duplicates, write Parquet files and runs of keys.

A task gets Arrow batches and answers rows of (kind, text, count); the driver commits what they name. Nothing of a task
that failed, or that Spark ran twice, is named.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.storage.key_index import GONE, Entries, KeyIndex, read_run, sorted_entries, write_run
from trimtab.activedata.storage.parquet_files import PartitionsWriter, TableFileWriter, WrittenFile, whole_rows
from trimtab.activedata.storage.record_keys import judged, record_entries

if TYPE_CHECKING:
    import pyarrow as pa

ANSWER: Final = "kind STRING, text STRING, count BIGINT"

LETTERS_MAX_COUNT: Final = 10_000
"""A load with more records that cannot be used than this is refused as a whole."""

CHUNK_ROWS_COUNT: Final = 100_000

BAD: Final = "_bad"
LINE: Final = "_line"
ORDER: Final = "_order"

FIRST: Final = "first"
LAST: Final = "last"


class BulkTask(msgspec.Struct, frozen=True):
    """What every task of a load has to know; `schema` is Arrow's, as bytes.

    `duplicates` says what of several records with one key counts: the FIRST (others are repeated or refused), the LAST
    (the batches then come sorted by key and order), or all (empty).
    """

    folder: str
    schema: bytes
    fields: tuple[str, ...]
    keys: tuple[str, ...]
    seed: int
    duplicates: str
    runs: tuple[str, ...]
    runs_folder: str
    source: str
    partition_by: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        import pyarrow as pa

        worker = _Worker(self)
        for table in _chunks(batches):
            worker.take(table)
        kinds, texts, counts = zip(*worker.end(), strict=True)
        columns: list[Any] = [pa.array(kinds), pa.array(texts), pa.array(counts, pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, names=["kind", "text", "count"])


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= CHUNK_ROWS_COUNT:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


class _Worker:
    """One task's files, keys and counts."""

    def __init__(self, task: BulkTask) -> None:
        import pyarrow as pa

        self._task = task
        self._schema = pa.ipc.read_schema(pa.py_buffer(task.schema))
        self._folder = Path(task.folder)
        self._writer = PartitionsWriter(self._folder, self._schema, task.partition_by, "bulk")
        self._letters: list[tuple[str, str]] = []
        self._counts = {"accepted": 0, "repeated": 0, "rejected": 0}
        self._known = [run for each in task.runs if (run := read_run(Path(each))) is not None]
        self._own: list[Entries] = []
        self._held: pa.Table | None = None

    def take(self, table: pa.Table) -> None:
        """Take a part of the task's records."""
        import pyarrow.compute as pc

        if BAD in table.column_names:
            if table[BAD].null_count < table.num_rows:
                self._put_aside(table.filter(pc.is_valid(table[BAD])))
                table = table.filter(pc.is_null(table[BAD]))
            table = table.drop_columns([BAD, LINE])
        if not table.num_rows:
            return
        match self._task.duplicates:
            case "first":
                table = self._firsts(table)
            case "last":
                table = self._lasts(table)
        self._write(table)

    def _put_aside(self, bad: pa.Table) -> None:
        self._counts["rejected"] += bad.num_rows
        room = LETTERS_MAX_COUNT + 1 - len(self._letters)
        fields = [name for name in bad.column_names if name not in (BAD, LINE, ORDER)]
        for row in bad.slice(0, max(0, room)).to_pylist():
            line = row[LINE] or json.dumps({name: row[name] for name in fields}, default=str)
            self._letters.append((row[BAD], line))

    def _firsts(self, table: pa.Table) -> pa.Table:
        """The records whose keys neither the dataset nor an earlier part of the task has."""
        import numpy as np
        import pyarrow as pa

        from trimtab.activedata.storage.key_index import find_in, run_in_memory

        task = self._task
        entries = record_entries(table, task.keys, task.fields, task.seed)
        known = np.full(entries.count, GONE, dtype=np.uint32)
        is_open = np.ones(entries.count, dtype=bool)
        for run in [*map(run_in_memory, reversed(self._own)), *reversed(self._known)]:
            asked = np.flatnonzero(is_open)
            there, contents = find_in(run, entries.keys[asked], entries.more[asked])
            known[asked[there]] = contents
            is_open[asked[there]] = False
        is_fresh, repeated_count, refused = judged(entries, known)
        self._counts["repeated"] += repeated_count
        self._counts["rejected"] += len(refused)
        for index in refused[: LETTERS_MAX_COUNT + 1 - len(self._letters)]:
            row = table.slice(index, 1).to_pylist()[0]
            said = ", ".join(repr(row[name]) for name in task.keys)
            reason = f"another record has the {', '.join(task.keys)} {said} already"
            self._letters.append((reason, json.dumps(row, default=str)))
        new = Entries(entries.keys[is_fresh], entries.more[is_fresh], entries.contents[is_fresh])
        self._own.append(sorted_entries([new]))
        while len(self._own) > 1 and self._own[-2].count <= 2 * self._own[-1].count:
            newer, older = self._own.pop(), self._own.pop()
            self._own.append(sorted_entries([newer, older]))
        return table.filter(pa.array(is_fresh))

    def _lasts(self, table: pa.Table) -> pa.Table:
        """Of records sorted by key the last of each; the very last waits for what comes after it."""
        import numpy as np
        import pyarrow as pa

        if self._held is not None:
            table = pa.concat_tables([self._held, table])
        entries = record_entries(table, self._task.keys, (), self._task.seed)
        is_last = np.ones(table.num_rows, dtype=bool)
        is_last[:-1] = (entries.keys[1:] != entries.keys[:-1]) | (entries.more[1:] != entries.more[:-1])
        is_last[-1] = False
        self._held = table.slice(table.num_rows - 1)
        return table.filter(pa.array(is_last))

    def _write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._writer.write(whole_rows(table, self._schema))
            self._counts["accepted"] += table.num_rows

    def end(self) -> list[tuple[str, str, int]]:
        """What the driver has to know."""
        if self._held is not None:
            self._write(self._held)
        found = [(kind, "", count) for kind, count in self._counts.items()]
        found += [("file", msgspec.json.encode(each).decode(), each.rows_count) for each in self._writer.close()]
        found += [("letter", json.dumps(letter), 1) for letter in self._letters]
        if self._own:
            path = Path(self._task.runs_folder) / f"{uuid.uuid4().hex}{KeyIndex.BULK_SUFFIX}"
            write_run(path, sorted_entries(self._own[::-1]), 0, 0)
            found.append(("run", str(path), 0))
        return found


class NumberingTask(msgspec.Struct, frozen=True):
    """Gives the records of files their numbers: reads each file (with its first number) and writes it anew."""

    folder: str
    schema: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        import pyarrow as pa

        for batch in batches:
            rows = batch.to_pylist()
            files = [self._numbered(msgspec.json.decode(row["file"], type=WrittenFile), row["first"]) for row in rows]
            columns: list[Any] = [
                pa.array(["file"] * len(files)),
                pa.array([msgspec.json.encode(each).decode() for each in files]),
                pa.array([each.rows_count for each in files], pa.int64()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["kind", "text", "count"])

    def _numbered(self, file: WrittenFile, first: int) -> WrittenFile:
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        path = Path(self.folder) / file.name
        schema = pa.schema([field for field in schema if field.name not in file.partition])
        writer = TableFileWriter(Path(self.folder), schema, "bulk", file.partition)
        index = schema.get_field_index("_sequence")
        with pq.ParquetFile(path) as opened:
            for batch in opened.iter_batches(CHUNK_ROWS_COUNT):
                table = pa.Table.from_batches([batch])
                numbers = pa.array(np.arange(first, first + table.num_rows, dtype=np.int64))
                writer.write(table.set_column(index, schema.field(index), numbers).cast(schema))
                first += table.num_rows
        written = writer.close()
        path.unlink()
        return written
