"""Studies: a scenario run again and again with one parameter changed, as TOML.

    kind = "study"
    base = "padres-local"                   the scenario that is varied: a bundled one, or a path relative to this file
    parameter = "samples taken by PRESS"    what is varied, for people

    [set]                                   the same for every point
    duration_s = 3000.0

    [grid]                                  one point for each place of the lists; several keys change together
    "policy.padres.press_sample_count" = [1, 10, 50]

    [[figure]]                              what is drawn over the parameter
    number = "5.37"
    title = "Convergence time"
    metrics = ["converged_at_s"]

Keys are those that `trimtab sim run --set` takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from trimtab.simulation.scenarios.documents import (
    Document,
    ScenarioError,
    find_document,
    value_of,
    with_values,
)
from trimtab.simulation.scenarios.messages import Scenario
from trimtab.simulation.scenarios.scenario import read_messages
from trimtab.simulation.scenarios.study_metrics import METRICS

KIND: Final = "study"

QUICK_DURATION_S: Final = 150.0
"""How long the runs of a quick look take, in virtual time."""


class FigurePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[figure]]`: metrics over the parameter."""

    number: str
    """That of the paper's figure."""
    title: str
    """Over the figure."""
    metrics: list[str]
    """What is drawn over the parameter."""


class Study(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A study file."""

    kind: Literal["study"] = "study"
    """A study."""
    paper: str = ""
    """Whose experiment it is, for `trimtab sim list`."""
    name: str = ""
    """What it is called; the name of the file where it is missing."""
    description: str = ""
    """What it shows, in one sentence."""
    base: str
    """The scenario that is varied: a bundled one, or a file beside this one."""

    folder: str = ""
    """Where the paths in it begin; not a key of the file."""

    parameter: str
    """What is varied, for people."""
    set: dict[str, Any] = {}
    """Values of keys of the scenario, the same for every point."""
    grid: dict[str, list[Any]]
    """Lists of values of keys; one point for each place of the lists."""
    figure: list[FigurePart] = []
    """What is drawn."""

    @property
    def values(self) -> list[Any]:
        """The parameter's values, one for each point: those of the first key of the grid."""
        return next(iter(self.grid.values()))


def find_study(name_or_file: str, folder: Path | None = None) -> Study | None:
    """A bundled study by name, or a file that is one; None if it is something else.

    >>> find_study("padres-press-samples").base, find_study("padres-local")
    ('padres-local', None)
    """
    document = find_document(name_or_file, folder)
    return study_of(document) if document.kind == KIND else None


def study_of(document: Document) -> Study:
    """The study in a document.

    >>> from trimtab.simulation.scenarios.documents import parse_document
    >>> text = 'kind = "study"\\nbase = "stock-small"\\nparameter = "x"\\n[grid]\\nduration_s = [1.0]\\nseed = []'
    >>> study_of(parse_document(text, "my.toml"))
    Traceback (most recent call last):
    ...
    trimtab.simulation.scenarios.documents.ScenarioError: my.toml:6: grid.seed: 0 values where duration_s has 1
    """
    study = msgspec.structs.replace(document.read(document.data, Study), folder=str(document.folder))
    if not study.grid or not study.values:
        raise document.error("grid", "at least one key with at least one value is needed")
    first = next(iter(study.grid))
    for key, values in study.grid.items():
        if len(values) != len(study.values):
            raise document.error(f"grid.{key}", f"{len(values)} values where {first} has {len(study.values)}")
    for figure in study.figure:
        for metric in figure.metrics:
            if metric not in METRICS:
                known = ", ".join(METRICS)
                raise document.error("figure", f"{figure.number}: no metric {metric}; expected one of {known}")
    try:
        find_document(study.base, document.folder)
    except ScenarioError as error:
        raise document.error("base", str(error)) from None
    return study


def scenario_at(
    study: Study, point: int, overrides: Mapping[str, str] | None = None, *, quick: bool = False
) -> Scenario:
    """The scenario of one point; quick runs are short, overrides (texts by key) come last."""
    values = {**study.set, **{key: values[point] for key, values in study.grid.items()}}
    if quick:
        values["duration_s"] = QUICK_DURATION_S
    values |= {key: value_of(text) for key, text in (overrides or {}).items()}
    base = find_document(study.base, Path(study.folder))
    base.source = f"{study.name}, point {point + 1}"
    return read_messages(base, with_values(base.data, values))
