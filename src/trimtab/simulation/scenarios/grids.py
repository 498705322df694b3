"""Scenario files with a `[grid]`: lists of values for their keys, of which every combination is run."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from trimtab.simulation.scenarios.scenario import ScenarioError, replace_value, value_of

Kind = TypeVar("Kind", bound=msgspec.Struct)


def parse_grid(
    text: str, source: str, kind: type[Kind], overrides: Mapping[str, str] | None = None
) -> tuple[list[str], list[Kind]]:
    """Read a scenario's text: the keys that vary, and a scenario for every combination of their values.

    Overrides replace values by key; one with commas varies.
    """
    data: dict[str, Any] = tomllib.loads(text)
    data.setdefault("name", Path(source).stem)
    grid: dict[str, Any] = dict(data.pop("grid", {}))
    for key, value in (overrides or {}).items():
        grid.pop(key, None)
        values = [value_of(each.strip()) for each in value.split(",")]
        if len(values) > 1:
            grid[key] = values
        else:
            replace_value(data, key, values[0])
    if not all(isinstance(values, list) and values for values in grid.values()):
        raise ScenarioError(f"{source}: grid: a list of values is wanted for each key")
    scenarios: list[Kind] = []
    for chosen in itertools.product(*grid.values()):
        point = msgspec.json.decode(msgspec.json.encode(data))
        for key, value in zip(grid, chosen, strict=True):
            replace_value(point, key, value)
        try:
            scenarios.append(msgspec.convert(point, kind))
        except (msgspec.ValidationError, ValueError) as error:
            raise ScenarioError(f"{source}: {str(error).replace(' - at `$.', ' - at `')}") from None
    return list(grid), scenarios
