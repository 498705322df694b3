"""The packages below `network` do no input or output of their own: event and time in, effects out."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE_DIR = Path(__file__).parents[1] / "src" / "trimtab"
PURE_PACKAGES = (
    "broker",
    "client",
    "policies",
    "load",
    "matching",
    "protocol",
    "security",
    "language",
)
PURE_MODULES = sorted(path for package in PURE_PACKAGES for path in (PACKAGE_DIR / package).rglob("*.py"))
FORBIDDEN_MODULES = frozenset({"asyncio", "socket", "threading", "time", "uuid", "secrets"})
ALLOWED_FROM_RANDOM = frozenset({"Random"})


def impurities(source: str) -> list[str]:
    """Return one line for each forbidden import and each use of the global random generator in a module's text."""
    tree = ast.parse(source)
    found = [*_forbidden_imports(tree), *_global_random_uses(tree)]
    return [f"line {line}: {what}" for line, what in sorted(found)]


def _forbidden_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                modules = [module]
            case _:
                continue
        for module in modules:
            if module.partition(".")[0] in FORBIDDEN_MODULES:
                yield node.lineno, f"imports {module}"


def _global_random_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    names_of_random: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                names_of_random.update(alias.asname or alias.name for alias in names if alias.name == "random")
            case ast.ImportFrom(module="random", level=0, names=names):
                for alias in names:
                    if alias.name not in ALLOWED_FROM_RANDOM:
                        yield node.lineno, f"uses the global random.{alias.name}"
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in names_of_random:
                if attribute not in ALLOWED_FROM_RANDOM:
                    yield node.lineno, f"uses the global random.{attribute}"


@pytest.mark.parametrize("path", PURE_MODULES, ids=lambda path: path.relative_to(PACKAGE_DIR).as_posix())
def test_a_package_below_network_does_no_input_or_output(path: Path) -> None:
    assert impurities(path.read_text(encoding="utf-8")) == []


def test_every_pure_package_exists() -> None:
    assert [package for package in PURE_PACKAGES if not (PACKAGE_DIR / package / "__init__.py").is_file()] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time", "line 1: imports time"),
        ("import asyncio.events as events", "line 1: imports asyncio.events"),
        ("from socket import socket", "line 1: imports socket"),
        ("def late():\n    import threading", "line 2: imports threading"),
        ("import importlib\nimportlib.import_module('uuid')", "line 2: imports uuid"),
        ("__import__('secrets')", "line 1: imports secrets"),
        ("import random\nrandom.shuffle([])", "line 2: uses the global random.shuffle"),
        ("import random as dice\npick = dice.choice", "line 2: uses the global random.choice"),
        ("from random import random", "line 1: uses the global random.random"),
        ("import random\nrandom.SystemRandom()", "line 2: uses the global random.SystemRandom"),
    ],
)
def test_the_check_catches_a_violation(source: str, expected: str) -> None:
    assert impurities(source) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        "import random\ndef draw(generator: random.Random) -> float:\n    return generator.random()",
        "from random import Random\ngenerator = Random(7)",
        "from .time import Clock",
        "import timeit_like",
        "text = 'import time'",
    ],
)
def test_the_check_lets_seeded_generators_and_lookalikes_pass(source: str) -> None:
    assert impurities(source) == []
