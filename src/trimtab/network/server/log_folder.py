"""The folder of a broker's log: which files are in it, in which order, and which were set aside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DAMAGED_SUFFIX: Final = ".damaged"
"""Behind the name of a file that was found damaged: it is kept, and read no more."""

_FILE_NAME: Final = re.compile(r"(\d{12})\.log(\.damaged.*)?")


def log_files(folder: Path) -> list[Path]:
    """The files of a log, the earliest first; raises OSError."""
    return [folder / name for name in _names(folder) if not name.endswith(DAMAGED_SUFFIX) and name.endswith(".log")]


def files_set_aside(folder: Path) -> list[Path]:
    """Files that a start has found damaged; raises OSError."""
    return [folder / name for name in _names(folder) if not name.endswith(".log")]


def next_number(folder: Path) -> int:
    """The number of a log's next file: above all, also of those that were set aside."""
    return max((int(name[:12]) for name in _names(folder)), default=0) + 1


def _names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if _FILE_NAME.fullmatch(each.name))
