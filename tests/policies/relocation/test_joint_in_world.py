"""Joint placement in a simulated network: what moves bring to a weak broker does not overload it; GRAPE's would.

Six publishers are at B1. Their only subscribers, at the weak broker B3, want half of what they publish: B3 is the best
place for each of them alone, and gets twice as much to match for each that comes.
"""

from __future__ import annotations

from random import Random

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.policies.relocation.agent import RelocationAgent
from trimtab.policies.relocation.config import Algorithm, RelocationConfig
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.world import World

PUBLISHERS = [f"P{number}" for number in range(1, 7)]
CPU_MHZ = {"B1": 1_000.0, "B2": 1_000.0, "B3": 3.0}


class Outcome:
    """Where the publishers are after two minutes, and how loaded B3 was at most."""

    def __init__(self, algorithm: Algorithm) -> None:
        config = RelocationConfig(algorithm=algorithm, grape_threshold_count=50, rest_s=5.0, joint_wait_s=2.0)
        self.world = world = World(1)
        for name, cpu_mhz in CPU_MHZ.items():
            neighbours = {"B1": ("B2",), "B2": ("B1", "B3"), "B3": ("B2",)}[name]
            agent = RelocationAgent(config, Random(name))
            world.add_broker(BrokerConfig(name, neighbours=neighbours), SimulatedCapacity(cpu_mhz=cpu_mhz), [agent])
        world.add_link("B1", "B2")
        world.add_link("B2", "B3")
        world.run(1.0)
        for name in PUBLISHERS:
            world.add_client(name, "B1")
            world.advertise(name, Filter.parse(f"[class,eq,'NEWS'],[source,eq,'{name}'],[number,isPresent,0]"))
            world.add_client(f"S-{name}", "B3")
            world.subscribe(f"S-{name}", Filter.parse(f"[class,eq,'NEWS'],[source,eq,'{name}'],[number,eq,0]"))
        world.run(5.0)
        before = 0.0
        self.highest_ratio = 0.0
        for number in range(600):
            for place, name in enumerate(PUBLISHERS):
                world.at(5.0 + number * 0.2 + place * 0.03, self._publish, name, number % 2)
        for second in range(13, 125):
            world.run(float(second))
            ratio = world.load("B3").input_utilization_ratio
            before = before or ratio
            self.highest_ratio = max(self.highest_ratio, ratio)
        self.ratio_before = before
        self.moved = [name for name in PUBLISHERS if world.clients[name].session.broker == "B3"]

    def _publish(self, name: str, number: int) -> None:
        self.world.publish(name, {"class": "NEWS", "source": name, "number": number})


def test_grape_alone_overloads_the_broker_that_is_best_for_each() -> None:
    outcome = Outcome("grape")
    assert outcome.ratio_before < 0.7
    assert outcome.moved == PUBLISHERS
    assert outcome.highest_ratio > 0.9


def test_joint_placement_moves_as_many_as_there_is_room_for() -> None:
    outcome = Outcome("grape-joint")
    assert outcome.ratio_before < 0.7
    assert 1 <= len(outcome.moved) < len(PUBLISHERS)
    assert outcome.highest_ratio <= 0.9
    assert outcome.world.checker.violations == []


@pytest.mark.parametrize("algorithm", ["grape", "grape-joint"])
def test_nothing_is_lost_either_way(algorithm: Algorithm) -> None:
    world = Outcome(algorithm).world
    world.run(2_000.0)
    world.checker.check_at_rest()
    assert world.checker.violations == []
