"""A slow part of the network holds back whoever feeds it: queues stay short, nothing is lost, all go on."""

from __future__ import annotations

from itertools import pairwise

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.protocol.link import LinkConfig
from trimtab.simulation.checkers.queue_bounds import check_queues
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.world.capacity import PUBLICATION_BYTES, SimulatedCapacity
from trimtab.simulation.world.world import World

LINK = LinkConfig(window_frames_count=16, data_window_count=8)
HIGH_COUNT = 10
PER_S = PUBLICATION_BYTES * 8 / 1e6
"""The bandwidth, in Mbps, that lets one publication pass per second."""


def chain(brokers: list[str], slow: dict[str, float]) -> World:
    """Brokers in a row, of which some send only so many publications per second."""
    world = World(1, link=LINK)
    for name in brokers:
        capacity = SimulatedCapacity(bandwidth_mbps=slow[name] * PER_S) if name in slow else None
        config = BrokerConfig(name, link=LINK, broker_queue_high_count=HIGH_COUNT, client_queue_max_count=HIGH_COUNT)
        world.add_broker(config, capacity)
    for first, second in pairwise(brokers):
        world.add_link(first, second)
    world.run()
    return world


def watched(world: World, until_s: float) -> None:
    for number in range(int(until_s * 10)):
        world.at(world.now_s + number / 10, check_queues, world)


def finish(world: World, links: list[tuple[str, str]]) -> list[str]:
    world.run(world.now_s + 5_000)
    check_rest(world, links)
    return [f"{violation.kind}: {violation.text}" for violation in world.checker.violations]


def test_a_slow_last_link_holds_the_publisher_back_and_loses_nothing() -> None:
    brokers = ["B1", "B2", "B3", "B4"]
    world = chain(brokers, {"B3": 20.0})
    publisher = world.add_client("p", "B1")
    world.add_client("s", "B4")
    world.run()
    world.advertise("p", Filter.parse("a >= 0"))
    world.subscribe("s", Filter.parse("a >= 0"))
    world.run()
    watched(world, 60)
    for number in range(1_500):
        world.publish("p", {"a": number})
    world.run(world.now_s + 10)
    waiting_count = publisher.waiting_count + len(world.clients["p"].held_back)
    in_network_count = 1_500 - waiting_count - world.checker.deliveries_count
    assert waiting_count > 1_000
    assert in_network_count <= 3 * (HIGH_COUNT + 1 + LINK.window_frames_count + LINK.data_window_count)
    assert finish(world, list(pairwise(brokers))) == []
    assert world.checker.deliveries_count == 1_500


@pytest.mark.parametrize("slow", [("B2",), ("B1", "B2", "B3"), ("B2", "B3")])
def test_crossing_traffic_through_congested_links_does_not_deadlock(slow: tuple[str, ...]) -> None:
    brokers = ["B1", "B2", "B3", "B4"]
    world = chain(brokers, dict.fromkeys(slow, 50.0))
    for name, broker in (("p", "B1"), ("q", "B4"), ("r", "B2")):
        world.add_client(name, broker)
    world.run()
    for name in ("p", "q", "r"):
        world.advertise(name, Filter.parse("a >= 0"))
    for name in ("p", "q", "r"):
        world.subscribe(name, Filter.parse("a >= 0"))
    world.run()
    watched(world, 60)
    for number in range(300):
        for name in ("p", "q", "r"):
            world.publish(name, {"a": number})
    assert finish(world, list(pairwise(brokers))) == []
    assert world.checker.deliveries_count == 3 * 3 * 300


def test_a_slow_subscriber_elsewhere_does_not_stop_data_that_does_not_pass_it() -> None:
    """B2's queue to B3 is congested: what B1 sends waits, what comes from B3 goes on."""
    brokers = ["B1", "B2", "B3"]
    world = chain(brokers, {"B2": 1.0})
    for name, broker in (("p", "B1"), ("q", "B3"), ("s", "B3"), ("t", "B1")):
        world.add_client(name, broker)
    world.run()
    world.advertise("p", Filter.parse("a >= 0"))
    world.advertise("q", Filter.parse("b >= 0"))
    world.subscribe("s", Filter.parse("a >= 0"))
    world.subscribe("t", Filter.parse("b >= 0"))
    world.run()
    for number in range(100):
        world.publish("p", {"a": number})
    world.run(world.now_s + 30)
    middle = world.brokers["B2"].broker
    assert middle.held_count > 0
    for number in range(5):
        world.publish("q", {"b": number})
    world.run(world.now_s + 30)
    assert middle.held_count > 0
    assert {source for source, _ in middle.data_waiting()} == {"B1"}
    assert [s.last.get("q") for s in world.checker.subscriptions.values() if s.client == "t"] == [5]
    assert finish(world, list(pairwise(brokers))) == []
