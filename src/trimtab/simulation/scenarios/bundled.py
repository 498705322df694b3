"""Scenarios and studies that come with the package, as the text of their files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path


def shipped_texts(package: str, folder: str) -> dict[str, str]:
    """The texts in a folder of a package by name, in the order of the names.

    >>> "figure-2-2" in shipped_texts("trimtab.simulation", "scenarios")
    True
    """
    found = [each for each in (resources.files(package) / folder).iterdir() if each.name.endswith(".toml")]
    return {each.name.removesuffix(".toml"): each.read_text("utf-8") for each in sorted(found, key=lambda f: f.name)}


def text_of_kind(name_or_file: str, shipped: Mapping[str, str], kind: str) -> str | None:
    """The text of a shipped scenario, or of a file that says that it is of this kind; None if it is none of them."""
    if name_or_file in shipped:
        return shipped[name_or_file]
    try:
        text = Path(name_or_file).read_text(encoding="utf-8")
        return text if tomllib.loads(text).get("kind") == kind else None
    except (OSError, UnicodeError, tomllib.TOMLDecodeError):
        return None  # whoever reads it as another kind says what is wrong
