"""Checks a log without touching it: what is in each file, and what of it is not whole.

Nothing is locked or written, so a log may be checked while a broker writes it; what is being written then looks like a
torn tail.
"""

from __future__ import annotations

from pathlib import Path, PurePath

import msgspec

from trimtab.broker.log.log_contents import Damage, LogContents, PublicationLogError
from trimtab.network.server.publication_log import files_set_aside, log_files


class FileReport(msgspec.Struct, frozen=True):
    """What is in one file of a log."""

    name: str
    size_bytes: int = 0
    version: int = 0
    """The version of its format; 0 if nothing was recognised."""
    records: dict[str, int] = {}
    """How many records of each kind."""
    unended_count: int = 0
    """Publications in it that have not ended."""
    torn: Damage | None = None
    """What was not written to its end, which is normal after a crash."""
    damage: tuple[Damage, ...] = ()
    problem: str = ""
    """Why it cannot be read, if so."""


class LogReport(msgspec.Struct, frozen=True):
    """What is in the log of one broker."""

    folder: str
    files: tuple[FileReport, ...]
    set_aside: tuple[str, ...] = ()
    """Files that a start has found damaged and has kept."""

    @property
    def is_damaged(self) -> bool:
        """Whether something in it cannot be read that should be."""
        return any(file.damage or file.problem for file in self.files)


def verify(folder: Path) -> list[LogReport]:
    """Check the log in a folder, or those in its folders; raises `PublicationLogError` if there is none."""
    try:
        folders = [folder, *sorted(each for each in folder.iterdir() if each.is_dir())]
    except OSError as error:
        raise PublicationLogError(f"{folder}: {error.strerror}") from None
    found: list[LogReport] = []
    for each in folders:
        try:
            paths, aside = log_files(each), files_set_aside(each)
        except OSError as error:
            if each == folder:
                raise PublicationLogError(f"{each}: {error.strerror}") from None
            found.append(LogReport(str(each), (FileReport("", problem=error.strerror or str(error)),)))
            continue
        if paths or aside:
            found.append(_verify(each, paths, aside))
    if not any(report.files or report.set_aside for report in found):
        raise PublicationLogError(f"{folder}: no log; expected files such as 000000000001.log, or folders with them")
    return found


def _verify(folder: Path, paths: list[Path], aside: list[Path]) -> LogReport:
    contents = LogContents()
    problems: dict[Path, str] = {}
    for path in paths:
        if path.exists() and not path.is_file():
            problems[path] = "cannot be read: not a regular file"
            continue
        try:
            contents.take(path, path.read_bytes(), is_last=path == paths[-1])
        except FileNotFoundError:
            continue  # a broker that writes this log has deleted it
        except OSError as error:
            problems[path] = f"cannot be read: {error.strerror}"
        except PublicationLogError as error:
            problems[path] = str(error).removeprefix(f"{path} ")
    reports: dict[PurePath, FileReport] = {
        path: FileReport(path.name, problem=problem) for path, problem in problems.items()
    }
    for file in contents.files:
        reports[file.path] = FileReport(
            file.path.name,
            file.size_bytes,
            file.version,
            file.counts,
            sum(contents.is_wanted(key) for key in set(file.keys)),
            file.torn,
            tuple(file.damage),
        )
    files = tuple(reports[path] for path in paths if path in reports)
    return LogReport(str(folder), files, tuple(path.name for path in aside))
