"""What a broker promises and refuses, shown on brokers driven directly."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.broker.direct import Direct
from trimtab import Filter, LanguageError
from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.client.config import ClientConfig
from trimtab.client.session import ClientSession, WindowFull
from trimtab.protocol.effects import Close, Rejected
from trimtab.protocol.events import Connected, LinkRemoved, Received, Step, Wake
from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import VERSION, Unsubscribe

QUOTES = Filter.parse("[class,eq,'STOCK'],[volume,isPresent,0]")


def line(*brokers: str) -> Direct:
    network = Direct(*brokers)
    for first, second in pairwise(brokers):
        network.connect(first, second)
    return network


def quote(volume: int) -> dict[str, str | int | float | bool]:
    return {"class": "STOCK", "volume": volume}


def test_a_late_advertisement_pulls_subscriptions_that_were_there_before() -> None:
    network = line("B1", "B2", "B3")
    network.client("subscriber", "B3").subscribe(Filter.parse("[volume,>,5]"), 0.0)
    network.run()
    assert network.table("B1") == []
    publisher = network.client("publisher", "B1")
    publisher.advertise(QUOTES, 0.0)
    network.run()
    publisher.publish(quote(6), 0.0)
    network.run()
    assert network.deliveries("subscriber") == [("publisher", 1)]


def test_a_publication_waits_until_its_advertisement_is_in_force_everywhere() -> None:
    network = line("B1", "B2")
    network.client("subscriber", "B2").subscribe(Filter.parse("[volume,>,5]"), 0.0)
    network.run()
    network.disconnect("B1", "B2")
    publisher = network.client("publisher", "B1")
    publisher.advertise(QUOTES, 0.0)
    publisher.publish(quote(6), 0.0)
    network.run()
    assert publisher.waiting_count == 1
    network.connect("B1", "B2")
    assert publisher.waiting_count == 0
    assert network.deliveries("subscriber") == [("publisher", 1)]


def test_a_subscription_is_in_force_only_when_the_publishers_broker_has_it() -> None:
    network = line("B1", "B2")
    network.client("publisher", "B1").advertise(QUOTES, 0.0)
    network.run()
    network.disconnect("B1", "B2")
    subscriber = network.client("subscriber", "B2")
    subscriber.subscribe(Filter.parse("[volume,>,5]"), 0.0)
    network.run()
    assert network.in_force("subscriber") == []
    network.connect("B1", "B2")
    assert network.in_force("subscriber") == ["subscriber/s1"]


def test_a_covered_subscription_waits_for_the_covering_one() -> None:
    network = line("B1", "B2")
    network.client("publisher", "B1").advertise(QUOTES, 0.0)
    network.run()
    network.disconnect("B1", "B2")
    subscriber = network.client("subscriber", "B2")
    subscriber.subscribe(Filter.parse("[volume,>,5]"), 0.0)
    subscriber.subscribe(Filter.parse("[volume,>,9]"), 0.0)
    network.run()
    assert network.in_force("subscriber") == []
    subscriber.unsubscribe("subscriber/s1", 0.0)
    network.run()
    assert network.in_force("subscriber") == []
    network.connect("B1", "B2")
    assert network.in_force("subscriber") == ["subscriber/s2"]


def test_what_is_under_way_when_a_link_breaks_arrives_once_after_it_heals() -> None:
    network = line("B1", "B2")
    publisher = network.client("publisher", "B1")
    publisher.advertise(QUOTES, 0.0)
    network.client("subscriber", "B2").subscribe(QUOTES, 0.0)
    network.run()
    network.disconnect("B1", "B2")
    for volume in range(5):
        publisher.publish(quote(volume), 0.0)
    network.run()
    assert network.deliveries("subscriber") == []
    network.connect("B1", "B2")
    assert network.deliveries("subscriber") == [("publisher", sequence) for sequence in range(1, 6)]


def test_a_link_that_would_close_a_cycle_is_refused_with_the_reason() -> None:
    network = line("B1", "B2", "B3")
    network.connect("B3", "B1")
    reasons = [effect.reason for _, effect in network.effects if isinstance(effect, Close)]
    assert reasons and all("cycle" in reason for reason in reasons)
    assert list(network.brokers["B1"].tables.neighbours) == ["B2"]


def test_a_link_that_is_removed_takes_what_came_over_it_along() -> None:
    network = line("B1", "B2", "B3")
    network.client("publisher", "B1").advertise(QUOTES, 0.0)
    network.client("subscriber", "B3").subscribe(QUOTES, 0.0)
    network.run()
    for name, peer in (("B2", "B3"), ("B3", "B2")):
        network.brokers[name].handle(LinkRemoved(peer), 0.0)
    network.run()
    assert network.table("B1") == []
    assert network.brokers["B3"].tables.advertisements == {}
    network.connect("B2", "B3")
    assert network.table("B1") == [("B2", str(QUOTES))]


def test_a_publication_outside_the_advertisement_is_refused_before_it_is_sent() -> None:
    network = line("B1")
    publisher = network.client("publisher", "B1")
    publisher.advertise(QUOTES, 0.0)
    with pytest.raises(LanguageError, match="announces"):
        publisher.publish({"class": "SPORTS"}, 0.0)


def test_nobody_ends_the_subscription_of_another() -> None:
    network = line("B1")
    network.client("owner", "B1").subscribe(QUOTES, 0.0)
    thief = network.client("thief", "B1")
    thief.link.enqueue(Unsubscribe(id="owner/s1"), 0.0)
    network.run()
    assert ("thief", Rejected("owner/s1", "owner/s1 is not an id of this client")) in network.effects
    assert network.table("B1") == [("owner", str(QUOTES))]


def test_a_name_in_use_is_refused_but_its_owner_may_come_back() -> None:
    network = line("B1")
    network.client("c", "B1")
    other = Hello(VERSION, "client", "c", "another session", 1)
    [refusal] = network.brokers["B1"].handle(Connected("c", other), 0.0)
    assert isinstance(refusal, Close) and "already in use" in refusal.reason
    network.disconnect("c", "B1")
    network.connect("c", "B1")
    assert network.brokers["B1"].peers["c"].link.connected


def test_another_protocol_version_is_refused() -> None:
    network = line("B1")
    [refusal] = network.brokers["B1"].handle(Connected("c", Hello(99, "client", "c", "1", 1)), 0.0)
    assert isinstance(refusal, Close) and "version 99" in refusal.reason


def test_the_session_of_a_client_that_stays_away_ends_with_its_lease() -> None:
    network = line("B1")
    network.client("c", "B1").subscribe(QUOTES, 0.0)
    network.run()
    network.disconnect("c", "B1")
    broker = network.brokers["B1"]
    assert broker.wake_at_s() == broker.config.client_lease_s
    broker.handle(Wake(), broker.config.client_lease_s)
    assert network.table("B1") == []


def test_a_full_window_holds_the_publisher_back() -> None:
    session = ClientSession(ClientConfig("p", publish_window_count=2))
    session.advertise(QUOTES, 0.0)
    session.publish(quote(1), 0.0)
    session.publish(quote(2), 0.0)
    with pytest.raises(WindowFull):
        session.publish(quote(3), 0.0)


def test_nothing_is_in_force_before_every_configured_neighbour_has_told_what_it_knows() -> None:
    network = Direct("B1", "B2", "B3")
    for name, neighbours in (("B1", ("B2",)), ("B2", ("B1", "B3")), ("B3", ("B2",))):
        network.brokers[name] = Broker(BrokerConfig(name, neighbours=neighbours))
    publisher = network.client("publisher", "B3")
    publisher.advertise(QUOTES, 0.0)
    network.client("subscriber", "B1").subscribe(QUOTES, 0.0)
    network.connect("B1", "B2")
    assert network.in_force("subscriber") == []
    network.connect("B2", "B3")
    assert network.in_force("subscriber") == ["subscriber/s1"]
    assert network.in_force("publisher") == ["publisher/a1"]
    publisher.publish(quote(1), 0.0)
    network.run()
    assert network.deliveries("subscriber") == [("publisher", 1)]


def test_a_link_that_came_back_is_looked_after_before_the_lease_that_it_had_would_have_ended() -> None:
    network = Direct("B1")
    network.client("alice", "B1").subscribe(QUOTES, 0.0)
    network.run()
    network.disconnect("alice", "B1")
    broker = network.brokers["B1"]
    assert broker.wake_at_s() == broker.config.client_lease_s
    network.connect("alice", "B1")
    publisher = network.client("publisher", "B1")
    publisher.advertise(QUOTES, 0.0)
    network.run()
    publisher.publish(quote(1), 0.0)
    frame = publisher.take_frame(0.0)
    assert frame is not None
    broker.handle(Received("publisher", frame), 0.0)
    broker.handle(Step(), 0.0)
    assert broker.take_frame("alice", 5.0) is not None
    assert broker.wake_at_s() == 5.0 + broker.config.link.retransmit_after_s
    broker.handle(Wake(), 6.0)
    assert broker.sendable() == ["publisher", "alice"]
    assert broker.take_frame("alice", 6.0) is not None
