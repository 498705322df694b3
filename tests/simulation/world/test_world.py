"""Virtual time, capacities, connections and faults around the very same brokers and clients."""

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.faults import Cut, Delay, Drop, Duplicate, Partition, Pause, Reorder
from trimtab.simulation.world.capacity import PUBLICATION_BYTES, SimulatedCapacity
from trimtab.simulation.world.world import World

LINKS = [("B1", "B2"), ("B2", "B3"), ("B2", "B4")]


def figure_2_2(*, seed: int = 1, capacity: SimulatedCapacity | None = None) -> World:
    """The brokers of Figure 2.2 of the thesis with its clients, all in force."""
    world = World(seed)
    for name in ("B1", "B2", "B3", "B4"):
        world.add_broker(BrokerConfig(name), capacity)
    for first, second in LINKS:
        world.add_link(first, second, 0.01)
    world.run()
    for client, broker in (("p", "B1"), ("sub1", "B4"), ("sub2", "B3")):
        world.add_client(client, broker)
    world.run()
    world.advertise("p", Filter.parse("a > 1"))
    world.run()
    world.subscribe("sub1", Filter.parse("a > 5"))
    world.run()
    world.subscribe("sub2", Filter.parse("a > 9"))
    world.run()
    return world


def publish_some(world: World, count: int = 50) -> None:
    for number in range(count):
        world.at(world.now_s + number * 0.1, world.publish, "p", {"a": 2 + number % 12})


def finish(world: World) -> list[str]:
    world.run(world.now_s + 600)
    check_rest(world, LINKS)
    return [f"{violation.kind}: {violation.text}" for violation in world.checker.violations]


def test_a_publication_takes_the_latency_of_its_way() -> None:
    world = figure_2_2()
    world.publish("p", {"a": 6})
    assert finish(world) == []
    assert world.checker.delays.recent_s == [pytest.approx(0.001 + 0.01 + 0.01 + 0.001)]


def test_matching_takes_time_that_grows_with_the_subscriptions() -> None:
    world = figure_2_2(capacity=SimulatedCapacity(cpu_mhz=1.65))
    world.publish("p", {"a": 6})
    assert finish(world) == []
    subscriptions_count = [1, 2, 1]  # at B1 (sub2 is covered), B2 and B4
    assert world.checker.delays.recent_s == [pytest.approx(0.022 + 0.01 * sum(subscriptions_count))]


def test_publications_wait_for_bandwidth() -> None:
    world = figure_2_2(capacity=SimulatedCapacity(bandwidth_mbps=PUBLICATION_BYTES * 8 / 1e6))
    for _ in range(3):
        world.publish("p", {"a": 6})
    assert finish(world) == []
    first, second, third = world.checker.delays.recent_s
    assert first > 3.0
    assert second - first > 0.99
    assert third - second > 0.99


@pytest.mark.parametrize(
    "fault",
    [
        Drop(for_s=100.0, probability=0.3),
        Duplicate(for_s=100.0, probability=0.5),
        Delay(for_s=100.0, probability=0.2, delay_s=2.0),
        Reorder(for_s=100.0, probability=0.5, spread_s=1.0),
        Cut(between=("B1", "B2"), at_s=2.0, for_s=3.0, noticed_after_s=(0.0, 1.5)),
        Cut(between=("sub1", "B4"), at_s=2.0, for_s=3.0),
        Partition(brokers=("B2", "B3"), at_s=2.0, for_s=3.0),
        Pause(broker="B2", at_s=2.0, for_s=3.0),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_nothing_is_lost_doubled_or_reordered_by(
    fault: Drop | Duplicate | Delay | Reorder | Cut | Partition | Pause,
) -> None:
    world = figure_2_2()
    world.add_fault(fault)
    publish_some(world)
    assert finish(world) == []
    assert world.checker.accepted_count == 50
    assert sum(world.faults_count.values()) > 0


def test_a_subscriber_moves_while_publications_flow() -> None:
    world = figure_2_2()
    publish_some(world)
    world.at(world.now_s + 1.55, world.move, "sub1", "B3")
    world.at(world.now_s + 3.05, world.move, "sub1", "B1")
    assert finish(world) == []
    assert world.moves_count == 2
    assert world.clients["sub1"].session.broker == "B1"


def test_a_lost_publication_is_reported_as_missing() -> None:
    world = figure_2_2()
    world.publish("p", {"a": 6})
    world.run(world.now_s + 0.001)
    link = world.brokers["B1"].broker.peers["B2"].link
    link._unacknowledged.clear()
    link._oldest_number = link._next_number
    world.links[frozenset(("B1", "B2"))].epoch += 1
    world.run(world.now_s + 600)
    world.checker.check_at_rest()
    assert [str(violation.kind) for violation in world.checker.violations] == ["missing"]


def test_names_are_unique() -> None:
    world = figure_2_2()
    with pytest.raises(ValueError, match="the name B1 is in use"):
        world.add_client("B1", "B2")
    with pytest.raises(ValueError, match="the name p is in use"):
        world.add_broker(BrokerConfig("p"))


def test_a_broker_joins_a_running_network_gets_clients_and_leaves() -> None:
    world = figure_2_2()
    world.add_broker(BrokerConfig("B5"))
    world.add_link("B5", "B3", 0.02)
    world.run()
    assert world.are_linked("B3", "B5")
    world.add_client("sub3", "B5")
    subscription = world.subscribe("sub3", Filter.parse("a > 1"))
    world.run()
    publish_some(world)
    world.run()
    assert world.checker.subscriptions[subscription].last == {"p": 50}
    world.unsubscribe("sub3", subscription)
    world.run()
    world.remove_link("B3", "B5")
    publish_some(world)
    world.run()
    assert finish(world) == []
    assert list(world.brokers["B5"].broker.tables.advertisements) == []


def test_a_link_that_would_close_a_cycle_is_refused_and_traffic_goes_on() -> None:
    world = figure_2_2()
    world.add_link("B1", "B3", 0.01)
    publish_some(world)
    world.run(world.now_s + 600)
    world.checker.check_at_rest()
    assert world.checker.violations == []
    assert [close.reason for close in world.closed] == [
        "a link between B3 and B1 would close a cycle: B1 is reached through B2"
    ]


def test_a_client_that_was_away_for_longer_than_its_lease_is_served_again() -> None:
    world = figure_2_2()
    world.add_fault(Cut(between=("sub1", "B4"), at_s=world.now_s + 1.0, for_s=100.0))
    publish_some(world, 20)
    lease_ends_s = world.now_s + 1.0 + 60.0
    lapsed: list[bool] = []
    for time_s in (lease_ends_s - 1.0, lease_ends_s + 1.0, lease_ends_s + 139.0):
        world.run(time_s)
        lapsed.append(world.checker.subscriptions["sub1/s1"].has_lapsed)
    assert lapsed == [False, True, False]
    delivered_count = world.checker.deliveries_count
    world.publish("p", {"a": 6})
    world.run()
    assert world.checker.deliveries_count == delivered_count + 1
    assert finish(world) == []


def test_a_client_that_leaves_takes_its_subscriptions_along_and_harms_nobody() -> None:
    world = figure_2_2()
    publish_some(world)
    world.at(world.now_s + 2.05, world.leave, "sub1")
    assert finish(world) == []
    assert [entry.id for entry in world.brokers["B1"].broker.tables.subscriptions.values()] == ["sub2/s1"]
