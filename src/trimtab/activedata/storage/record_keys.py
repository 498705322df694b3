"""The keys of a dataset's records: which of a batch are new, which came before, and which contradict.

What tasks of Spark need of it (`record_entries`, `judged`) depends on values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trimtab.activedata.storage.digests import fingerprints
from trimtab.activedata.storage.key_index import GONE, Entries, Half, KeyIndex

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Flags = np.ndarray[Any, np.dtype[np.bool_]]


def record_entries(table: pa.Table, keys: Sequence[str], fields: Sequence[str], seed: int) -> Entries:
    """The fingerprints of records' keys and contents.

    A field counts only if it has a value: so a dataset may get further fields, and what it knows stays right.
    """
    import numpy as np

    wide = fingerprints(table, keys, seed)
    more = (fingerprints(table, keys, seed ^ 0xA5A5A5A5) >> np.uint64(32)).astype(np.uint32)
    contents = np.zeros(table.num_rows, dtype=np.uint64)
    for number, name in enumerate(fields):
        each = fingerprints(table, [name], (seed + number * 0x9E3779B97F4A7C15) % (1 << 64))
        missing = table[name].is_null().combine_chunks().to_numpy(zero_copy_only=False)
        contents += np.where(missing, np.uint64(0), each)
    said = (contents >> np.uint64(32)).astype(np.uint32)
    said[said == GONE] = 1
    return Entries(wide, more, said)


def judged(entries: Entries, known: Half) -> tuple[Flags, int, list[int]]:
    """Which records are new, how many came before, and the places of those that contradict one with their key.

    `known` are the contents that were stored for the keys before; within the batch the first of a key counts.
    """
    import numpy as np

    is_fresh = known == GONE
    contradicts = ~is_fresh & (known != entries.contents)
    repeated_count = int((~is_fresh & ~contradicts).sum())
    refused = np.flatnonzero(contradicts).tolist()
    fresh = np.flatnonzero(is_fresh)
    if len(np.unique(entries.keys[fresh])) < len(fresh):
        seen: dict[tuple[int, int], int] = {}
        for index in fresh.tolist():
            pair = (int(entries.keys[index]), int(entries.more[index]))
            content = int(entries.contents[index])
            before = seen.get(pair)
            if before is None:
                seen[pair] = content
                continue
            is_fresh[index] = False
            if before == content:
                repeated_count += 1
            else:
                refused.append(index)
    return is_fresh, repeated_count, sorted(refused)


class RecordKeys:
    """The keys of one dataset."""

    def __init__(self, index: KeyIndex, keys: Sequence[str], fields: Sequence[str], seed: int) -> None:
        self.index = index
        self.seed = seed
        self._keys = list(keys)
        self._fields = list(fields)

    def set_fields(self, fields: Sequence[str]) -> None:
        """The dataset has further fields, behind those that it had."""
        self._fields = list(fields)

    def entries(self, table: pa.Table) -> Entries:
        """The fingerprints of records."""
        return record_entries(table, self._keys, self._fields, self.seed)

    def judge(self, entries: Entries) -> tuple[Flags, int, list[int]]:
        """Which records are new, how many came before, and the places of those that contradict one with their key."""
        return judged(entries, self.index.find(entries.keys, entries.more))

    def add(self, entries: Entries, which: Flags | None, last_sequence: int, last_change: int) -> None:
        """Remember records, all or some."""
        if which is not None:
            entries = Entries(entries.keys[which], entries.more[which], entries.contents[which])
        self.index.add(entries, last_sequence, last_change)

    def remove(self, entries: Entries, last_sequence: int, last_change: int) -> None:
        """Forget records."""
        import numpy as np

        self.index.add(
            Entries(entries.keys, entries.more, np.full(entries.count, GONE, dtype=np.uint32)),
            last_sequence,
            last_change,
        )
