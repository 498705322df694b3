"""A dead broker is replaced by another incarnation; nobody but its neighbours notices much of it."""

import functools

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.replication.config import PROTOCOLS, Protocol, ReplicationConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Close
from trimtab.protocol.events import Connected
from trimtab.protocol.link import LinkConfig
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.failures import StandByPool
from trimtab.simulation.faults.faults import Crash, Drop
from trimtab.simulation.fuzz.death_plans import draw_plan_with_deaths
from trimtab.simulation.fuzz.fuzz import fuzz
from trimtab.simulation.world.world import World

LINKS = [("B1", "B2"), ("B2", "B3"), ("B3", "B4"), ("B4", "B5")]


def chain(protocol: Protocol) -> World:
    """Five brokers in a row with publishers and subscribers at both ends and at the middle, all in force."""
    world = World(1)
    replication = ReplicationConfig(protocol=protocol, look_every_s=0.1, crash_after_s=0.3)
    for name in ("B1", "B2", "B3", "B4", "B5"):
        neighbours = tuple(end for link in LINKS if name in link for end in link if end != name)
        world.add_broker(BrokerConfig(name, neighbours=neighbours, replication=replication))
    for first, second in LINKS:
        world.add_link(first, second, 0.01)
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=5)
    world.run(0.3)
    for number, broker in ((1, "B1"), (3, "B3"), (5, "B5")):
        world.add_client(f"p{number}", broker)
        world.add_client(f"s{number}", broker)
        world.run(world.now_s + 0.2)
        world.advertise(f"p{number}", Filter.parse("a > 1"))
        world.subscribe(f"s{number}", Filter.parse(f"a > {number} AND a < {number + 9}"))
    world.run(2.0)
    return world


def publish_steadily(world: World, from_s: float, count: int) -> None:
    for number in range(count):
        for name in ("p1", "p3", "p5"):
            world.at(from_s + number * 0.02, world.publish, name, {"a": 7 + number % 3})


def finish(world: World, watched_until_s: float = 12.0) -> list[str]:
    world.run(watched_until_s)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(world.now_s + 600)
    check_rest(world, LINKS)
    return [f"{violation.kind}: {violation.text}" for violation in world.checker.violations]


@pytest.mark.parametrize("broker", ["B1", "B3", "B4"])
def test_publications_that_were_not_in_the_dead_broker_arrive(broker: str) -> None:
    world = chain("synchronous")
    publish_steadily(world, from_s=2.0, count=200)
    world.add_fault(Crash(broker=broker, at_s=3.0))
    assert finish(world) == []
    assert world.failures.replaced_count == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_brokers_beyond_the_neighbours_hear_next_to_nothing_of_it(protocol: Protocol) -> None:
    """Only where it is, and which one of two equal filters stands for both."""
    world = chain(protocol)
    world.add_fault(Crash(broker="B3", at_s=2.5))
    before = {name: world.brokers[name].broker.counters.control_in_count for name in ("B1", "B5")}
    assert finish(world) == []
    for name, count in before.items():
        assert world.brokers[name].broker.counters.control_in_count <= count + 3


def test_a_client_that_does_not_return_ends_after_a_while() -> None:
    world = chain("synchronous")
    world.run(2.5)
    world.failures.kill("B3")
    world.leave("s3")
    world.leave("p3")
    assert finish(world) == []
    assert not [id for id in world.brokers["B5"].broker.tables.subscriptions if id.startswith("s3")]


def test_a_client_that_has_come_back_may_take_longer_to_say_what_it_wants() -> None:
    world = chain("synchronous")
    publish_steadily(world, from_s=5.0, count=200)
    world.add_fault(Crash(broker="B3", at_s=3.0))
    world.add_fault(Drop(between=("s3", "B3"), at_s=3.0, for_s=6.0, probability=1.0))
    assert finish(world) == []


