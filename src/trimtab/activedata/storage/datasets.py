"""Stored datasets: records that are checked, get their number, and are durable when they are accepted."""

from __future__ import annotations

import datetime
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.definitions.fields import Field, Row, ValueMistake, arrow_schema, check_value, stored
from trimtab.activedata.definitions.inference import new_fields
from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import DatasetEntry
from trimtab.activedata.storage.changes import CHANGE, DELETED
from trimtab.activedata.storage.dataset_table import CHANGES_MARK, FOLDED_MARK, SEQUENCE, DatasetTable
from trimtab.activedata.storage.delta_tables import TableFile
from trimtab.activedata.storage.key_index import GONE, MEMORY_COUNT, KeyIndex
from trimtab.activedata.storage.parquet_files import WrittenFile, whole_rows
from trimtab.activedata.storage.record_keys import RecordKeys

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RECORDS_MARK", "Row", "StoredDataset", "Taken"]

RECENT_BYTES: Final = 64 * 1024 * 1024
"""New records that are kept in memory for the channels; older ones are read from disk."""

RECORDS_MARK: Final = "records"

RETAIN_PARTS_COUNT: Final = 10
"""Records go at most a tenth of what RETAIN says later."""


class Taken(msgspec.Struct, frozen=True):
    """What became of records: added, there already (same key, same content), and refused (index and reason)."""

    accepted_count: int
    repeated_count: int
    refused: tuple[tuple[int, str], ...]


