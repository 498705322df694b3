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

from typing import Literal

import msgspec

from trimtab.broker.replication.config import Assisting, Protocol
from trimtab.simulation.scenarios.documents import check_ranges


class ReplicationScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole scenario file, without its grid."""

    kind: Literal["replication"] = "replication"
    """The kind of scenario; see `trimtab sim list --json`."""
    paper: str = ""
    """Whose experiment it is, for `trimtab sim list`."""
    name: str = ""
    """What it is called in summaries; the name of the file where it is missing."""
    description: str = ""
    """What it shows, in one sentence."""
    seed: int = 1
    """Seed of all random choices; `--seed` counts more."""
    failure: Literal["permanent", "transient"] = "permanent"
    """permanent: the broker dies and is replaced; transient: it is congested and may get an assistant."""

    protocol: Protocol = "synchronous"
    """How a replica takes over."""
    assisting: Assisting = "never"
    """Of a transient failure: never leaves the congested broker alone."""

    subscriptions_count: int = 1_000
    """Of all neighbours together."""
    subscriptions_per_neighbour_count: int = 0
    """If given, each neighbour has so many, however many neighbours there are."""

    pending_count: int = 100
    """Publications that wait when the replica begins; of a transient failure all that are published."""

    neighbours_count: int = 1
    """Neighbours with subscribers; one more has the publisher."""

    zipf_degree: float = 0.5
    """How strongly values tend towards one end of their range."""
    popular: bool = True
    """Whether publications and subscriptions tend towards many matches, or towards few (figure 8b)."""

    values_count: int = 20
    """Values are 1 to this."""

    congestion: float = 3.0
    """Of a transient failure: publications come so many times as fast as the congested broker can match them."""

    cpu_mhz: float | None = None
    """Of all brokers; without it matching takes no time. Of a transient failure 100 where nothing is said."""

    bandwidth_mbps: float = 10.0
    """Of each broker."""
    latency_s: float = 0.001
    """Of all links."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            ("subscriptions_count", 1, 1_000_000),
            ("subscriptions_per_neighbour_count", 0, 1_000_000),
            ("pending_count", 1, 1_000_000),
            ("neighbours_count", 1, 1_000),
            ("zipf_degree", 0.0, 100.0),
            ("values_count", 2, 1_000_000),
            ("congestion", 0.001, 1_000.0),
            ("bandwidth_mbps", 0.001, 1e9),
            ("latency_s", 0.0, 60.0),
        )
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

    @property
    def distinct(self) -> object:
        """What tells it from others: without an assistant all protocols are the same."""
        return self.variant, msgspec.structs.replace(self, protocol="synchronous", assisting="never")
