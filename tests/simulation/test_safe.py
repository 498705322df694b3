"""What is acknowledged as safe survives the death of any one broker, once and in order."""

from random import Random

import pytest

from trimtab.broker.config import Acknowledges, BrokerConfig
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.language import Filter
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.failures import StandByPool
from trimtab.simulation.faults.faults import Crash
from trimtab.simulation.fuzz.bugs.replication_bugs import REPLICATION_BUGS
from trimtab.simulation.fuzz.death_plans import draw_plan_with_deaths
from trimtab.simulation.fuzz.fuzz import fuzz, fuzz_bug
from trimtab.simulation.fuzz.run import run_plan
from trimtab.simulation.world.world import World

LINKS = [("B1", "B2"), ("B1", "B3"), ("B2", "B4"), ("B2", "B5"), ("B3", "B6"), ("B3", "B7")]
BROKERS = tuple(f"B{number}" for number in range(1, 8))


def seven(seed: int) -> World:
    """Seven brokers in a tree; every one has a publisher and a subscriber to all."""
    world = World(seed)
    replication = ReplicationConfig(look_every_s=0.1, crash_after_s=0.3)
    for name in BROKERS:
        neighbours = tuple(end for link in LINKS if name in link for end in link if end != name)
        world.add_broker(BrokerConfig(name, neighbours=neighbours, replication=replication, acknowledges="safe"))
    for first, second in LINKS:
        world.add_link(first, second, 0.01)
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=1)
    world.run(0.3)
    for name in BROKERS:
        world.add_client(f"p@{name}", name)
        world.add_client(f"s@{name}", name)
        world.advertise(f"p@{name}", Filter.parse("a > 1"))
        world.subscribe(f"s@{name}", Filter.parse("a > 5"))
    world.run(2.0)
    return world


@pytest.mark.parametrize("broker", BROKERS)
def test_the_death_of_any_one_broker_loses_doubles_and_reorders_nothing(broker: str) -> None:
    seed = BROKERS.index(broker)
    world = seven(seed)
    for number in range(60):
        for name in BROKERS:
            world.at(2.0 + number * 0.013, world.publish, f"p@{name}", {"a": 6})
    world.add_fault(Crash(broker=broker, at_s=Random(seed).uniform(2.1, 2.7), noticed_after_s=0.02))
    world.run(15.0)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(600.0)
    check_rest(world, LINKS)
    assert [f"{violation.kind}: {violation.text}" for violation in world.checker.violations] == []
    assert world.checker.deliveries_count == 60 * 7 * 7
    assert world.failures.replaced_count == 1


def test_a_publication_is_acknowledged_when_its_receivers_have_it() -> None:
    """Client to B1, B1 to B2 and back: two of the ways that an ordinary acknowledgement does not wait for."""
    taken_s: dict[str, float] = {}
    for level in ("received", "safe"):
        world = World(1)
        for name in ("B1", "B2"):
            world.add_broker(BrokerConfig(name, acknowledges=level))
        world.add_link("B1", "B2", 0.05)
        world.run()
        for client, broker in (("p", "B1"), ("s", "B2")):
            world.add_client(client, broker, 0.01)
        world.run()
        world.advertise("p", Filter.parse("a > 1"))
        world.subscribe("s", Filter.parse("a > 1"))
        world.run()
        begin_s = world.now_s
        world.publish("p", {"a": 6})
        while world.clients["p"].session.waiting_count:
            world.run(world.now_s + 0.001)
        taken_s[level] = round(world.now_s - begin_s, 2)
    assert taken_s == {"received": 0.02, "safe": 0.12}


@pytest.mark.parametrize("level", ["safe", "durable"])
def test_what_passed_while_a_client_was_absent_survives_the_death_of_the_replica_that_kept_it(
    level: Acknowledges,
) -> None:
    """The client has come back to the replica of B2, and what waited for it there is on its way when that dies."""
    world = World(1)
    replication = ReplicationConfig(look_every_s=0.1, crash_after_s=0.3)
    for name, neighbour in (("B1", "B2"), ("B2", "B1")):
        world.add_broker(BrokerConfig(name, neighbours=(neighbour,), replication=replication, acknowledges=level))
    world.add_link("B1", "B2", 0.01)
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=2)
    world.failures.clients_return_s = 2.0
    world.run(0.3)
    world.add_client("p", "B1")
    world.add_client("s", "B2", 0.2)
    world.advertise("p", Filter.parse("a > 1"))
    world.subscribe("s", Filter.parse("a > 5"))
    world.run(2.0)
    world.failures.kill("B2")
    world.run(2.7)
    for _ in range(3):
        world.publish("p", {"a": 6})
    while not ("s" in (peers := world.brokers["B2"].broker.peers) and peers["s"].link.data_sent_count):
        world.run(world.now_s + 0.01)
    world.failures.kill("B2")
    world.run(20.0)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(600.0)
    check_rest(world, [("B1", "B2")])
    assert [f"{violation.kind}: {violation.text}" for violation in world.checker.violations] == []
    assert (world.checker.deliveries_count, world.failures.replaced_count) == (3, 2)


def test_safe_needs_a_network_that_can_keep_it() -> None:
    with pytest.raises(ValueError, match="safe"):
        BrokerConfig("B1", acknowledges="safe", slow_policy="drop-oldest")
    with pytest.raises(ValueError, match="safe"):
        BrokerConfig("B1", acknowledges="safe", replication=ReplicationConfig(protocol="basic"))


def test_random_networks_in_which_what_is_safe_survives() -> None:
    report = fuzz(first_seed=70_000, runs_count=8, draw=lambda seed: draw_plan_with_deaths(seed, acknowledges="safe"))
    assert report.failures == []


def test_a_random_network_whose_replica_dies_soon_after_its_clients_have_returned() -> None:
    plan = draw_plan_with_deaths(9_367, acknowledges="safe", moves="clients")
    assert run_plan(plan).violations == []


def test_a_random_network_with_a_client_that_undoes_more_than_a_hundred_moves() -> None:
    plan = draw_plan_with_deaths(9_246, acknowledges="received", moves="agents")
    assert run_plan(plan).violations == []


def test_the_fuzzer_finds_a_replica_that_is_told_too_little() -> None:
    bug = next(bug for bug in REPLICATION_BUGS if bug.name == "tell-no-subscriptions")
    assert fuzz_bug(bug, first_seed=1, runs_max_count=10, draw=draw_plan_with_deaths).found_after_runs_count is not None
