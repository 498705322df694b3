"""A publisher moves between brokers while it publishes: subscribers hear it once and in order, whatever happens."""

from __future__ import annotations

from random import Random

import pytest

from tests.client.slow import BROKERS, LINKS, Slow
from trimtab import Filter
from trimtab.client.session import ClientSession
from trimtab.protocol.effects import InForce, Moved, NotMoved

NUMBERS = Filter.parse("[n,isPresent,0]")
FILTERS = ("[n,isPresent,0]", "[n,>,0]", "[n,>,0],[n,<,1000]")


def hosts_of(network: Slow, client: str) -> list[str]:
    """The brokers that serve a client."""
    return [name for name, broker in network.brokers.items() if client in broker.peers]


def side_of(broker: str, links: tuple[tuple[str, str], ...]) -> set[str]:
    side = {broker}
    for _ in BROKERS:
        side |= {end for link in links if side & set(link) for end in link}
    return side


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_timing_a_moving_publisher_is_heard_once_and_in_order(seed: int) -> None:
    rng = Random(seed)
    network = Slow(rng, covering=rng.random() < 0.7)
    publisher = network.client("p", rng.choice(BROKERS))
    others = [network.client(f"q{number}", rng.choice(BROKERS)) for number in range(rng.randint(0, 2))]
    for each in (publisher, *others):
        each.advertise(Filter.parse(rng.choice(FILTERS)), 0.0)
    subscribers = [network.client(f"s{number}", rng.choice(BROKERS)) for number in range(3)]
    subscriptions = {each.name: each.subscribe(Filter.parse(rng.choice(FILTERS)), 0.0) for each in subscribers}
    if rng.random() < 0.5:  # one that publishes and subscribes
        subscribers.append(publisher)
        subscriptions["p"] = publisher.subscribe(NUMBERS, 0.0)
    network.rest()
    sent, moves_count = 0, 0
    while sent < 40:
        for _ in range(rng.randint(0, 8)):
            network.act()
        sent = publisher.publish({"n": 1 + sent}, 0.0)
        if rng.random() < 0.15:
            moves_count += network.move("p", rng.choice(BROKERS))
        if rng.random() < 0.1:
            network.move(rng.choice(subscribers).name, rng.choice(BROKERS))
        if rng.random() < 0.1:
            late = network.client(f"late{sent}", rng.choice(BROKERS))
            late.subscribe(Filter.parse(rng.choice(FILTERS)), 0.0)
    network.rest()
    for each in subscribers:
        assert InForce(subscriptions[each.name]) in network.effects[each.name]
        assert network.delivered(each.name, "p") == list(range(1, sent + 1)), each.name
    assert hosts_of(network, "p") == [publisher.broker]
    assert sum(isinstance(effect, Moved) for effect in network.effects["p"]) >= moves_count
    for name in network.clients:
        heard = network.delivered(name, "p")
        assert heard == sorted(set(heard)), name
    assert network.misleading_routes() == []
    publisher.publish({"n": 1}, 0.0)
    network.rest()
    for name, session in network.clients.items():
        wants = session.subscription_ids
        assert network.delivered(name, "p")[-1:] == ([sent + 1] if wants else []), name


def begin(rng: Random) -> tuple[Slow, ClientSession, list[str]]:
    """A publisher on its way from B1 to B5, at a random moment of the way, with subscribers everywhere."""
    network = Slow(rng, covering=rng.random() < 0.7)
    publisher = network.client("p", "B1")
    publisher.advertise(NUMBERS, 0.0)
    names = []
    for broker in BROKERS:
        names.append(f"s@{broker}")
        network.client(names[-1], broker).subscribe(Filter.parse(rng.choice(FILTERS)), 0.0)
    if rng.random() < 0.3:
        publisher.subscribe(NUMBERS, 0.0)
    network.rest()
    for number in range(1, 6):
        publisher.publish({"n": number}, 0.0)
    network.move("p", "B5")
    for _ in range(rng.randrange(120)):
        network.act()
        if rng.random() < 0.05:
            publisher.publish({"n": 6}, 0.0)
    return network, publisher, names


