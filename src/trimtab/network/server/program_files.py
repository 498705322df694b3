"""Whether the program on the disk is still the one that runs, so that a broker can begin again without loading it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeAlias

Files: TypeAlias = dict[str, tuple[int, int, int]]
"""Files by path: when each was written, its size and its number on the disk."""


def loaded_files() -> Files:
    """The files of all modules that are loaded, and the interpreter, as they are on the disk."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())} | {sys.executable}
    return {path: found for path in paths if path and (found := _seen(path)) is not None}


def are_unchanged(files: Files) -> bool:
    """Whether these files are on the disk as they were.

    >>> are_unchanged(loaded_files())
    True
    >>> are_unchanged({"/no/such/file.py": (0, 0, 0)})
    False
    """
    return all(_seen(path) == found for path, found in files.items())


def _seen(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
