"""A congested broker gets an assistant that shares its load; what takes two ways is put in order again if wanted."""

from functools import partial

import msgspec
import pytest

from trimtab.broker.config import Acknowledges, BrokerConfig
from trimtab.broker.replication.assistance import Assistance
from trimtab.broker.replication.config import PROTOCOLS, Assisting, Protocol, ReplicationConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Assist
from trimtab.protocol.frames import Hello
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import Publish
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.failures import StandByPool
from trimtab.simulation.faults.faults import Congest
from trimtab.simulation.fuzz.bugs.replication_bugs import REPLICATION_BUGS
from trimtab.simulation.fuzz.death_plans import draw_plan_with_assistants
from trimtab.simulation.fuzz.full_plans import draw_plan_with_replication
from trimtab.simulation.fuzz.fuzz import fuzz, fuzz_bug
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.world import World

LINKS = [("B1", "F"), ("F", "B2"), ("F", "B3")]


def star(
    protocol: Protocol = "synchronous",
    assisting: Assisting = "reordering",
    acknowledges: Acknowledges = "received",
    relieved_after_s: float = 10.0,
) -> World:
    """Publishers at B1 and F, subscribers everywhere; F, which relays, needs 10 ms for each publication."""
    world = World(1, link=LinkConfig(data_window_count=64))
    replication = ReplicationConfig(
        protocol=protocol,
        assisting=assisting,
        congested_count=100,
        congested_after_s=0.5,
        relieved_count=4,
        relieved_after_s=relieved_after_s,
        look_every_s=0.2,
    )
    for name in ("F", "B1", "B2", "B3"):
        neighbours = tuple(end for link in LINKS if name in link for end in link if end != name)
        config = BrokerConfig(
            name,
            neighbours=neighbours,
            replication=replication,
            link=world.link_config,
            acknowledges=acknowledges,
            slow_policy="block",
        )
        world.add_broker(config, SimulatedCapacity(cpu_mhz=100.0))
    for first, second in LINKS:
        world.add_link(first, second, 0.005)
    world.run(0.3)
    for broker in ("B1", "B2", "B3", "F"):
        world.add_client(f"s@{broker}", broker)
    for broker in ("B1", "F"):
        world.add_client(f"p@{broker}", broker)
    world.run(0.5)
    for broker in ("B1", "F"):
        world.advertise(f"p@{broker}", Filter.parse("a > 1"))
    for broker in ("B1", "B2", "B3", "F"):
        world.subscribe(f"s@{broker}", Filter.parse("a > 5"))
    world.run(1.0)
    return world


def publish(world: World, client: str, from_s: float, count: int, every_s: float) -> None:
    for number in range(count):
        world.at(from_s + number * every_s, world.publish, client, {"a": 6 + number % 5})


def finish(world: World, until_s: float) -> list[str]:
    world.run(until_s)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(until_s + 600.0)
    check_rest(world, LINKS)
    return [f"{violation.kind}: {violation.text}" for violation in world.checker.violations]


def assistance_of(world: World, broker: str) -> Assistance:
    replacement = world.brokers[broker].broker.replacement
    assert replacement is not None
    return replacement.assistance


def assist(world: World, protocol: Protocol = "synchronous", *, reorders: bool = True) -> None:
    world.failures.assist(Assist("F", "1", protocol, reorders, (("B1", ""), ("B2", ""), ("B3", ""))))


def test_a_congested_broker_gets_an_assistant_by_itself() -> None:
    world = star()
    pool = world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=3)
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=15.0))
    publish(world, "p@B1", 1.0, 1_500, 0.01)
    assert finish(world, 40.0) == []
    assert {type(request) for _, request in world.failures.requests} == {Assist}
    assert pool.machines_count == 2
    assert world.brokers["F~"].broker.counters.publications_in_count > 500
    assert world.checker.deliveries_count == 1_500 * 4


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_with_reordering_each_subscriber_gets_all_in_order_from_all_publishers(protocol: Protocol) -> None:
    world = star(protocol)
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=20.0))
    publish(world, "p@B1", 1.0, 400, 0.01)
    publish(world, "p@F", 1.0, 40, 0.1)
    world.at(2.0, assist, world, protocol)
    assert finish(world, 40.0) == []
    assert world.checker.deliveries_count == 440 * 4
    assert world.brokers["F~"].broker.counters.publications_in_count > 100


