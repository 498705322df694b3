"""The commits of a Delta table as files: made durable, and looked at when a table is opened.

The package deltalake writes Parquet files and then the commit that names them, and does not wait for the disk. So
whoever acknowledges a commit syncs all of them first and writes the version down (`AcknowledgedVersions`).
After a loss of power a commit above that version may be there in part: nobody was told of it, and it is taken back.
At or below that version everything must be whole; if it is not, the disk is damaged, and the table is not opened.

deltalake takes an empty commit file for a commit of nothing, so damage must be looked for here.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote

import msgspec

from trimtab.activedata.errors import StorageError
from trimtab.activedata.storage.durable_files import sync, sync_all

logger = logging.getLogger(__name__)

END_MARK: Final = "end"
"""The last mark of each commit: a file without it was not written to its end."""

TORN_SUFFIX: Final = ".torn"

_LOG: Final = "_delta_log"
_LAST_CHECKPOINT: Final = "_last_checkpoint"

Actions = list[dict[str, Any]]


class AcknowledgedVersions(Protocol):
    """Remembers, durably, up to which version somebody was told that a table's commits are stored."""

    def acknowledged_version(self, table: str) -> int | None:
        """The last version that was written down for a table."""

    def acknowledge_version(self, table: str, version: int) -> None:
        """Write down a version; it is durable when this returns."""


def commit_file(table: Path, version: int) -> Path:
    """Where a commit stands."""
    return table / _LOG / f"{version:020}.json"


def versions_of(table: Path) -> list[int]:
    """The commits that have a file, oldest first."""
    log = table / _LOG
    names = (path.name.removesuffix(".json") for path in log.glob("*.json")) if log.is_dir() else ()
    return sorted(int(name) for name in names if len(name) == 20 and name.isdigit())


def sync_commits(table: Path, first: int, last: int) -> None:
    """Wait until the disk has commits and the files that they brought."""
    changed = [table, table / _LOG]
    for version in range(first, last + 1):
        path = commit_file(table, version)
        if not path.exists():
            continue
        changed.append(path)
        changed += [each for each in added_files(table, read_commit(path)) if each.exists()]  # it may be replaced since
        checkpoint = table / _LOG / f"{version:020}.checkpoint.parquet"
        if checkpoint.exists():
            changed += checkpoint, table / _LOG / _LAST_CHECKPOINT
    sync_all(changed)


def read_commit(path: Path) -> Actions:
    """The actions of a commit; a StorageError names a file that is not whole."""
    try:
        lines = path.read_bytes().split(b"\n")
        actions = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines if line]
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: {error}") from None
    if not actions:
        raise StorageError(f"{path}: it is empty")
    return actions


def added_files(table: Path, actions: Actions) -> list[Path]:
    """The files that a commit brought."""
    return [table / unquote(each["add"]["path"]) for each in actions if "add" in each]


def take_back_torn(table: Path, acknowledged: int | None) -> None:
    """Take back what a loss of power left of commits that nobody was told of.

    Without a version that was acknowledged (a table from before such versions were written down) only the last commit
    may be torn, for each was begun after the one before it had ended.
    """
    versions = versions_of(table)
    if not versions:
        return
    if acknowledged is not None:
        _remove_checkpoints(table, acknowledged + 1)
    first = versions[-1] if acknowledged is None else acknowledged + 1
    for version in range(first, versions[-1] + 1):
        problem = _torn(table, commit_file(table, version), strict=acknowledged is not None)
        if problem:
            logger.warning("%s; this commit was not written to its end and is left out; nobody was told of it", problem)
            take_back(table, version)
            return


def take_back(table: Path, first: int) -> None:
    """Take back commits, of which nobody was told: their files get a name that no reader knows."""
    log = table / _LOG
    _remove_checkpoints(table, first)
    for version in reversed(versions_of(table)):
        if version >= first:
            path = commit_file(table, version)
            path.rename(path.with_name(path.name + TORN_SUFFIX))
    sync(log)


def _remove_checkpoints(table: Path, first: int) -> None:
    """Remove checkpoints that may be torn: they repeat what is in commits, none of which was removed since."""
    hint = table / _LOG / _LAST_CHECKPOINT
    left: set[int] = set()
    for path in (table / _LOG).glob("*.checkpoint*.parquet"):
        if int(path.name[:20]) >= first:
            path.unlink()
        else:
            left.add(int(path.name[:20]))
    try:
        is_right = not hint.exists() or msgspec.json.decode(hint.read_bytes(), type=dict[str, Any])["version"] in left
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        is_right = False
    if not is_right:
        hint.unlink()


def check_commits(table: Path, acknowledged: int | None) -> None:
    """Raise a StorageError if the log is damaged, where deltalake would leave something out without a word."""
    versions = versions_of(table)
    last = versions[-1] if versions else -1
    if acknowledged is not None and last < acknowledged:
        raise StorageError(f"{commit_file(table, last + 1)}: it is missing")
    checkpoint = max((int(path.name[:20]) for path in (table / _LOG).glob("*.checkpoint*.parquet")), default=-1)
    for version in versions:
        if version > checkpoint:
            read_commit(commit_file(table, version))


def check_file(path: Path, size_bytes: int) -> None:
    """Raise a StorageError if a file of a table is missing or has another size than was committed."""
    try:
        found_bytes = path.stat().st_size
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None
    if found_bytes != size_bytes:
        raise StorageError(f"{path}: {found_bytes:,} bytes instead of {size_bytes:,}")


def damaged(table: Path, problem: str) -> StorageError:
    """The error for a table that is not opened: what is wrong, and what to do."""
    return StorageError(
        f"{problem}. The table {table} is damaged and was left as it is: restore the whole active-data directory "
        "from a backup, or begin with an empty one and feed it again"
    )


def _torn(table: Path, path: Path, *, strict: bool) -> str:
    """What is not whole of a commit and of the files that it brought; empty if all is."""
    try:
        actions = read_commit(path)
        if strict and not _has_end(actions):
            return f"{path}: its last lines are missing"
        for each in actions:
            if "add" in each:
                file = table / unquote(each["add"]["path"])
                check_file(file, each["add"]["size"])
                _read_through(file)
    except StorageError as error:
        return str(error)
    return ""


def _has_end(actions: Actions) -> bool:
    info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
    match info.get("operation"):
        case "CREATE TABLE":
            return any("metaData" in each for each in actions)
        case "OPTIMIZE":
            metrics = info["operationMetrics"]
            counts = tuple(sum(kind in each for each in actions) for kind in ("add", "remove"))
            return counts == (int(metrics["numFilesAdded"]), int(metrics["numFilesRemoved"]))
        case "VACUUM START":
            return True
        case _:
            return "txn" in actions[-1] and bool(actions[-1]["txn"]["appId"] == END_MARK)


def _read_through(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            for _ in opened.iter_batches():
                pass
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{file}: {error}") from None
