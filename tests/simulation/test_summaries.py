"""Every scenario's summary has the documented shape: the common keys on top, the kind's own in `details`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.simulation.fuzz.fuzz import FuzzDetails
from trimtab.simulation.scenarios.documents import bundled_documents
from trimtab.simulation.scenarios.kinds import KINDS, load, run_scenario, summary_schema, summary_type
from trimtab.simulation.scenarios.summary import GridSummary, Summary

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "simulation.md"
SMALL: dict[str, dict[str, str]] = {
    "ews-attack": {"duration_s": "5.3", "attack.measures": "false", "attack.count": "50", "crisis.coarseness": "8"},
    "ews": {"duration_s": "3", "crisis.checked_moves_max_count": "0"},
    "stock": {"duration_s": "3"},
    "rivals": {"duration_s": "12", "subscribers.0.count": "50"},
    "padres": {"duration_s": "12", "subscribers.0.count": "50"},
    "bad": {"duration_s": "60", "subscribers_count": "50", "brokers_count": "3"},
    "relocation": {"brokers_count": "3", "spread": "1", "duration_s": "70", "measure_s": "20", "join_s": "5"},
    "replication": {"subscriptions_count": "20", "pending_count": "20", "neighbours_count": "1"},
}
SCENARIOS = [name for name, document in bundled_documents().items() if document.kind in KINDS]


def small(name: str) -> Any:
    """The first point of a bundled scenario, made short."""
    settings = next((each for prefix, each in SMALL.items() if name.startswith(prefix)), {"duration_s": "6"})
    return load(name, settings).points[0].scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_summary_is_as_its_kind_says(name: str) -> None:
    scenario = small(name)
    text = msgspec.json.encode(run_scenario(scenario, 3))
    read = msgspec.json.decode(text, type=summary_type(scenario.kind))
    assert msgspec.json.encode(read) == text, "nothing is there that the schema does not name"
    assert (read.scenario, read.kind, read.world, read.seed) == (name, scenario.kind, "sim", 3)
    assert read.trace_hash and read.cpu_s > 0
    assert (read.lost or 0, read.duplicated or 0, read.reordered or 0) == (0, 0, 0) or scenario.kind == "replication"


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_of_a_kind_names_the_common_keys_and_its_own(kind: str) -> None:
    schema = summary_schema(kind)
    top = schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"]
    assert tuple(top) == Summary.__struct_fields__
    details = schema["$defs"][top["details"]["$ref"].rpartition("/")[2]]["properties"]
    assert details and not set(details) & set(top)


def test_the_documentation_names_every_common_key() -> None:
    section = DOCUMENTATION.read_text("utf-8").partition("## Summaries\n")[2].partition("\n## ")[0]
    named = {name for row in section.splitlines() if row.startswith("|") for name in re.findall(r"`(\w+)`", row)}
    assert set(Summary.__struct_fields__) <= named
    assert all(f"`{name}`" in section for name in GridSummary.__struct_fields__)


def test_random_runs_are_summed_up_alike() -> None:
    data = json.loads(CliRunner().invoke(app, ["sim", "fuzz", "--runs", "2", "--json"]).stdout)
    read = msgspec.convert(data, Summary[FuzzDetails])
    assert (read.kind, read.details.runs, read.violations) == ("fuzz", 2, [])
    assert json.loads(msgspec.json.encode(read)) == data


def test_several_points_are_a_list_of_summaries() -> None:
    arguments = ["sim", "run", "figure-2-2", "--set", "network.covering=on,off", "--seeds", "2", "--processes", "1"]
    data = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (data["scenario"], data["kind"], data["varied"]) == ("figure-2-2", "messages", ["network.covering"])
    assert data["points"] == [{"network.covering": each} for each in ("on", "on", "off", "off")]
    assert [msgspec.convert(run, summary_type("messages")).seed for run in data["runs"]] == [1, 2, 1, 2]