def test_without_reordering_nothing_is_lost_but_order_is() -> None:
    world = star(assisting="scheduling")
    world.add_client("any", "B2")
    world.run(1.1)
    world.subscribe("any", Filter.parse("a > 5"))
    world.run(1.2)
    world.add_fault(Congest(broker="F", at_s=1.2, cpu_mhz=4.0, for_s=20.0))
    publish(world, "p@B1", 1.3, 400, 0.01)
    world.at(2.0, lambda: assist(world, reorders=False))
    came: list[int] = []
    world.on_delivery = lambda client, deliver, now_s: came.append(deliver.sequence) if client == "any" else None
    assert finish(world, 40.0) == []
    assert sorted(came) == [*range(1, 401)]
    assert came != sorted(came)


def test_a_subscription_that_comes_later_is_in_force_on_both_ways() -> None:
    world = star()
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=20.0))
    publish(world, "p@B1", 1.0, 800, 0.01)
    world.at(2.0, assist, world)
    world.run(4.0)
    world.add_client("late", "B3")
    world.run(4.1)
    world.subscribe("late", Filter.parse("a > 7"))
    world.run(5.0)
    world.unsubscribe("s@B2", "s@B2/s1")
    assert finish(world, 60.0) == []


def test_publications_before_the_end_of_an_advertisement_arrive_on_both_ways() -> None:
    world = star()
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=20.0))
    publish(world, "p@B1", 1.0, 300, 0.01)
    world.at(2.0, assist, world)
    world.at(4.1, world.unadvertise, "p@B1", "p@B1/a1")
    assert finish(world, 60.0) == []
    assert world.checker.deliveries_count == 300 * 4


def test_an_assistant_that_dies_leaves_one_way_and_one_network() -> None:
    world = star()
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=5.0))
    publish(world, "p@B1", 1.0, 300, 0.01)
    world.at(2.0, assist, world)
    world.at(3.0, world.failures.kill, "F~")
    publish(world, "p@B1", 15.0, 50, 0.01)
    found = finish(world, 60.0)
    lost = {f"{publisher}:{sequence}" for publisher, sequence in world.failures.lost_with_brokers}
    assert [text for text in found if text.split()[1] not in lost] == []
    assert not assistance_of(world, "B1").has_assistant("F")


def test_a_broker_that_dies_with_an_assistant_is_replaced_and_ends_in_one_network() -> None:
    world = star()
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=3)
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=5.0))
    publish(world, "p@B1", 1.0, 200, 0.01)
    world.at(2.0, assist, world)
    world.at(3.5, world.failures.kill, "F")
    publish(world, "p@B1", 20.0, 50, 0.01)
    world.run(19.0)
    world.checker.violations.clear()
    delivered_count = world.checker.deliveries_count
    found = finish(world, 60.0)
    assert [text for text in found if not text.startswith(("missing", "closed: F~"))] == []
    assert world.checker.deliveries_count >= delivered_count + 50 * 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_assistant_leaves_when_a_neighbour_of_its_broker_is_replaced(protocol: Protocol) -> None:
    world = star(protocol)
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=3)
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=5.0))
    publish(world, "p@F", 1.0, 200, 0.01)
    world.at(2.0, assist, world, protocol)
    world.at(3.5, world.failures.kill, "B2")
    publish(world, "p@B1", 20.0, 50, 0.01)
    world.run(19.0)
    assert world.brokers["F~"].is_dead
    for name in ("F", "B1", "B2", "B3"):
        assert not assistance_of(world, name).has_assistant("F")
    delivered_count = world.checker.deliveries_count
    assert finish(world, 60.0) == []
    assert world.checker.deliveries_count == delivered_count + 50 * 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_that_has_arrived_is_overtaken_when_an_assistant_leaves(protocol: Protocol) -> None:
    world = star(protocol)
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=3)
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=2.0, for_s=9.0))
    publish(world, "p@B1", 1.0, 600, 0.01)
    world.at(2.0, assist, world, protocol)
    world.at(3.5, world.failures.kill, "B2")
    had: dict[str, list[int]] = {}
    world.checker.on_delivery = lambda client, deliver, _: had.setdefault(client, []).append(deliver.sequence)
    assert finish(world, 60.0) == []
    assert world.brokers["F~"].is_dead
    assert had["s@B3"] == list(range(1, 601))
    lost = sorted(set(range(1, 601)) - set(had["s@F"]))
    assert lost == list(range(lost[0], lost[-1] + 1))  # what only the assistant had


