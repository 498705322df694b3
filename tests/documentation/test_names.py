"""The names in backticks that documentation uses exist, and a name that does not would be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from mkdocs_names import unknown_names

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_only_what_exists(page: Path) -> None:
    assert unknown_names(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", ["no_" + "such_key", "Filter.par" + "sing", "gone" + "_module.py", "do" + "IsNot()"])
def test_a_name_of_nothing_is_found(name: str) -> None:
    assert unknown_names(f"Call `{name}` first.") == [name]


def test_blocks_plain_words_and_data_files_are_no_names() -> None:
    assert unknown_names("    `not_in" + "_blocks`\n\n`padres`, `network.toml`, `volume > 3`, `NAME`") == []
