"""A client's move through brokers, row by row of the table in `broker.moves.transitions`: the files in transcripts/."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.told_broker import ToldBroker
from tests.transcripts import check, row_of, table_in
from trimtab.broker.moves import transitions as moves

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def rows() -> list[str]:
    """The names of the table's rows: whose it is and what happens."""
    found: list[str] = []
    whose = ""
    for role, event in table_in(moves.__doc__ or "", "new broker", (4, 18, 39)):
        whose = role or whose
        found += [f"{whose}: {event}"] if event else []
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_happens_is_what_the_file_tells(file: Path) -> None:
    check(file, ToldBroker)


def test_every_row_of_the_table_has_a_file_and_every_file_a_row() -> None:
    assert sorted(map(row_of, FILES)) == sorted(rows())
