"""How a broker's process ends: for good, to begin again in its place, or as one that has left the network."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from trimtab.network.failover.replication_settings import ReplicaOrder, neighbours_text

LEFT_EXIT_CODE: Final = 3
"""The exit code of a broker that was drained, for supervisors that start whatever ends again."""


class Ending(msgspec.Struct, frozen=True):
    """What becomes of a process when its broker has ended."""

    how: Literal["ended", "begins again", "left"] = "ended"
    order: ReplicaOrder | None = None
    """What it begins again as, if it is a replica."""


def next_order(order: ReplicaOrder, epoch: int, addresses: Mapping[str, str], listen: str) -> ReplicaOrder:
    """What a replica begins again as: the next incarnation, with the neighbours that it has at the end."""
    return msgspec.structs.replace(
        order,
        neighbours=tuple((name, address) for name, address in addresses.items() if address),
        listen=listen,
        epoch=epoch + 1,
    )


def command_of(ending: Ending, file: str, options: Sequence[str]) -> list[str]:
    """The command with which a process begins again: its own, or that of the next incarnation of a replica."""
    order = ending.order
    if order is None:
        return [sys.executable, *sys.orig_argv[1:]]
    return [
        *(sys.executable, "-m", "trimtab", "broker", order.broker, file, "--replica", order.protocol),
        *("--neighbours", neighbours_text(order.neighbours), "--listen", order.listen, "--epoch", str(order.epoch)),
        *options,
    ]
