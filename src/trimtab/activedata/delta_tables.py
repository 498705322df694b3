"""One Delta table on disk with one writer: commits that are whole or not there, and what a commit remembers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trimtab.activedata.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyarrow.compute import Expression

COMPACT_AFTER_COMMITS_COUNT: Final = 250
"""Small files are put together after so many commits, so that readers open few."""

KEEP_OLD_FILES_HOURS: Final = 1
"""A reader that began before files were put together has so long to end."""


class DeltaStore:
    """A Delta table that this process alone writes.

    A commit may carry marks (name -> number), which become visible together with its rows and stay readable:
    how far a channel has come, how many records a dataset has.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        from deltalake import DeltaTable

        self.path = path
        self.schema = schema
        self.lock = threading.RLock()
        if not DeltaTable.is_deltatable(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _telling_storage_errors():
                DeltaTable.create(str(path), schema, mode="ignore")
        self._table: DeltaTable = DeltaTable(str(path))
        self._commits_count = 0

    @property
    def version(self) -> int:
        """The number of the newest commit."""
        return int(self._table.version())

    def mark(self, name: str) -> int | None:
        """The number that the last commit with this mark carried."""
        found = self._table.transaction_version(name)
        return None if found is None else int(found)

    def append(self, rows: pa.Table, marks: Mapping[str, int]) -> None:
        """Add rows in one commit; when this returns they are there, and if it raises none of them is."""
        from deltalake import write_deltalake

        def write() -> None:
            write_deltalake(self._table, rows, mode="append", commit_properties=_properties(marks))

        self._commit(write, marks)

    def upsert(self, rows: pa.Table, key: str, marks: Mapping[str, int]) -> None:
        """Add rows, each instead of the one with the same key, in one commit."""

        def write() -> None:
            merge = self._table.merge(
                rows,
                predicate=f"old.`{key}` = new.`{key}`",
                source_alias="new",
                target_alias="old",
                commit_properties=_properties(marks),
            )
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

        self._commit(write, marks)

    def delete(self, condition: str) -> None:
        """Remove the rows for which a condition holds."""
        with self.lock, _telling_storage_errors():
            self._table.delete(condition)

    def _commit(self, write: Any, marks: Mapping[str, int]) -> None:
        with self.lock:
            try:
                with _telling_storage_errors():
                    write()
            except StorageError:
                self._reload()
                if marks and all(self.mark(name) == number for name, number in marks.items()):
                    return  # the rows are there; what failed came after them
                raise
            self._commits_count += 1
            if self._commits_count % COMPACT_AFTER_COMMITS_COUNT == 0:
                self.compact()

    def _reload(self) -> None:
        from deltalake import DeltaTable

        with _telling_storage_errors():
            self._table = DeltaTable(str(self.path))

    def compact(self) -> None:
        """Put small files together and remove those that no reader needs."""
        with self.lock, _telling_storage_errors():
            self._table.optimize.compact()
            self._table.vacuum(KEEP_OLD_FILES_HOURS, dry_run=False, enforce_retention_duration=False)

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


def _properties(marks: Mapping[str, int]) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(name, number) for name, number in marks.items()])


class _telling_storage_errors:  # noqa: N801 (reads as a phrase after `with`)
    """What the disk refuses becomes an error that says so."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        from deltalake.exceptions import DeltaError

        if isinstance(error, (OSError, DeltaError)):
            raise StorageError(f"the disk did not take it: {error}") from error
