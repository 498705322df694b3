"""The table of a dataset: its base, and the changes that stand beside it.

Which file is which is told by the statistics of its column `_change`: the base has no value there.
"""

from __future__ import annotations

import datetime
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.storage.changes import CHANGE, DELETED, Changes, kept_beside_count
from trimtab.activedata.storage.delta_log import AcknowledgedVersions
from trimtab.activedata.storage.delta_tables import SMALL_FILE_BYTES, DeltaStore, TableFile
from trimtab.activedata.storage.parquet_files import DAY_PREFIX, WrittenFile, partition_columns, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression

SEQUENCE: Final = "_sequence"

CHANGES_MARK: Final = "changes"
FOLDED_MARK: Final = "folded"
"""The last change, and the last one that is in the base."""

TOGETHER_BYTES: Final = 64 * 1024 * 1024
"""Small files are put together to files of about this size."""

CHANGE_FILES_COUNT: Final = 100
"""So many files of changes are put together."""


class Snapshot(msgspec.Struct, frozen=True):
    """A version of a dataset: the files of its base, and the changes beside it, if there are any."""

    version: int
    base: tuple[str, ...]
    changes: pa.Table | None


class DatasetTable(DeltaStore):
    """A Delta table whose rows have a key, or not; with a key, rows can be changed at the cost of what changes."""

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        keys: Sequence[str],
        versions: AcknowledgedVersions,
        partition_by: Sequence[str] = (),
    ) -> None:
        self.keys = tuple(keys)
        self.keep_apart_s: float | None = None
        """Files whose records came in different periods of this length stay apart, so that old ones can go whole."""
        self._day_names = [each for each in partition_columns(partition_by) if each.startswith(DAY_PREFIX)]
        super().__init__(path, schema, versions, self._with_changes(schema), partition_columns(partition_by))
        self.add_fields(schema, self._with_changes(schema))
        self._remove_unfinished()
        self._dataset: tuple[int, Any] | None = None
        self._counted: tuple[int, int] = (-1, 0)
        self._compacting = threading.Lock()
        self.load_changes()

    def load_changes(self) -> None:
        """Read the changes from the table."""
        self.changes = Changes(self.table_schema, self.keys)
        for file in self._change_files():
            self.changes.add(self._raw([file]))
        self.changes.last_change = max(self.changes.last_change, self.mark(CHANGES_MARK) or 0)
        self._base_rows_count: int | None = None

    def _with_changes(self, schema: pa.Schema) -> pa.Schema:
        import pyarrow as pa

        more = [pa.field(CHANGE, pa.int64()), pa.field(DELETED, pa.bool_())] if self.keys else []
        days = [pa.field(name, pa.date32()) for name in self._day_names]
        return pa.schema([*schema, *days, *more])

    def add_visible_fields(self, schema: pa.Schema) -> None:
        """Add fields to the dataset."""
        with self.lock:
            self.add_fields(schema, self._with_changes(schema))
            self.load_changes()

    def _remove_unfinished(self) -> None:
        """Remove files of bulk loads that were not committed when the process ended."""
        for folder in self.path.glob("_staging-*"):
            shutil.rmtree(folder, ignore_errors=True)
        found = list(self.path.rglob("bulk-*.parquet"))
        if found:
            known = {each.path for each in self.table_files()}
            removed = delta_removed(self.path)
            for path in found:
                name = path.relative_to(self.path).as_posix()
                if name not in known and name not in removed:
                    path.unlink()

    # Reading

    def _change_files(self) -> list[TableFile]:
        return [each for each in self.table_files() if self._is_change(each)] if self.keys else []

    def _is_change(self, file: TableFile) -> bool:
        return bool(self.keys) and file.lowest.get(CHANGE) is not None

    def _raw(self, files: Sequence[TableFile], columns: list[str] | None = None) -> pa.Table:
        """All rows of files, with the columns that a file does not have yet."""
        import pyarrow as pa

        schema = self.table_schema if columns is None else pa.schema([self.table_schema.field(n) for n in columns])
        tables = [read_file(self.path / each.path, schema, each.partition) for each in files]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def snapshot(self) -> Snapshot:
        """The newest version, for readers that combine base and changes themselves."""
        with self.lock:
            if not self.keys or not self.changes.count:
                number, files = self.files()
                return Snapshot(number, tuple(files), None)
            base = tuple(str(self.path / each.path) for each in self.table_files() if not self._is_change(each))
            return Snapshot(self.version, base, self.changes.table)

    def read(self, columns: list[str] | None = None, where: Expression | None = None) -> pa.Table:
        """Read the rows as they are now; files whose statistics exclude the condition are not opened."""
        import pyarrow as pa

        names = columns or self.schema.names
        with self.lock:
            dataset = self._base_dataset()
            if not self.keys or not self.changes.count:
                table: pa.Table = dataset.to_table(columns=names, filter=where)
                return table
            wanted = list(dict.fromkeys([*names, *self.keys]))
            base = self.changes.without_changed(dataset.to_table(columns=wanted, filter=where))
            live = self.changes.live
        if where is not None:
            live = live.filter(where)
        return pa.concat_tables([base.select(names), live.select(names)])

    def batches(self, where: Expression) -> Iterator[pa.Table]:
        """Read rows of the base part by part."""
        import pyarrow as pa

        for batch in self._base_dataset().to_batches(columns=self.schema.names, filter=where):
            yield pa.Table.from_batches([batch])

    def _base_dataset(self) -> Any:
        """The base for pyarrow, which does not open files whose numbers or keys exclude a condition.

        What deltalake makes for pyarrow takes a column without statistics for one that no condition holds for.
        """
        import pyarrow.dataset as ds
        from pyarrow import fs

        with self.lock:
            if self._dataset is None or self._dataset[0] != self.version:
                file_format = ds.ParquetFileFormat()
                local = fs.LocalFileSystem()
                fragments = [
                    file_format.make_fragment(str(self.path / each.path), local, self._known_of(each))
                    for each in self.table_files()
                    if not self._is_change(each)
                ]
                self._dataset = (self.version, ds.FileSystemDataset(fragments, self.table_schema, file_format, local))
            return self._dataset[1]

    def _known_of(self, file: TableFile) -> Expression:
        """What holds for all rows of a file: between which numbers and keys they lie, and its partition."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.scalar(True)
        for name in dict.fromkeys([SEQUENCE, *self.keys]):
            low, high = file.lowest.get(name), file.highest.get(name)
            if isinstance(low, (int, str)) and isinstance(high, (int, str)) and name in self.schema.names:
                field = self.schema.field(name).type
                if pa.types.is_string(field) or pa.types.is_integer(field):
                    found = found & (pc.field(name) >= low) & (pc.field(name) <= high)
        for name, value in file.partition.items():
            kind = self.table_schema.field(name).type
            held = pc.field(name).is_null() if value is None else pc.field(name) == pa.scalar(value).cast(kind)
            found = found & held
        return found

    def rows_count(self) -> int:
        """How many rows the dataset has now."""
        with self.lock:
            if not self.keys or not self.changes.count:
                return super().rows_count()
            if self._counted[0] != self.version:
                base = [each for each in self.table_files() if not self._is_change(each)]
                kept_count = sum(
                    self.changes.without_changed(self._raw([each], list(self.keys))).num_rows for each in base
                )
                self._counted = (self.version, kept_count + self.changes.live.num_rows)
            return self._counted[1]

    # Changing

    def change(self, rows: pa.Table, marks: Mapping[str, int]) -> None:
        """Let rows (of the whole table, `_change` set) take the places of those with their keys, in one commit."""
        import pyarrow.compute as pc

        with self.lock:
            if self._base_rows_count is None:
                base = [each for each in self.table_files() if not self._is_change(each)]
                self._base_rows_count = sum(each.rows_count for each in base)
            number = int(pc.max(rows[CHANGE]).as_py())
            marks = {**marks, CHANGES_MARK: number}
            if self.changes.count_with(rows) > kept_beside_count(self._base_rows_count):
                self._fold(rows, {**marks, FOLDED_MARK: number})
            else:
                self.append(rows, marks)
                self.changes.add(rows)

    @property
    def folded_change(self) -> int:
        """The last change that is in the base."""
        return self.mark(FOLDED_MARK) or 0

    def remove_files_before(self, moment_ms: int) -> int:
        """Remove the files of the base whose records all came before a moment; answers how many records they had."""
        with self.lock:
            gone = [each for each in self.table_files() if not self._is_change(each) and each.modified_ms < moment_ms]
            if gone:
                self.commit_files([], gone, {})
                self._base_rows_count = None
            return sum(each.rows_count for each in gone)

    def remove_rows_below(self, name: str, lowest: Any) -> int:
        """Remove the records whose field is below a value; whole files without reading them. Answers how many."""
        import pyarrow as pa
        import pyarrow.compute as pc

        with self.lock:
            if self.changes.count and (pc.min(self.changes.table[name]).as_py() or lowest) < lowest:
                self.fold()
            removed, added, count = [], [], 0
            for file in self.table_files():
                least = _comparable(file.lowest.get(name))
                if self._is_change(file) or (least is not None and least >= lowest):
                    continue
                table = self._raw([file])
                kept = pc.fill_null(pc.greater_equal(table[name], pa.scalar(lowest, table[name].type)), True)
                rows = table.filter(kept)
                if rows.num_rows < table.num_rows:
                    removed.append(file)
                    added += self._written([rows])
                    count += table.num_rows - rows.num_rows
            if removed:
                self.commit_files(added, removed, {})
                self._base_rows_count = None
            return count

    def fold(self) -> None:
        """Write the base anew where changes concern it."""
        with self.lock:
            if self.changes.count:
                self._fold(None, {FOLDED_MARK: self.changes.last_change})

    def _fold(self, rows: pa.Table | None, marks: Mapping[str, int]) -> None:
        """One commit that takes all changes, and further ones, into the base; a file at a time is in memory."""
        import pyarrow as pa

        changes = Changes(self.table_schema, self.keys)
        if self.changes.count:
            changes.add(self.changes.table)
        if rows is not None:
            changes.add(rows)
        added: list[WrittenFile] = []
        removed: list[TableFile] = []
        for file in self.table_files():
            if self._is_change(file):
                removed.append(file)
                continue
            keys = self._raw([file], list(self.keys))
            if changes.without_changed(keys).num_rows == keys.num_rows:
                continue
            removed.append(file)
            added += self._written([changes.without_changed(self._raw([file]))])
        live = changes.live
        if SEQUENCE in live.column_names:
            live = live.sort_by(SEQUENCE)
        nothing = pa.nulls(live.num_rows)
        for name in (CHANGE, DELETED):
            index = live.schema.get_field_index(name)
            live = live.set_column(
                index, self.table_schema.field(name), nothing.cast(self.table_schema.field(name).type)
            )
        added += self._written([live])
        self.commit_files(added, removed, marks)
        self._base_rows_count = None
        self.changes.clear()
        self.changes.last_change = max(self.changes.last_change, changes.last_change)

    def _written(self, tables: Iterable[pa.Table]) -> list[WrittenFile]:
        return write_files(self.path, self.table_schema, tables, self.partition_by)

    # Compaction

    def is_compaction_due(self) -> bool:
        """Whether there are many small files."""
        return super().is_compaction_due() or len(self._change_files()) >= CHANGE_FILES_COUNT

    def compact(self) -> None:
        """Put small files together, those of the base and those of changes, and remove what no reader needs.

        The base's are read and written without the lock, for nobody changes a file.
        """
        with self._compacting:
            for group in self._small_groups():
                tables = (self._raw([each]) for each in group)
                modified_ms = max(each.modified_ms for each in group)
                added = [msgspec.structs.replace(each, modified_ms=modified_ms) for each in self._written(tables)]
                with self.lock:
                    if {each.path for each in group} <= {each.path for each in self.table_files()}:
                        self.commit_files(added, group, {}, changes_data=False)
            with self.lock:
                files = self._change_files()
                if len(files) > 1:
                    self.commit_files(self._written([self.changes.table]), files, {}, changes_data=False)
            self.vacuum()

    def _small_groups(self) -> list[list[TableFile]]:
        """Small files of the base that become one, by what they have in common."""
        groups: list[list[TableFile]] = []
        open_groups: dict[tuple[object, ...], list[TableFile]] = {}
        files = [
            each for each in self.table_files() if not self._is_change(each) and each.size_bytes < SMALL_FILE_BYTES
        ]
        for file in sorted(files, key=_first_sequence):
            period = file.modified_ms // int(self.keep_apart_s * 1_000) if self.keep_apart_s else 0
            place = (period, *sorted(file.partition.items()))
            group = open_groups.setdefault(place, [])
            if group and sum(each.size_bytes for each in group) + file.size_bytes > TOGETHER_BYTES:
                group = open_groups[place] = []
            if not group:
                groups.append(group)
            group.append(file)
        return [each for each in groups if len(each) > 1]


def _comparable(value: Any) -> Any:
    """A value of the statistics; moments there have no zone and are in UTC."""
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=datetime.UTC)
    return value


def _first_sequence(file: TableFile) -> tuple[int, str]:
    return int(file.lowest.get(SEQUENCE) or 0), file.path


def delta_removed(table: Path) -> set[str]:
    """The files that commits of the log name as removed: a reader may still need them."""
    from trimtab.activedata.storage import delta_log

    found: set[str] = set()
    for version in delta_log.versions_of(table):
        for action in delta_log.read_commit(delta_log.commit_file(table, version)):
            if "remove" in action:
                found.add(str(action["remove"]["path"]))
    return found


def read_file(path: Path, schema: pa.Schema, partition: Mapping[str, Any]) -> pa.Table:
    """A file of a table with all columns of a schema: without a value where the file is older than the column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as opened:
        known = set(opened.schema_arrow.names)
        table = opened.read([field.name for field in schema if field.name in known])
    columns = []
    for field in schema:
        if field.name in known:
            columns.append(table[field.name].cast(field.type))
        elif field.name in partition:
            value = pa.scalar(partition[field.name]).cast(field.type)
            columns.append(pa.repeat(value, table.num_rows))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.table(columns, schema=schema)
