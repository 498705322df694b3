"""Brokers of a random run that fail, and how they are replaced, as declared data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.broker.replication.config import Protocol, ReplicationConfig
from trimtab.protocol.effects import Assist
from trimtab.simulation.faults.failures import StandByPool
from trimtab.simulation.faults.faults import Congest, Crash, Hang
from trimtab.simulation.faults.separation import Fencing, Separation

if TYPE_CHECKING:
    from trimtab.simulation.world.world import World


OPERATOR_REPLACES_AFTER_S: Final = 15.0
"""Longer than neighbours take to notice a failure and to have the broker replaced."""


class Helped(msgspec.Struct, frozen=True):
    """A broker that is slow for a while and gets an assistant."""

    broker: str
    at_s: float
    cpu_mhz: float
    for_s: float
    assistant_at_s: float
    neighbours: tuple[str, ...]
    protocol: Protocol = "synchronous"


class Restart(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="restart"):
    """A broker dies and is started again on its machine, unless it has been replaced by then."""

    broker: str
    at_s: float
    after_s: float


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="asked"):
    """A broker is asked to end, and is started again on its machine: it says that it returns, and leaves its state."""

    broker: str
    at_s: float
    after_s: float


Failure: TypeAlias = Crash | Hang | Restart | Asked


class Deaths(msgspec.Struct, frozen=True):
    """Which brokers fail when, and how long a replica takes to begin."""

    replication: ReplicationConfig
    failures: tuple[Failure, ...]
    start_after_s: float
    clients_return_s: float
    acknowledges: Acknowledges
    over_s: float
    """By then all that fail are replaced, and nobody watches any more."""
    helped: tuple[Helped, ...] = ()
    separation: Separation | None = None
    """Two halves that cannot reach each other for a while; then majorities decide who is replaced, and none fail."""
    waits_for_takeovers: bool = False
    """Whether each failure but the first waits until all takeovers before it have ended and clients are back, which is
    what `received` and `safe` ask for."""

    def declare(self, world: World) -> None:
        """Let it happen in a world."""
        if self.separation is not None:
            world.failures.clients_return_s = self.clients_return_s
            Fencing(world, self.replication, self.start_after_s, self.over_s).declare(self.separation)
            return
        world.failures.provisioner = StandByPool(world, self.start_after_s, machines_count=100)
        world.failures.clients_return_s = self.clients_return_s
        world.failures.operator_replaces_after_s = OPERATOR_REPLACES_AFTER_S
        for failure in self.failures:
            world.at(failure.at_s, self._fail_in_turn, world, failure)
        for each in self.helped:
            world.add_fault(Congest(broker=each.broker, at_s=each.at_s, cpu_mhz=each.cpu_mhz, for_s=each.for_s))
            neighbours = tuple((name, "") for name in each.neighbours)
            request = Assist(each.broker, "1", each.protocol, True, neighbours)
            world.at(each.assistant_at_s, world.failures.assist, request)

    def _fail_in_turn(self, world: World, failure: Failure) -> None:
        if self.waits_for_takeovers:
            world.failures.once_mended(lambda: _fail(world, failure))
        else:
            _fail(world, failure)


def _fail(world: World, failure: Failure) -> None:
    match failure:
        case Crash(broker=broker, noticed_after_s=noticed_after_s):
            world.failures.kill(broker, noticed_after_s)
        case Hang(broker=broker):
            world.failures.hang(broker)
        case Restart(broker=broker, after_s=after_s):
            world.failures.kill(broker)
            world.at(world.now_s + after_s, world.failures.restart, broker)
        case Asked(broker=broker, after_s=after_s):
            world.failures.ask(broker)
            world.at(world.now_s + after_s, world.failures.restart, broker)
