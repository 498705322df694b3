"""Parquet files of a Delta table that we write ourselves, with the statistics that the log keeps of each.

Tasks of Spark write with this, and so does the compaction; the driver commits what they say of their files.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake.transaction import AddAction

COMPRESSION: Final = "zstd"
ROW_GROUP_COUNT: Final = 128_000
FILE_ROWS_MAX_COUNT: Final = 4_000_000
OPEN_FILES_MAX_COUNT: Final = 64
"""Of more partitions at a time, the first file is ended."""

DAY_PREFIX: Final = "_day_"
"""What a column begins with that has the day of another one."""

STATISTICS_TEXT_MAX_CHARS: Final = 64
"""Longer texts are left out of the statistics."""


class WrittenFile(msgspec.Struct, frozen=True):
    """A file of a table that is on the disk: its name in the table's folder, and what the log is to know of it."""

    name: str
    size_bytes: int
    rows_count: int
    statistics: str
    partition: dict[str, str | None] = {}
    modified_ms: int = 0
    """When the newest of its records came, if that is not now."""

    def added(self, *, changes_data: bool) -> AddAction:
        """The action of the log that makes the file part of the table."""
        from deltalake.transaction import AddAction

        modified_ms = self.modified_ms or int(time.time() * 1_000)
        return AddAction(self.name, self.size_bytes, self.partition, modified_ms, changes_data, self.statistics)


class TableFileWriter:
    """Writes one file of a table, batch after batch; nothing is kept of what was written but its statistics."""

    def __init__(self, folder: Path, schema: pa.Schema, prefix: str, partition: dict[str, str | None]) -> None:
        import pyarrow.parquet as pq

        self._folder = folder
        self._partition = partition
        import pyarrow as pa

        self._schema = schema = pa.schema([field for field in schema if field.name not in partition])
        within = "".join(f"{name}={_partition_text(value)}/" for name, value in partition.items())
        self.name = f"{within}{prefix}-{uuid.uuid4().hex}.parquet"
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(path, schema, compression=COMPRESSION, use_dictionary=True)
        self._waiting: list[pa.Table] = []
        self.rows_count = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        if rows.num_rows:
            self._waiting.append(rows.select(self._schema.names))
            self.rows_count += rows.num_rows
            if sum(each.num_rows for each in self._waiting) >= ROW_GROUP_COUNT:
                self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROW_GROUP_COUNT)
            self._waiting.clear()

    def close(self) -> WrittenFile:
        """End the file; it is on the disk for sure when this returns."""
        import pyarrow.parquet as pq

        self._write_group()
        self._writer.close()
        path = self._folder / self.name
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        with pq.ParquetFile(path) as opened:
            statistics = _statistics(opened.metadata, self._schema)
        return WrittenFile(self.name, path.stat().st_size, self.rows_count, statistics, self._partition)


