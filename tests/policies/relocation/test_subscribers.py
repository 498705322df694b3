"""Subscribers that go towards their publishers, as GRAPE's paper wants for the future (section 7)."""

from __future__ import annotations

from random import Random

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.policies.relocation.config import Aim, RelocationConfig
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.subscriber_agent import SubscriberAgent
from trimtab.policies.relocation.subscriber_selection import GroupCounts, count_publication, select_neighbour
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.world import World

NEIGHBOURS = ("B1", "B3")


def group_after(*publications: tuple[str, tuple[str, ...]], clients: tuple[str, ...] = ("alice",)) -> GroupCounts:
    """A group at B2 that wants these publications: where each came from, and who gets it."""
    group = GroupCounts(clients)
    for source, hops in publications:
        count_publication(group, NEIGHBOURS, source, dict.fromkeys(hops), dict.fromkeys(clients))
    return group


def test_a_group_that_alone_wants_what_comes_from_a_neighbour_saves_these_messages_there() -> None:
    group = group_after(*[("B1", ("alice",))] * 8, *[("B3", ("alice",))] * 2)
    assert (group.messages_change("B1"), group.hops_change("B1")) == (2 - 8, 2 - 8)
    found = select_neighbour(group, NEIGHBOURS, Aim("load", 100.0), 0.05)
    assert isinstance(found, Placement)
    assert (found.to_broker, found.gain_ratio) == ("B1", 0.6)


def test_where_others_want_the_same_no_message_is_saved_but_hops_are() -> None:
    group = group_after(*[("B1", ("alice", "bob"))] * 10)
    assert (group.messages_change("B1"), group.hops_change("B1")) == (0, -10)
    found = select_neighbour(group, NEIGHBOURS, Aim("load", 100.0), 0.05)
    assert isinstance(found, Placement), "equal in messages, better in hops"
    together = group_after(*[("B1", ("alice", "bob"))] * 10, clients=("alice", "bob"))
    assert together.messages_change("B1") == -10, "with equal filters both move, and nobody wants it any more"


def test_what_goes_there_anyway_costs_nothing_more() -> None:
    group = group_after(*[("", ("alice", "B1"))] * 5, *[("", ("alice",))] * 5)
    assert (group.messages_change("B1"), group.messages_change("B3")) == (5, 10)
    assert select_neighbour(group, NEIGHBOURS, Aim(), 0.05) == Stay(Reason.BEST_HERE)


def test_a_neighbour_without_room_is_not_chosen() -> None:
    group = group_after(*[("B1", ("alice",))] * 8)
    assert select_neighbour(group, ("B3",), Aim(), 0.05) == Stay(Reason.BEST_HERE)


def line(cpu_mhz_of_b1: float, seconds: int = 120) -> World:
    """B1 - B2 - B3: what is published at B1 is wanted at B3, and what is published at B3 there as well."""
    world = World(1)
    config = RelocationConfig(grape_threshold_count=40, rest_s=5.0)
    for name, neighbours in {"B1": ("B2",), "B2": ("B1", "B3"), "B3": ("B2",)}.items():
        capacity = SimulatedCapacity(cpu_mhz=cpu_mhz_of_b1 if name == "B1" else 1_000.0, bandwidth_mbps=10.0)
        agent = SubscriberAgent(config, Random(name))
        world.add_broker(BrokerConfig(name, neighbours=neighbours), capacity, [agent])
    world.add_link("B1", "B2")
    world.add_link("B2", "B3")
    for name, broker in {"far": "B1", "near": "B3", "wants-far": "B3", "wants-near": "B3"}.items():
        world.add_client(name, broker)
    world.run(1.0)
    for name in ("far", "near"):
        world.advertise(name, Filter.parse(f"[from,eq,'{name}'],[n,>=,0]"))
    world.run(2.0)
    for name in ("far", "near"):
        world.subscribe(f"wants-{name}", Filter.parse(f"[from,eq,'{name}']"))
    for number in range(seconds * 4):
        for name in ("far", "near"):
            world.at(3.0 + number / 4, world.publish, name, {"from": name, "n": number})
    world.run(seconds + 10.0)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(seconds + 200.0)
    check_rest(world, [("B1", "B2"), ("B2", "B3")])
    return world


def test_a_subscriber_walks_to_the_broker_of_its_publisher_and_loses_nothing() -> None:
    world = line(1_000.0)
    where = {name: world.clients[name].session.broker for name in ("wants-far", "wants-near")}
    assert where == {"wants-far": "B1", "wants-near": "B3"}
    assert world.checker.violations == []
    assert world.checker.deliveries_count == 2 * 120 * 4


def test_it_stops_before_a_broker_that_has_no_room() -> None:
    world = line(0.005)
    assert world.clients["wants-far"].session.broker == "B2"
