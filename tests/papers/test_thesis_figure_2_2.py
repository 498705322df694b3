"""Thesis, section 2.1.3, Figure 2.2: advertisement a > 1 at B1, sub1 a > 5 at B4, sub2 a > 9 at B3, B2 between them."""

from __future__ import annotations

from tests.broker.direct import Direct
from trimtab import Filter


def figure() -> Direct:
    network = Direct("B1", "B2", "B3", "B4")
    for first, second in (("B1", "B2"), ("B2", "B3"), ("B2", "B4")):
        network.connect(first, second)
    publisher = network.client("publisher", "B1")
    publisher.advertise(Filter.parse("[a,>,1]"), 0.0)
    network.run()
    network.client("sub1", "B4").subscribe(Filter.parse("[a,>,5]"), 0.0)
    network.run()
    network.client("sub2", "B3").subscribe(Filter.parse("[a,>,9]"), 0.0)
    network.run()
    return network


def test_the_advertisement_floods_to_all_brokers() -> None:
    network = figure()
    hops = {
        name: [[*e.hops] for e in broker.tables.advertisements.values()] for name, broker in network.brokers.items()
    }
    assert hops == {"B1": [["publisher"]], "B2": [["B1"]], "B3": [["B2"]], "B4": [["B2"]]}


def test_the_covered_subscription_is_not_forwarded_to_b1() -> None:
    network = figure()
    assert network.table("B1") == [("B2", "[a,>,5]")]
    assert network.table("B2") == [("B4", "[a,>,5]"), ("B3", "[a,>,9]")]
    assert network.table("B3") == [("sub2", "[a,>,9]")]
    assert network.table("B4") == [("sub1", "[a,>,5]")]


def test_publications_reach_both_subscribers_as_the_tables_say() -> None:
    network = figure()
    for value in (2, 6, 10):
        network.clients["publisher"].publish({"a": value}, 0.0)
    network.run()
    assert network.deliveries("sub1") == [("publisher", 2), ("publisher", 3)]
    assert network.deliveries("sub2") == [("publisher", 3)]


def test_when_the_covering_subscription_leaves_the_covered_one_is_forwarded_first() -> None:
    network = figure()
    b2 = network.brokers["B2"]
    said = [type(each.message).__name__ for each in b2.tables.remove_subscription("sub1/s1", "B4") if each.to == "B1"]
    assert said == ["Subscribe", "Unsubscribe"]


def test_after_the_unsubscription_the_other_subscriber_still_gets_everything() -> None:
    network = figure()
    network.clients["sub1"].unsubscribe("sub1/s1", 0.0)
    network.run()
    assert network.table("B1") == [("B2", "[a,>,9]")]
    network.clients["publisher"].publish({"a": 10}, 0.0)
    network.run()
    assert network.deliveries("sub2") == [("publisher", 1)]
    assert network.deliveries("sub1") == []


def test_without_covering_every_subscription_is_forwarded() -> None:
    network = Direct("B1", "B2", covering=False)
    network.connect("B1", "B2")
    network.client("publisher", "B1").advertise(Filter.parse("[a,>,1]"), 0.0)
    subscriber = network.client("subscriber", "B2")
    for text in ("[a,>,5]", "[a,>,9]"):
        subscriber.subscribe(Filter.parse(text), 0.0)
    network.run()
    assert network.table("B1") == [("B2", "[a,>,5]"), ("B2", "[a,>,9]")]
