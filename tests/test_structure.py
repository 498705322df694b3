"""The shape of the source tree: sizes of modules and folders, and the words that names are made of."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[1] / "src" / "trimtab"
MODULES: Final = sorted(SOURCE.rglob("*.py"))

LINES_MAX_COUNT: Final = 600
LONGER: Final = {
    "activedata/active.py": 660,
    "activedata/definitions/statements.py": 610,
    "activedata/storage/catalog.py": 620,
    "broker/core.py": 620,
    "network/server/broker_process.py": 610,
}
"""Modules that are over it and must not grow."""
MODULES_MAX_COUNT: Final = 25

NOT_IN_NAMES: Final = frozenset(
    {
        "absent",
        "common",
        "early",
        "fruitless",
        "gate",
        "gatekeeper",
        "held",
        "helper",
        "helpers",
        "kept",
        "life",
        "lives",
        "manager",
        "misc",
        "mistake",
        "momentary",
        "prepared",
        "protection",
        "room",
        "rooms",
        "succession",
        "telling",
        "turn",
        "turns",
        "twin",
        "util",
        "utils",
    }
)
"""Words that say nothing to an engineer of the field, or mean something else there."""

MEANT_TWICE: Final = frozenset({"Action", "Capacity", "Ended", "Host", "Place", "Plan", "Received"})
"""Class names that have meant two things: one class may have each, others say what they are of."""

EXCEPTED: Final = frozenset({"PreparedQueries", "ValueMistake", "telling_storage_errors"})
"""A prepared query is a term of databases; a mistake in a value is a user's own; a context manager is called."""


def classes_of(text: str) -> list[str]:
    """The names of all classes."""
    return [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]


def words_of(name: str) -> set[str]:
    """The words of a module's or class's name.

    >>> sorted(words_of("kept_link")), sorted(words_of("BrokerRoom2"))
    (['kept', 'link'], ['broker', 'room'])
    """
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def test_no_module_is_too_long() -> None:
    sizes = {str(file.relative_to(SOURCE)): len(file.read_text("utf-8").splitlines()) for file in MODULES}
    assert {name: count for name, count in sizes.items() if count > LONGER.get(name, LINES_MAX_COUNT)} == {}, (
        "split it by meaning"
    )


def test_no_folder_has_too_many_modules() -> None:
    counts = {str(folder.relative_to(SOURCE)): 0 for folder in {file.parent for file in MODULES}}
    for file in MODULES:
        counts[str(file.parent.relative_to(SOURCE))] += 1
    assert {name: count for name, count in counts.items() if count > MODULES_MAX_COUNT} == {}, "make sub-packages"


def test_names_of_modules_and_classes_are_words_of_the_field() -> None:
    found = {}
    for file in MODULES:
        names = [file.stem, *classes_of(file.read_text("utf-8"))]
        for name in names:
            words = words_of(name) & NOT_IN_NAMES
            if words and name not in EXCEPTED:
                found[f"{file.relative_to(SOURCE)}: {name}"] = words
    assert found == {}


def test_a_name_that_has_meant_two_things_is_qualified() -> None:
    names = [name for file in MODULES for name in classes_of(file.read_text("utf-8")) if name in MEANT_TWICE]
    assert len(names) == len(set(names)), names
