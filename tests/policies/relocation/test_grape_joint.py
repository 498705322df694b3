"""Joint placement: what moves do to brokers on the path, and that no broker is pushed above what it can bear."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tests.policies.relocation.trees import message_count, random_traces, roomy
from trimtab.policies.relocation.config import Aim, RelocationConfig
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.grape_joint import PathChange, TracedPublisher, has_room, path_changes, place_jointly
from trimtab.policies.relocation.grape_selection import select_broker
from trimtab.policies.relocation.grape_tracing import BrokerTrace
from trimtab.policies.relocation.trace_tree import TraceTree

CONFIG = RelocationConfig()


@pytest.mark.parametrize("seed", range(20))
def test_the_changes_on_the_path_add_up_to_the_change_of_all_messages(seed: int) -> None:
    rng = Random(seed)
    traces = random_traces(rng, rng.randint(2, 20))
    tree = TraceTree("B0", traces, 100)
    target = rng.choice(tree.names)
    changes = path_changes(tree, target, publications_per_s=100.0)
    expected = message_count(traces, target, 100) - message_count(traces, "B0", 100)
    assert sum(change.input_per_s for change in changes) == pytest.approx(expected)
    assert sum(change.output_per_s for change in changes) == pytest.approx(expected), "what comes in went out"


def test_a_move_over_one_link() -> None:
    traces = [
        BrokerTrace(broker="B1", neighbours=("B2",), bits_hex="3"),
        BrokerTrace(broker="B2", neighbours=("B1",), bits_hex="f"),
    ]
    changes = path_changes(TraceTree("B1", traces, 8), "B2", publications_per_s=8.0)
    assert changes == (PathChange("B1", 2 - 8, 0 - 4), PathChange("B2", 8 - 4, 2 - 0))


def test_a_broker_whose_load_falls_has_room_however_loaded_it_is() -> None:
    full = roomy(input_rate_per_s=100.0)
    assert has_room(full, PathChange("B1", -1.0, 0.0), 0.875)
    assert not has_room(full, PathChange("B1", 1.0, 0.0), 0.875)
    assert not has_room(None, PathChange("B1", 1.0, 0.0), 0.875)


def publishers_for_one_target(count: int, rate_per_s: float) -> list[TracedPublisher]:
    """All want to B2, where their only subscribers are; B2 can take about 19 publications a second more."""
    traces = (
        BrokerTrace(broker="B1", neighbours=("B0",), matching_delay_s=0.03, room=roomy(20.0)),
        BrokerTrace(broker="B0", neighbours=("B1", "B2"), matching_delay_s=0.03, room=roomy(20.0)),
        BrokerTrace(
            broker="B2", neighbours=("B0",), bits_hex="1f", deliveries_count=5, matching_delay_s=0.03, room=roomy(10.0)
        ),
    )
    return [
        TracedPublisher(publisher=f"P{number}", broker="B1", traces=traces, published_count=10, over_s=10 / rate_per_s)
        for number in range(count)
    ]


def test_alone_each_publisher_goes_to_the_best_broker() -> None:
    (alone,) = publishers_for_one_target(1, 10.0)
    found = place_jointly([alone], CONFIG)["P0"].placement
    assert isinstance(found, Placement)
    assert found.to_broker == "B2"
    tree = TraceTree("B1", alone.traces, alone.published_count)
    assert select_broker(tree, Aim(), {}, CONFIG.gain_wanted_ratio(0)) == found


def test_together_they_do_not_overload_it() -> None:
    everybody = publishers_for_one_target(10, 10.0)
    placed = place_jointly(everybody, CONFIG)
    room = roomy(10.0)
    for joint in placed.values():
        for change in joint.changes:
            if change.broker == "B2":
                room = room.with_more(change.input_per_s, change.output_per_s)
    assert room.input_ratio <= CONFIG.bearable_ratio
    moved = [name for name, joint in placed.items() if isinstance(joint.placement, Placement)]
    assert 0 < len(moved) < 10
    left = [joint.placement for joint in placed.values() if isinstance(joint.placement, Stay)]
    assert {stay.reason for stay in left} == {Reason.NO_ROOM}


@pytest.mark.parametrize("seed", range(10))
def test_no_broker_whose_load_rises_ends_above_what_it_can_bear(seed: int) -> None:
    rng = Random(seed)
    traces = random_traces(rng, 15)
    rooms = {trace.broker: roomy(rng.uniform(5, 28)) for trace in traces}
    traces = [msgspec.structs.replace(trace, room=rooms[trace.broker]) for trace in traces]
    publishers = []
    for number in range(12):
        own = [
            msgspec.structs.replace(trace, bits_hex=f"{rng.getrandbits(100):x}", deliveries_count=rng.randrange(50))
            if rng.random() < 0.2
            else msgspec.structs.replace(trace, bits_hex="0", deliveries_count=0)
            for trace in traces
        ]
        publishers.append(
            TracedPublisher(publisher=f"P{number}", broker="B0", traces=tuple(own), published_count=100, over_s=20.0)
        )
    after, rising = dict(rooms), set()
    for joint in place_jointly(publishers, CONFIG).values():
        for change in joint.changes:
            after[change.broker] = after[change.broker].with_more(change.input_per_s, change.output_per_s)
            if change.input_per_s > 0:
                rising.add(change.broker)
    for name in rising:
        assert after[name].input_ratio <= max(CONFIG.bearable_ratio, rooms[name].input_ratio)


def test_twenty_publishers_among_a_thousand_brokers_are_placed() -> None:
    rng = Random(5)
    traces = tuple(random_traces(rng, 1_000))
    publishers = [
        TracedPublisher(publisher=f"P{number}", broker="B0", traces=traces, published_count=100, over_s=100.0)
        for number in range(20)
    ]
    assert len(place_jointly(publishers, CONFIG)) == 20


def test_a_publisher_that_has_moved_lately_needs_a_better_reason() -> None:
    (alone,) = publishers_for_one_target(1, 10.0)
    restless = msgspec.structs.replace(alone, moves_count=4)
    assert place_jointly([restless], CONFIG)["P0"].placement == Stay(Reason.BEST_HERE)
