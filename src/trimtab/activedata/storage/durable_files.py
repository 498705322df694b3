"""Files that are on the disk for sure: what survives a loss of power, and not only the end of the process.

A file is there after a loss of power when its content was synced and the folder that its name is new in was synced.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

AT_ONCE_COUNT: Final = 8
"""Syncs that are asked for together cost the disk little more than one."""

_threads: Final = ThreadPoolExecutor(AT_ONCE_COUNT, thread_name_prefix="sync")


def sync(path: Path) -> None:
    """Wait until the disk has a file's content, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Iterable[Path]) -> None:
    """Wait until the disk has all of these files and folders; they are synced at the same time."""
    for _ in _threads.map(sync, list(paths)):
        pass


def make_folder(folder: Path) -> None:
    """Make a folder and those that it is in, so that they are there after a loss of power, too."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync(each.parent)
