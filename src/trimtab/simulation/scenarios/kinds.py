"""The kinds of scenarios: who reads one, who runs it, and what its summary says of its own.

    kind = "relocation"             # a key of every file; "messages" where it is missing
    paper = "relocation"            # whose experiment it is, for `trimtab sim list`
    description = "..."

    [grid]                          # lists of values for keys; every combination is run
    policy = ["pop", "none"]

One more kind takes a package with the class of its scenarios and a runner, and a line in `KINDS`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from trimtab.protocol.records import Recorder
from trimtab.simulation.coordination.scenario import CoordinationScenario, read_coordination
from trimtab.simulation.relocation.scenario import RelocationScenario, without_relocation
from trimtab.simulation.relocation.summary import with_reductions
from trimtab.simulation.replication.scenario import ReplicationScenario
from trimtab.simulation.scenarios.documents import Document, ScenarioError, find_document, values_of, with_values
from trimtab.simulation.scenarios.messages import Scenario
from trimtab.simulation.scenarios.scenario import read_messages
from trimtab.simulation.scenarios.summary import Summary

Reader = Callable[[Document, dict[str, Any]], Any]

PAPERS: Final = {
    "padres": "Dynamic load balancing in distributed content-based publish/subscribe (Cheung, 2006)",
    "relocation": "Publisher relocation algorithms (Cheung and Jacobsen, 2009)",
    "replication": "On-demand replication for highly available publish/subscribe (Yoon et al.)",
    "bad": "Multistage adaptive load balancing for big active data (Nguyen et al.)",
    "delay": "Resilient delay sensitive load management (Tao et al., 2013)",
    "": "Of our own",
}
"""The papers whose experiments there are; a file may name another in words of its own."""


class ScenarioKind(msgspec.Struct, frozen=True):
    """A kind of scenario."""

    says: str
    """What such scenarios show."""
    scenario: type[msgspec.Struct]
    runner: str
    """The class that runs one, as MODULE:CLASS below `trimtab.simulation`: made with a scenario, a seed and a recorder,
    its `run` gives a `Summary`."""
    details: str
    """The class of what is in a summary's `details`, in the same way."""
    read: Reader
    baseline: Callable[[Any], Any] | None = None
    """The scenario that a run is compared with, if each is."""
    compared: Callable[[Any, Any], Summary[Any]] | None = None
    """A run's summary with what the baseline's run says of it."""
    with_records: bool = False
    """Whether a recorder is of use."""
    runs_live: bool = False
    """Whether it runs on processes too (`trimtab.operations.live_scenario`)."""


def _plainly(kind: type[msgspec.Struct]) -> Reader:
    return lambda document, data: document.read(data, kind)


KINDS: Final = {
    "messages": ScenarioKind(
        "brokers, clients and every message between them; each delivery is checked",
        Scenario,
        "scenarios.run:ScenarioRun",
        "scenarios.run:MessagesDetails",
        read_messages,
        with_records=True,
        runs_live=True,
    ),
    "relocation": ScenarioKind(
        "publishers that move in a tree of brokers",
        RelocationScenario,
        "relocation.run:RelocationRun",
        "relocation.summary:RelocationDetails",
        _plainly(RelocationScenario),
        without_relocation,
        with_reductions,
    ),
    "replication": ScenarioKind(
        "a broker between publishers and subscribers that fails or is congested",
        ReplicationScenario,
        "replication.run:ReplicationRun",
        "replication.run:ReplicationDetails",
        _plainly(ReplicationScenario),
    ),
    "coordination": ScenarioKind(
        "a city of subscribers by its load, led by a coordination server",
        CoordinationScenario,
        "coordination.world:CoordinationWorld",
        "coordination.world:CoordinationDetails",
        read_coordination,
    ),
}


class Point(msgspec.Struct, frozen=True):
    """A scenario of a grid."""

    values: dict[str, Any]
    """Of the keys that vary."""
    scenario: Any


class Loaded(msgspec.Struct, frozen=True):
    """A scenario file with all its points; one, if it has no grid."""

    kind: str
    name: str
    varied: list[str]
    points: list[Point]


def load(name_or_file: str, overrides: Mapping[str, str] | None = None, folder: Path | None = None) -> Loaded:
    """A bundled scenario by name, or a file, of any kind.

    Overrides are texts that replace values by key (`duration_s`, `broker.0.cpu_mhz`); one with commas varies.

    >>> loaded = load("relocation-random", {"policy": "pop,none", "spread": "4"})
    >>> loaded.varied, [(point.values, point.scenario.spread) for point in loaded.points]
    (['policy'], [({'policy': 'pop'}, 4), ({'policy': 'none'}, 4)])
    """
    return points_of(find_document(name_or_file, folder), overrides)


def points_of(document: Document, overrides: Mapping[str, str] | None = None) -> Loaded:
    """All points of a document; the same scenario is there once, whatever its grid says."""
    kind = KINDS.get(document.kind)
    if kind is None:
        raise document.error("kind", f"no scenario is of the kind {document.kind}; expected one of {', '.join(KINDS)}")
    grid: dict[str, Any] = dict(document.data.get("grid", {}))
    single: dict[str, Any] = {}
    for key, text in (overrides or {}).items():
        values = values_of(text)
        grid.pop(key, None)
        if len(values) > 1:
            grid[key] = values
        else:
            single[key] = values[0]
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise document.error(f"grid.{key}", "a list of values is wanted for each key")
    data = with_values({key: value for key, value in document.data.items() if key != "grid"}, single)
    points: dict[Any, Point] = {}
    for chosen in itertools.product(*grid.values()):
        varied = dict(zip(grid, chosen, strict=True))
        scenario = kind.read(document, with_values(data, varied))
        points.setdefault(repr(getattr(scenario, "distinct", varied)), Point(varied, scenario))
    return Loaded(document.kind, str(data["name"]), list(grid), list(points.values()))


def load_one(name_or_file: str, overrides: Mapping[str, str] | None = None, folder: Path | None = None) -> Any:
    """A scenario without a grid."""
    loaded = load(name_or_file, overrides, folder)
    if len(loaded.points) > 1:
        raise ScenarioError(f"{name_or_file}: one scenario is wanted, and {', '.join(loaded.varied)} vary")
    return loaded.points[0].scenario


def run_scenario(scenario: Any, seed: int, recorder: Recorder | None = None) -> Summary[Any]:
    """Run a scenario of any kind, with the time that it took."""
    runner = _found(KINDS[scenario.kind].runner)
    begin_s = time.process_time()
    summary = cast("Summary[Any]", runner(scenario, seed, recorder).run())
    return msgspec.structs.replace(summary, cpu_s=time.process_time() - begin_s)


def summary_type(kind: str) -> type[Summary[Any]]:
    """The class of the summaries of a kind.

    >>> summary_type("relocation")
    trimtab.simulation.scenarios.summary.Summary[trimtab.simulation.relocation.summary.RelocationDetails]
    """
    return cast("type[Summary[Any]]", Summary[_found(KINDS[kind].details)])  # type: ignore[misc]


def _found(place: str) -> Any:
    """What stands at MODULE:NAME; modules of kinds are loaded when they are wanted."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"trimtab.simulation.{module}"), name)


def summary_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of the summaries of a kind.

    >>> summary_schema("messages")["$ref"]
    '#/$defs/Summary_MessagesDetails_'
    """
    return msgspec.json.schema(summary_type(kind))