LEVELS: tuple[Acknowledges, ...] = ("received", "safe", "durable")


@pytest.mark.parametrize("acknowledges", LEVELS)
def test_an_assistant_leaves_by_itself_when_the_congestion_is_over(acknowledges: Acknowledges) -> None:
    world = star(acknowledges=acknowledges, relieved_after_s=1.0)
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=3)
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=6.0))
    publish(world, "p@B1", 1.0, 700, 0.01)
    publish(world, "p@F", 1.0, 40, 0.1)
    publish(world, "p@B1", 8.0, 1_000, 0.03)
    world.run(6.0)
    assert world.brokers["F~"].broker.counters.publications_in_count > 50
    assert finish(world, 60.0) == []
    assert world.brokers["F~"].is_dead
    assert next(close.reason for close in world.closed if close.peer == "F~") == "F needs no assistant any more"
    assert world.checker.deliveries_count == 1_740 * 4
    for name in ("F", "B1", "B2", "B3"):
        assert not assistance_of(world, name).has_assistant("F")
    assert len([request for _, request in world.failures.requests if isinstance(request, Assist)]) == 1


def test_a_broker_that_is_congested_again_gets_another_assistant() -> None:
    world = star(acknowledges="safe", relieved_after_s=0.5)
    for at_s in (1.0, 20.0):
        world.add_fault(Congest(broker="F", at_s=at_s, cpu_mhz=4.0, for_s=8.0))
        publish(world, "p@B1", at_s, 600, 0.01)
        world.at(at_s + 1.0, assist, world)
    world.run(19.0)
    first = world.brokers["F~"]
    assert first.is_dead
    world.run(25.0)
    second = world.brokers["F~"]
    assert (second is first, second.broker.counters.publications_in_count > 100) == (False, True)
    assert finish(world, 60.0) == []
    assert world.checker.deliveries_count == 1_200 * 4


@pytest.mark.parametrize("killed", ["F~", "F", "B1", "B2"])
@pytest.mark.parametrize("acknowledges", LEVELS[1:])
@pytest.mark.parametrize("at_s", [2.6, 3.5, 9.05])
def test_nothing_is_lost_when_one_dies_where_an_assistant_is(
    acknowledges: Acknowledges, killed: str, at_s: float
) -> None:
    world = star(acknowledges=acknowledges, relieved_after_s=1.0)
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=3)
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=5.0))
    publish(world, "p@B1", 1.0, 600, 0.01)
    publish(world, "p@F", 1.0, 60, 0.1)
    publish(world, "p@B1", 12.0, 50, 0.01)
    world.at(2.0, assist, world)
    world.at(at_s, world.failures.kill, killed)
    assert finish(world, 60.0) == []
    assert world.checker.deliveries_count == 710 * 4


