"""Brokers of a random run that fail, and how they are replaced, as declared data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.replication.config import ReplicationConfig
from trimtab.simulation.failures import StandByPool
from trimtab.simulation.faults import Crash, Hang

if TYPE_CHECKING:
    from trimtab.simulation.world import World


class Deaths(msgspec.Struct, frozen=True):
    """Which brokers fail when, and how long a replica takes to begin."""

    replication: ReplicationConfig
    failures: tuple[Crash | Hang, ...]
    start_after_s: float
    clients_return_s: float
    acknowledges: Acknowledges
    over_s: float
    """By then all that fail are replaced, and nobody watches any more."""

    def declare(self, world: World) -> None:
        """Let it happen in a world."""
        world.failures.provisioner = StandByPool(world, self.start_after_s, machines_count=100)
        world.failures.clients_return_s = self.clients_return_s
        for failure in self.failures:
            world.add_fault(failure)
