"""The language's page in docs/ tells the truth: its examples run, its limits are those of the code."""

import doctest
import re
from pathlib import Path

from trimtab.language import limits
from trimtab.language.predicates import OPERATOR_NAMES

PAGE = Path(__file__).parents[2] / "docs" / "language.md"


def test_the_examples_run() -> None:
    result = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert result.attempted > 20
    assert result.failed == 0


def test_the_table_of_limits_is_complete_and_right() -> None:
    rows = re.findall(r"\(`([A-Z_]+)`\) *\| *(-?[\d,]+) *\|", PAGE.read_text(encoding="utf-8"))
    documented = {name: int(value.replace(",", "")) for name, value in rows}
    assert documented == {name: value for name, value in vars(limits).items() if name.isupper()}


def test_every_operator_is_documented() -> None:
    page = PAGE.read_text(encoding="utf-8").lower()
    assert [name for name in OPERATOR_NAMES if f",{name}," not in page] == []
