"""Where publishers may go: between cluster-heads in a network of clusters, between any brokers in a plain tree."""

from __future__ import annotations

from trimtab import Filter
from trimtab.broker.config import BrokerConfig
from trimtab.policies.api import RelocatePublisher
from trimtab.policies.registry import agents_of
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.world.world import World

NUMBERS = Filter.parse("[n,isPresent,0]")
LINKS = (("H1", "E11"), ("H1", "E12"), ("H1", "H2"), ("H2", "E21"), ("H2", "E22"))


def network(policy: str) -> World:
    """Two clusters H1 and H2, a publisher at H1 and subscribers at E12 and E21."""
    world = World(1)
    for name in dict.fromkeys(name for link in LINKS for name in link):
        neighbours = tuple(second if first == name else first for first, second in LINKS if name in (first, second))
        world.add_broker(BrokerConfig(name, neighbours=neighbours), agents=agents_of(policy, name, 1))
    for first, second in LINKS:
        world.add_link(first, second)
    world.add_client("p", "H1")
    for name in ("E12", "E21"):
        world.add_client(f"s@{name}", name)
    world.run(1.0)
    world.advertise("p", NUMBERS)
    world.run(2.0)
    for name in ("E12", "E21"):
        world.subscribe(f"s@{name}", NUMBERS)
    world.run(3.0)
    world.publish("p", {"n": 1})
    world.run(4.0)
    return world


def end(world: World) -> None:
    """All that was published was delivered, and the tables are right."""
    world.publish("p", {"n": 2})
    world.run(world.now_s + 2.0)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(world.now_s + 60.0)
    check_rest(world, LINKS)
    assert world.checker.violations == []
    assert world.checker.deliveries_count == 4


def moved(world: World, to_broker: str) -> str:
    """Ask the publisher to move; where it is afterwards."""
    world.move("p", to_broker)
    world.run(world.now_s + 2.0)
    return world.clients["p"].session.broker


def test_in_clusters_a_publisher_moves_between_heads() -> None:
    world = network("padres")
    assert moved(world, "H2") == "H2"
    assert moved(world, "E21") == "H2", "edge-brokers refuse publishers"
    assert moved(world, "H1") == "H1"
    end(world)


def test_in_clusters_an_edge_broker_tells_the_agent_that_wanted_the_move_why_not() -> None:
    world = network("padres")
    agents = world.brokers["H1"].broker.agents
    told: list[object] = []
    agents.tell_all = lambda event, now_s: told.append(event)  # type: ignore[method-assign]
    agents._carry_out("H1/padres", [RelocatePublisher("p", "E11", "r1")], world.now_s)
    world.brokers["H1"].pump()
    world.run(world.now_s + 2.0)
    assert [getattr(event, "reason", "") for event in told] == [
        "E11 is an edge-broker, and publishers go to cluster-heads"
    ]
    assert world.brokers["H1"].broker.admission.asked() == []
    end(world)


def test_in_clusters_a_client_that_subscribes_too_is_not_relocated() -> None:
    world = network("padres")
    world.subscribe("p", Filter.parse("[n,>,1000]"))
    world.run(5.0)
    _, reason = world.brokers["H1"].broker.admission.move_by_hand("p", "H2", world.now_s)
    assert reason == "it subscribes as well, and such a client stays where it is"
    end(world)


def test_in_a_plain_tree_a_publisher_moves_between_any_brokers() -> None:
    world = network("none")
    for name in ("E21", "E12", "H2", "E22"):
        assert moved(world, name) == name
    end(world)