def test_what_a_subscription_covers_stays_while_it_is_wrongly_taken_for_that_of_an_absent_client() -> None:
    """B2 withdraws the filter of s1 from the dead broker, because that of w covers it; B4 and B5 still know it."""
    world = chain("synchronous")
    world.add_client("n", "B4")
    world.add_client("w", "B1")
    world.run(2.5)
    world.subscribe("n", Filter.parse("a > 2 AND a < 4"))
    world.run(3.0)
    world.failures.kill("B3")
    world.run(3.1)
    world.subscribe("w", Filter.parse("a > 0 AND a < 90"))
    for number in range(100):
        world.at(3.2 + number * 0.02, world.publish, "p1", {"a": 3})
    assert finish(world) == []


def test_a_replica_that_dies_is_replaced_in_turn() -> None:
    world = chain("synchronous")
    publish_steadily(world, from_s=2.0, count=300)
    world.add_fault(Crash(broker="B3", at_s=3.0))
    for number in range(40):
        world.at(3.3 + number * 0.01, _kill_replica, world, "B3")
    assert finish(world) == []
    assert world.failures.replaced_count == 2


def _kill_replica(world: World, name: str) -> None:
    if world.brokers[name].broker.config.session == "1+" and world.faults_count["crash"] == 1:
        world.at(world.now_s + 0.015, world.failures.kill, name)


def test_two_adjacent_brokers_that_fail_together_end_in_one_network() -> None:
    world = chain("synchronous")
    world.add_fault(Crash(broker="B3", at_s=3.0))
    world.add_fault(Crash(broker="B4", at_s=3.0))
    publish_steadily(world, from_s=8.0, count=50)
    assert finish(world, 20.0) == []
    assert world.failures.replaced_count == 2
    assert world.checker.deliveries_count == 3 * 3 * 50


def test_a_neighbour_that_dies_during_replication_ends_in_one_network() -> None:
    world = chain("synchronous")
    world.add_fault(Crash(broker="B3", at_s=3.0))
    world.add_fault(Crash(broker="B4", at_s=3.56))
    publish_steadily(world, from_s=10.0, count=50)
    assert finish(world, 20.0) == []
    assert world.failures.replaced_count == 2


@pytest.mark.parametrize("seed", [465, 755, 827, 973, 1068, 1219, 1443, 1609, 1801])
def test_networks_in_which_a_death_meets_other_trouble(seed: int) -> None:
    """Lossy connections of clients that return, subscriptions that end meanwhile, long queues for a replica."""
    assert fuzz(first_seed=seed, runs_count=1, draw=draw_plan_with_deaths).failures == []


@pytest.mark.parametrize("seed", [251, 278])
def test_what_a_replica_ends_and_tells_again_is_confirmed(seed: int) -> None:
    """What was known from the broker before, and was not told again in time, is new when it is told after all."""
    draw = functools.partial(draw_plan_with_deaths, acknowledges="durable")
    assert fuzz(first_seed=seed, runs_count=1, draw=draw).failures == []


def test_random_networks_in_which_order_is_kept_while_routes_are_learnt() -> None:
    report = fuzz(
        first_seed=80_000,
        runs_count=10,
        draw=lambda seed: draw_plan_with_deaths(seed, "incremental-ordered", "received"),
    )
    assert report.failures == []


def test_random_networks_in_which_brokers_die() -> None:
    report = fuzz(first_seed=60_000, runs_count=15, draw=draw_plan_with_deaths)
    assert report.failures == []
    assert report.faults_count["crash"] >= 15


def test_a_broker_that_returns_after_it_was_replaced_is_not_let_in() -> None:
    """Even while its replica is away: neighbours remember which lives are over."""
    world = chain("synchronous")
    greeting = world.brokers["B3"].broker.greeting("B2")
    publish_steadily(world, from_s=2.0, count=100)
    world.add_fault(Crash(broker="B3", at_s=3.0))
    world.run(3.55)
    assert world.failures.replaced_count == 1
    neighbour = world.brokers["B2"].broker
    for _ in range(2):
        assert neighbour.handle(Connected("B3", greeting), world.now_s) == [
            Close("B3", "this incarnation of B3 was replaced by another")
        ]
        world.run(8.0)
        world.transport.cut(frozenset(("B2", "B3")), 1.0, (0.0, 0.0))
        world.run(8.5)
    assert finish(world) == []


