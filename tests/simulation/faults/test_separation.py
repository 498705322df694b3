"""Two halves that cannot reach each other, at the level safe: who is fenced and replaced, and that nothing is lost."""

from __future__ import annotations

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.language import Filter
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.separation import Fencing, Separation
from trimtab.simulation.world.world import World

UNTIL_S = 40.0


class Halves:
    """Brokers in a row with a publisher and a subscriber at each, of which the last ones are cut off for a while."""

    def __init__(self, count: int, inside: tuple[str, ...], for_s: float = 6.0) -> None:
        self.names = [f"B{number}" for number in range(1, count + 1)]
        self.links = list(zip(self.names, self.names[1:], strict=False))
        self.world = world = World(7)
        replication = ReplicationConfig(look_every_s=0.1, crash_after_s=1.0, ask_again_s=1.0)
        for name in self.names:
            neighbours = tuple(end for link in self.links if name in link for end in link if end != name)
            config = BrokerConfig(name, neighbours=neighbours, replication=replication, acknowledges="safe")
            world.add_broker(config)
        for first, second in self.links:
            world.add_link(first, second, 0.01)
        self.fencing = Fencing(world, replication, start_after_s=0.2, until_s=UNTIL_S)
        self.fencing.declare(Separation(brokers=inside, at_s=5.0, for_s=for_s))
        for name in self.names:
            world.add_client(f"p{name}", name)
            world.add_client(f"s{name}", name)
        world.run(1.0)
        for name in self.names:
            world.advertise(f"p{name}", Filter.parse("a > 0"))
            world.subscribe(f"s{name}", Filter.parse("a > 0"))

    def publish_steadily(self) -> None:
        for number in range(100):
            for name in self.names:
                self.world.at(4.0 + number * 0.1, self.world.publish, f"p{name}", {"a": 1 + number})

    def accepted(self, name: str) -> int:
        """How many publications of a broker's publisher are acknowledged."""
        session = self.world.clients[f"p{name}"].session
        return 100 - session.waiting_count

    def finish(self) -> list[str]:
        self.world.run(UNTIL_S)
        self.world.retire_agents()
        self.world.run(UNTIL_S + 600)
        check_rest(self.world, self.links)
        return [f"{violation.kind}: {violation.text}" for violation in self.world.checker.violations]


@pytest.mark.parametrize(("count", "inside"), [(3, ("B3",)), (5, ("B4", "B5")), (5, ("B5",)), (7, ("B5", "B6", "B7"))])
def test_the_larger_half_replaces_whom_it_misses_and_nothing_is_lost(count: int, inside: tuple[str, ...]) -> None:
    halves = Halves(count, inside)
    halves.publish_steadily()
    assert halves.finish() == []
    assert halves.world.failures.replaced_count == 1
    assert halves.world.brokers[inside[0]].broker.epoch == 2
    others = [name for name in halves.names if name != inside[0]]
    assert {halves.world.brokers[name].broker.epoch for name in others} == {1}


def test_the_smaller_half_takes_nothing_and_goes_on_when_they_meet() -> None:
    halves = Halves(5, ("B4", "B5"))
    halves.publish_steadily()
    halves.world.run(6.2)
    fenced = [name for name in halves.names if halves.world.brokers[name].broker.fence_problem]
    assert fenced == ["B4", "B5"]
    waiting = halves.world.clients["pB5"].session.waiting_count
    halves.world.run(10.0)
    assert halves.world.clients["pB5"].session.waiting_count > waiting + 30
    assert halves.finish() == []
    assert halves.world.clients["pB5"].session.waiting_count == 0
    assert not any(host.broker.fence_problem for host in halves.world.brokers.values())


def test_of_two_equal_halves_neither_goes_on() -> None:
    halves = Halves(4, ("B3", "B4"))
    halves.publish_steadily()
    halves.world.run(8.0)
    assert all(host.broker.fence_problem for host in halves.world.brokers.values())
    assert halves.fencing.refused
    assert halves.finish() == []
    assert halves.world.failures.replaced_count == 0


def test_a_short_cut_fences_nobody_and_replaces_nobody() -> None:
    halves = Halves(5, ("B4", "B5"), for_s=0.4)
    halves.publish_steadily()
    halves.world.run(5.5)
    assert not any(host.broker.fence_problem for host in halves.world.brokers.values())
    assert halves.finish() == []
    assert halves.world.failures.replaced_count == 0
