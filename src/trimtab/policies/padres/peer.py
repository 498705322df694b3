"""PEER: which brokers serve publishers, which serve subscribers, and where a client is sent that came to the wrong one.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 3.2.

Brokers with several neighbours are cluster-heads: they pass publications on quickly because they serve no subscribers.
Brokers with one neighbour are edge-brokers of that neighbour's cluster and serve the subscribers. Roles follow from
the topology alone and are worked out again whenever a broker joins or leaves.

Deviations:
- A subscriber at a cluster-head that has no edge-broker of its own (all of its neighbours are heads) is sent to the
  nearest cluster that has one, since somebody must serve it.
- If all edge-brokers are overloaded, a random one of them is chosen rather than none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from enum import StrEnum
from random import Random

import msgspec


class BrokerRole(StrEnum):
    """What a broker serves."""

    UNCLASSIFIED = "unclassified"
    """Fewer than three brokers: everybody serves everybody."""

    CLUSTER_HEAD = "cluster-head"
    EDGE_BROKER = "edge-broker"


class ClientKind(StrEnum):
    """What a client does; one that does both, or an agent of a broker, stays where it is."""

    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"
    BOTH = "both"
    AGENT = "agent"


class Topology(msgspec.Struct, frozen=True):
    """Brokers and the links between them, a tree."""

    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        unknown = sorted({name for link in self.links for name in link} - set(self.brokers))
        if unknown:
            raise ValueError(f"a link names an unknown broker: {unknown[0]}")

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """The brokers linked to a broker, in the order of their names."""
        return tuple(
            sorted(
                [second for first, second in self.links if first == broker]
                + [first for first, second in self.links if second == broker]
            )
        )


def roles(topology: Topology) -> dict[str, BrokerRole]:
    """The role of every broker.

    >>> three = Topology(("B0", "B1", "B2"), (("B0", "B1"), ("B0", "B2")))
    >>> {name: role.value for name, role in roles(three).items()}
    {'B0': 'cluster-head', 'B1': 'edge-broker', 'B2': 'edge-broker'}
    """
    if len(topology.brokers) < 3:
        return dict.fromkeys(topology.brokers, BrokerRole.UNCLASSIFIED)
    return {
        broker: BrokerRole.CLUSTER_HEAD if len(topology.neighbours(broker)) > 1 else BrokerRole.EDGE_BROKER
        for broker in topology.brokers
    }


def cluster_of(topology: Topology, broker: str) -> str | None:
    """The cluster that a broker belongs to, named after its head; None without roles or without neighbours."""
    match roles(topology)[broker]:
        case BrokerRole.CLUSTER_HEAD:
            return broker
        case BrokerRole.EDGE_BROKER:
            return next(iter(topology.neighbours(broker)), None)
        case BrokerRole.UNCLASSIFIED:
            return None


def edge_brokers(topology: Topology, head: str) -> tuple[str, ...]:
    """The edge-brokers of a cluster."""
    role = roles(topology)
    return tuple(name for name in topology.neighbours(head) if role[name] == BrokerRole.EDGE_BROKER)


def neighbouring_heads(topology: Topology, head: str) -> tuple[str, ...]:
    """The cluster-heads one cluster-hop away."""
    role = roles(topology)
    return tuple(name for name in topology.neighbours(head) if role[name] == BrokerRole.CLUSTER_HEAD)


def redirect(topology: Topology, broker: str, kind: ClientKind, overloaded: Collection[str], rng: Random) -> str | None:
    """The broker that should serve a client which has come to this one; None if it is here.

    >>> cluster = Topology(("B0", "B1", "B2"), (("B0", "B1"), ("B0", "B2")))
    >>> redirect(cluster, "B1", ClientKind.PUBLISHER, (), Random(1))
    'B0'
    >>> redirect(cluster, "B0", ClientKind.SUBSCRIBER, {"B1"}, Random(1))
    'B2'
    >>> redirect(cluster, "B1", ClientKind.SUBSCRIBER, (), Random(1)) is None
    True
    """
    match roles(topology)[broker], kind:
        case BrokerRole.EDGE_BROKER, ClientKind.PUBLISHER:
            return next(iter(topology.neighbours(broker)), None)
        case BrokerRole.CLUSTER_HEAD, ClientKind.SUBSCRIBER:
            edges = _nearest_edge_brokers(topology, broker)
            available = [name for name in edges if name not in overloaded]
            return rng.choice(available or edges) if edges else None
        case _:
            return None


def _nearest_edge_brokers(topology: Topology, head: str) -> list[str]:
    seen, waiting = {head}, deque([head])
    while waiting:
        nearest = waiting.popleft()
        edges = edge_brokers(topology, nearest)
        if edges:
            return list(edges)
        for name in neighbouring_heads(topology, nearest):
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return []


def moves_after_change(
    topology: Topology, clients: Mapping[str, Mapping[str, ClientKind]], overloaded: Collection[str], rng: Random
) -> dict[str, str]:
    """The clients that must move because roles changed, each with its new broker, in the order given.

    >>> cluster = Topology(("B0", "B1", "B2"), (("B0", "B1"), ("B0", "B2")))
    >>> clients = {"B1": {"quotes": ClientKind.PUBLISHER, "alice": ClientKind.SUBSCRIBER}}
    >>> moves_after_change(cluster, clients, (), Random(1))
    {'quotes': 'B0'}
    """
    moves: dict[str, str] = {}
    for broker, kinds in clients.items():
        for client, kind in kinds.items():
            target = redirect(topology, broker, kind, overloaded, rng)
            if target is not None:
                moves[client] = target
    return moves
