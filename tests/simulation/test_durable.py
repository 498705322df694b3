"""What is acknowledged as durable survives the death of all brokers at once."""

from random import Random

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.language import Filter
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.failures import StandByPool
from trimtab.simulation.world.world import World

LINKS = [("B1", "B2"), ("B2", "B3")]
BROKERS = ("B1", "B2", "B3")


def row(acknowledges: str = "durable", seed: int = 1) -> World:
    """Three brokers in a row, each with a publisher and a subscriber to all."""
    world = World(seed)
    replication = ReplicationConfig(look_every_s=0.1, crash_after_s=0.3)
    for name in BROKERS:
        neighbours = tuple(end for link in LINKS if name in link for end in link if end != name)
        config = BrokerConfig(name, neighbours=neighbours, replication=replication, acknowledges=acknowledges)  # type: ignore[arg-type]
        world.add_broker(config)
    for first, second in LINKS:
        world.add_link(first, second, 0.01)
    world.run(0.3)
    for name in BROKERS:
        world.add_client(f"p@{name}", name)
        world.add_client(f"s@{name}", name)
        world.advertise(f"p@{name}", Filter.parse("a > 1"))
        world.subscribe(f"s@{name}", Filter.parse("a > 5"))
    world.run(2.0)
    return world


def publish(world: World, count: int) -> None:
    for number in range(count):
        for name in BROKERS:
            world.at(world.now_s + number * 0.007, world.publish, f"p@{name}", {"a": 6})


def finish(world: World, until_s: float) -> list[str]:
    world.run(until_s)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(until_s + 600.0)
    check_rest(world, LINKS)
    return [f"{violation.kind}: {violation.text}" for violation in world.checker.violations]


@pytest.mark.parametrize("seed", range(1, 6))
def test_all_brokers_may_die_at_once(seed: int) -> None:
    world = row(seed=seed)
    publish(world, 100)
    dies_s = 2.0 + Random(seed).uniform(0.05, 0.6)
    for name in BROKERS:
        world.at(dies_s, world.failures.kill, name)
        world.at(dies_s + 0.5, world.failures.restart, name)
    assert finish(world, 30.0) == []
    assert world.checker.deliveries_count == 100 * 3 * 3
    assert [len(disk) for disk in world.disks.values()] == [0, 0, 0]


@pytest.mark.parametrize("broker", BROKERS)
def test_one_broker_that_dies_is_replaced_with_its_disk(broker: str) -> None:
    world = row()
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=1)
    publish(world, 100)
    world.at(2.3, world.failures.kill, broker)
    assert finish(world, 30.0) == []
    assert world.checker.deliveries_count == 100 * 3 * 3


def test_without_a_disk_the_death_of_all_loses_what_was_acknowledged() -> None:
    world = row("safe")
    publish(world, 100)
    for name in BROKERS:
        world.at(2.3, world.failures.kill, name)
        world.at(2.8, world.failures.restart, name)
    assert finish(world, 30.0) == []  # nothing is promised for that
    assert not any(client.session.waiting_count for client in world.clients.values())
    assert world.checker.deliveries_count < 100 * 3 * 3


def test_a_publication_is_acknowledged_when_it_is_on_disk_and_forgotten_when_all_have_it() -> None:
    world = row()
    world.publish("p@B1", {"a": 6})
    world.run(2.0 + 0.001 + 0.0015)
    session = world.clients["p@B1"].session
    assert (session.waiting_count, len(world.disks["B1"])) == (1, 0)
    world.run(2.0 + 0.005)
    assert (session.waiting_count, len(world.disks["B1"])) == (0, 1)
    world.run(3.0)
    assert len(world.disks["B1"]) == 0


def test_durable_needs_slow_clients_to_hold_publishers_back() -> None:
    with pytest.raises(ValueError, match="durable"):
        BrokerConfig("B1", acknowledges="durable", slow_policy="drop-oldest")
