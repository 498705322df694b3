"""Channels in a simulated network: results once and in order while clients move and the back end comes and goes."""

from __future__ import annotations

from trimtab.broker.config import BrokerConfig
from trimtab.protocol.messages import WireValue
from trimtab.simulation.checkers.channels import ChannelChecker
from trimtab.simulation.world.world import World

HERE: dict[str, WireValue] = {"place": 1}


def two_brokers() -> World:
    world = World(1)
    world.add_back_end(("near",))
    for name in ("B1", "B2"):
        world.add_broker(BrokerConfig(name, neighbours=("B2" if name == "B1" else "B1",), has_back_end=True))
    world.add_link("B1", "B2")
    return world


def test_a_client_with_both_kinds_of_subscriptions_moves_and_misses_no_result() -> None:
    world = two_brokers()
    assert world.back_end is not None
    world.add_client("alice", "B1")
    world.run(1.0)
    world.subscribe_channel("alice", "near", HERE)
    for number in range(100):
        world.at(1.5 + number * 0.002, world.back_end.happen, "near", HERE, {"number": number})
    world.at(1.6, world.move, "alice", "B2")
    world.run(60.0)
    world.checker.check_at_rest()
    assert world.checker.violations == []
    assert world.checker.channels.delivered_count == 100
    assert world.clients["alice"].session.broker == "B2"
    assert world.brokers["B1"].broker.channels is not None
    assert world.brokers["B1"].broker.channels.streams_count == 0


def test_results_are_fetched_once_for_all_clients_of_a_broker() -> None:
    world = two_brokers()
    assert world.back_end is not None
    for number in range(10):
        world.add_client(f"c{number}", "B1")
    world.run(1.0)
    for number in range(10):
        world.subscribe_channel(f"c{number}", "near", HERE)
    for number in range(20):
        world.at(2.0 + number, world.back_end.happen, "near", HERE, {"number": number})
    world.run(40.0)
    world.checker.check_at_rest()
    assert world.checker.violations == []
    desk = world.brokers["B1"].broker.channels
    assert desk is not None
    assert (desk.results_in_count, desk.results_out_count) == (20, 200)


def test_an_unknown_channel_is_told_to_the_client() -> None:
    world = two_brokers()
    world.add_client("alice", "B1")
    world.run(1.0)
    world.subscribe_channel("alice", "far", HERE)
    world.run(2.0)
    assert [violation.kind for violation in world.checker.violations] == ["refused"]


def test_the_checker_sees_holes_repetitions_and_what_never_came() -> None:
    seen: list[str] = []
    checker = ChannelChecker(lambda kind, text: seen.append(f"{kind}: {text}"))
    checker.subscribed("a/c1", "a", "#s()")
    checker.in_force("a/c1", 0)
    for position in (1, 2, 3, 4):
        checker.made("#s()", position)
    checker.delivered("a/c1", 1, 0.0)
    assert seen == []
    checker.delivered("a/c1", 3, 0.0)
    checker.delivered("a/c1", 3, 0.0)
    checker.check_at_rest()
    checker.lost("#s()", 1.0)
    assert [text.partition(" at ")[0] for text in seen] == [
        "results: a/c1 got 3 after 1, next is 2 (0.000000 s)",
        "results: a/c1 got 3 after 3, next is 4 (0.000000 s)",
        "missing: 1 results of #s() to a/c1",
        "missing: #s() was closed",
    ]
