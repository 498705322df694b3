"""Taking records into a dataset so that one that cannot be stored keeps no other from being stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.storage.datasets import Row, StoredDataset

Origin = TypeVar("Origin")


class TakenRecords(Generic[Origin]):
    """How many records were added, how many were there already, and where those that were refused came from."""

    def __init__(self) -> None:
        self.accepted_count = 0
        self.repeated_count = 0
        self.refused: list[tuple[Origin, str]] = []


def take_in_halves(
    dataset: StoredDataset,
    rows: Sequence[tuple[Row, Origin]],
    marks_of: Callable[[Sequence[Origin]], Mapping[str, int]] | None = None,
) -> TakenRecords[Origin]:
    """Store rows in one commit; if something in them cannot be stored, in halves, until it is alone and refused.

    `marks_of` gives the marks of a commit for the origins of the rows in it.
    """
    taken: TakenRecords[Origin] = TakenRecords()
    _take(dataset, rows, marks_of, taken)
    return taken


def _take(
    dataset: StoredDataset,
    rows: Sequence[tuple[Row, Origin]],
    marks_of: Callable[[Sequence[Origin]], Mapping[str, int]] | None,
    taken: TakenRecords[Origin],
) -> None:
    origins = [origin for _, origin in rows]
    try:
        found = dataset.take([row for row, _ in rows], marks_of(origins) if marks_of else {})
    except (ActiveDataError, OSError):
        raise
    except Exception as error:
        if len(rows) == 1:
            taken.refused.append((origins[0], f"{type(error).__name__}: {error}"))
            return
        half = len(rows) // 2
        _take(dataset, rows[:half], marks_of, taken)
        _take(dataset, rows[half:], marks_of, taken)
        return
    taken.accepted_count += found.accepted_count
    taken.repeated_count += found.repeated_count
    taken.refused += [(origins[index], reason) for index, reason in found.refused]
