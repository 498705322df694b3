"""Both worlds drive roles by events and methods alone (docs/architecture.md): nobody outside writes their fields."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "trimtab"
WORLDS = ("simulation", "network", "lab", "cli", "dashboard")
ROLES = {"broker", "_broker", "session", "_session", "meters"}
"""What variables and fields that hold a role, or its meters, are called."""


def fields_written(text: str) -> list[str]:
    """Assignments to fields of roles, as they are written."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Attribute):
                holder = target.value
                name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
                if name in ROLES:
                    found.append(ast.unparse(target))
    return found


def test_written_fields_are_found() -> None:
    assert fields_written("host.broker.a = 1\nself._session.b += 1\nbroker = 1\nx.c = 2") == [
        "host.broker.a",
        "self._session.b",
    ]


@pytest.mark.parametrize("world", WORLDS)
def test_no_world_writes_a_field_of_a_role(world: str) -> None:
    files = sorted((SOURCE / world).rglob("*.py"))
    found = {str(file.relative_to(SOURCE)): fields_written(file.read_text(encoding="utf-8")) for file in files}
    assert {name: written for name, written in found.items() if written} == {}


@pytest.mark.parametrize("world", WORLDS)
def test_no_world_makes_a_role_of_its_own(world: str) -> None:
    derived = [
        f"{file.relative_to(SOURCE)}: {node.name}"
        for file in sorted((SOURCE / world).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in ("Broker", "ClientSession") for base in node.bases)
    ]
    assert derived == []
