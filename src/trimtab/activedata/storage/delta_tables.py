"""One Delta table on disk with one writer: commits that are whole or not there, and what a commit remembers.

A commit is on the disk, with its files, before anybody is told of it, and its version is written down as acknowledged.
If the disk refuses any of this, the commit is taken back.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote

import msgspec

from trimtab.activedata.errors import StorageError
from trimtab.activedata.storage import delta_log
from trimtab.activedata.storage.delta_log import AcknowledgedVersions
from trimtab.activedata.storage.durable_files import make_folder
from trimtab.activedata.storage.parquet_files import WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.compute import Expression

logger = logging.getLogger(__name__)


class TableFile(msgspec.Struct, frozen=True):
    """A file of a table as the log knows it."""

    path: str
    size_bytes: int
    rows_count: int
    lowest: dict[str, Any]
    highest: dict[str, Any]
    missing: dict[str, int]
    partition: dict[str, str | None]
    modified_ms: int


COMPACT_AFTER_FILES_COUNT: Final = 250
"""So many small files are put together, so that readers open few."""

SMALL_FILE_BYTES: Final = 8 * 1024 * 1024

KEEP_OLD_FILES_HOURS: Final = 1
"""A reader that began before files were put together has so long to end."""


class NewFile(Protocol):
    """A Parquet file in a table's folder that no commit names yet, with its statistics as Delta keeps them."""

    @property
    def path(self) -> str:
        """Its name in the folder."""

    @property
    def size_bytes(self) -> int:
        """How large it is."""

    @property
    def stats(self) -> str:
        """Number of rows, smallest and largest values, as JSON."""