class StoredDataset:
    """The records of one dataset.

    The records of an active dataset are numbered from 1 in the order in which they were accepted. Its key makes feeding
    repeatable: a record that comes again changes nothing, another one with the same key is refused. In any other
    dataset a record takes the place of the one with the same key. Without a key every record is one more.
    """

    def __init__(
        self, entry: DatasetEntry, directory: Path, catalog: Catalog, index_folder: Path | None = None
    ) -> None:
        self.entry = entry
        self._catalog = catalog
        self.directory = directory
        self.schema = _visible_schema(entry)
        self.store = DatasetTable(directory, self.schema, entry.keys, catalog, entry.options.partition_by)
        self.lock = threading.RLock()
        self.last_sequence = self.store.mark(RECORDS_MARK) or 0
        self._recent: deque[tuple[int, pa.Table]] = deque()
        self._recent_bytes = 0
        self.keys: RecordKeys | None = None
        self._names = {field.name for field in entry.fields}
        if entry.active and entry.keys:
            folder = directory.parent.parent / "keys" / directory.name
            self.keys = RecordKeys(KeyIndex(folder), entry.keys, [field.name for field in entry.fields], entry.seed)
            self._recover_keys(self.keys)

    def check(self, record: object) -> Row:
        """The values of a record in the order of the fields, or a mistake that says what is wrong with it."""
        if not isinstance(record, dict):
            raise ValueMistake("a record is a JSON object")
        unknown = [name for name in record if name not in self._names]
        if unknown:
            raise ValueMistake(f"there is no field {unknown[0]!r} in {self.entry.name}")
        return tuple(check_value(field, record.get(field.name)) for field in self.entry.fields)

    def evolve(self, records: Iterable[object]) -> None:
        """Get the fields that records have beyond those of the dataset, if it was defined to."""
        if not self.entry.options.evolving:
            return
        with self.lock:
            fields = new_fields(records, self._names)
            if fields:
                self.add_fields(fields)

    def take(self, rows: list[Row], marks: Mapping[str, int] | None = None) -> Taken:
        """Store rows in one commit, with marks if it has any; they are durable when this returns."""
        with self.lock:
            if not rows:
                return Taken(0, 0, ())
            table = self._arrow(rows)
            if self.entry.active and self.keys is not None:
                return self._append_new(table, self.keys, marks or {})
            if self.entry.keys:
                return self._replace(table, marks or {})
            return self._append(table, marks or {}, repeated_count=0, refused=())

    def _append_new(self, table: pa.Table, keys: RecordKeys, marks: Mapping[str, int]) -> Taken:
        """Add the records whose keys are new."""
        import pyarrow as pa

        entries = keys.entries(table)
        is_fresh, repeated_count, refused = keys.judge(entries)
        reasons = tuple((index, self._refusal(table, index)) for index in refused)
        if not is_fresh.any():
            return Taken(0, repeated_count, reasons)
        taken = self._append(table.filter(pa.array(is_fresh)), marks, repeated_count, reasons)
        keys.add(entries, is_fresh, self.last_sequence, self.store.changes.last_change)
        return taken

    def _refusal(self, table: pa.Table, index: int) -> str:
        values = [table[name][index].as_py() for name in self.entry.keys]
        said = repr(values[0]) if len(values) == 1 else f"({', '.join(map(repr, values))})"
        return f"another record has the {', '.join(self.entry.keys)} {said} already"

    def _append(
        self, table: pa.Table, marks: Mapping[str, int], repeated_count: int, refused: tuple[tuple[int, str], ...]
    ) -> Taken:
        first = self.last_sequence + 1
        last = self.last_sequence + table.num_rows
        numbered = self._numbered(table, first) if self.entry.active else table
        self.store.append(self._whole(numbered), {**marks, RECORDS_MARK: last})
        if self.entry.active:
            self._remember(numbered, first)
        self.last_sequence = last
        return Taken(table.num_rows, repeated_count, refused)

    def _replace(self, table: pa.Table, marks: Mapping[str, int]) -> Taken:
        """Let each record take the place of the one with its key; of several the last counts."""
        count = self.last_sequence + table.num_rows
        rows = self._whole(self.newest_of(table), change=self.store.changes.last_change + 1)
        self.store.change(rows, {**marks, RECORDS_MARK: count})
        self.last_sequence = count
        return Taken(table.num_rows, 0, ())

    def newest_of(self, table: pa.Table) -> pa.Table:
        """Of the records with the same key the last one."""
        newest: dict[tuple[object, ...], int] = {}
        columns = [table[name].to_pylist() for name in self.entry.keys]
        for index, key in enumerate(zip(*columns, strict=True)):
            newest.pop(key, None)
            newest[key] = index
        return table if len(newest) == table.num_rows else table.take(list(newest.values()))

    # Changes of records that are there

    def put(self, rows: list[Row], *, as_new: bool) -> Taken:
        """Let records take the places of those with their keys, also in an active dataset; what is new is added.

        A record that changes counts as new for the channels if `as_new` says so.
        """
        with self.lock:
            if not self.entry.keys:
                raise ActiveDataError(f"{self.entry.name} has no key: a record cannot take the place of another")
            if self.keys is None:
                return self.take(rows)
            table = self.newest_of(self._arrow(rows))
            return self.put_table(table, as_new=as_new)

    def put_table(self, table: pa.Table, *, as_new: bool) -> Taken:
        """The same for checked records of an active dataset with a key, each key once."""
        import pyarrow as pa

        assert self.keys is not None
        with self.lock:
            entries = self.keys.entries(table)
            known = self.keys.index.find(entries.keys, entries.more)
            is_there = known != GONE
            same = is_there & (known == entries.contents)
            changed = table.filter(pa.array(is_there & ~same))
            fresh = table.filter(pa.array(~is_there))
            moved = pa.concat_tables([changed, fresh]) if as_new else fresh
            marks: dict[str, int] = {}
            parts = []
            change = self.store.changes.last_change + 1
            if changed.num_rows and not as_new:
                parts.append(self._whole(self._with_old_numbers(changed), change=change))
            first = self.last_sequence + 1
            if moved.num_rows:
                moved = self._numbered(moved, first)
                parts.append(self._whole(moved, change=change))
                marks[RECORDS_MARK] = first - 1 + moved.num_rows
            if parts:
                self.store.change(pa.concat_tables(parts), marks)
                if moved.num_rows:
                    self._remember(moved, first)
                    self.last_sequence = marks[RECORDS_MARK]
                self.keys.add(entries, ~same, self.last_sequence, self.store.changes.last_change)
                self._keep_keys_up(self.keys)
            return Taken(table.num_rows - int(same.sum()), int(same.sum()), ())

    def _with_old_numbers(self, table: pa.Table) -> pa.Table:
        """Records with the numbers of those that have their keys."""
        import pyarrow.compute as pc

        name = self.entry.keys[0]
        there = self.store.read([*self.entry.keys, SEQUENCE], pc.field(name).isin(table[name].combine_chunks()))
        keys = zip(*(there[each].to_pylist() for each in self.entry.keys), strict=True)
        numbers = dict(zip(keys, there[SEQUENCE].to_pylist(), strict=True))
        found = [numbers.get(key) for key in zip(*(table[each].to_pylist() for each in self.entry.keys), strict=True)]
        return table.append_column(self.schema.field(SEQUENCE), [found])

    def replace_rows(self, rows: pa.Table, *, as_new: bool) -> None:
        """Store rows that were read from here and changed, but for their keys (all visible columns)."""
        with self.lock:
            if self.keys is not None and as_new:
                self.put_table(rows.select([field.name for field in self.entry.fields]), as_new=True)
                return
            change = self.store.changes.last_change + 1
            self.store.change(self._whole(rows, change=change), {})
            if self.keys is not None:
                entries = self.keys.entries(rows)
                self.keys.add(entries, None, self.last_sequence, self.store.changes.last_change)
                self._keep_keys_up(self.keys)
            self._forget_recent()

    def delete_rows(self, rows: pa.Table) -> None:
        """Remove rows that were read from here (all visible columns)."""
        import pyarrow as pa

        with self.lock:
            change = self.store.changes.last_change + 1
            gone = self._whole(rows, change=change)
            index = gone.schema.get_field_index(DELETED)
            gone = gone.set_column(index, gone.schema.field(DELETED), pa.repeat(pa.scalar(True), gone.num_rows))
            self.store.change(gone, {})
            if self.keys is not None:
                entries = self.keys.entries(rows)
                self.keys.remove(entries, self.last_sequence, self.store.changes.last_change)
                self._keep_keys_up(self.keys)
            self._forget_recent()

    def _keep_keys_up(self, keys: RecordKeys) -> None:
        """Once changes are in the base, the runs must know them: they can no longer be told from other records."""
        if self.store.folded_change > keys.index.covered[1]:
            keys.index.flush(self.last_sequence, self.store.changes.last_change)

    def add_fields(self, fields: Sequence[Field]) -> None:
        """Add fields, which the records that are there do not have."""
        with self.lock:
            entry = self._catalog.change_dataset(
                msgspec.structs.replace(self.entry, fields=(*self.entry.fields, *fields))
            )
            self.open_as(entry)

    def open_as(self, entry: DatasetEntry) -> None:
        """Take over a changed definition."""
        with self.lock:
            self.entry = entry
            self.schema = _visible_schema(entry)
            self.store.add_visible_fields(self.schema)
            self._names = {field.name for field in entry.fields}
            self._forget_recent()
            if self.keys is not None:
                self.keys.set_fields([field.name for field in entry.fields])

    # Bulk loads

    def adopt(self, files: Sequence[WrittenFile], removed: Sequence[TableFile], rows_count: int) -> None:
        """Make files that tasks wrote part of the dataset, with as many records more as they bring."""
        with self.lock:
            last = self.last_sequence + rows_count
            marks = {RECORDS_MARK: last}
            if removed and self.entry.keys:
                change = self.store.changes.last_change + 1
                marks |= {CHANGES_MARK: change, FOLDED_MARK: change}
            self.store.commit_files(files, removed, marks)
            self.store.load_changes()
            self.last_sequence = last
            self._forget_recent()
            if removed and self.keys is not None:
                self._recover_keys(self.keys)

    def clear(self) -> None:
        """Remove all records."""
        self.adopt([], self.store.table_files(), 0)

    def remove_old(self, now_s: float) -> int:
        """Remove the records that RETAIN does not keep any more, and their keys; answers how many."""
        options = self.entry.options
        if options.retain_s is None:
            return 0
        self.store.keep_apart_s = None if options.retain_by else options.retain_s / RETAIN_PARTS_COUNT
        with self.lock:
            if options.retain_by is None:
                count = self.store.remove_files_before(int((now_s - options.retain_s) * 1_000))
            else:
                oldest: Any = datetime.datetime.fromtimestamp(now_s - options.retain_s, datetime.UTC)
                is_day = next(field.type for field in self.entry.fields if field.name == options.retain_by) == "DATE"
                count = self.store.remove_rows_below(options.retain_by, oldest.date() if is_day else oldest)
            if count:
                self._forget_recent()
                if self.keys is not None:
                    self.keys.index.flush(self.last_sequence, self.store.changes.last_change)
                    left = [each.lowest.get(SEQUENCE) for each in self.store.table_files()]
                    first = min((each for each in left if each is not None), default=self.last_sequence + 1)
                    self.keys.index.drop_up_to(first - 1)
            return count

    def keep_for(self, retain_s: float) -> None:
        """Keep records for so long from now on."""
        options = msgspec.structs.replace(self.entry.options, retain_s=retain_s)
        with self.lock:
            self.entry = self._catalog.change_dataset(msgspec.structs.replace(self.entry, options=options))

    # Memory and files

    def _numbered(self, table: pa.Table, first: int) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        numbers = pa.array(np.arange(first, first + table.num_rows, dtype=np.int64))
        return table.append_column(self.schema.field(SEQUENCE), numbers)

    def _whole(self, rows: pa.Table, change: int | None = None) -> pa.Table:
        return whole_rows(rows, self.store.table_schema, change)

    def _arrow(self, rows: list[Row], numbers: range | None = None) -> pa.Table:
        import pyarrow as pa

        fields = self.entry.fields
        columns: list[Any] = [
            [stored(field, row[index]) if index < len(row) else None for row in rows]  # checked before it had the field
            for index, field in enumerate(fields)
        ]
        names = [field.name for field in fields]
        if numbers is not None:
            columns.append(list(numbers))
            names.append(SEQUENCE)
        schema = pa.schema([self.schema.field(name) for name in names])
        arrays = [pa.array(each, kind.type) for each, kind in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _remember(self, table: pa.Table, first: int) -> None:
        self._recent.append((first, table))
        self._recent_bytes += table.nbytes
        while self._recent_bytes > RECENT_BYTES and len(self._recent) > 1:
            self._recent_bytes -= self._recent.popleft()[1].nbytes

    def _forget_recent(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0

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
            start = after + 1 - table[SEQUENCE][0].as_py() if table.num_rows else 0
            return table.slice(max(0, start), to - after)
        number = pc.field(SEQUENCE)
        return self.store.read(where=(number > after) & (number <= to)).sort_by(SEQUENCE).select(self.schema.names)

    def _recover_keys(self, keys: RecordKeys) -> None:
        """Learn the keys of records that were committed after the newest run, a part of the table at a time."""
        import pyarrow.compute as pc

        sequence, change = keys.index.covered
        if sequence > self.last_sequence or change < self.store.folded_change:
            keys.index.clear()
            sequence = change = 0
        for batch in self.store.batches(pc.field(SEQUENCE) > sequence):
            keys.add(keys.entries(batch), None, sequence, change)
        changed = self.store.changes.table
        changed = changed.filter(pc.field(CHANGE) > change).sort_by(CHANGE)
        if changed.num_rows:
            live = changed.filter(pc.invert(pc.fill_null(changed[DELETED], False)))
            keys.add(keys.entries(live), None, sequence, change)
            keys.remove(keys.entries(changed.filter(pc.fill_null(changed[DELETED], False))), sequence, change)
        if keys.index.fresh_count >= MEMORY_COUNT // 2 or keys.index.covered[1] < self.store.folded_change:
            keys.index.flush(self.last_sequence, self.store.changes.last_change)

    def fold(self) -> None:
        """Take the changes into the base, once the runs of keys know them."""
        with self.lock:
            if self.keys is not None:
                self.keys.index.flush(self.last_sequence, self.store.changes.last_change)
            self.store.fold()


def _visible_schema(entry: DatasetEntry) -> pa.Schema:
    import pyarrow as pa

    return arrow_schema(entry.fields, *(((SEQUENCE, pa.int64()),) if entry.active else ()))
