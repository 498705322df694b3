"""Publications lie in the connection of a client that has nothing else to do, and are read in time."""

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.world import World

LATENCY_S = 0.1


def world_with_a_reader(latency_s: float = LATENCY_S) -> World:
    world = World(1, bundle_s=0.025, acknowledge_after_s=0.4)
    for name in ("B1", "B2"):
        world.add_broker(BrokerConfig(name), SimulatedCapacity(bandwidth_mbps=10.0))
    world.add_link("B1", "B2", 0.001)
    world.run()
    world.add_client("p", "B1")
    world.advertise("p", Filter.parse("a > 0"))
    world.add_client("c", "B1", latency_s)
    world.subscribe("c", Filter.parse("a > 0"))
    world.run()
    return world


def publish(world: World, count: int) -> float:
    """Publish so many at once; returns when."""
    for _ in range(count):
        world.publish("p", {"a": 1})
    return world.now_s


def unread_count(world: World) -> int:
    return sum(len(connection.unread) for connection in world.clients["c"].connections.values())


def test_what_has_arrived_lies_there_until_the_client_acknowledges_it() -> None:
    world = world_with_a_reader()
    begun_s = publish(world, 3)
    world.clock.run(begun_s + LATENCY_S + 0.1)
    assert (unread_count(world), world.checker.deliveries_count) == (3, 0)
    world.run()
    assert (unread_count(world), world.checker.deliveries_count) == (0, 3)
    check_rest(world, [("B1", "B2")])
    assert world.checker.violations == []


def test_whoever_looks_at_the_world_finds_what_has_arrived_read_and_nothing_that_is_under_way() -> None:
    world = world_with_a_reader()
    begun_s = publish(world, 1)
    world.at(begun_s + 0.05, world.publish, "p", {"a": 1})
    world.run(begun_s + LATENCY_S + 0.02)
    assert (unread_count(world), world.checker.deliveries_count) == (1, 1)


def test_a_client_reads_before_it_unsubscribes() -> None:
    world = world_with_a_reader()
    begun_s = publish(world, 2)
    world.clock.run(begun_s + LATENCY_S + 0.1)
    world.unsubscribe("c", "c/s1")
    assert world.checker.deliveries_count == 2
    world.run()
    check_rest(world, [("B1", "B2")])
    assert world.checker.violations == []


def test_a_client_that_moves_reads_later_only_before_and_afterwards() -> None:
    world = world_with_a_reader()
    begun_s = publish(world, 2)
    world.clock.run(begun_s + LATENCY_S + 0.1)
    world.move("c", "B2")
    assert (unread_count(world), world.checker.deliveries_count) == (0, 2)
    publish(world, 2)
    world.run()
    assert world.clients["c"].session.broker == "B2"
    publish(world, 2)
    world.run()
    assert world.checker.deliveries_count == 6
    check_rest(world, [("B1", "B2")])
    assert world.checker.violations == []


def test_what_is_under_way_when_a_connection_breaks_is_lost_and_comes_again() -> None:
    world = world_with_a_reader()
    begun_s = publish(world, 1)
    world.at(begun_s + 0.08, world.publish, "p", {"a": 1})
    world.clock.run(begun_s + LATENCY_S + 0.05)
    world.transport.cut(frozenset(("c", "B1")), 1.0, (0.0, 0.0))
    assert (unread_count(world), world.checker.deliveries_count) == (0, 1)
    world.run()
    assert world.checker.deliveries_count == 2
    check_rest(world, [("B1", "B2")])
    assert world.checker.violations == []


def test_a_client_that_stops_reading_leaves_all_in_its_connection() -> None:
    world = world_with_a_reader()
    publish(world, 1)
    world.run()
    world.clients["c"].stop_reading()
    begun_s = publish(world, 1)
    world.run(begun_s + 0.3)
    assert (unread_count(world), world.checker.deliveries_count) == (0, 1)
