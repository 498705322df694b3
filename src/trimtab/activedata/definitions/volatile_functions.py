"""Functions whose value belongs to a moment, so that a query with them must be planned anew each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_MOMENTARY: Final = frozenset(
    (
        "curdate",
        "current_date",
        "current_time",
        "current_timestamp",
        "input_file_name",
        "localtimestamp",
        "monotonically_increasing_id",
        "now",
        "rand",
        "randn",
        "random",
        "randstr",
        "shuffle",
        "spark_partition_id",
        "uniform",
        "unix_timestamp",
        "uuid",
    )
)


def is_lasting(words: Sequence[str]) -> bool:
    """Whether a body means the same whenever it runs.

    >>> is_lasting(["r", "x"]), is_lasting(["r", "now"])
    (True, False)
    """
    return not any(word.lower() in _MOMENTARY for word in words)
