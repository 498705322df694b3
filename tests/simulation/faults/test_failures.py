"""Brokers that die, hang or are congested in the simulated world, and how their neighbours see it."""

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Replace
from trimtab.simulation.faults.failures import StandByPool
from trimtab.simulation.faults.faults import Congest, Crash, Fault, Hang, Pause
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.world import World

LINKS = [("B1", "B2"), ("B2", "B3"), ("B2", "B4")]


def star(replication: ReplicationConfig | None, *, cpu_mhz: float | None = None) -> World:
    """A publisher at B1 and a subscriber at B3, linked through B2, which B4 knows too."""
    world = World(1)
    for name in ("B1", "B2", "B3", "B4"):
        neighbours = tuple(end for link in LINKS if name in link for end in link if end != name)
        world.add_broker(
            BrokerConfig(name, neighbours=neighbours, replication=replication), SimulatedCapacity(cpu_mhz=cpu_mhz)
        )
    for first, second in LINKS:
        world.add_link(first, second, 0.01)
    world.run(0.3)
    for client, broker in (("p", "B1"), ("sub", "B3")):
        world.add_client(client, broker)
    world.run(0.6)
    world.advertise("p", Filter.parse("a > 1"))
    world.run(0.8)
    world.subscribe("sub", Filter.parse("a > 5"))
    world.run(1.0)
    return world


def verdicts(world: World, of: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, host in world.brokers.items():
        if host.broker.replacement is not None and of in host.broker.replacement.verdicts():
            found[name] = host.broker.replacement.verdicts()[of]
    return found


def test_each_broker_knows_the_neighbours_of_its_neighbours() -> None:
    world = star(ReplicationConfig())
    replacement = world.brokers["B1"].broker.replacement
    assert replacement is not None
    assert sorted(replacement.neighbours_of("B2")) == ["B1", "B3", "B4"]


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (Crash(broker="B2", at_s=2.0), "crash"),
        (Crash(broker="B2", at_s=2.0, noticed_after_s=60.0), "hang"),
        (Hang(broker="B2", at_s=2.0), "hang"),
        (Pause(broker="B2", at_s=2.0, for_s=1.0), "alive"),
        (Pause(broker="B2", at_s=2.0, for_s=30.0), "hang"),
    ],
)
def test_neighbours_see_what_has_happened(fault: Fault, seen: str) -> None:
    world = star(ReplicationConfig())
    world.add_fault(fault)
    world.run(10.0)
    assert verdicts(world, "B2") == {"B1": seen, "B3": seen, "B4": seen}


def test_a_congested_broker_is_told_from_one_that_hangs() -> None:
    world = star(ReplicationConfig(congested_count=20), cpu_mhz=1000.0)
    world.add_fault(Congest(broker="B2", at_s=1.0, for_s=60.0, cpu_mhz=0.0005))
    for number in range(3_000):
        world.at(1.0 + number * 0.01, world.publish, "p", {"a": 6})
    world.run(30.0)
    assert verdicts(world, "B2") == {"B1": "congestion", "B3": "alive", "B4": "alive"}


def test_one_neighbour_asks_for_a_replica_and_a_machine_is_taken() -> None:
    world = star(ReplicationConfig())
    pool = world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=2)
    world.add_fault(Crash(broker="B2", at_s=2.0))
    world.run(10.0)
    replaced = [request for _, request in world.failures.requests if isinstance(request, Replace)]
    assert [(request.broker, request.why) for request in replaced] == [("B2", "crash")]
    assert 3.0 <= world.failures.requests[0][0] <= 4.0
    assert pool.machines_count == 1
    assert verdicts(world, "B2") == {"B1": "alive", "B3": "alive", "B4": "alive"}
    for number in range(10):
        world.publish("p", {"a": 6 + number})
    world.run(20.0)
    assert world.checker.deliveries_count == 10


def frames_without_and_with(publications_per_s: int) -> tuple[int, int]:
    """Frames of 30 s, after everything stands."""
    counts = []
    for replication in (None, ReplicationConfig()):
        world = star(replication)
        begin_count = world.frames_count
        for number in range(30 * publications_per_s):
            world.at(1.0 + number / publications_per_s, world.publish, "p", {"a": 6})
        world.run(31.0)
        counts.append(world.frames_count - begin_count)
    return counts[0], counts[1]


def test_a_link_that_carries_something_costs_nothing_more() -> None:
    without_count, with_count = frames_without_and_with(10)
    silent_links_count, looks_count = 1, 60  # B2 to B4
    assert with_count - without_count <= silent_links_count * looks_count * 2


def test_a_silent_link_costs_a_question_and_an_answer_for_each_look() -> None:
    without_count, with_count = frames_without_and_with(0)
    assert without_count == 0
    assert with_count <= 3 * 60 * 2


def test_a_replica_that_starts_after_the_end_of_an_experiment_begins_nothing() -> None:
    world = star(ReplicationConfig())
    world.failures.operator_replaces_after_s = 5.0
    world.run(2.0)
    world.retire_agents()
    world.failures.kill("B2")
    world.run(600.0)
    assert not world.brokers["B2"].is_dead
    assert world.is_at_rest
