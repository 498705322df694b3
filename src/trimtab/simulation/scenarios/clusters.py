"""`[clusters]` of a scenario: cluster-heads in a chain or a star, each with its edge-brokers.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), Figure 5.16 and
section 5.3.2. Names follow it: cluster-heads are B10, B20 and so on, their edge-brokers B11, B12, ...; a single cluster
has the head B0 with B1, B2, ...
"""

from __future__ import annotations

from itertools import count
from typing import Final, Literal

import msgspec

BETWEEN_BROKERS_S: Final = 0.01
"""Brokers begin one after the other, so long apart."""


class MachinePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a broker runs on."""

    cpu_mhz: float
    memory_mb: float
    bandwidth_mbps: float


class ClustersPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[clusters]`: how many clusters, how they hang together, and their machines."""

    count: int
    """How many clusters."""
    shape: Literal["chain", "star"] = "chain"
    """A chain of heads that begins with the first, or all others around the first."""
    head: MachinePart
    """The machine of each head."""
    edge_brokers_count: int
    """Of each cluster."""
    edges: list[MachinePart]
    """The machines of edge-brokers, cluster by cluster; from the first again where there are fewer."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= 99:
            raise ValueError(f"between 1 and 99 clusters, not {self.count}")
        if not 1 <= self.edge_brokers_count <= 99:
            raise ValueError(f"between 1 and 99 edge-brokers in a cluster, not {self.edge_brokers_count}")
        if not self.edges:
            raise ValueError("edges: the machine of at least one edge-broker is needed")


class ClusterBroker(msgspec.Struct, frozen=True):
    """A broker of a cluster."""

    name: str
    at_s: float
    machine: MachinePart


def brokers_of(part: ClustersPart) -> list[ClusterBroker]:
    """All brokers, each head before its edge-brokers.

    >>> machine = MachinePart(cpu_mhz=500, memory_mb=64, bandwidth_mbps=3)
    >>> [each.name for each in brokers_of(ClustersPart(count=2, head=machine, edge_brokers_count=2, edges=[machine]))]
    ['B10', 'B11', 'B12', 'B20', 'B21', 'B22']
    """
    numbers = count()
    edges = count()
    found: list[ClusterBroker] = []
    for cluster in range(part.count):
        found.append(ClusterBroker(_head(part, cluster), next(numbers) * BETWEEN_BROKERS_S, part.head))
        for name in _edges(part, cluster):
            machine = part.edges[next(edges) % len(part.edges)]
            found.append(ClusterBroker(name, next(numbers) * BETWEEN_BROKERS_S, machine))
    return found


def links_of(part: ClustersPart) -> list[tuple[str, str]]:
    """All links: those of edge-brokers to their heads, then those between heads.

    >>> machine = MachinePart(cpu_mhz=500, memory_mb=64, bandwidth_mbps=3)
    >>> part = ClustersPart(count=3, shape="star", head=machine, edge_brokers_count=1, edges=[machine])
    >>> links_of(part)[-2:]
    [('B10', 'B20'), ('B10', 'B30')]
    """
    inside = [(_head(part, cluster), name) for cluster in range(part.count) for name in _edges(part, cluster)]
    between = [
        (_head(part, 0 if part.shape == "star" else cluster - 1), _head(part, cluster))
        for cluster in range(1, part.count)
    ]
    return [*inside, *between]


def _prefix(part: ClustersPart, cluster: int) -> str:
    return "B" if part.count == 1 else f"B{cluster + 1}"


def _head(part: ClustersPart, cluster: int) -> str:
    return f"{_prefix(part, cluster)}0"


def _edges(part: ClustersPart, cluster: int) -> list[str]:
    return [f"{_prefix(part, cluster)}{number}" for number in range(1, part.edge_brokers_count + 1)]
