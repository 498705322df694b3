"""Stored datasets: records that are checked, get their number, and are durable when they are accepted."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.activedata.definitions.fields import Scalar, ValueMistake, arrow_schema, check_value, stored
from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import DatasetEntry
from trimtab.activedata.storage.delta_tables import DeltaStore

if TYPE_CHECKING:
    import pyarrow as pa

RECENT_BYTES: Final = 64 * 1024 * 1024
"""New records that are kept in memory for the channels; older ones are read from disk."""

RECORDS_MARK: Final = "records"

Row = tuple[Scalar, ...]


class Taken(msgspec.Struct, frozen=True):
    """What became of records: added, there already (same key, same content), and refused (index and reason)."""

    accepted_count: int
    repeated_count: int
    refused: tuple[tuple[int, str], ...]


class StoredDataset:
    """The records of one dataset.

    The records of an active dataset are numbered from 1 in the order in which they were accepted. Its key makes feeding
    repeatable: a record that comes again changes nothing, another one with the same key is refused. In any other
    dataset a record takes the place of the one with the same key.
    """

    def __init__(self, entry: DatasetEntry, directory: Path, catalog: Catalog) -> None:
        import pyarrow as pa

        self.entry = entry
        self._catalog = catalog
        more = (("_sequence", pa.int64()),) if entry.active else ()
        self.schema = arrow_schema(entry.fields, *more)
        self.store = DeltaStore(directory, self.schema, catalog)
        self.lock = threading.RLock()
        self._names = {field.name for field in entry.fields}
        self._key_index = [field.name for field in entry.fields].index(entry.key)
        self.last_sequence = self.store.mark(RECORDS_MARK) or 0
        self._recent: deque[tuple[int, pa.Table]] = deque()
        self._recent_bytes = 0
        if entry.active:
            self._recover_keys()

    def check(self, record: object) -> Row:
        """The values of a record in the order of the fields, or a mistake that says what is wrong with it."""
        if not isinstance(record, dict):
            raise ValueMistake("a record is a JSON object")
        unknown = [name for name in record if name not in self._names]
        if unknown:
            raise ValueMistake(f"there is no field {unknown[0]!r} in {self.entry.name}")
        return tuple(check_value(field, record.get(field.name)) for field in self.entry.fields)

    def take(self, rows: list[Row], marks: Mapping[str, int] | None = None) -> Taken:
        """Store rows in one commit, with marks if it has any; they are durable when this returns."""
        with self.lock:
            return self._append(rows, marks or {}) if self.entry.active else self._upsert(rows, marks or {})

    def _append(self, rows: list[Row], marks: Mapping[str, int]) -> Taken:
        digests = [self._digests(row) for row in rows]
        known = self._catalog.known_keys(self.entry.id, [key for key, _ in digests])
        fresh: list[Row] = []
        keys: list[tuple[bytes, bytes, int]] = []
        refused: list[tuple[int, str]] = []
        for index, (row, (key, content)) in enumerate(zip(rows, digests, strict=True)):
            if key not in known:
                known[key] = content
                fresh.append(row)
                keys.append((key, content, self.last_sequence + len(fresh)))
            elif known[key] != content:
                reason = f"another record has the {self.entry.key} {row[self._key_index]!r} already"
                refused.append((index, reason))
        if fresh:
            first = self.last_sequence + 1
            last = self.last_sequence + len(fresh)
            table = self._arrow(fresh, range(first, last + 1))
            self.store.append(table, {**marks, RECORDS_MARK: last})
            self._remember(table, first)
            self.last_sequence = last
            self._catalog.add_keys(self.entry.id, keys)
        return Taken(len(fresh), len(rows) - len(fresh) - len(refused), tuple(refused))

    def _digests(self, row: tuple[object, ...]) -> tuple[bytes, bytes]:
        """Fingerprints of a record's key and of all of it; a time counts as a moment, however it was written."""
        values = [stored(field, value) for field, value in zip(self.entry.fields, row, strict=True)]
        return _digest(values[self._key_index]), _digest(*values)

    def _upsert(self, rows: list[Row], marks: Mapping[str, int]) -> Taken:
        newest = {row[self._key_index]: row for row in rows}
        if newest:
            count = self.last_sequence + len(rows)
            self.store.upsert(self._arrow(list(newest.values())), self.entry.key, {**marks, RECORDS_MARK: count})
            self.last_sequence = count
        return Taken(len(rows), 0, ())

    def _arrow(self, rows: list[Row], numbers: range | None = None) -> pa.Table:
        import pyarrow as pa

        columns: list[object] = [
            [stored(field, row[index]) for row in rows] for index, field in enumerate(self.entry.fields)
        ]
        if numbers is not None:
            columns.append(list(numbers))
        arrays = [pa.array(each, kind.type) for each, kind in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _remember(self, table: pa.Table, first: int) -> None:
        self._recent.append((first, table))
        self._recent_bytes += table.nbytes
        while self._recent_bytes > RECENT_BYTES and len(self._recent) > 1:
            self._recent_bytes -= self._recent.popleft()[1].nbytes

    def records(self, after: int, to: int) -> pa.Table:
        """The records of an active dataset with numbers above `after`, up to and with `to`, in their order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.entry.active:
            raise ActiveDataError(f"{self.entry.name} is no active dataset")
        with self.lock:
            recent = list(self._recent)
        if recent and recent[0][0] <= after + 1:
            parts = [table for first, table in recent if first <= to and first + table.num_rows - 1 > after]
            table = pa.concat_tables(parts) if parts else self.schema.empty_table()
            start = after + 1 - table["_sequence"][0].as_py() if table.num_rows else 0
            return table.slice(max(0, start), to - after)
        number = pc.field("_sequence")
        return self.store.read(where=(number > after) & (number <= to)).sort_by("_sequence").select(self.schema.names)

    def _recover_keys(self) -> None:
        """Learn the keys of records that were committed just before the process died."""
        known = self._catalog.last_key_sequence(self.entry.id)
        if known >= self.last_sequence:
            return
        missing = self.records(known, self.last_sequence).to_pylist()
        names = [field.name for field in self.entry.fields]
        rows = []
        for record in missing:
            rows.append((*self._digests(tuple(record[name] for name in names)), record["_sequence"]))
        self._catalog.add_keys(self.entry.id, rows)


def _digest(*values: object) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(values), digest_size=12).digest()