def settle(network: Slow) -> None:
    """Everything that waits for a time gets it."""
    network.rest()
    for for_s in (31.0, 600.0, 31.0, 61.0):
        network.let_time_pass(for_s)


def publishes_to(network: Slow, publisher: ClientSession, names: list[str], links: tuple[tuple[str, str], ...]) -> None:
    """The publisher is at one broker, and whoever can be reached from there hears it once more, in order."""
    assert hosts_of(network, "p") == [publisher.broker]
    assert not publisher.is_moving
    assert network.misleading_routes() == []
    first = publisher.publish({"n": 7}, network.now_s)
    last = publisher.publish({"n": 8}, network.now_s)
    network.rest()
    assert publisher.waiting_count == 0
    reached = side_of(publisher.broker, links)
    for name in names:
        heard = network.delivered(name, "p")
        assert heard == sorted(set(heard)), name
        assert ((first in heard) and (last in heard)) == (network.clients[name].broker in reached), name
        assert first not in heard or heard[-2:] == [first, last], name


@pytest.mark.parametrize("seed", range(40))
def test_a_path_that_breaks_for_good_half_way_leaves_the_publisher_at_one_broker(seed: int) -> None:
    rng = Random(seed)
    network, publisher, names = begin(rng)
    broken = rng.choice((("B1", "B2"), ("B2", "B4"), ("B4", "B5")))
    network.cut(*broken, for_good=True)
    settle(network)
    publishes_to(network, publisher, names, tuple(link for link in LINKS if link != broken))


@pytest.mark.parametrize("seed", range(40))
def test_a_path_that_breaks_and_is_linked_anew_half_way_leaves_the_publisher_at_one_broker(seed: int) -> None:
    rng = Random(seed)
    network, publisher, names = begin(rng)
    broken = rng.choice((("B1", "B2"), ("B2", "B4"), ("B4", "B5")))
    network.cut(*broken, for_good=True)
    for _ in range(rng.randrange(60)):
        network.act()
    network.connect(*broken)
    settle(network)
    publishes_to(network, publisher, names, LINKS)


@pytest.mark.parametrize("seed", range(60))
def test_a_broker_that_is_started_again_half_way_leaves_the_publisher_at_one_broker(seed: int) -> None:
    rng = Random(seed)
    network, publisher, names = begin(rng)
    network.start_again(rng.choice(("B1", "B2", "B4", "B5")))
    settle(network)
    publishes_to(network, publisher, names, LINKS)


@pytest.mark.parametrize("seed", range(60))
def test_an_old_broker_that_never_comes_back_leaves_the_publisher_at_one_broker(seed: int) -> None:
    rng = Random(seed)
    network, publisher, names = begin(rng)
    was_moving = publisher.is_moving
    network.cut("B1", "B2", for_good=True)
    if publisher.broker == "B1":
        network.cut("p", "B1")
    settle(network)
    if publisher.broker == "B1" and was_moving:
        assert any(isinstance(effect, NotMoved) for effect in network.effects["p"])
        return  # it had not asked the new broker yet, and waits for the old one
    publishes_to(network, publisher, names, tuple(link for link in LINKS if link != ("B1", "B2")))


@pytest.mark.parametrize("seed", range(60))
def test_a_publisher_that_leaves_half_way_leaves_nothing_behind(seed: int) -> None:
    rng = Random(seed)
    network, _, _ = begin(rng)
    for broker in [second for first, second in list(network.wires) if first == "p"]:
        network.cut(broker, "p", for_good=True)
    del network.clients["p"]
    network.rest()
    assert hosts_of(network, "p") == []
    assert all(not broker.tables.advertisements for broker in network.brokers.values())
    assert all(
        list(route.hops) == [f"s@{name}"]
        for name, broker in network.brokers.items()
        for route in broker.tables.subscriptions.values()
    )
