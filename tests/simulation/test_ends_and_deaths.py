"""A publisher's advertisements end while its publications wait, and the broker in the middle dies.

Its neighbour retains the publications and the end behind them, and tells the replica the advertisement once more.
"""

from collections.abc import Callable

import pytest

from trimtab.broker.config import Acknowledges, BrokerConfig
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.language import Filter
from trimtab.protocol.link import LinkConfig
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.failures import StandByPool
from trimtab.simulation.faults.faults import Crash
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.world import World

LINKS = [("B0", "B1"), ("B1", "B2"), ("B2", "B3")]
NEIGHBOURS = {"B0": ("B1",), "B1": ("B0", "B2"), "B2": ("B1", "B3"), "B3": ("B2",)}
PUBLICATIONS_COUNT = 400
LEVELS: tuple[Acknowledges, ...] = ("received", "safe", "durable")

End = Callable[[World], None]


def leave(world: World) -> None:
    world.leave("p")


def unadvertise(world: World) -> None:
    for id in [id for id, (client, _) in world.checker.advertisements.items() if client == "p"]:
        world.unadvertise("p", id)


def move_beyond(world: World) -> None:
    world.move("p", "B1")


def move_to_the_middle(world: World) -> None:
    world.move("p", "B2")


ENDS = [leave, unadvertise, move_beyond, move_to_the_middle]


def line(level: Acknowledges) -> World:
    """Four brokers in a row, a publisher at B3, subscribers at all others, and a slow way out of B2.

    What B3 retains comes to a replica of B2 before what B1 has to say of filters that nobody told again. Where a broker
    acknowledges what it has received, a small window keeps publications at B3.
    """
    link = LinkConfig(data_window_count=16) if level == "received" else LinkConfig()
    replication = ReplicationConfig(look_every_s=0.1, crash_after_s=0.2)
    world = World(1, link=link)
    for name, neighbours in NEIGHBOURS.items():
        config = BrokerConfig(name, neighbours=neighbours, link=link, replication=replication, acknowledges=level)
        world.add_broker(config, SimulatedCapacity(bandwidth_mbps=0.5) if name == "B2" else None)
    for first, second in LINKS:
        world.add_link(first, second, 0.05 if (first, second) == ("B1", "B2") else 0.01)
    world.failures.provisioner = StandByPool(world, start_after_s=0.1, machines_count=2)
    world.run(0.3)
    world.add_client("p", "B3")
    for broker in ("B0", "B1", "B2"):
        world.add_client(f"s@{broker}", broker)
    world.run(1.0)
    world.advertise("p", Filter.parse("a > 0"))
    for broker in ("B0", "B1", "B2"):
        world.subscribe(f"s@{broker}", Filter.parse("a > 5"))
    world.run(3.0)
    return world


def publish_all(world: World) -> None:
    for number in range(PUBLICATIONS_COUNT):
        world.publish("p", {"a": 6 + number})


def run_until(world: World, is_so: Callable[[], bool]) -> None:
    while not is_so():
        assert world.now_s < 30.0
        world.run(world.now_s + 0.005)


def end_when_accepted(world: World, end: End) -> None:
    """End the publisher's advertisement as soon as all it said is acknowledged, and wait until B3 has ended it."""
    session = world.clients["p"].session
    run_until(world, lambda: not session.waiting_count)
    [entry] = world.brokers["B3"].broker.tables.advertisements.values()
    end(world)
    run_until(world, lambda: "p" not in entry.hops)


def finish(world: World) -> list[str]:
    world.run(world.now_s + 30.0)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(world.now_s + 600.0)
    check_rest(world, LINKS)
    assert world.checker.accepted_count == PUBLICATIONS_COUNT
    return [f"{violation.kind}: {violation.text}" for violation in world.checker.violations]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("level", LEVELS)
def test_what_was_acknowledged_before_an_advertisement_ended_survives_the_broker_in_the_middle(
    level: Acknowledges, end: End
) -> None:
    world = line(level)
    publish_all(world)
    end_when_accepted(world, end)
    assert world.checker.deliveries_count < 3 * PUBLICATIONS_COUNT
    world.add_fault(Crash(broker="B2", at_s=world.now_s + (0.05 if level == "received" else 0.3)))
    assert finish(world) == []
    assert world.failures.replaced_count == 1
    if level != "received":
        assert world.checker.deliveries_count == 3 * PUBLICATIONS_COUNT


def test_a_replica_that_dies_as_well_is_told_once_more() -> None:
    world = line("safe")
    publish_all(world)
    end_when_accepted(world, leave)
    world.run(world.now_s + 0.3)
    world.failures.kill("B2")
    run_until(world, lambda: world.failures.replaced_count == 1)
    world.run(world.now_s + 0.3)
    world.failures.kill("B2")
    assert finish(world) == []
    assert world.failures.replaced_count == 2


def test_what_an_ended_advertisement_covered_and_what_covers_it_end_in_their_turn() -> None:
    """The wider one of q stood for that of p; both publishers leave while their publications wait."""
    world = line("safe")
    world.add_client("q", "B3")
    world.run(3.5)
    world.advertise("q", Filter.parse("a > -5"))
    world.run(4.0)
    for number in range(PUBLICATIONS_COUNT // 2):
        world.publish("p", {"a": 6 + number})
        world.publish("q", {"a": 6 + number})
    run_until(world, lambda: not any(world.clients[name].session.waiting_count for name in "pq"))
    world.leave("q")
    world.run(world.now_s + 0.1)
    world.leave("p")
    world.run(world.now_s + 0.2)
    world.failures.kill("B2")
    assert finish(world) == []
    assert world.checker.deliveries_count == 3 * PUBLICATIONS_COUNT
