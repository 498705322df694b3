"""Studies: a scenario run again and again with one parameter changed, as TOML.

    base = "padres-local"                   the scenario that is varied
    parameter = "samples taken by PRESS"    what is varied, for people

    [set]                                   the same for every point
    duration_s = 3000.0

    [grid]                                  one point for each place of the lists; several keys change together
    "padres.press_sample_count" = [1, 10, 50]

    [[figure]]                              what is drawn over the parameter
    number = "5.37"
    title = "Convergence time"
    metrics = ["converged_at_s"]

Keys are those that `trimtab sim run --set` takes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from trimtab.simulation.scenarios.bundled import shipped_texts
from trimtab.simulation.scenarios.scenario import Scenario, ScenarioError, parse_scenario, shipped_scenarios
from trimtab.simulation.scenarios.study_metrics import METRICS

QUICK_DURATION_S: Final = 150.0
"""How long the runs of a quick look take, in virtual time."""


class FigurePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[figure]]`: metrics over the parameter."""

    number: str
    """That of the paper's figure."""
    title: str
    metrics: list[str]


class Study(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A study file."""

    name: str = ""
    description: str = ""
    base: str
    parameter: str
    set: dict[str, Any] = {}
    grid: dict[str, list[Any]]
    figure: list[FigurePart] = []

    @property
    def values(self) -> list[Any]:
        """The parameter's values, one for each point: those of the first key of the grid."""
        return next(iter(self.grid.values()))


def shipped_studies() -> dict[str, str]:
    """The studies that come with the package: their text by name.

    >>> "padres-press-samples" in shipped_studies()
    True
    """
    return shipped_texts("trimtab.simulation", "studies")


def find_study(name_or_file: str) -> Study | None:
    """A shipped study by name, or a file that is one (it has a `base`); None if it is something else."""
    shipped = shipped_studies()
    if name_or_file in shipped:
        return parse_study(shipped[name_or_file], name_or_file)
    if name_or_file in shipped_scenarios():
        return None
    try:
        text = Path(name_or_file).read_text(encoding="utf-8")
        is_study = "base" in tomllib.loads(text)
    except (OSError, ValueError):  # whoever reads it as a scenario says what is wrong
        return None
    return parse_study(text, name_or_file) if is_study else None


def parse_study(text: str, source: str = "study") -> Study:
    """Read a study's text.

    >>> parse_study('base = "stock-small"\\nparameter = "x"\\n[grid]\\n"duration_s" = [1.0]\\n"seed" = []', "my.toml")
    Traceback (most recent call last):
    ...
    trimtab.simulation.scenarios.scenario.ScenarioError: my.toml: grid: seed has 0 values where duration_s has 1
    """
    try:
        study = msgspec.convert(tomllib.loads(text), Study)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ScenarioError(f"{source}: {error}") from None
    if not study.grid or not study.values:
        raise ScenarioError(f"{source}: grid: at least one key with at least one value is needed")
    first = next(iter(study.grid))
    for key, values in study.grid.items():
        if len(values) != len(study.values):
            raise ScenarioError(f"{source}: grid: {key} has {len(values)} values where {first} has {len(study.values)}")
    for figure in study.figure:
        for metric in figure.metrics:
            if metric not in METRICS:
                known = ", ".join(METRICS)
                raise ScenarioError(f"{source}: figure {figure.number}: no metric {metric}; expected one of {known}")
    if study.base not in shipped_scenarios():
        known = ", ".join(shipped_scenarios())
        raise ScenarioError(f"{source}: base: no scenario is called {study.base}; expected one of {known}")
    return study if study.name else msgspec.structs.replace(study, name=Path(source).stem)


def scenario_at(
    study: Study, point: int, overrides: Mapping[str, str] | None = None, *, quick: bool = False
) -> Scenario:
    """The scenario of one point; quick runs are short, overrides (texts by key) come last."""
    values = {**study.set, **{key: values[point] for key, values in study.grid.items()}}
    if quick:
        values["duration_s"] = QUICK_DURATION_S
    return parse_scenario(shipped_scenarios()[study.base], f"{study.name}, point {point + 1}", overrides, values)
