"""The dead letters: records that could not be taken or evaluated, as they came, with the reason."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from trimtab.activedata.storage.delta_log import AcknowledgedVersions
from trimtab.activedata.storage.delta_tables import DeltaStore

RECORD_MAX_CHARS: Final = 100_000
"""More of a record than this is not kept."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A record as text, where it came from, and why it was not taken."""

    feed: str
    source: str
    place: int
    reason: str
    record: str


class DeadLetters:
    """The table of dead letters, which queries see as `dead_letters`."""

    def __init__(self, directory: Path, versions: AcknowledgedVersions) -> None:
        import pyarrow as pa

        columns = [("feed", pa.string()), ("source", pa.string()), ("place", pa.int64()), ("reason", pa.string())]
        self.schema = pa.schema([*columns, ("record", pa.string()), ("time_us", pa.int64())])
        self.store = DeltaStore(directory, self.schema, versions)

    def add(self, letters: list[DeadLetter], marks: dict[str, int] | None = None) -> None:
        """Keep letters; with a mark, those that the table has already (from before a crash) are not added again."""
        import pyarrow as pa

        known = {name: self.store.mark(name) or 0 for name in marks or {}}
        if not letters or any(number <= known[name] for name, number in (marks or {}).items()):
            return
        now_us = int(time.time() * 1e6)
        columns: list[list[object]] = [
            [each.feed for each in letters],
            [each.source for each in letters],
            [each.place for each in letters],
            [each.reason for each in letters],
            [each.record[:RECORD_MAX_CHARS] for each in letters],
            [now_us] * len(letters),
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        self.store.append(pa.Table.from_arrays(arrays, schema=self.schema), marks or {})
