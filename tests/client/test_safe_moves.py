"""Moves where publications are safe or durable: nothing is retained for ever, and no broker's death loses anything."""

from __future__ import annotations

from random import Random

import pytest

from tests.client.slow import BROKERS, Slow
from trimtab import Filter
from trimtab.broker.config import Acknowledges
from trimtab.protocol.effects import Moved
from trimtab.protocol.events import Step

NUMBERS = Filter.parse("[n,isPresent,0]")


def settle(network: Slow) -> None:
    """Everything that waits for a time gets it."""
    network.rest()
    for for_s in (6.0, 11.0, 31.0, 600.0, 31.0, 61.0):
        network.let_time_pass(for_s)


def begin(rng: Random, level: Acknowledges) -> Slow:
    """A publisher p somewhere and two subscribers, s and t, at both ends, with all in force."""
    network = Slow(rng, covering=rng.random() < 0.7, acknowledges=level)
    network.client("p", rng.choice(BROKERS)).advertise(NUMBERS, 0.0)
    for name, broker in (("s", "B1"), ("t", "B5")):
        network.client(name, broker).subscribe(NUMBERS, 0.0)
    network.rest()
    return network


def go_on(network: Slow, count: int) -> None:
    """The publisher goes on, and clients move."""
    for _ in range(count):
        for _ in range(network.rng.randint(0, 8)):
            network.act()
        network.clients["p"].publish({"n": 1}, network.now_s)
        if network.rng.random() < 0.15:
            network.move(network.rng.choice("pst"), network.rng.choice(BROKERS))


@pytest.mark.parametrize("level", ["safe", "durable"])
@pytest.mark.parametrize("seed", range(30))
def test_moves_that_cross_leave_nothing_retained(seed: int, level: Acknowledges) -> None:
    network = begin(Random(seed), level)
    network.move("s", "B5")
    network.move("t", "B1")
    go_on(network, 30)
    settle(network)
    for name in ("s", "t"):
        assert network.delivered(name, "p") == list(range(1, 31))
        assert any(isinstance(effect, Moved) for effect in network.effects[name])
    assert network.clients["p"].waiting_count == 0
    assert network.misleading_routes() == []
    retained = {
        (name, peer.name): peer.link.undelivered_data()
        for name, broker in network.brokers.items()
        for peer in broker.peers.values()
    }
    assert {link: data for link, data in retained.items() if data} == {}


@pytest.mark.parametrize("seed", range(60))
def test_a_broker_that_dies_while_clients_move_loses_nothing_that_is_safe(seed: int) -> None:
    network = begin(Random(seed), "safe")
    go_on(network, network.rng.randrange(20))
    network.start_again(network.rng.choice(BROKERS))
    go_on(network, 10)
    settle(network)
    last = network.clients["p"].publish({"n": 1}, network.now_s)
    network.rest()
    for name in ("s", "t"):
        assert network.delivered(name, "p") == list(range(1, last + 1)), name
    assert network.misleading_routes() == []


def test_a_publication_that_died_with_its_broker_is_not_overtaken_by_a_later_one_that_did_not() -> None:
    """Publisher and subscriber are at B1, which dies when it has passed 1 and 2 on to B2 and to nobody else.

    B2 passes 1 on, then the subscriber begins a stay there, then B2 passes 2 on: to the subscriber as well. The
    publisher says 1 and 2 again at its broker's next incarnation, behind which the subscriber waits for its old stream.
    """
    network = Slow(Random(1), ("B1", "B2"), (("B1", "B2"),), acknowledges="safe")
    publisher, subscriber = network.client("p", "B1"), network.client("s", "B1")
    publisher.advertise(NUMBERS, 0.0)
    for session in (subscriber, network.client("t", "B2")):
        session.subscribe(NUMBERS, 0.0)
    network.rest()
    for number in (1, 2):
        publisher.publish({"n": number}, 0.0)
    network.carry("p", "B1")
    for _ in range(2):
        network.tell("B1", Step())
    network.carry("B1", "B2")
    network.start_again("B1")
    network.tell("B2", Step())
    network.move("s", "B2")
    network.carry("s", "B2")
    assert publisher.waiting_count == 2
    network.rest()
    assert network.delivered("t", "p") == [1, 2]
    assert publisher.waiting_count == 0, "both are accepted"
    assert network.delivered("s", "p") == [1, 2]


def test_a_client_that_went_on_elsewhere_is_known_there_when_that_broker_dies() -> None:
    network = Slow(Random(1), acknowledges="safe")
    publisher = network.client("p", "B2")
    publisher.advertise(NUMBERS, 0.0)
    subscriber = network.client("s", "B1")
    subscriber.subscribe(NUMBERS, 0.0)
    network.rest()
    network.cut("s", "B1")
    network.connect("s", "B3")
    network.rest()
    assert network.brokers["B3"].peers["s"].stay == subscriber.stay
    for peer in ("s", "B2"):
        network.cut("B3", peer)
    publisher.publish({"n": 1}, 0.0)
    network.rest()
    network.add_broker("B3")
    network.connect("B3", "B2")
    network.rest()
    network.connect("s", "B3")
    network.rest()
    assert network.delivered("s", "p") == [1]
