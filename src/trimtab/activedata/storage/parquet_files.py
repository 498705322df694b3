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
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake.transaction import AddAction

COMPRESSION: Final = "zstd"
ROW_GROUP_COUNT: Final = 128_000
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

        path = quote(self.name, safe="/=.-_~ ") if self.partition else self.name
        modified_ms = self.modified_ms or int(time.time() * 1_000)
        return AddAction(path, self.size_bytes, self.partition, modified_ms, changes_data, self.statistics)


class TableFileWriter:
    """Writes one file of a table, batch after batch; nothing is kept of what was written but its statistics."""

    def __init__(self, folder: Path, schema: pa.Schema, prefix: str, partition: dict[str, str | None]) -> None:
        import pyarrow.parquet as pq

        self._folder = folder
        self._partition = partition
        self._schema = schema
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
            self._waiting.append(rows)
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


def write_file(folder: Path, schema: pa.Schema, tables: Iterable[pa.Table], prefix: str = "part") -> WrittenFile | None:
    """Write one file of tables; None if they have no rows."""
    writer: TableFileWriter | None = None
    for table in tables:
        if table.num_rows:
            writer = writer or TableFileWriter(folder, schema, prefix, {})
            writer.write(table)
    return None if writer is None else writer.close()


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
