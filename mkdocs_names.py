"""A page that names something in backticks which does not exist fails the build.

What counts as a name: words with an underscore, a dot, a capital inside or brackets of a call, and files of code. It
must stand somewhere in the sources, tests or examples, and `Class.member` must be a member of that class.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError

ROOT: Final = Path(__file__).parent
SOURCES: Final = ("src", "tests", "examples")
_READ: Final = {".py", ".toml", ".sql", ".c", ".h", ".pyi", ".service", ".txt"}
_BLOCK: Final = re.compile(r"^(?: {4}|\t).*$|^```.*?^```", re.MULTILINE | re.DOTALL)
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*(?:\(\))?")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_DATA_FILES: Final = (
    ".toml",
    ".sql",
    ".json",
    ".jsonl",
    ".log",
    ".txt",
    ".html",
    ".svg",
    ".parquet",
    ".csv",
    ".sqlite",
)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Refuse the page if it names what does not exist."""
    if not page.file.src_path.startswith("reference/"):  # made from the code
        unknown = unknown_names(markdown)
        if unknown:
            raise PluginError(f"{page.file.src_path} names what does not exist: {', '.join(unknown)}")
    return markdown


def unknown_names(markdown: str) -> list[str]:
    """The names in backticks that nothing in the repository has.

    >>> unknown_names("`Filter.parse` and `Filter.prase`, `no_such_name`, `volume`")
    ['Filter.prase', 'no_such_name']
    """
    spans = (span for span in _SPAN.findall(_BLOCK.sub("", markdown)) if _NAME.fullmatch(span))
    return list(dict.fromkeys(span for span in spans if _is_name(span) and not _exists(span.removesuffix("()"))))


def _is_name(span: str) -> bool:
    if span.endswith(_DATA_FILES):
        return False
    return "_" in span or "." in span or span.endswith("()") or re.search("[a-z][A-Z]", span) is not None


def _exists(name: str) -> bool:
    if name.endswith(".py"):
        return name in _files()
    words, classes = _names()
    first, *others = parts = name.split(".")
    if len(others) == 1 and first in classes:
        return others[0] in classes[first]
    return all(part in words for part in parts)


@cache
def _files() -> frozenset[str]:
    return frozenset(path.name for path in (*_sources(), *ROOT.glob("*.py")))


@cache
def _names() -> tuple[set[str], dict[str, set[str]]]:
    """All words of the sources, and for each class what it has."""
    words: set[str] = set()
    classes: dict[str, set[str]] = {}
    for path in _sources():
        text = path.read_text(encoding="utf-8")
        words.update(_WORD.findall(text))
        words.update(path.stem.split("."))
        if path.suffix == ".py" and path.is_relative_to(ROOT / "src"):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    classes.setdefault(node.name, set()).update(_members(node))
    return words, classes


def _sources() -> Iterator[Path]:
    for folder in SOURCES:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in _READ and path.is_file())
    yield from (ROOT / "pyproject.toml", ROOT / "setup.py")


def _members(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Attribute(attr=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case _:
                pass
