"""What happened in a simulation, boiled down to a hash: same seed, same hash."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

_BATCH_COUNT: Final = 1_024


class Trace:
    """Records are hashed in order, many at a time.

    >>> one, other = Trace(), Trace()
    >>> one.add((0.5, "deliver", "alice", 7)), other.add((0.5, "deliver", "alice", 8))
    (None, None)
    >>> one.hexdigest() == other.hexdigest(), one.count
    (False, 1)
    """

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._batch: list[tuple[object, ...]] = []
        self._encode = msgspec.msgpack.Encoder().encode
        self._hashed_count = 0

    def add(self, record: tuple[object, ...]) -> None:
        """Note a record of numbers and strings."""
        self._batch.append(record)
        if len(self._batch) >= _BATCH_COUNT:
            self._flush()

    @property
    def count(self) -> int:
        """Records so far."""
        return self._hashed_count + len(self._batch)

    def hexdigest(self) -> str:
        """The hash of all records so far."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update(self._encode(self._batch))
        self._hashed_count += len(self._batch)
        self._batch.clear()