@pytest.mark.parametrize("acknowledges", LEVELS[1:])
def test_what_is_said_again_twice_is_put_in_order_twice(acknowledges: Acknowledges) -> None:
    """The second incarnation of F has the tail in order, and dies before a far client has any of it."""
    world = star(acknowledges=acknowledges)
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=3)
    world.add_client("far", "F", latency_s=0.3)
    world.run(2.0)
    world.subscribe("far", Filter.parse("a > 5"))
    world.add_fault(Congest(broker="F", at_s=3.0, cpu_mhz=4.0, for_s=3.0))
    world.at(3.0, assist, world)
    publish(world, "p@B1", 3.5, 150, 0.01)
    world.at(3.7, world.failures.kill, "F")
    world.run(4.0)
    while not _is_on_its_way(world, "far"):
        world.run(world.now_s + 0.01)
    tail = world.brokers["B1"].broker.peers["F"].link.undelivered_data()
    numbers = [message.sequence for message in tail if isinstance(message, Publish)]
    assert numbers[0] == 1 and numbers != sorted(numbers)
    world.failures.kill("F")
    assert finish(world, 60.0) == []
    assert world.checker.deliveries_count == 150 * 5


def _is_on_its_way(world: World, client: str) -> bool:
    """Whether F knows its routes and clients again, and has sent one of them what came for it."""
    broker = world.brokers["F"].broker
    peer = broker.peers.get(client)
    return peer is not None and peer.link.connected and not broker.data_count and bool(peer.link.undelivered_data())


def test_what_only_an_assistant_has_is_not_acknowledged() -> None:
    """Its queue for F is long when it dies together with the broker that gave it all that; that is one death."""
    world = star(acknowledges="safe")
    world.failures.provisioner = StandByPool(world, start_after_s=0.2, machines_count=3)
    world.add_fault(Congest(broker="F", at_s=1.0, cpu_mhz=4.0, for_s=5.0))
    publish(world, "p@B1", 1.0, 400, 0.01)
    world.at(2.0, assist, world)
    world.run(4.0)
    assert len(world.brokers["F~"].broker.peers["F"].link.undelivered_data()) > 64
    world.failures.kill("B1")
    world.failures.kill("F~")
    assert finish(world, 60.0) == []
    assert world.checker.deliveries_count == 400 * 4


def test_what_is_safe_gets_no_assistant_that_does_not_keep_its_order() -> None:
    world = star(acknowledges="safe")
    assist(world, reorders=False)
    world.run(3.0)
    assert world.brokers["F~"].is_dead
    assert {close.reason for close in world.closed} == {
        "what is safe must stay in order: its assistants re-order, and know all routes (synchronous)"
    }


def test_an_assistant_of_a_stranger_or_a_second_one_is_sent_away() -> None:
    world = star()
    assist(world)
    world.run(2.0)
    hello = world.brokers["F~"].broker.greeting("B1")
    assert "already" in assistance_of(world, "B1").problem_with(_named(hello, name="other"))
    assert "no neighbour" in assistance_of(world, "B1").problem_with(_named(hello, assists="B9"))


def test_random_networks_in_which_a_slow_broker_has_an_assistant() -> None:
    assert fuzz(first_seed=1, runs_count=8, draw=draw_plan_with_assistants).failures == []
    assert fuzz(first_seed=1173, runs_count=1, draw=draw_plan_with_assistants).failures == []


def test_random_networks_in_which_clients_move_as_well() -> None:
    draw = partial(draw_plan_with_assistants, with_moves=True)
    assert fuzz(first_seed=34, runs_count=6, draw=draw).failures == []


@pytest.mark.parametrize(("bug_name", "seed"), [("give-nothing-back", 70_066), ("merge-at-once", 60_094)])
def test_mistakes_with_assistants_show_in_random_networks(bug_name: str, seed: int) -> None:
    draw = draw_plan_with_replication
    assert fuzz(first_seed=seed, runs_count=1, draw=draw).failures == []
    bug = next(bug for bug in REPLICATION_BUGS if bug.name == bug_name)
    assert fuzz_bug(bug, first_seed=seed, runs_max_count=1, draw=draw).found_after_runs_count == 1


def _named(hello: Hello, **changes: str) -> Hello:
    return msgspec.structs.replace(hello, **changes)
