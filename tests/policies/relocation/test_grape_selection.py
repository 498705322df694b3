"""Selection by GRAPE: one pass gives what the paper's walks give, and weights choose between load and delay."""

from __future__ import annotations

import time
from random import Random

import pytest

from tests.policies.relocation.trees import mean_delay_s, message_count, random_traces
from trimtab.policies.relocation.config import Aim, Priority, RelocationConfig
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.grape_selection import (
    kept_candidates,
    mean_delays_s,
    round_trips_wanted,
    select_broker,
    total_message_counts,
)
from trimtab.policies.relocation.grape_tracing import BrokerTrace
from trimtab.policies.relocation.trace_tree import TraceTree

WANTED = RelocationConfig().gain_wanted_ratio(0)


@pytest.mark.parametrize("seed", range(20))
def test_one_pass_counts_what_algorithms_2_and_3_count_for_each_candidate(seed: int) -> None:
    rng = Random(seed)
    traces = random_traces(rng, rng.randint(1, 30))
    tree = TraceTree("B0", traces, 100)
    expected = {trace.broker: message_count(traces, trace.broker, 100) for trace in traces}
    assert dict(zip(tree.names, total_message_counts(tree), strict=True)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_one_pass_gives_the_delays_of_algorithm_1_for_each_candidate(seed: int) -> None:
    rng = Random(seed)
    traces = random_traces(rng, rng.randint(1, 30))
    tree = TraceTree("B0", traces, 100)
    round_trips_s = {trace.broker: rng.uniform(0, 0.1) for trace in traces}
    expected = {name: mean_delay_s(traces, name, round_trips_s[name]) for name in tree.names}
    if any(trace.deliveries_count for trace in traces):
        assert dict(zip(tree.names, mean_delays_s(tree, round_trips_s), strict=True)) == pytest.approx(expected)


def branch_office() -> TraceTree:
    """A line: the publisher is at B1, most deliveries are at B4, a database that wants all is at B6."""
    line = ["B1", "B2", "B3", "B4", "B5", "B6"]
    bits = {**dict.fromkeys(line, 0), "B4": 0b11111, "B6": 0b1111111111}
    deliveries = {**dict.fromkeys(line, 0), "B4": 50, "B6": 10}
    return TraceTree(
        "B1",
        [
            BrokerTrace(
                broker=name,
                neighbours=tuple(line[place] for place in (number - 1, number + 1) if 0 <= place < len(line)),
                bits_hex=f"{bits[name]:x}",
                deliveries_count=deliveries[name],
                matching_delay_s=0.01,
            )
            for number, name in enumerate(line)
        ],
        published_count=10,
    )


@pytest.mark.parametrize(
    ("priority", "weight_percent", "expected"),
    [("load", 100, "B6"), ("delay", 100, "B4"), ("load", 1, "B4"), ("delay", 1, "B6")],
)
def test_load_goes_to_the_database_and_delay_to_most_deliveries(
    priority: Priority, weight_percent: float, expected: str
) -> None:
    found = select_broker(branch_office(), Aim(priority, weight_percent), {}, WANTED)
    assert isinstance(found, Placement)
    assert found.to_broker == expected


def test_the_totals_of_the_branch_office() -> None:
    assert total_message_counts(branch_office()) == [6 * 10, 5 * 10, 4 * 10, 3 * 10, 2 * 10 + 5, 10 + 5 + 5]


def test_values_above_100_minus_p_are_dropped_and_those_at_it_are_not() -> None:
    assert kept_candidates([0, 1, 2, 3], [0.0, 2.5, 2.6, 10.0], 75) == [0, 1]


def test_with_all_candidates_equal_none_is_dropped() -> None:
    assert kept_candidates([0, 1, 2], [7.0, 7.0, 7.0], 100) == [0, 1, 2]


def test_a_tie_in_load_is_decided_by_delay() -> None:
    """The same subscribers' publications everywhere: load is equal at B2 and B3, but B3 delivers more."""
    line = [
        BrokerTrace(broker="B1", neighbours=("B2",)),
        BrokerTrace(broker="B2", neighbours=("B1", "B3"), bits_hex="ff", deliveries_count=8, matching_delay_s=0.01),
        BrokerTrace(broker="B3", neighbours=("B2",), bits_hex="ff", deliveries_count=80, matching_delay_s=0.01),
    ]
    found = select_broker(TraceTree("B1", line, 8), Aim("load", 100), {}, WANTED)
    assert isinstance(found, Placement)
    assert found.to_broker == "B3"


def test_a_gain_below_the_threshold_is_no_reason_to_move() -> None:
    tree = branch_office()
    found = select_broker(tree, Aim("load", 100), {}, 0.9)
    assert isinstance(found, Stay)
    assert found.reason == Reason.GAIN_TOO_SMALL


def test_a_publisher_at_the_best_broker_stays() -> None:
    tree = TraceTree("B1", [BrokerTrace(broker="B1", neighbours=(), bits_hex="3", deliveries_count=2)], 2)
    assert select_broker(tree, Aim(), {}, WANTED) == Stay(Reason.BEST_HERE)


def test_without_deliveries_there_is_no_evidence() -> None:
    tree = TraceTree("B1", [BrokerTrace(broker="B1", neighbours=())], 2)
    assert select_broker(tree, Aim(), {}, WANTED) == Stay(Reason.NO_DELIVERIES)


def test_a_far_broker_is_not_chosen_for_delay_when_the_publisher_is_far_from_it() -> None:
    tree = branch_office()
    near = select_broker(tree, Aim("delay", 100), {"B1": 0.001, **dict.fromkeys(tree.names[1:], 0.2)}, WANTED)
    assert near == Stay(Reason.BEST_HERE)


def test_only_brokers_that_serve_publishers_are_candidates() -> None:
    traces = [
        BrokerTrace(broker="H1", neighbours=("H2",), matching_delay_s=0.01),
        BrokerTrace(broker="H2", neighbours=("H1", "E1"), matching_delay_s=0.01),
        BrokerTrace(broker="E1", neighbours=("H2",), bits_hex="f", deliveries_count=4, serves_publishers=False),
    ]
    found = select_broker(TraceTree("H1", traces, 4), Aim("load", 100), {}, WANTED)
    assert isinstance(found, Placement)
    assert found.to_broker == "H2"


def test_round_trips_are_asked_only_where_they_decide() -> None:
    tree = branch_office()
    assert round_trips_wanted(tree, Aim("load", 100)) == []
    assert round_trips_wanted(tree, Aim("load", 75)) == ["B4", "B5", "B6"]
    assert round_trips_wanted(tree, Aim("delay", 100)) == tree.names


@pytest.mark.parametrize("shape", ["random", "line", "star"])
def test_selecting_among_1000_brokers_takes_less_than_100_ms(shape: str) -> None:
    rng = Random(1)
    traces = random_traces(rng, 1_000)
    if shape != "random":
        names = [trace.broker for trace in traces]
        neighbours = {
            name: ((names[0],) if number else tuple(names[1:]))
            if shape == "star"
            else tuple(names[place] for place in (number - 1, number + 1) if 0 <= place < len(names))
            for number, name in enumerate(names)
        }
        traces = [
            BrokerTrace(
                broker=each.broker,
                neighbours=neighbours[each.broker],
                bits_hex=each.bits_hex,
                deliveries_count=each.deliveries_count,
                matching_delay_s=each.matching_delay_s,
            )
            for each in traces
        ]
    best_s = float("inf")
    for _ in range(3):
        begin_s = time.process_time()
        select_broker(TraceTree("B0", traces, 100), Aim("delay", 1), {}, WANTED)
        best_s = min(best_s, time.process_time() - begin_s)
    assert best_s < 0.1
