"""Which keys a dataset has, and what their records say: sorted runs in files that are mapped, not read.

An entry has 16 bytes: 96 bits of the key's fingerprint and 32 of the record's. New entries stand in memory; so many of
them become a run, a file sorted by key in which a binary search looks at a few pages. Runs of like size are merged, so
there are few of them, and of two entries of a key the newer counts. Memory is bounded by what was not made a run yet;
the disk by the records that the dataset keeps, for runs of records that RETAIN has removed are dropped whole.

Runs are a help and not the truth: each says up to which record it knows the table, and what is missing or lost is read
from the table again.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    import numpy as np

    from trimtab.activedata.storage.digests import Words

MEMORY_COUNT: Final = 65_536
"""Entries in memory, at about 150 bytes each."""

RUN_MAX_COUNT: Final = 4_000_000
"""Larger runs are not merged: merging two of half the size takes some 200 MB for a second."""

MERGE_RATIO: Final = 4
"""A run is merged with the one before it unless that is so many times as large."""

BUCKET_BITS: Final = 14

GONE: Final = 0
"""The content of a key that the dataset has no more."""

_HEADER: Final = struct.Struct("<8sQqq32x")
_MAGIC: Final = b"TTKEYS1\0"

Half: TypeAlias = "np.ndarray[Any, np.dtype[np.uint32]]"


class Entries(msgspec.Struct, frozen=True):
    """Keys and the contents of their records; sorted by key in a run."""

    keys: Words
    more: Half
    contents: Half

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self.keys)


class Run(msgspec.Struct, frozen=True):
    """A sorted file of entries of records up to a number and a change."""

    path: Path
    last_sequence: int
    last_change: int
    entries: Entries
    buckets: np.ndarray[Any, np.dtype[np.int64]]
    """Where the keys of each first BUCKET_BITS begin: between two of these lie few pages."""


def sorted_entries(parts: list[Entries], *, without_gone: bool = False) -> Entries:
    """Entries of several parts in the order of their keys; of those with the same key the first part's."""
    import numpy as np

    keys = np.concatenate([each.keys for each in parts])
    more = np.concatenate([each.more for each in parts])
    order = np.argsort(keys, kind="stable")
    keys, more = keys[order], more[order]
    contents = np.concatenate([each.contents for each in parts])[order]
    same = np.flatnonzero(keys[1:] == keys[:-1])
    kept = np.ones(len(keys), dtype=bool)
    for index in same.tolist():  # few: equal in 64 bits
        first = index
        while first >= 0 and keys[first] == keys[index + 1]:
            if more[first] == more[index + 1] and kept[first]:
                kept[index + 1] = False
            first -= 1
    if without_gone:
        kept &= contents != GONE
    if not kept.all():
        keys, more, contents = keys[kept], more[kept], contents[kept]
    return Entries(keys, more, contents)


def write_run(path: Path, entries: Entries, last_sequence: int, last_change: int) -> None:
    """Write a run whose entries are sorted; it is whole under its name or not there."""
    made = path.with_suffix(".made")
    with made.open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, entries.count, last_sequence, last_change))
        for each in (entries.keys, entries.more, entries.contents):
            each.tofile(file)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)


def read_run(path: Path) -> Run | None:
    """Map a run; None if it is not whole."""
    import numpy as np

    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        size_bytes = os.fstat(file.fileno()).st_size
    if len(head) < _HEADER.size:
        return None
    magic, count, last_sequence, last_change = _HEADER.unpack(head)
    if magic != _MAGIC or size_bytes != _HEADER.size + 16 * count:
        return None
    if not count:
        empty = Entries(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint32))
        return Run(path, last_sequence, last_change, empty, np.zeros((1 << BUCKET_BITS) + 1, dtype=np.int64))
    start = _HEADER.size
    keys = np.memmap(path, dtype="<u8", mode="r", offset=start, shape=(count,))
    more = np.memmap(path, dtype="<u4", mode="r", offset=start + 8 * count, shape=(count,))
    contents = np.memmap(path, dtype="<u4", mode="r", offset=start + 12 * count, shape=(count,))
    return Run(path, last_sequence, last_change, Entries(keys, more, contents), _buckets(keys))