class DeltaStore:
    """A Delta table that this process alone writes.

    A commit may carry marks (name -> number), which become visible together with its rows and stay readable:
    how far a channel has come, how many records a dataset has.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        versions: AcknowledgedVersions,
        table_schema: pa.Schema | None = None,
        partition_by: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.schema = schema
        self.table_schema = schema if table_schema is None else table_schema
        """The columns of the table: those that readers see, and what the store needs."""
        self.partition_by = list(partition_by)
        self.lock = threading.RLock()
        self._versions = versions
        self._acknowledged = versions.acknowledged_version(path.name)
        try:
            delta_log.take_back_torn(path, self._acknowledged)
            self._table: DeltaTable = self._opened()
        except StorageError as error:
            raise delta_log.damaged(path, str(error)) from None
        except OSError as error:
            raise delta_log.damaged(path, f"{error.filename or path}: {error.strerror or error}") from None
        if self.version != self._acknowledged:
            self._make_durable()
        self._vacuumed_s = 0.0

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable

        if self._acknowledged is None and not delta_log.versions_of(self.path):
            make_folder(self.path)
            with telling_storage_errors():
                DeltaTable.create(str(self.path), self.table_schema, mode="ignore", partition_by=self.partition_by)
        delta_log.check_commits(self.path, self._acknowledged)
        with telling_storage_errors("cannot be read"):
            table = DeltaTable(str(self.path))
            for file in (
                table.get_add_actions(flatten=True).select(["path", "size_bytes"]).to_struct_array().to_pylist()
            ):
                delta_log.check_file(self.path / unquote(file["path"]), file["size_bytes"])
        return table

    @property
    def version(self) -> int:
        """The number of the newest commit."""
        return int(self._table.version())

    def mark(self, name: str) -> int | None:
        """The number that the last commit with this mark carried."""
        found = self._table.transaction_version(name)
        return None if found is None else int(found)

    def append(self, rows: pa.Table, marks: Mapping[str, int]) -> None:
        """Add rows in one commit; when this returns they are on the disk, and if it raises none of them is there."""
        from deltalake import write_deltalake

        self._commit(lambda: write_deltalake(self._table, rows, mode="append", **_properties(marks)), marks)

    def append_files(self, files: Iterable[NewFile], marks: Mapping[str, int]) -> None:
        """Add Parquet files that stand in the table's folder already, in one commit."""
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = int(time.time() * 1e3)
        actions: list[AddAction | RemoveAction] = [
            AddAction(each.path, each.size_bytes, {}, now_ms, True, each.stats) for each in files
        ]

        def write() -> None:
            self._table.create_write_transaction(actions, "append", self.schema, **_properties(marks))
            self._table.update_incremental()  # unlike other writes, this one leaves the table at its old version

        self._commit(write, marks)

    def commit_files(
        self,
        added: Sequence[WrittenFile],
        removed: Sequence[TableFile],
        marks: Mapping[str, int],
        *,
        changes_data: bool = True,
    ) -> None:
        """Make files that are on the disk part of the table, and others no more, in one commit."""
        from deltalake.transaction import RemoveAction

        now_ms = int(time.time() * 1_000)
        actions = [each.added(changes_data=changes_data) for each in added]
        gone = [
            RemoveAction(each.path, changes_data, now_ms, size=each.size_bytes, partition_values=each.partition)
            for each in removed
        ]

        def write() -> None:
            self._table.create_write_transaction(
                [*actions, *gone], "append", self.table_schema, self.partition_by or None, **_properties(marks)
            )
            self._table.update_incremental()

        self._commit(write, marks)

    def add_fields(self, schema: pa.Schema, table_schema: pa.Schema) -> None:
        """Add the columns that the table does not have yet; what is stored has no value in them."""
        from deltalake import Schema

        known = {field.name for field in self._table.schema().fields}
        new = [field for field in Schema.from_arrow(table_schema).fields if field.name not in known]
        if new:
            self._commit(lambda: self._table.alter.add_columns(new, **_properties({})), {})
        self.schema, self.table_schema = schema, table_schema

    def delete(self, condition: str) -> None:
        """Remove the rows for which a condition holds."""
        self._commit(lambda: self._table.delete(condition, **_properties({})), {})

    def _commit(self, write: Callable[[], object], marks: Mapping[str, int]) -> None:
        with self.lock:
            self._change(write, marks)

    def _change(self, write: Callable[[], object], marks: Mapping[str, int]) -> None:
        """Make a commit that is durable when this returns, or that is not there."""
        if self.version != self._acknowledged:  # what was refused could not be taken back either
            self._take_back()
        try:
            with telling_storage_errors():
                write()
        except StorageError:
            self._reload()
            if not marks or any(self.mark(name) != number for name, number in marks.items()):
                self._take_back()
                raise  # else the rows are there; what failed came after them
        try:
            self._make_durable()
        except StorageError:
            self._take_back()
            raise

    def _make_durable(self) -> None:
        """Wait until the disk has the newest version, and write it down."""
        with telling_storage_errors():
            first = 0 if self._acknowledged is None else self._acknowledged + 1
            delta_log.sync_commits(self.path, first, self.version)
        self._versions.acknowledge_version(self.path.name, self.version)
        self._acknowledged = self.version

    def _take_back(self) -> None:
        """Return to the version that was acknowledged last."""
        with telling_storage_errors():
            delta_log.take_back(self.path, 0 if self._acknowledged is None else self._acknowledged + 1)
        self._reload()

    def _reload(self) -> None:
        from deltalake import DeltaTable

        with telling_storage_errors():
            self._table = DeltaTable(str(self.path))

    def is_compaction_due(self) -> bool:
        """Whether there are many small files; a start knows it from the table."""
        with self.lock:
            return sum(each.size_bytes < SMALL_FILE_BYTES for each in self.table_files()) >= COMPACT_AFTER_FILES_COUNT

    def compact(self) -> None:
        """Put small files together and remove those that no reader needs."""
        with self.lock:
            self._change(lambda: self._table.optimize.compact(**_properties({})), {})
        self.vacuum()

    def vacuum(self, keep_hours: int = KEEP_OLD_FILES_HOURS) -> None:
        """Remove files that have not been part of the table for some time, and old commits."""
        with self.lock:
            # Only what is on the disk for sure makes old files superfluous.
            self._change(
                lambda: self._table.vacuum(
                    keep_hours, dry_run=False, enforce_retention_duration=False, **_properties({})
                ),
                {},
            )
            with telling_storage_errors():
                self._table.cleanup_metadata()
            self._vacuumed_s = time.monotonic()

    @property
    def since_vacuum_s(self) -> float:
        """How long ago files that nobody needs were removed, in this process."""
        return time.monotonic() - self._vacuumed_s

    def table_files(self) -> list[TableFile]:
        """The files of the newest version, with what the log says of them."""
        import pyarrow as pa

        with self.lock:
            actions = pa.table(self._table.get_add_actions(flatten=False)).to_pylist()
        return [
            TableFile(
                unquote(each["path"]),
                each["size_bytes"],
                each.get("num_records") or 0,
                each.get("min") or {},
                each.get("max") or {},
                each.get("null_count") or {},
                {name: None if value is None else str(value) for name, value in (each.get("partition") or {}).items()},
                _milliseconds(each["modification_time"]),
            )
            for each in actions
        ]

    def files(self) -> tuple[int, list[str]]:
        """The newest version and the Parquet files that hold it."""
        with self.lock:
            return self.version, list(self._table.file_uris())

    def rows_count(self) -> int:
        """How many rows the newest version has."""
        with self.lock:
            return int(self._table.count())

    def read(self, columns: list[str] | None = None, where: Expression | None = None) -> pa.Table:
        """Read rows; files whose statistics exclude the condition are not opened."""
        with self.lock:
            dataset = self._table.to_pyarrow_dataset()
        table: pa.Table = dataset.to_table(columns=columns, filter=where)
        return table

    def batches(self, where: Expression) -> Iterator[pa.Table]:
        """Read rows part by part."""
        import pyarrow as pa

        with self.lock:
            dataset = self._table.to_pyarrow_dataset()
        for batch in dataset.to_batches(columns=self.schema.names, filter=where):
            yield pa.Table.from_batches([batch])


def _milliseconds(moment: int | datetime.datetime) -> int:
    if isinstance(moment, int):
        return moment
    return int(moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() * 1_000)


def _properties(marks: Mapping[str, int]) -> dict[str, Any]:
    """What a commit carries; old commits are not removed with it, for it is not durable yet."""
    from deltalake import CommitProperties, PostCommitHookProperties, Transaction

    transactions = [Transaction(name, number) for name, number in marks.items()]
    transactions.append(Transaction(delta_log.END_MARK, 0))
    return {
        "commit_properties": CommitProperties(app_transactions=transactions),
        "post_commithook_properties": PostCommitHookProperties(cleanup_expired_logs=False),
    }


class telling_storage_errors:  # noqa: N801 (reads as a phrase after `with`)
    """What the disk refuses becomes an error that says so."""

    def __init__(self, what: str = "the disk did not take it") -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        from deltalake.exceptions import DeltaError

        if isinstance(error, (OSError, DeltaError)):
            reason = str(error).partition("\n")[0]
            raise StorageError(f"{self._what}: {reason}") from error
