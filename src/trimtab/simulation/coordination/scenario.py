"""Scenarios of coordination: a city, its brokers, its subscribers, and how they are placed and balanced, as TOML.

    kind = "coordination"
    workload = "scale"
    brokers_count = 10
    subscribers_count = 10_000
    placement = "nearest"

    [policy]
    name = "gsh"

`kind` tells them from others (`trimtab.simulation.scenarios.kinds`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from trimtab.policies.multistage.config import (
    BALANCINGS,
    Balancing,
    CoordinatorConfig,
    MultistageConfig,
    Placement,
)
from trimtab.policies.registry import PolicyChoice, policy_section
from trimtab.policies.settings import SettingsError, read_settings
from trimtab.simulation.scenarios.documents import Document, check_ranges
from trimtab.simulation.workloads.city import WalkConfig

_TABLE: Final = "multistage"
"""The table of `[policy]` with the coordinator's thresholds, whichever of its ways it goes."""


class CoordinationScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole scenario file."""

    kind: Literal["coordination"] = "coordination"
    """The kind of scenario; see `trimtab sim list --json`."""
    paper: str = ""
    """Whose experiment it is, for `trimtab sim list`."""
    name: str = ""
    """What it is called in summaries; the name of the file where it is missing."""
    description: str = ""
    """What it shows, in one sentence."""
    duration_s: float = 1800.0
    """How long it takes in virtual time."""
    seed: int = 1
    """Seed of all random choices; `--seed` counts more."""
    workload: Literal["scale", "emergency"] = "scale"
    """Which channels there are and who wants what (`trimtab.simulation.workloads.channels`)."""

    brokers_count: int = 10
    """Brokers, which stand about the city."""
    subscribers_count: int = 10_000
    """People who walk about."""
    city_side_m: float = 10_000.0
    """The city is a square with sides of this length."""
    districts_count: int = 8
    """Dense parts of the city."""
    walk: WalkConfig = WalkConfig()
    """How people walk."""
    join_s: tuple[float, float] = (0.0, 300.0)
    """When subscribers connect for the first time, uniformly."""

    connected_mean_s: float = 7200.0
    """How long a subscriber stays connected on average; then it is away and comes again, placed anew."""

    away_mean_s: float = 60.0
    """How long one that has left stays away on average."""
    rate_deviation: float = 0.3
    """How far the logarithm of a rate wanders from its mean (standard deviation)."""

    rate_memory_s: float = 600.0
    """After so long a rate has forgotten a good half of how it was."""

    move_s: tuple[float, float] = (0.5, 3.0)
    """How long a client's move takes, uniformly."""

    record_every_s: float = 10.0
    """Virtual time between two readings of the load."""
    placement: Placement = "nearest"
    """Where a subscriber is told to connect."""
    policy: PolicyChoice = PolicyChoice("multistage")
    """What the coordinator does: none, ldm, sdm, gsh, multistage or groups; `[policy.multistage]` sets them all."""

    round_every_s: float = 60.0
    """How often the coordinator looks at the load."""
    report_every_s: float = 10.0
    """How often brokers tell what has changed."""
    moves_at_once_count: int = 500
    """Moves under way at the same time."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
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
        )
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
            policy=msgspec.convert(self.policy.name, Balancing),
            balancing=msgspec.convert(self.policy.settings.get(_TABLE, {}), MultistageConfig),
            round_every_s=self.round_every_s,
            report_every_s=self.report_every_s,
            broker_lifetime_s=3.5 * self.report_every_s,
            moves_at_once_count=self.moves_at_once_count,
        )


def read_coordination(document: Document, data: dict[str, Any]) -> CoordinationScenario:
    """The scenario in a document's tables."""
    return document.read(data, CoordinationScenario, _read_policy)


def _read_policy(section: object) -> PolicyChoice:
    """What the coordinator does, from the section `[policy]`."""
    choice = policy_section(section)
    if choice.name not in BALANCINGS:
        raise SettingsError("policy", f"{choice.name} is none of {', '.join(BALANCINGS)}")
    for table, values in choice.settings.items():
        if table != _TABLE:
            raise SettingsError(f"policy.{table}", f"a coordinator has no table {table}; expected {_TABLE}")
        read_settings(values, MultistageConfig, f"policy.{table}")
    return choice