def run_in_memory(entries: Entries) -> Run:
    """A run that has no file."""
    return Run(Path(), 0, 0, entries, _buckets(entries.keys))


def _buckets(keys: Words) -> np.ndarray[Any, np.dtype[np.int64]]:
    import numpy as np

    firsts = np.arange(1 << BUCKET_BITS, dtype=np.uint64) << np.uint64(64 - BUCKET_BITS)
    return np.append(np.searchsorted(keys, firsts), len(keys))


class KeyIndex:
    """The keys of one dataset; changed by one thread at a time, merged by another."""

    BULK_SUFFIX: Final = ".bulk"
    """Of runs that tasks write, until they are adopted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._fresh: dict[tuple[int, int], int] = {}
        self._holders_count = 0
        self.runs: list[Run] = []
        for path in sorted(folder.glob("*.run")):
            run = read_run(path)
            if run is None:
                self.clear()
                break
            self.runs.append(run)
        for path in (*folder.glob("*.made"), *folder.glob(f"*{self.BULK_SUFFIX}")):
            path.unlink()
        self._number = max((int(each.path.stem) for each in self.runs), default=0)

    @property
    def covered(self) -> tuple[int, int]:
        """The last record and the last change that the runs know."""
        sequences = max((each.last_sequence for each in self.runs), default=0)
        return sequences, max((each.last_change for each in self.runs), default=0)

    @property
    def count(self) -> int:
        """How many entries there are; a key may have several."""
        return len(self._fresh) + sum(each.entries.count for each in self.runs)

    @property
    def fresh_count(self) -> int:
        """How many entries are in memory."""
        return len(self._fresh)

    @property
    def size_bytes(self) -> int:
        """How much the runs take on the disk."""
        return sum(_HEADER.size + 16 * each.entries.count for each in self.runs)

    def clear(self) -> None:
        """Forget everything, to be made anew."""
        with self._lock:
            self._fresh.clear()
            self.runs.clear()
            for path in self.folder.glob("*.run"):
                path.unlink()

    def find(self, keys: Words, more: Half) -> Half:
        """The contents of keys, GONE (0) for those that are not there."""
        import numpy as np

        with self._lock:
            runs = list(self.runs)
            fresh = self._fresh
            found = np.zeros(len(keys), dtype=np.uint32)
            is_open = np.ones(len(keys), dtype=bool)
            if fresh:
                for index, pair in enumerate(zip(keys.tolist(), more.tolist(), strict=True)):
                    content = fresh.get(pair)
                    if content is not None:
                        found[index] = content
                        is_open[index] = False
        for run in reversed(runs):
            asked = np.flatnonzero(is_open)
            if not len(asked):
                break
            there, contents = find_in(run, keys[asked], more[asked])
            found[asked[there]] = contents
            is_open[asked[there]] = False
        return found

    def add(self, entries: Entries, last_sequence: int, last_change: int) -> None:
        """Add entries that the table has; many become a run at once."""
        with self._lock:
            if entries.count < MEMORY_COUNT:
                pairs = zip(entries.keys.tolist(), entries.more.tolist(), strict=True)
                self._fresh.update(zip(pairs, entries.contents.tolist(), strict=True))
            if entries.count >= MEMORY_COUNT or len(self._fresh) >= MEMORY_COUNT:
                self.flush(last_sequence, last_change, entries if entries.count >= MEMORY_COUNT else None)

    def flush(self, last_sequence: int, last_change: int, newer: Entries | None = None) -> None:
        """Make what is in memory, and what is newer, a run that covers the table up to a record and a change."""
        import numpy as np

        with self._lock:
            if not self._fresh and newer is None and (last_sequence, last_change) == self.covered:
                return
            size = len(self._fresh)
            keys = np.fromiter((key for key, _ in self._fresh), dtype=np.uint64, count=size)
            more = np.fromiter((each for _, each in self._fresh), dtype=np.uint32, count=size)
            contents = np.fromiter(self._fresh.values(), dtype=np.uint32, count=size)
            parts = [Entries(keys, more, contents)]
            entries = sorted_entries(parts if newer is None else [newer, *parts])
            self._append_run(entries, last_sequence, last_change)
            self._fresh = {}

    def _append_run(self, entries: Entries, last_sequence: int, last_change: int) -> None:
        self._number += 1
        path = self.folder / f"{self._number:012}.run"
        write_run(path, entries, last_sequence, last_change)
        run = read_run(path)
        assert run is not None
        self.runs.append(run)

    def adopt(self, paths: list[Path], last_sequence: int, last_change: int) -> None:
        """Take over runs that tasks wrote; what is in memory becomes a run before them."""
        with self._lock:
            self.flush(last_sequence, last_change)
            for path in paths:
                self._number += 1
                target = self.folder / f"{self._number:012}.run"
                with path.open("r+b") as file:
                    magic, count, _, _ = _HEADER.unpack(file.read(_HEADER.size))
                    file.seek(0)
                    file.write(_HEADER.pack(magic, count, last_sequence, last_change))
                    file.flush()
                    os.fsync(file.fileno())
                path.replace(target)
                run = read_run(target)
                if run is not None:
                    self.runs.append(run)

    @contextmanager
    def held(self, last_sequence: int, last_change: int) -> Iterator[list[Run]]:
        """Runs with everything that is known, whose files stay as long as tasks read them."""
        with self._lock:
            self.flush(last_sequence, last_change)
            self._holders_count += 1
            runs = list(self.runs)
        try:
            yield runs
        finally:
            with self._lock:
                self._holders_count -= 1

    def _is_held(self) -> bool:
        return self._holders_count > 0

    def drop_up_to(self, sequence: int) -> None:
        """Drop the runs whose records are all gone; not while tasks read runs."""
        with self._lock:
            if self._is_held():
                return
            dropped = [each for each in self.runs[:-1] if each.last_sequence <= sequence]
            self.runs = [each for each in self.runs if each not in dropped]
            for each in dropped:
                each.path.unlink()

    def merge(self) -> bool:
        """Merge two neighbouring runs if there are such of like size; answers whether it did."""
        with self._lock:
            if self._is_held():
                return False
            runs = list(self.runs)
        pair = _to_merge([each.entries.count for each in runs])
        if pair is None:
            return False
        older, newer = runs[pair], runs[pair + 1]
        entries = sorted_entries([newer.entries, older.entries], without_gone=pair == 0)
        with self._lock:
            if self._is_held() or older not in self.runs or newer not in self.runs:
                return False
            sequence = max(older.last_sequence, newer.last_sequence)
            write_run(newer.path, entries, sequence, max(older.last_change, newer.last_change))
            run = read_run(newer.path)
            assert run is not None
            index = self.runs.index(older)
            self.runs[index : index + 2] = [run]
            older.path.unlink()
        return True


def find_in(run: Run, keys: Words, more: Half) -> tuple[Any, Half]:
    """Which of these keys a run has (their indices), and the contents there.

    A binary search of all keys at once, each within the bucket of its first bits.
    """
    import numpy as np

    run_keys, run_more, run_contents = (np.asarray(each) for each in msgspec.structs.astuple(run.entries))
    bucket = (keys >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
    low, high = run.buckets[bucket], run.buckets[bucket + 1]
    end = high
    while True:
        is_open = low < high
        if not is_open.any():
            break
        middle = (low + high) >> 1
        is_below = is_open & (run_keys[np.where(is_open, middle, 0)] < keys)
        low = np.where(is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    there = np.zeros(len(keys), dtype=bool)
    asked = np.flatnonzero(low < end)
    while len(asked):
        at = low[asked]
        same = run_keys[at] == keys[asked]
        right = same & (run_more[at] == more[asked])
        there[asked[right]] = True
        asked = asked[same & ~right]  # equal in 64 bits only: the next one may be it
        low[asked] += 1
        asked = asked[low[asked] < end[asked]]
    found = np.flatnonzero(there)
    return found, np.asarray(run_contents[low[found]])


def _to_merge(counts: list[int]) -> int | None:
    for index in range(len(counts) - 2, -1, -1):
        older, newer = counts[index], counts[index + 1]
        if older + newer <= RUN_MAX_COUNT and older <= MERGE_RATIO * max(newer, 1):
            return index
    return None
