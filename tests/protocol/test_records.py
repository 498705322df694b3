"""The tables of records: what they hold, and that docs/records.md tells it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from trimtab.broker.peers import Counters
from trimtab.load.indices import LoadIndices
from trimtab.protocol.records import TABLES, LoadRecord, columns_of

PAGE = Path(__file__).parents[2] / "docs" / "records.md"


def test_a_load_record_holds_all_load_indices_and_counters() -> None:
    assert {*LoadIndices.__struct_fields__, *Counters.__struct_fields__} <= set(LoadRecord.__struct_fields__)


@pytest.mark.parametrize("table", TABLES)
def test_the_documentation_tells_every_column(table: str) -> None:
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {table}\n")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    kinds = [
        (column, f"{column.kind}, may be missing" if column.may_be_missing else column.kind)
        for column in columns_of(table)
    ]
    assert told == [(column.name, kind, column.description) for column, kind in kinds]


@pytest.mark.parametrize("table", TABLES)
def test_quantities_carry_their_unit(table: str) -> None:
    units = ("_s", "_per_s", "_ratio", "_count", "_bytes", "sequence", "hops", "first", "last")
    for column in columns_of(table):
        assert column.kind == "text" or column.name.endswith(units), column.name


@pytest.mark.parametrize("kind", TABLES.values())
def test_records_are_frozen(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen
