"""Scenarios of replication: a broker between publishers and subscribers that fails or is congested, as TOML.

    kind = "replication"
    protocol = "incremental"
    subscriptions_count = 1000      # in all, spread evenly over the neighbours that have subscribers
    pending_count = 100             # publications that wait when the replica begins

    [grid]                          # lists of values for keys above; every combination is run
    protocol = ["synchronous", "incremental"]

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, section 5. Subscriptions are x > value and publications x = value, both Zipf distributed.
Chosen here: one publisher, so that the order of all publications means something; links of 10 Mbps and 1 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from trimtab.broker.replication.config import Assisting, Protocol
from trimtab.simulation.scenarios.bundled import shipped_texts, text_of_kind
from trimtab.simulation.scenarios.grids import parse_grid

KIND: Final = "replication"


class ReplicationScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole scenario file, without its grid."""

    kind: Literal["replication"] = "replication"
    name: str = ""
    description: str = ""
    seed: int = 1
    failure: Literal["permanent", "transient"] = "permanent"
    """permanent: the broker dies and is replaced; transient: it is congested and may get an assistant."""

    protocol: Protocol = "synchronous"
    assisting: Assisting = "never"
    """Of a transient failure: never leaves the congested broker alone."""

    subscriptions_count: int = 1_000
    subscriptions_per_neighbour_count: int = 0
    """If given, each neighbour has so many, however many neighbours there are."""

    pending_count: int = 100
    """Publications that wait when the replica begins; of a transient failure all that are published."""

    neighbours_count: int = 1
    """Neighbours with subscribers; one more has the publisher."""

    zipf_degree: float = 0.5
    popular: bool = True
    """Whether publications and subscriptions tend towards many matches, or towards few (figure 8b)."""

    values_count: int = 20
    """Values are 1 to this."""

    congestion: float = 3.0
    """Of a transient failure: publications come so many times as fast as the congested broker can match them."""

    cpu_mhz: float | None = None
    """Of all brokers; without it matching takes no time. Of a transient failure 100 where nothing is said."""

    bandwidth_mbps: float = 10.0
    latency_s: float = 0.001

    def __post_init__(self) -> None:
        for name, least, most in (
            ("subscriptions_count", 1, 1_000_000),
            ("subscriptions_per_neighbour_count", 0, 1_000_000),
            ("pending_count", 1, 1_000_000),
            ("neighbours_count", 1, 1_000),
            ("zipf_degree", 0.0, 100.0),
            ("values_count", 2, 1_000_000),
            ("congestion", 0.001, 1_000.0),
            ("bandwidth_mbps", 0.001, 1e9),
            ("latency_s", 0.0, 60.0),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} {value} is not between {least:,} and {most:,}")
        if self.cpu_mhz is not None and self.cpu_mhz <= 0:
            raise ValueError(f"cpu_mhz {self.cpu_mhz} is not positive")
        if self.failure == "permanent" and self.assisting != "never":
            raise ValueError("a broker that dies is replaced, and has no assistant (failure = permanent)")

    @property
    def all_subscriptions_count(self) -> int:
        """Subscriptions of all neighbours."""
        return self.subscriptions_per_neighbour_count * self.neighbours_count or self.subscriptions_count

    @property
    def variant(self) -> str:
        """The protocol, as the paper's table names it."""
        if self.failure == "permanent":
            return self.protocol
        return "none" if self.assisting == "never" else f"{self.protocol}-{self.assisting}"


def shipped_replication_scenarios() -> dict[str, str]:
    """Those that come with the package: their text by name.

    >>> list(shipped_replication_scenarios())[:2]
    ['replication-congestion', 'replication-fanout']
    """
    return shipped_texts("trimtab.simulation.replication", "scenarios")


def find_replication_text(name_or_file: str) -> str | None:
    """The text of a scenario of this kind, shipped or a file; None if it is another kind, or nothing."""
    return text_of_kind(name_or_file, shipped_replication_scenarios(), KIND)


def parse_replication(
    text: str, source: str, overrides: Mapping[str, str] | None = None
) -> tuple[list[str], list[ReplicationScenario]]:
    """Read a scenario's text: the keys that vary, and a scenario for every combination of their values.

    Overrides replace values by key; one with commas varies.

    >>> varied, scenarios = parse_replication('kind = "replication"', "my.toml", {"protocol": "basic,synchronous"})
    >>> varied, [each.protocol for each in scenarios]
    (['protocol'], ['basic', 'synchronous'])
    """
    varied, all_points = parse_grid(text, source, ReplicationScenario, overrides)
    scenarios: list[ReplicationScenario] = []
    for each in all_points:
        if all(each.variant != other.variant or _setting(each) != _setting(other) for other in scenarios):
            scenarios.append(each)  # without an assistant all protocols are the same
    return varied, scenarios


def _setting(scenario: ReplicationScenario) -> ReplicationScenario:
    return msgspec.structs.replace(scenario, protocol="synchronous", assisting="never")
