"""Latency requirements reach the broker that serves the client, wherever that is, and late deliveries are counted."""

from __future__ import annotations

import pytest

from tests.broker.direct import Direct
from trimtab import Filter, LanguageError
from trimtab.broker.config import BrokerConfig
from trimtab.language.durations import parse_duration_s
from trimtab.protocol.effects import Deliver
from trimtab.simulation.world.world import World

NUMBERS = Filter.parse("[n,isPresent,0]")
FEW = Filter.parse("[n,>,5]")


def network() -> World:
    world = World(1)
    for name, neighbours in (("B1", ("B2",)), ("B2", ("B1", "B3")), ("B3", ("B2",))):
        world.add_broker(BrokerConfig(name, neighbours=neighbours))
    world.add_link("B1", "B2", 0.1)
    world.add_link("B2", "B3", 0.1)
    world.run(1.0)
    world.add_client("P", "B1")
    world.advertise("P", NUMBERS)
    world.run(2.0)
    return world


def required(world: World, broker: str, client: str) -> list[float | None]:
    peer = world.brokers[broker].broker.peers.get(client)
    return [] if peer is None else list(peer.subscriptions.values())


def test_a_requirement_goes_along_when_the_client_moves() -> None:
    world = network()
    world.add_client("S", "B3")
    world.subscribe("S", FEW, 1.5)
    world.subscribe("S", NUMBERS)
    world.run(3.0)
    assert required(world, "B3", "S") == [1.5, None]
    world.move("S", "B2")
    world.run(10.0)
    assert required(world, "B2", "S") == [1.5, None]
    assert required(world, "B3", "S") == []


def test_a_broker_that_was_started_again_is_told_of_requirements() -> None:
    direct = Direct("B1")
    session = direct.client("S", "B1")
    session.subscribe(FEW, 0.0, 0.25)
    direct.run()
    direct.disconnect("S", "B1")
    fresh = Direct("B1")
    direct.brokers["B1"] = fresh.brokers["B1"]
    direct.brokers["B1"].config = BrokerConfig("B1", session="another life")
    direct.connect("S", "B1")
    assert list(direct.brokers["B1"].peers["S"].subscriptions.values()) == [0.25]


def test_a_covering_subscription_without_a_requirement_does_not_hide_a_strict_one() -> None:
    world = network()
    for name, filter, within_s in (("lax", NUMBERS, None), ("strict", FEW, 0.5)):
        world.add_client(name, "B3")
        world.subscribe(name, filter, within_s)
    world.run(3.0)
    assert required(world, "B3", "strict") == [0.5]
    assert [list(route.hops) for route in world.brokers["B2"].broker.tables.subscriptions.values()] == [["B3"]]


def test_late_deliveries_are_counted_for_the_subscriptions_that_wanted_them_sooner() -> None:
    world = network()
    session = world.add_client("S", "B3")
    soon = world.subscribe("S", NUMBERS, 0.1)
    later = world.subscribe("S", FEW, 10.0)
    world.run(3.0)
    for number in (1, 7):
        world.publish("P", {"n": number})
    world.run(4.0)
    assert session.late_counts == {soon: 2}
    assert later not in session.late_counts


def test_a_delivery_tells_for_whom_it_is_late() -> None:
    direct = Direct("B1")
    publisher, subscriber = direct.client("P", "B1"), direct.client("S", "B1")
    publisher.advertise(NUMBERS, 0.0)
    id = subscriber.subscribe(NUMBERS, 0.0, 1.0)
    direct.run()
    publisher.publish({"n": 1}, 0.0)
    direct.now_s = 1.5
    direct.run()
    publisher.publish({"n": 2}, 1.5)
    direct.run()
    delivered = [effect for name, effect in direct.effects if name == "S" and isinstance(effect, Deliver)]
    assert [each.late_for for each in delivered] == [(id,), ()]


@pytest.mark.parametrize("within_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_requirement_that_means_nothing_is_refused(within_s: float) -> None:
    session = Direct("B1").client("S", "B1")
    with pytest.raises(LanguageError, match="latency requirement"):
        session.subscribe(NUMBERS, 0.0, within_s)
    assert session.subscription_ids == ()


@pytest.mark.parametrize("text", ["", "1.5", "s", "-1s", "0s", "1e3s", "1.5 m", "9999999h", "1s 2s"])
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(LanguageError):
        parse_duration_s(text)
