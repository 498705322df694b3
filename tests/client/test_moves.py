"""A subscriber moves between brokers while publications flow: the application sees one stream, whole and in order."""

from __future__ import annotations

from random import Random

import pytest

from tests.client.slow import BROKERS, Slow
from trimtab import Filter
from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.protocol.effects import Deliver, InForce, Moved, NotMoved
from trimtab.protocol.events import MoveTo

NUMBERS = Filter.parse("[n,isPresent,0]")


@pytest.mark.parametrize("seed", range(150))
def test_whatever_the_timing_a_moving_subscriber_misses_nothing_and_gets_nothing_twice(seed: int) -> None:
    rng = Random(seed)
    network = Slow(rng)
    publishers = [network.client(f"p{number}", rng.choice(BROKERS)) for number in range(2)]
    subscriber = network.client("s", "B1")
    for publisher in publishers:
        publisher.advertise(NUMBERS, 0.0)
    if rng.random() < 0.5:
        network.client("other", rng.choice(BROKERS)).subscribe(NUMBERS, 0.0)
    network.rest()
    subscription = subscriber.subscribe(Filter.parse(rng.choice(["[n,>,0]", "[n,isPresent,0]"])), 0.0)
    network.rest()
    assert InForce(subscription) in network.effects["s"]
    sent: dict[str, int] = {publisher.name: 0 for publisher in publishers}
    moves = 0
    while min(sent.values()) < 30:
        for _ in range(rng.randint(0, 6)):
            network.act()
        publisher = rng.choice(publishers)
        sent[publisher.name] = publisher.publish({"n": 1 + sent[publisher.name]}, 0.0)
        if rng.random() < 0.1:
            target = rng.choice([name for name in BROKERS if name != subscriber.broker])
            before = len(network.effects["s"])
            network.obey("s", subscriber.handle(MoveTo(target), 0.0))
            moves += not isinstance(network.effects["s"][before], NotMoved)
    network.rest()
    delivered = [effect for effect in network.effects["s"] if isinstance(effect, Deliver)]
    for name, last in sent.items():
        assert [each.sequence for each in delivered if each.publisher == name] == list(range(1, last + 1))
    assert sum(isinstance(effect, Moved) for effect in network.effects["s"]) == moves
    routes = {name: [e.id for e in broker.tables.subscriptions.values()] for name, broker in network.brokers.items()}
    own = {name: [id for id in ids if id.startswith("s/")] for name, ids in routes.items()}
    assert len(own[subscriber.broker]) == 1
    assert all(set(ids) <= set(own[subscriber.broker]) for ids in own.values())


def test_a_move_to_a_broker_that_no_way_leads_from_leaves_the_client_where_it_was() -> None:
    network = Slow(Random(1))
    network.brokers["alone"] = Broker(BrokerConfig("alone"))
    subscriber = network.client("s", "B1")
    subscriber.subscribe(NUMBERS, 0.0)
    network.rest()
    network.obey("s", subscriber.handle(MoveTo("alone"), 0.0))
    network.rest()
    assert subscriber.broker == "B1"
    assert [effect for effect in network.effects["s"] if isinstance(effect, NotMoved)] == [
        NotMoved("alone", "no way leads to B1")
    ]


def test_an_unsubscription_during_a_move_is_told_to_the_new_broker() -> None:
    network = Slow(Random(2))
    network.client("p", "B3").advertise(NUMBERS, 0.0)
    subscriber = network.client("s", "B1")
    subscription = subscriber.subscribe(NUMBERS, 0.0)
    network.rest()
    network.obey("s", subscriber.handle(MoveTo("B5"), 0.0))
    subscriber.unsubscribe(subscription, 0.0)
    network.rest()
    assert subscriber.broker == "B5"
    assert all(not broker.tables.subscriptions for broker in network.brokers.values())
