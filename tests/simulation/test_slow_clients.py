"""What slow clients lose under each policy, and that they lose no more."""

import pytest

from trimtab.broker.config import BrokerConfig, SlowPolicy
from trimtab.language import Filter
from trimtab.protocol.link import LinkConfig
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.faults import Cut
from trimtab.simulation.world.world import World

PUBLICATIONS_COUNT = 100
NARROW = LinkConfig(window_frames_count=1)


def world_with_an_absent_client(slow_policy: SlowPolicy) -> World:
    """One client hears nothing for a while; another beside it hears everything."""
    world = World(1)
    world.add_broker(BrokerConfig("B1", slow_policy=slow_policy, client_queue_max_count=10))
    for name in ("p", "absent", "present"):
        world.add_client(name, "B1")
    world.advertise("p", Filter.parse("a > 0"))
    for name in ("absent", "present"):
        world.subscribe(name, Filter.parse("a > 0"))
    world.run()
    begun_s = world.now_s
    world.add_fault(Cut(between=("absent", "B1"), at_s=begun_s + 1.05, for_s=5.0))
    for number in range(PUBLICATIONS_COUNT):
        world.at(begun_s + number * 0.1, world.publish, "p", {"a": 1})
    world.run()
    check_rest(world, [])
    assert world.checker.violations == []
    assert world.checker.subscriptions["present/s1"].last == {"p": PUBLICATIONS_COUNT}
    return world


def test_who_loses_the_oldest_loses_what_was_counted_and_nothing_else() -> None:
    world = world_with_an_absent_client("drop-oldest")
    dropped_count = world.brokers["B1"].broker.counters.dropped_count
    assert dropped_count == world.checker.dropped_count == pytest.approx(50 - 10, abs=1)
    assert world.checker.deliveries_count == 2 * PUBLICATIONS_COUNT - dropped_count


def test_who_is_disconnected_is_told_why_and_hears_nothing_more() -> None:
    world = world_with_an_absent_client("disconnect")
    assert world.clients["absent"].dismissed_because.startswith("too slow: 11 publications waited")
    assert world.checker.disconnected_count == 1
    assert world.checker.subscriptions["absent/s1"].last == {"p": 11}


def test_who_blocks_loses_nothing() -> None:
    world = world_with_an_absent_client("block")
    assert world.checker.deliveries_count == 2 * PUBLICATIONS_COUNT


def test_a_publisher_that_is_disconnected_for_its_own_publication_still_reaches_others_with_it() -> None:
    world = World(1)
    for name in ("B1", "B2", "B3"):
        world.add_broker(BrokerConfig(name, slow_policy="disconnect", client_queue_max_count=1, link=NARROW))
    world.add_link("B1", "B2", 0.05)
    world.add_link("B2", "B3", 0.001)
    world.run()
    world.add_client("both", "B1", latency_s=0.4)
    world.add_client("far", "B3")
    world.advertise("both", Filter.parse("a > 0"))
    for name in ("both", "far"):  # one after the other, so that the publication is for its publisher first
        world.subscribe(name, Filter.parse("a > 0"))
        world.run()
    for number in range(6):
        world.at(world.now_s + number * 0.01, world.publish, "both", {"a": 1})
    world.run()
    check_rest(world, [("B1", "B2"), ("B2", "B3")])
    assert world.checker.violations == []
    assert world.checker.disconnected_count == 1
    assert world.checker.subscriptions["far/s1"].last == {"both": world.checker.accepted_count}