@pytest.mark.parametrize(
    "seed",
    [
        2,  # a publisher's move is lost with a broker on its way; its marker must not go on through the replica
        15,  # a subscriber has undone a move, and the marker comes to the replica of its broker
        35,  # the answer to a publisher's move comes again, to a replica at which the publisher has advertised since
        131,  # a client is on its way to the broker that dies
        243,  # what waits in place of a lost move counts as the move did
        1219,  # a client has seen a publication that it did not want; it comes again, and now it wants it
    ],
)
def test_clients_move_while_brokers_die(seed: int) -> None:
    draw = functools.partial(draw_plan_with_deaths, acknowledges="safe", moves="clients")
    assert fuzz(first_seed=seed, runs_count=1, draw=draw).failures == []


@pytest.mark.parametrize("protocol", ["synchronous", "incremental-ordered"])
@pytest.mark.parametrize(("dies", "subscribers_at"), [("B1", ("B1", "B2", "B3")), ("B2", ("B1", "B2", "B3"))])
def test_a_publisher_that_has_moved_waits_for_what_it_had_said_before_though_a_broker_dies(
    dies: str, subscribers_at: tuple[str, ...], protocol: Protocol
) -> None:
    """From B3 to B1: B3 has let it go, and its last publications wait in front of the answer when B1 or B2 dies."""
    link = LinkConfig(data_window_count=1)
    replication = ReplicationConfig(protocol=protocol, look_every_s=0.1, crash_after_s=0.2)
    world = World(1, link=link)
    for name, neighbours in {"B1": ("B2",), "B2": ("B1", "B3"), "B3": ("B2",)}.items():
        world.add_broker(BrokerConfig(name, neighbours=neighbours, link=link, replication=replication))
    world.add_link("B1", "B2", 0.05)
    world.add_link("B2", "B3", 0.05)
    world.failures.provisioner = StandByPool(world, start_after_s=0.0, machines_count=1)
    world.add_client("p", "B3")
    for broker in subscribers_at:
        world.add_client(f"s{broker}", broker)
    world.run(1.0)
    world.advertise("p", Filter.parse("a > 0"))
    for broker in subscribers_at:
        world.subscribe(f"s{broker}", Filter.parse("a > 0"))
    world.run(2.0)
    for number in range(1, 41):
        world.publish("p", {"a": number})
    world.at(2.01, world.move, "p", "B1")
    session = world.clients["p"].session
    while session.broker == "B3":
        world.run(world.now_s + 0.01)
    assert session.is_moving
    world.publish("p", {"a": 41})
    world.add_fault(Crash(broker=dies, at_s=world.now_s))
    world.run(30.0)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(600.0)
    check_rest(world, [("B1", "B2"), ("B2", "B3")])
    assert world.checker.violations == []
    assert world.checker.accepted_count == 41 and not session.is_moving


def test_a_publisher_leaves_before_what_it_had_said_has_come_from_the_disk() -> None:
    draw = functools.partial(draw_plan_with_deaths, acknowledges="durable", moves="clients")
    assert fuzz(first_seed=1736, runs_count=1, draw=draw).failures == []


def test_a_publisher_that_has_moved_waits_for_what_comes_from_the_disk_of_the_broker_that_it_left() -> None:
    draw = functools.partial(draw_plan_with_deaths, acknowledges="durable", moves="clients")
    assert fuzz(first_seed=200_078, runs_count=1, draw=draw).failures == []


def test_agents_of_a_replica_are_heard() -> None:
    """They ask for other things than those before them did, under other names."""
    draw = functools.partial(draw_plan_with_deaths, acknowledges="safe", moves="agents")
    assert fuzz(first_seed=12, runs_count=1, draw=draw).failures == []
    assert fuzz(first_seed=79, runs_count=1, draw=draw).failures == []


def test_a_replica_next_to_a_replica_has_nothing_to_tell_and_says_so() -> None:
    """Otherwise what the first one keeps for absent clients and agents would never end."""
    draw = functools.partial(draw_plan_with_deaths, acknowledges="durable", moves="agents")
    assert fuzz(first_seed=1544, runs_count=1, draw=draw).failures == []


def test_random_runs_with_moves_and_deaths() -> None:
    draw = functools.partial(draw_plan_with_deaths, moves="clients")
    report = fuzz(first_seed=80_000, runs_count=10, draw=draw)
    assert report.failures == [] and report.moves_count > 10
