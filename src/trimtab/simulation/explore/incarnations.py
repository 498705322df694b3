"""How a broker of a case is configured, in its first incarnation and in those that take its place.

This is all that the explorer knows of how takeovers are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from trimtab.broker.config import Acknowledges, BrokerConfig
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.client.config import ClientConfig
from trimtab.protocol.link import LinkConfig

TakenBy: TypeAlias = Literal["replica", "restart"]
"""Who takes the place of a broker that is dead: a replica, or the broker itself, started again as it was."""

LEASE_S: Final = 20.0
"""How long a client may be away; times are short, for nothing else happens while they pass."""


def first_incarnation(
    name: str, neighbours: Sequence[str], level: Acknowledges, data_window_count: int
) -> BrokerConfig:
    """A broker that nobody was before."""
    return BrokerConfig(
        name,
        neighbours=tuple(neighbours),
        acknowledges=level,
        link=LinkConfig(data_window_count=data_window_count),
        client_lease_s=LEASE_S,
        replication=ReplicationConfig(),
    )


def next_incarnation(before: BrokerConfig, taken_by: TakenBy) -> BrokerConfig:
    """A broker that takes the place of one that is dead."""
    replica = "synchronous" if taken_by == "replica" else ""
    return msgspec.structs.replace(before, session=f"{before.session}+", replica=replica, epoch=before.epoch + 1)


def client_of(name: str) -> ClientConfig:
    """A client, whose moves are given up soon."""
    return ClientConfig(name, reach_within_s=10.0, move_within_s=60.0, hold_back_within_s=30.0, lease_s=LEASE_S)
