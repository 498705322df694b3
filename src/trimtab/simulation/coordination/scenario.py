"""Scenarios of coordination: a city, its brokers, its subscribers, and how they are placed and balanced, as TOML.

    kind = "coordination"
    workload = "scale"
    brokers_count = 10
    subscribers_count = 10_000
    placement = "nearest"
    policy = "gsh"

`kind` tells them from scenarios with messages (`trimtab.simulation.scenarios.scenario`).
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from trimtab.policies.multistage.config import (
    BALANCINGS,
    PLACEMENTS,
    Balancing,
    CoordinatorConfig,
    MultistageConfig,
    Placement,
)
from trimtab.simulation.scenarios.bundled import shipped_texts, text_of_kind
from trimtab.simulation.scenarios.scenario import ScenarioError, replace_value, value_of
from trimtab.simulation.workloads.city import WalkConfig

KIND: Final = "coordination"


class CoordinationScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole scenario file."""

    kind: Literal["coordination"] = "coordination"
    name: str = ""
    description: str = ""
    duration_s: float = 1800.0
    seed: int = 1
    workload: Literal["scale", "emergency"] = "scale"
    """Which channels there are and who wants what (`trimtab.simulation.workloads.channels`)."""

    brokers_count: int = 10
    subscribers_count: int = 10_000
    city_side_m: float = 10_000.0
    districts_count: int = 8
    walk: WalkConfig = WalkConfig()
    join_s: tuple[float, float] = (0.0, 300.0)
    """When subscribers connect for the first time, uniformly."""

    connected_mean_s: float = 7200.0
    """How long a subscriber stays connected on average; then it is away and comes again, placed anew."""

    away_mean_s: float = 60.0
    rate_deviation: float = 0.3
    """How far the logarithm of a rate wanders from its mean (standard deviation)."""

    rate_memory_s: float = 600.0
    """After so long a rate has forgotten a good half of how it was."""

    move_s: tuple[float, float] = (0.5, 3.0)
    """How long a client's move takes, uniformly."""

    record_every_s: float = 10.0
    placement: Placement = "nearest"
    policy: Balancing = "multistage"
    balancing: MultistageConfig = MultistageConfig()
    round_every_s: float = 60.0
    report_every_s: float = 10.0
    moves_at_once_count: int = 500

    def __post_init__(self) -> None:
        for name, least, most in (
            ("duration_s", 1.0, 1e7),
            ("brokers_count", 1, 1_000),
            ("subscribers_count", 1, 1_000_000),
            ("districts_count", 1, 1_000),
            ("city_side_m", 1.0, 1e7),
            ("connected_mean_s", 1.0, 1e9),
            ("away_mean_s", 0.001, 1e9),
            ("rate_deviation", 0.0, 10.0),
            ("rate_memory_s", 1.0, 1e9),
            ("record_every_s", 0.1, 1e6),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} {value} is not between {least:,} and {most:,}")
        if self.record_every_s > self.duration_s:
            raise ValueError(f"record_every_s {self.record_every_s} is longer than the run")
        for name in ("join_s", "move_s"):
            first, last = getattr(self, name)
            if not 0 <= first <= last < 1e7:
                raise ValueError(f"{name}: {first} to {last} is no span of time")
        self.coordinator()

    def coordinator(self) -> CoordinatorConfig:
        """The settings of the coordination server."""
        return CoordinatorConfig(
            placement=self.placement,
            policy=self.policy,
            balancing=self.balancing,
            round_every_s=self.round_every_s,
            report_every_s=self.report_every_s,
            broker_lifetime_s=3.5 * self.report_every_s,
            moves_at_once_count=self.moves_at_once_count,
        )


def shipped_coordination_scenarios() -> dict[str, str]:
    """Those that come with the package: their text by name.

    >>> list(shipped_coordination_scenarios())
    ['bad-emergency-load', 'bad-scale']
    """
    return shipped_texts("trimtab.simulation.coordination", "scenarios")


def find_coordination_text(name_or_file: str) -> str | None:
    """The text of a scenario of this kind, shipped or a file; None if it is another kind, or nothing."""
    return text_of_kind(name_or_file, shipped_coordination_scenarios(), KIND)


def parse_coordination(text: str, source: str, overrides: Mapping[str, str] | None = None) -> CoordinationScenario:
    """Read a scenario's text; overrides replace values by key.

    >>> parse_coordination('kind = "coordination"', "my.toml", {"policy": "gssh"})
    Traceback (most recent call last):
    ...
    trimtab.simulation.scenarios.scenario.ScenarioError: my.toml: policy: gssh is none of none, ldm, sdm, gsh,
    multistage, groups
    """
    data: dict[str, Any] = tomllib.loads(text)
    data.setdefault("name", Path(source).stem)
    for key, value in (overrides or {}).items():
        replace_value(data, key, value_of(value))
    for key, known in (("policy", BALANCINGS), ("placement", PLACEMENTS)):
        if key in data and data[key] not in known:
            raise ScenarioError(f"{source}: {key}: {data[key]} is none of {', '.join(known)}")
    try:
        return msgspec.convert(data, CoordinationScenario)
    except (msgspec.ValidationError, ValueError) as error:
        raise ScenarioError(f"{source}: {str(error).replace(' - at `$.', ' - at `')}") from None


def grid_of(overrides: Mapping[str, str]) -> list[dict[str, str]]:
    """Every combination of overrides, where a value may be a list with commas.

    >>> grid_of({"policy": "ldm,gsh", "seed": "3"})
    [{'policy': 'ldm', 'seed': '3'}, {'policy': 'gsh', 'seed': '3'}]
    """
    values = [[each.strip() for each in text.split(",")] for text in overrides.values()]
    return [dict(zip(overrides, chosen, strict=True)) for chosen in itertools.product(*values)]
