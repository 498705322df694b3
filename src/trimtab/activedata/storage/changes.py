"""Changes of a dataset's records that stand beside its base: the newest of each key, until they are folded in.

A record that takes another's place, or is deleted, is one small row in a file of its own, with the number of its
change; the file with the old record stays as it is. Readers leave out of the base what has the key of a change, and add
the changes that are no deletions. So an upsert of one row costs one row, however large the dataset is. When there are
many changes the base is written anew where they concern it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from trimtab.activedata.storage.digests import Words, fingerprints

if TYPE_CHECKING:
    import pyarrow as pa

CHANGE: Final = "_change"
DELETED: Final = "_deleted"

CHANGES_MIN_COUNT: Final = 1_000
CHANGES_MAX_COUNT: Final = 20_000
"""Changes that are kept beside a base: up to a quarter of its rows, but at least and at most so many."""


class Changes:
    """The newest change of each key, in the memory of the driver."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._schema = schema
        self._keys = list(keys)
        self._rows: dict[int, dict[str, Any]] = {}
        self._table: pa.Table | None = None
        self._seed = int.from_bytes(os.urandom(8))
        self.last_change = 0

    @property
    def count(self) -> int:
        """How many keys have a change."""
        return len(self._rows)

    def count_with(self, table: pa.Table) -> int:
        """How many there would be with these."""
        return len(self._rows.keys() | set(self._fingerprints(table).tolist()))

    def add(self, table: pa.Table) -> None:
        """Take in changes (rows of the table with `_change` and `_deleted`); of a key the newest counts."""
        for number, row in zip(self._fingerprints(table).tolist(), table.to_pylist(), strict=True):
            known = self._rows.get(number)
            if known is None or known[CHANGE] <= row[CHANGE]:
                self._rows[number] = row
            self.last_change = max(self.last_change, row[CHANGE])
        self._table = None

    def clear(self) -> None:
        """They are in the base."""
        self._rows.clear()
        self._table = None

    @property
    def table(self) -> pa.Table:
        """All of them as rows of the table, deletions too."""
        import pyarrow as pa

        if self._table is None:
            self._table = pa.Table.from_pylist(list(self._rows.values()), schema=self._schema)
        return self._table

    @property
    def live(self) -> pa.Table:
        """Those that are no deletions."""
        import pyarrow.compute as pc

        return self.table.filter(pc.invert(pc.fill_null(self.table[DELETED], False)))

    def without_changed(self, base: pa.Table) -> pa.Table:
        """The rows of the base whose keys have no change."""
        import numpy as np
        import pyarrow as pa

        if not self._rows or not base.num_rows:
            return base
        changed = np.isin(self._fingerprints(base), self._numbers())
        return base.filter(pa.array(~changed)) if changed.any() else base

    def _numbers(self) -> Words:
        import numpy as np

        return np.fromiter(self._rows, dtype=np.uint64, count=len(self._rows))

    def _fingerprints(self, table: pa.Table) -> Words:
        return fingerprints(table, self._keys, self._seed)


def kept_beside_count(base_rows_count: int) -> int:
    """How many changes may stand beside a base of so many rows."""
    return max(CHANGES_MIN_COUNT, min(CHANGES_MAX_COUNT, base_rows_count // 4))
