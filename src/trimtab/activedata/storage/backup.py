"""Backups of a directory of active data, also while it is in use, and their way back.

The catalog is copied first, then each table's log, then the files that the log names. Files never change and are
written before the log names them, so the copy of a table is a version of it at or above the one that the catalog
acknowledges: what a start takes as whole. Runs of keys are not copied; they are made from the tables again.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Final

import msgspec

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.storage.durable_files import make_folder, sync, sync_all
from trimtab.activedata.storage.stored_data import StoredData

CATALOG: Final = "catalog.sqlite"
LOG: Final = "_delta_log"
TRIES_COUNT: Final = 5
"""A log whose old commits are removed while it is copied is copied again."""


class BackupFigures(msgspec.Struct, frozen=True):
    """What was copied."""

    tables_count: int
    files_count: int
    size_bytes: int


def back_up(directory: Path, target: Path) -> BackupFigures:
    """Copy a directory to one that does not exist yet, and open the copy to see that it is whole."""
    if not (directory / CATALOG).is_file():
        raise ActiveDataError(f"{directory} is no directory of active data: it has no {CATALOG}")
    _must_be_new(target)
    make_folder(target)
    try:
        return _copied(directory, target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def restore(backup: Path, directory: Path) -> BackupFigures:
    """Make a directory from a backup; the directory must not exist yet."""
    return back_up(backup, directory)


def _must_be_new(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ActiveDataError(f"{target} exists already: name a directory that does not, or move it away")


def _copied(directory: Path, target: Path) -> BackupFigures:
    _copy_catalog(directory / CATALOG, target / CATALOG)
    tables = [log.parent for log in (*directory.glob(f"*/{LOG}"), *directory.glob(f"datasets/*/{LOG}"))]
    files_count = 0
    for table in tables:
        files_count += _copy_table(table, target / table.relative_to(directory))
    StoredData(target).close()
    size_bytes = sum(each.stat().st_size for each in target.rglob("*") if each.is_file())
    return BackupFigures(len(tables), files_count, size_bytes)


def _copy_catalog(source: Path, target: Path) -> None:
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as read,
            contextlib.closing(sqlite3.connect(target)) as written,
        ):
            read.backup(written)
    except sqlite3.DatabaseError as error:
        raise ActiveDataError(f"{source}: {error}") from None
    sync(target)


def _copy_table(table: Path, target: Path) -> int:
    for _ in range(TRIES_COUNT):
        shutil.rmtree(target, ignore_errors=True)
        try:
            shutil.copytree(table / LOG, target / LOG)
            break
        except (FileNotFoundError, shutil.Error) as error:
            problem = str(error)
    else:
        raise ActiveDataError(f"{table / LOG} changes while it is copied: {problem}")
    count = 0
    for path in _named_files(target):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(table / path, target / path)
        count += 1
    copied = [each for each in target.rglob("*") if each.is_file()]
    sync_all([*copied, *(each for each in target.rglob("*") if each.is_dir()), target])
    return count


def _named_files(table: Path) -> list[str]:
    """The files of the newest version of a table."""
    from urllib.parse import unquote

    import pyarrow as pa
    from deltalake import DeltaTable

    actions = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))
    return [unquote(path) for path in actions["path"].to_pylist()]
