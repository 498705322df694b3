"""The reference of configuration, which is made from the code: every key of every file has a meaning."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("mkdocs_hooks", ROOT / "mkdocs_hooks.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["mkdocs_hooks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_key_has_a_meaning(hooks: ModuleType) -> None:
    silent = [
        f"{kind.__name__}.{row[0]}"
        for _, _, parts in hooks.configuration_parts()
        for _, kind in parts
        for row in hooks.rows_of(kind)
        if not row[-1]
    ]
    assert silent == []


def test_a_row_has_type_default_unit_and_meaning(hooks: ModuleType) -> None:
    from trimtab.policies.padres.config import PadresConfig

    (row,) = (row for row in hooks.rows_of(PadresConfig) if row[0] == "`local_pie_period_s`")
    assert row[1:4] == ["number", "`30`", "s"]
    assert row[4].startswith("How often an edge-broker looks")


def test_the_page_has_a_table_for_every_kind_of_scenario_and_every_policy(hooks: ModuleType) -> None:
    from trimtab.policies.registry import policy_tables
    from trimtab.simulation.scenarios.kinds import KINDS

    page = hooks._configuration()
    assert all(f'## Scenarios of the kind "{kind}"' in page for kind in KINDS)
    assert all(f"### [policy.{table}]" in page for table in policy_tables())
    assert "### [[subscribers]]" in page and '### [[fault]] kind = "pause"' in page
