"""Two clusters: a head whose uplink is too small for what its publishers send elsewhere gives some of them away."""

from __future__ import annotations

from random import Random

import pytest

from trimtab.balancing.delay.agent import delay_agent
from trimtab.balancing.delay.config import DelayConfig
from trimtab.broker.config import BrokerConfig
from trimtab.broker.meters import MeterConfig
from trimtab.language import Filter
from trimtab.simulation.capacity import PUBLICATION_BYTES, Capacity
from trimtab.simulation.rest import check_rest
from trimtab.simulation.world import World

LINKS = (("H1", "H2"), ("H1", "e1"), ("H1", "e2"), ("H2", "e3"), ("H2", "e4"))
PUBLISHERS_COUNT = 4
RATE_PER_S = 30


def mbps(publications_per_s: float) -> float:
    return publications_per_s * PUBLICATION_BYTES * 8 / 1e6


def two_clusters(h1_per_s: float) -> World:
    """Four publishers at H1, all heard at e3, the last also at e1."""
    world = World(1, move_within_s=30.0)
    for name in ("H1", "H2", "e1", "e2", "e3", "e4"):
        capacity = Capacity(cpu_mhz=10_000, bandwidth_mbps=mbps(h1_per_s if name == "H1" else 2_000))
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
