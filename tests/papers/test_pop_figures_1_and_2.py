"""Publisher relocation paper (2009), section 3, Figures 1 and 2: profile tables, the walk, and its three outcomes.

The figure itself is not in the text. The text gives B1's table (B2 6, B4 3, B5 15, one subscriber of its own), 15
subscribers at and beyond B5, 10 on its other side, B7 and B8 downstream of B6, and the walk B1, B5, B6. How the six
behind B2 and the 15 behind B5 are distributed is ours; B5 has none, for all 15 are "on the right of B5". The text also
says that B6 sees 15 subscribers on the link to B5; with the numbers above these are 10, the ones "on the left".
"""

from __future__ import annotations

import pytest

from trimtab.policies.relocation.config import RelocationConfig
from trimtab.policies.relocation.pop_selection import Arrival, Step, Walk, next_closest, turned_back
from trimtab.policies.relocation.pop_tracing import PopTraces, Profile

CLIENTS = {"B1": 1, "B2": 4, "B3": 2, "B4": 3, "B5": 0, "B6": 4, "B7": 6, "B8": 5}
DOWNSTREAM: dict[str, list[str]] = {"B1": ["B2", "B4", "B5"], "B2": ["B3"], "B5": ["B6"], "B6": ["B7", "B8"]}


def traced_once() -> dict[str, PopTraces]:
    """Every broker after one publication of P at B1 that all subscribers got; messages are handed on at once."""
    brokers = {name: PopTraces(RelocationConfig()) for name in CLIENTS}

    def arrives(broker: str, upstream: str) -> None:
        onward = DOWNSTREAM.get(broker, [])
        result = brokers[broker].saw(("P", 1), upstream, CLIENTS[broker], onward, 0.0)
        assert (result is None) == bool(onward), "a result is told at once only by brokers with nobody behind them"
        if result is not None:
            tell(broker, result.subscribers_count, result.to)
        for neighbour in onward:
            arrives(neighbour, broker)

    def tell(sender: str, count: int, to: str) -> None:
        result = brokers[to].heard(("P", 1), sender, count)
        if result is not None and result.to:
            tell(to, result.subscribers_count, result.to)

    arrives("B1", "")
    return brokers


def test_the_profile_tables_after_one_publication() -> None:
    tables = {name: traces.profiles["P"].by_neighbour for name, traces in traced_once().items()}
    assert tables == {
        "B1": {"B2": 6, "B4": 3, "B5": 15},
        "B2": {"B3": 2},
        "B3": {},
        "B4": {},
        "B5": {"B6": 15},
        "B6": {"B7": 6, "B8": 5},
        "B7": {},
        "B8": {},
    }


def test_the_publishers_broker_knows_when_nothing_is_outstanding() -> None:
    traces = PopTraces(RelocationConfig())
    traces.saw(("P", 1), "", 1, ["B2"], 0.0)
    assert traces.outstanding_count("P") == 1
    traces.heard(("P", 1), "B2", 6)
    assert traces.outstanding_count("P") == 0


def test_the_walk_from_b1_over_b5_to_b6() -> None:
    brokers = traced_once()
    at, walk = "B1", Walk()
    visited: list[str] = []
    sides: list[tuple[str, float]] = []
    while True:
        visited.insert(0, at)
        step = next_closest(brokers[at].profiles["P"], walk, at)
        if isinstance(step, Arrival):
            break
        sides.append((step.to, step.walk.sender_side_count))
        at, walk = step.to, step.walk
    assert visited == ["B6", "B5", "B1"], "the list of brokers, the closest first"
    assert sides == [("B5", 10), ("B6", 10)]
    assert step.saved_hops_per_delivery == pytest.approx((15 - 10 + 15 - 10) / 25)


def test_b1_adds_its_own_subscribers_and_those_behind_the_other_neighbours() -> None:
    step = next_closest(Profile(1, {"B2": 6, "B4": 3, "B5": 15}, 1), Walk(), "B1")
    assert isinstance(step, Step)
    assert (step.to, step.walk.sender_side_count) == ("B5", 6 + 3 + 1)


@pytest.mark.parametrize(
    ("profile", "walk", "expected"),
    [
        (Profile(1, {"B2": 5, "B3": 1}, 1), Walk("B0", 2, 7), "B2"),
        (Profile(3, {"B2": 5, "B3": 1}, 1), Walk("B0", 2, 9), None),
        (Profile(0, {"B2": 5}, 1), Walk("B0", 5, 5), None),
    ],
    ids=["a neighbour leads to more than all others", "no neighbour does", "as many on both sides"],
)
def test_the_outcomes_of_figure_2(profile: Profile, walk: Walk, expected: str | None) -> None:
    step = next_closest(profile, walk, "B1")
    assert (step.to if isinstance(step, Step) else None) == expected


def test_a_publisher_in_the_right_place_stays() -> None:
    assert next_closest(Profile(9, {"B2": 3}, 1), Walk(), "B1") == Arrival(0.0)


def test_an_edge_broker_of_a_peer_network_is_not_walked_to() -> None:
    step = next_closest(Profile(1, {"B2": 9}, 1), Walk(), "B1")
    assert isinstance(step, Step)
    assert turned_back(step.walk) == Arrival(0.0), "the walk is back where it was"


def test_averages_per_publication_that_came_are_scaled_to_what_the_sender_counts() -> None:
    """A branch that gets a tenth of the publications counts ten subscribers for each, and one for each of all."""
    step = next_closest(Profile(0, {"B3": 10}, 1), Walk("B1", sender_side_count=2, here_count=1), "B2")
    assert isinstance(step, Arrival)
