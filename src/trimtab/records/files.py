"""Records as Parquet files: a folder for each table, which Spark and pyarrow read as one.

    DIR/load/B1-00001.parquet       DIR/deliveries/sim-00001.parquet       DIR/moves/...       DIR/sessions/...

Each process writes files of its own, named after it. A file holds a bounded number of rows, which is also what is kept
in memory. Where people may look while a run goes on, the file that is being filled is written anew from time to time,
and takes its name only when it is complete, so that every file can be read at any moment.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trimtab.protocol.records import (
    TABLES,
    AnyRecord,
    ArrivalRecord,
    Column,
    DeliveryRecord,
    GapRecord,
    LoadRecord,
    RecordsError,
    columns_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_FILE_COUNT: Final = 100_000
"""Some megabytes of memory, and files that are neither many nor large."""

SAMPLED_KEY: Final = b"trimtab.deliveries_sampled_one_in"
TABLE_KEY: Final = b"trimtab.table"


class MissingParquetError(RecordsError):
    """pyarrow is not installed; the message says how to install it."""


class RecordFiles:
    """Keeps the records of one process in a folder.

    >>> import tempfile
    >>> from trimtab.protocol.records import MoveRecord
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with RecordFiles(folder, "sim") as files:
    ...         files.record(MoveRecord(1.0, 1.5, "alice", "B1", "B2", "scenario", "moved", ""))
    ...     read_records(folder, "moves").to_pylist()[0]["to_broker"]
    'B2'
    """

    def __init__(
        self,
        folder: str | Path,
        process: str,
        *,
        run: str = "",
        write_after_s: float = math.inf,
        deliveries_one_in: int = 1,
        rows_per_file_count: int = ROWS_PER_FILE_COUNT,
        replace: bool = False,
    ) -> None:
        """With `write_after_s` a table is written whenever its records have moved on by so long.

        What a process of the same name has written there before stays, unless it is to be replaced.

        Of deliveries only those are kept whose sequence number is divisible by `deliveries_one_in`; none if that is 0.
        """
        if deliveries_one_in < 0 or rows_per_file_count < 1:
            raise ValueError("no less than none of the deliveries are kept, and at least one row in a file")
        _warm_up()
        self._deliveries_one_in = deliveries_one_in
        metadata = {SAMPLED_KEY: str(deliveries_one_in).encode()}
        self._tables = {
            kind: _TableFiles(Path(folder), name, process, run, write_after_s, rows_per_file_count, metadata)
            for name, kind in TABLES.items()
        }
        if replace:
            for table in self._tables.values():
                table.remove_former()

    def record(self, record: AnyRecord) -> None:
        """Keep a record."""
        if type(record) is DeliveryRecord and self._deliveries_one_in != 1:
            if not self._deliveries_one_in or record.sequence % self._deliveries_one_in:
                return
        self._tables[type(record)].add(record)

    def close(self) -> None:
        """Write what is not written yet; the files stay open for more."""
        for table in self._tables.values():
            table.write()

    def __enter__(self) -> RecordFiles:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _TableFiles:
    """The files of one table."""

    def __init__(  # noqa: PLR0917 (parts of a file's name and its limits)
        self,
        folder: Path,
        name: str,
        process: str,
        run: str,
        write_after_s: float,
        rows_max_count: int,
        metadata: dict[bytes, bytes],
    ) -> None:
        self._folder = folder / name
        self._process = process
        self._run = run
        self._write_after_s = write_after_s
        self._rows_max_count = rows_max_count
        self._columns = columns_of(name)
        self._schema = schema_of(name).with_metadata({TABLE_KEY: name.encode(), **metadata})
        self._rows: list[AnyRecord] = []
        self._written_count = 0
        self._written_s = -math.inf
        self._number = max(self._former(), default=0) + 1

    def _former(self) -> dict[int, Path]:
        """The files that a process of this name has written before, by number."""
        found = [(path.stem.rpartition("-"), path) for path in self._folder.glob("*.parquet")]
        return {int(number): path for (name, _, number), path in found if name == self._process and number.isdigit()}

    def remove_former(self) -> None:
        """Begin again with the first file."""
        for path in self._former().values():
            path.unlink()
        self._number = 1

    def add(self, record: AnyRecord) -> None:
        self._rows.append(record)
        if len(self._rows) >= self._rows_max_count:
            self.write()
            self._rows.clear()
            self._written_count = 0
            self._number += 1
        elif self._write_after_s < math.inf:
            time_s = _time_s(record)
            if time_s >= self._written_s + self._write_after_s:
                self._written_s = time_s
                self.write()

    def write(self) -> None:
        """Write the current file with all rows that belong to it."""
        if len(self._rows) == self._written_count:
            return
        pa = _pyarrow()
        import pyarrow.parquet as pq

        arrays = [pa.array([self._run] * len(self._rows), type=pa.string())]
        for column in self._columns[1:]:
            arrays.append(pa.array([getattr(row, column.name) for row in self._rows], type=_arrow_type(column)))
        name = f"{self._process}-{self._number:05d}.parquet"
        unfinished = self._folder / f".{name}.unfinished"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_arrays(arrays, schema=self._schema), unfinished, compression="zstd")
            unfinished.replace(self._folder / name)
        except OSError as error:
            raise RecordsError(f"{self._folder}: cannot be written: {error.strerror or error}") from None
        self._written_count = len(self._rows)


def _time_s(record: AnyRecord) -> float:
    return (
        record.time_s if isinstance(record, LoadRecord | DeliveryRecord | ArrivalRecord | GapRecord) else record.end_s
    )


def schema_of(table: str) -> pa.Schema:
    """The schema of a table's files, with the description of each column.

    >>> schema_of("load").field("time_s").type
    DataType(double)
    """
    pa = _pyarrow()
    return pa.schema(
        [
            pa.field(
                column.name,
                _arrow_type(column),
                nullable=column.may_be_missing,
                metadata={b"description": column.description.encode()},
            )
            for column in columns_of(table)
        ]
    )


def read_records(folder: str | Path, table: str) -> pa.Table:
    """All records of a table so far, of all processes; without any an empty table with its columns."""
    if table not in TABLES:
        raise RecordsError(f"{table!r} is not a table; expected one of {', '.join(TABLES)}")
    pa = _pyarrow()
    import pyarrow.parquet as pq

    schema = schema_of(table)
    paths = sorted(Path(folder, table).glob("[!.]*.parquet"))
    try:
        parts = [pq.read_table(path, schema=schema) for path in paths]
    except (OSError, pa.ArrowInvalid) as error:
        raise RecordsError(f"{Path(folder, table)}: cannot be read: {error}") from None
    return pa.concat_tables(parts) if parts else schema.empty_table()


def deliveries_one_in(folder: str | Path) -> int:
    """Of how many deliveries one was kept, as the files tell; 1 without files."""
    _pyarrow()
    import pyarrow.parquet as pq

    for path in sorted(Path(folder, "deliveries").glob("[!.]*.parquet")):
        return int((pq.read_schema(path).metadata or {}).get(SAMPLED_KEY, b"1"))
    return 1


def _arrow_type(column: Column) -> Any:
    pa = _pyarrow()
    return {"text": pa.string(), "integer": pa.int64(), "decimal": pa.float64()}[column.kind]


def _warm_up() -> None:
    """Let pyarrow take the 60 MB of its first write now, before a process begins to measure what its work takes."""
    _pyarrow()
    import pyarrow.parquet as pq

    pq.write_table(schema_of("moves").empty_table(), io.BytesIO())


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingParquetError("records need pyarrow: pip install 'trimtab[lab]'") from None
    return pyarrow
