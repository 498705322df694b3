"""Brokers of a random run that fail, and how they are replaced, as declared data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.protocol.effects import Assist
from trimtab.replication.config import ReplicationConfig
from trimtab.simulation.failures import StandByPool
from trimtab.simulation.faults import Congest, Crash, Hang

if TYPE_CHECKING:
    from trimtab.simulation.world import World


class Helped(msgspec.Struct, frozen=True):
    """A broker that is slow for a while and gets an assistant."""

    broker: str
    at_s: float
    cpu_mhz: float
    for_s: float
    assistant_at_s: float
    neighbours: tuple[str, ...]


class Deaths(msgspec.Struct, frozen=True):
    """Which brokers fail when, and how long a replica takes to begin."""

    replication: ReplicationConfig
    failures: tuple[Crash | Hang, ...]
    start_after_s: float
    clients_return_s: float
    acknowledges: Acknowledges
    over_s: float
    """By then all that fail are replaced, and nobody watches any more."""
    helped: tuple[Helped, ...] = ()

    def declare(self, world: World) -> None:
        """Let it happen in a world."""
        world.failures.provisioner = StandByPool(world, self.start_after_s, machines_count=100)
        world.failures.clients_return_s = self.clients_return_s
        for failure in self.failures:
            world.add_fault(failure)
        for each in self.helped:
            world.add_fault(Congest(broker=each.broker, at_s=each.at_s, cpu_mhz=each.cpu_mhz, for_s=each.for_s))
            neighbours = tuple((name, "") for name in each.neighbours)
            request = Assist(each.broker, "1", self.replication.protocol, True, neighbours)
            world.at(each.assistant_at_s, world.failures.assist, request)
