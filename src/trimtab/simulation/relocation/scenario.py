"""Scenarios of publisher relocation: a tree of brokers, a workload, and policies to compare, as TOML.

    kind = "relocation"
    workload = "clustered"
    spread = 16                     # brokers that the subscribers of one publisher are at

    [policy]
    name = "grape-load100"

    [grid]                          # lists of values for keys above; every combination is run
    policy = ["pop", "grape-load100"]

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 5.1. How many
publishers and subscribers there were, and how fast they published, is in the paper's Figure 4b, which its text lacks.
Chosen here: 20 publishers with 40 subscribers and one publication a second each.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from trimtab.policies.registry import PolicyChoice
from trimtab.policies.relocation.config import RelocationConfig
from trimtab.simulation.scenarios.documents import check_ranges
from trimtab.simulation.workloads.rated import Distribution

BASELINE: Final = "none"
"""The policy that others are compared with."""


THRESHOLD: Final = 100
"""Traced publications before selection, where nothing is said."""


class RelocationScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole scenario file, without its grid."""

    kind: Literal["relocation"] = "relocation"
    """The kind of scenario; see `trimtab sim list --json`."""
    paper: str = ""
    """Whose experiment it is, for `trimtab sim list`."""
    name: str = ""
    """What it is called in summaries; the name of the file where it is missing."""
    description: str = ""
    """What it shows, in one sentence."""
    seed: int = 1
    """Seed of all random choices; `--seed` counts more."""
    workload: Distribution = "clustered"
    """Who wants how much of a publisher, and where they are (section 5.1)."""
    spread: int = 16
    """Brokers that the subscribers of one publisher are at (X, section 5.1)."""

    policy: PolicyChoice = PolicyChoice("grape-load100")
    """Who moves publishers."""
    threshold: int = THRESHOLD
    """Traced publications before selection (P_threshold and G_threshold); POP tags half as many within a window at
    most (section 5.2)."""

    brokers_count: int = 63
    """Brokers of the tree (section 5.1)."""
    fan_out: int = 2
    """Brokers form a balanced tree (section 5.1)."""

    publishers_count: int = 20
    """Each at a random broker, of a stock of its own (Figure 4b is not in the text: chosen)."""

    subscribers_count: int = 40
    """Of each publisher; the fewest that have more than one high-rated one among 5 % (chosen)."""

    rate_per_min: float = 60.0
    """Publications of each publisher (chosen): POP's default of 50 traces a minute is then most of them."""

    cpu_mhz: float = 100.0
    """Of each broker, in the paper's cluster."""
    memory_mb: float = 512.0
    """1.0 in the paper's memory ratio."""

    bandwidth_mbps: float = 10.0
    """Of each broker."""
    covering: bool = True
    """Whether brokers pass on only subscriptions that no other covers, as everywhere in Trimtab; the paper allows
    both and does not say which it ran."""

    latency_s: float = 0.001
    """Of all links, those of clients included: a local network, as the paper's cluster."""

    join_s: float = 30.0
    """Clients join until then; publishing begins 10 s later."""

    duration_s: float = 1_120.0
    """The paper measures 18 minutes after all clients are there."""

    measure_s: float = 120.0
    """What is measured at the end is measured for so long."""

    record_every_s: float = 10.0
    """Virtual time between two readings of the load."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            ("spread", 1, self.brokers_count),
            ("threshold", 1, 10_000),
            ("brokers_count", 1, 10_000),
            ("fan_out", 1, 1_000),
            ("publishers_count", 1, 10_000),
            ("subscribers_count", 1, 10_000),
            ("rate_per_min", 0.001, 1e6),
            ("cpu_mhz", 0.001, 1e9),
            ("memory_mb", 0.001, 1e9),
            ("bandwidth_mbps", 0.001, 1e9),
            ("latency_s", 0.0, 60.0),
            ("join_s", 1.0, 1e6),
            ("measure_s", 1.0, 1e6),
            ("record_every_s", 0.1, 1e6),
        )
        if self.duration_s < self.publish_from_s + self.measure_s:
            raise ValueError(f"duration_s {self.duration_s} leaves no time to publish and to measure")

    @property
    def publish_from_s(self) -> float:
        """When publishing begins: every subscription is in force."""
        return self.join_s + 10.0

    @property
    def choice(self) -> PolicyChoice:
        """The policy, with the settings that follow from the threshold."""
        config = msgspec.structs.replace(
            self.policy.config(RelocationConfig),
            pop_threshold_count=self.threshold,
            pop_window_count=max(self.threshold // 2, 1),
            grape_threshold_count=self.threshold,
        )
        return PolicyChoice(self.policy.name, {**self.policy.settings, "relocation": msgspec.to_builtins(config)})


def without_relocation(scenario: RelocationScenario) -> RelocationScenario:
    """The same workload with publishers that stay; how they would be traced does not matter to it."""
    return msgspec.structs.replace(scenario, policy=PolicyChoice(BASELINE), threshold=THRESHOLD)


def broker_names(scenario: RelocationScenario) -> list[str]:
    """The brokers of the tree, the root first, level by level."""
    return [f"B{number}" for number in range(1, scenario.brokers_count + 1)]


def links_of(scenario: RelocationScenario) -> list[tuple[str, str]]:
    """Each broker but the root with its parent.

    >>> links_of(RelocationScenario(brokers_count=5, spread=1))
    [('B1', 'B2'), ('B1', 'B3'), ('B2', 'B4'), ('B2', 'B5')]
    """
    names = broker_names(scenario)
    return [(names[(number - 1) // scenario.fan_out], names[number]) for number in range(1, len(names))]


def distance(first: str, second: str, fan_out: int) -> int:
    """Links between two brokers of the tree.

    >>> distance("B4", "B5", 2), distance("B1", "B5", 2), distance("B4", "B4", 2)
    (2, 2, 0)
    """
    one, two = int(first[1:]) - 1, int(second[1:]) - 1
    hops = 0
    while one != two:
        if one > two:
            one, two = two, one
        two = (two - 1) // fan_out
        hops += 1
    return hops
