"""Two clusters: an overloaded head gives publishers to the other, an edge without a candidate near it subscribers."""

from __future__ import annotations

from random import Random

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.meters import MeterConfig
from trimtab.language import Filter
from trimtab.policies.delay.agent import delay_agent
from trimtab.policies.delay.config import DelayConfig
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.world.capacity import PUBLICATION_BYTES, SimulatedCapacity
from trimtab.simulation.world.world import World

LINKS = (("H1", "H2"), ("H1", "e1"), ("H1", "e2"), ("H2", "e3"), ("H2", "e4"))
PUBLISHERS_COUNT = 4
RATE_PER_S = 30


def mbps(publications_per_s: float) -> float:
    return publications_per_s * PUBLICATION_BYTES * 8 / 1e6


def two_clusters(h1_per_s: float) -> World:
    """Four publishers at H1, all heard at e3, the last also at e1."""
    world = World(1, move_within_s=30.0)
    for name in ("H1", "H2", "e1", "e2", "e3", "e4"):
        capacity = SimulatedCapacity(cpu_mhz=10_000, bandwidth_mbps=mbps(h1_per_s if name == "H1" else 2_000))
        neighbours = tuple(second if first == name else first for first, second in LINKS if name in (first, second))
        config = BrokerConfig(name, neighbours=neighbours, meters=MeterConfig(window_s=1.0, bucket_s=0.05))
        world.add_broker(config, capacity, [delay_agent(DelayConfig(), Random(name))])
    for first, second in LINKS:
        world.add_link(first, second, 0.01)
    world.run(1.0)
    for number in range(PUBLISHERS_COUNT):
        world.add_client(f"p{number}", "H1")
        world.advertise(f"p{number}", Filter.parse(f"[topic,=,{number}]"))
    world.add_client("far", "e3")
    world.subscribe("far", Filter.parse("[topic,>=,0]"))
    world.add_client("near", "e1")
    world.subscribe("near", Filter.parse(f"[topic,=,{PUBLISHERS_COUNT - 1}]"))
    world.run(3.0)
    for number in range(PUBLISHERS_COUNT):
        for tick in range(20 * RATE_PER_S):
            world.at(3.0 + tick / RATE_PER_S, world.publish, f"p{number}", {"topic": number})
    world.run(25.0)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(200.0)
    check_rest(world, list(LINKS))
    assert world.checker.violations == []
    assert world.checker.deliveries_count == 20 * RATE_PER_S * (PUBLISHERS_COUNT + 1)
    return world


@pytest.mark.parametrize("h1_per_s", [130.0, 90.0])
def test_publishers_go_where_they_are_heard_and_nothing_is_lost(h1_per_s: float) -> None:
    world = two_clusters(h1_per_s)
    brokers = {name: world.clients[name].session.broker for name in ("p0", "p1", "p2", "p3")}
    gone = [name for name, broker in brokers.items() if broker == "H2"]
    assert gone, brokers
    assert "p3" not in gone or len(gone) == PUBLISHERS_COUNT, "the one that is heard here as well goes last"


def test_a_head_with_room_keeps_its_publishers() -> None:
    world = two_clusters(400.0)
    assert {world.clients[f"p{number}"].session.broker for number in range(PUBLISHERS_COUNT)} == {"H1"}
    assert world.moves_count == 0


def a_loaded_cluster_and_a_free_one(e2_per_s: float) -> World:
    """At e1 a topic bursts; e2 beside it sends 93 messages per second, and the edges of H2 nothing."""
    world = World(1, move_within_s=30.0)
    rates_per_s = {"H1": 5_000, "H2": 5_000, "e1": 100.0, "e2": e2_per_s, "e3": 100.0, "e4": 100.0}
    for name, per_s in rates_per_s.items():
        neighbours = tuple(second if first == name else first for first, second in LINKS if name in (first, second))
        config = BrokerConfig(name, neighbours=neighbours, meters=MeterConfig(window_s=1.0, bucket_s=0.05))
        world.add_broker(
            config,
            SimulatedCapacity(cpu_mhz=10_000, bandwidth_mbps=mbps(per_s)),
            [delay_agent(DelayConfig(), Random(name))],
        )
    for first, second in LINKS:
        world.add_link(first, second, 0.01)
    world.run(1.0)
    topics: dict[str, tuple[str, int, float, int]] = {
        "calm": ("e1", 2, 60.0, 20),
        "burst": ("e1", 2, 1.5, 15),
        "near": ("e2", 1, 60.0, 93),
    }
    for topic, (edge, subscribers_count, within_s, _) in topics.items():
        world.add_client(f"p-{topic}", "H1")
        world.advertise(f"p-{topic}", Filter.parse(f"[topic,eq,'{topic}']"))
        for number in range(subscribers_count):
            world.add_client(f"{topic}-{number}", edge)
            world.subscribe(f"{topic}-{number}", Filter.parse(f"[topic,eq,'{topic}']"), within_s)
    world.run(3.0)
    for topic, (_, _, _, rate_per_s) in topics.items():
        for tick in range(25 * rate_per_s):
            world.at(3.0 + tick / rate_per_s, world.publish, f"p-{topic}", {"topic": topic})
    for tick in range(20 * 25):
        world.at(8.0 + tick / 25, world.publish, "p-burst", {"topic": "burst"})
    world.run(30.0)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(300.0)
    check_rest(world, list(LINKS))
    assert world.checker.violations == []
    return world


def places(world: World) -> dict[str, list[str]]:
    return {
        topic: [world.clients[f"{topic}-{number}"].session.broker for number in range(count)]
        for topic, count in (("calm", 2), ("burst", 2), ("near", 1))
    }


def test_an_edge_without_a_candidate_in_its_cluster_gives_a_bundle_to_another_cluster() -> None:
    found = places(a_loaded_cluster_and_a_free_one(e2_per_s=100.0))
    moved = [brokers for brokers in found.values() if brokers[0] != "e1" and len(brokers) == 2]
    assert moved in ([["e3", "e3"]], [["e4", "e4"]]), found
    assert found["near"] == ["e2"]


def test_a_candidate_in_its_own_cluster_comes_first() -> None:
    found = places(a_loaded_cluster_and_a_free_one(e2_per_s=400.0))
    moved = [brokers for brokers in found.values() if brokers[0] != "e1" and len(brokers) == 2]
    assert moved == [["e2", "e2"]], found