class PartitionsWriter:
    """Writes a file for each partition that comes, or one file if a table has none."""

    def __init__(self, folder: Path, schema: pa.Schema, partition_by: Sequence[str], prefix: str) -> None:
        self._folder = folder
        self._schema = schema
        self._partition_by = list(partition_by)
        self._prefix = prefix
        self._open: dict[tuple[str | None, ...], TableFileWriter] = {}
        self._done: list[WrittenFile] = []

    def write(self, rows: pa.Table) -> None:
        """Add rows of any partitions."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not rows.num_rows:
            return
        if not self._partition_by:
            self._write(rows, ())
            return
        texts = pa.table({name: rows[name].cast(pa.string()) for name in self._partition_by})
        for place in texts.group_by(self._partition_by).aggregate([]).to_pylist():
            there = None
            for name, value in place.items():
                same = pc.is_null(texts[name]) if value is None else pc.fill_null(pc.equal(texts[name], value), False)
                there = same if there is None else pc.and_(there, same)
            self._write(rows.filter(there), tuple(place[name] for name in self._partition_by))

    def _write(self, rows: pa.Table, place: tuple[str | None, ...]) -> None:
        writer = self._open.get(place)
        if writer is None:
            if len(self._open) >= OPEN_FILES_MAX_COUNT:
                self._done.append(self._open.pop(next(iter(self._open))).close())
            partition = dict(zip(self._partition_by, place, strict=False))
            writer = self._open[place] = TableFileWriter(self._folder, self._schema, self._prefix, partition)
        writer.write(rows)
        if writer.rows_count >= FILE_ROWS_MAX_COUNT:
            self._done.append(self._open.pop(place).close())

    def close(self) -> list[WrittenFile]:
        """End all files; they are on the disk for sure when this returns."""
        self._done += [each.close() for each in self._open.values()]
        self._open.clear()
        return self._done


def taken_over(folder: Path, path: Path, schema: pa.Schema) -> WrittenFile:
    """Move a file that Spark wrote into the folder of its table; whoever commits it syncs it."""
    import pyarrow.parquet as pq

    name = f"bulk-{uuid.uuid4().hex}.parquet"
    with pq.ParquetFile(path) as opened:
        statistics = _statistics(opened.metadata, schema)
        rows_count = opened.metadata.num_rows
    path.rename(folder / name)
    return WrittenFile(name, (folder / name).stat().st_size, rows_count, statistics)


def write_files(
    folder: Path, schema: pa.Schema, tables: Iterable[pa.Table], partition_by: Sequence[str] = (), prefix: str = "part"
) -> list[WrittenFile]:
    """Write tables to a file of each partition."""
    writer = PartitionsWriter(folder, schema, partition_by, prefix)
    for table in tables:
        writer.write(table)
    return writer.close()


def whole_rows(rows: pa.Table, schema: pa.Schema, change: int | None = None) -> pa.Table:
    """Rows with all columns of a table: days that it is partitioned by, the number of a change, nothing elsewhere."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for field in schema:
        if field.name in rows.column_names:
            columns.append(rows[field.name].cast(field.type))
        elif field.name.startswith(DAY_PREFIX):
            moments = rows[field.name.removeprefix(DAY_PREFIX)]
            is_day = pa.types.is_date(moments.type)
            columns.append(moments if is_day else pc.floor_temporal(moments, unit="day").cast(pa.date32()))
        elif field.name == "_change" and change is not None:
            columns.append(pa.repeat(pa.scalar(change, pa.int64()), rows.num_rows))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=schema)


def partition_columns(partition_by: Sequence[str]) -> list[str]:
    """The columns of partitions, as a dataset's definition names them.

    >>> partition_columns(["event", "DAY(at)"])
    ['event', '_day_at']
    """
    return [DAY_PREFIX + each[4:-1] if each.startswith("DAY(") else each for each in partition_by]


def _partition_text(value: str | None) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(value, safe="")


def _statistics(metadata: Any, schema: pa.Schema) -> str:
    """What the Delta log says of a file: rows, and of each plain column the least, the largest and the missing."""
    names = [field.name for field in schema]
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    missing: dict[str, int] = dict.fromkeys(names, 0)
    incomplete: set[str] = set()
    for group_number in range(metadata.num_row_groups):
        group = metadata.row_group(group_number)
        for number in range(group.num_columns):
            column = group.column(number)
            name = column.path_in_schema
            if name not in missing:
                incomplete.add(name.partition(".")[0])
                continue
            found = column.statistics
            if found is None or not found.has_null_count:
                incomplete.add(name)
                continue
            missing[name] += found.null_count
            if found.has_min_max:
                low[name] = found.min if name not in low else min(low[name], found.min)
                high[name] = found.max if name not in high else max(high[name], found.max)
            elif found.null_count < column.num_values:
                incomplete.add(name)
    shown = {
        "minValues": {name: _said(value, last=False) for name, value in low.items() if name not in incomplete},
        "maxValues": {name: _said(value, last=True) for name, value in high.items() if name not in incomplete},
    }
    for values in shown.values():
        for name in [name for name, value in values.items() if value is None]:
            del values[name]
    nulls = {name: count for name, count in missing.items() if name not in incomplete}
    return json.dumps({"numRecords": metadata.num_rows, **shown, "nullCount": nulls})


def _said(value: Any, *, last: bool) -> Any:
    """A least or largest value as the log writes it; None for what is left out."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str() if len(value) <= STATISTICS_TEXT_MAX_CHARS:
            return value
        case datetime.datetime():
            moment = value + datetime.timedelta(milliseconds=1 if last and value.microsecond % 1_000 else 0)
            return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1_000:03}Z" if moment.year >= 1_000 else None
        case datetime.date():
            return value.isoformat()
    return None
