"""Where new subscribers go: together with their like, apart from what bursts with them, where least is used."""

from __future__ import annotations

from trimtab.language import Filter
from trimtab.policies.api import BrokerCapacity
from trimtab.policies.delay.allocation import Allocation, EdgeView, Seen, allocate, interest_of
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.metrics import EdgeMetrics, State

CONFIG = DelayConfig()
EIGHT, NINE = Filter.parse("topic = 8"), Filter.parse("topic = 9")
STEADY = [Seen({"topic": 8 + number % 2}, 400.0, number / 100) for number in range(100)]
"""A second in which two topics alternate: 20,000 bytes per second of each."""


def edge(
    name: str,
    uplink_ratio: float,
    *filters: Filter,
    sample: list[Seen] = STEADY,
    bandwidth: float = 1e6,
    state: State = State.LOW,
) -> EdgeView:
    return EdgeView(
        name=name,
        metrics=EdgeMetrics(0.1, 0.1, uplink_ratio),
        state=state,
        capacity=BrokerCapacity(bandwidth, 1e9, 0.0),
        matching_delay_s=0.0001,
        input_rate_per_s=10.0,
        wanted=interest_of(filters, sample, 1.0),
    )


def allocated(edges: list[EdgeView], clients_count: int = 1, sample: list[Seen] = STEADY) -> Allocation:
    found = allocate(interest_of([EIGHT], sample, 1.0), clients_count, clients_count, edges, sample, CONFIG)
    assert found is not None
    return found


def test_rates_come_from_the_sample() -> None:
    wanted = interest_of([EIGHT], STEADY, 1.0)
    assert (wanted.rate_per_s, wanted.bytes_per_s) == (50.0, 20_000.0)


def test_subscribers_go_where_what_they_want_arrives_already_though_others_have_more_room() -> None:
    assert allocated([edge("b0", 0.2, NINE), edge("b1", 0.6, EIGHT)]).broker == "b1"


def test_but_not_where_there_is_no_room() -> None:
    assert allocated([edge("b0", 0.2, NINE), edge("b1", 0.89, EIGHT)]).broker == "b0"
    assert allocated([edge("b0", 0.2), edge("b1", 0.1, EIGHT, state=State.OVERLOAD)]).broker == "b0"


def test_otherwise_the_least_utilized_capacity_counts_with_the_whole_bundle() -> None:
    small, large = edge("b0", 0.30, bandwidth=0.5e6), edge("b1", 0.35, bandwidth=2e6)
    assert allocated([small, large], 1).broker == "b0"
    assert allocated([small, large], 10).broker == "b1"


def test_if_nobody_has_room_the_least_utilized_is_chosen_and_that_is_said() -> None:
    chosen = allocated([edge("b0", 0.99), edge("b1", 0.95)])
    assert (chosen.broker, chosen.reason[:18]) == ("b1", "no broker has room")


def test_interests_that_burst_together_are_kept_apart() -> None:
    burst = [Seen({"topic": topic}, 400.0, 0.5 + number / 10_000) for number in range(50) for topic in (8, 9)]
    calm = [Seen({"topic": 7}, 400.0, number / 50) for number in range(50)]
    sample = sorted([*burst, *calm], key=lambda seen: seen.at_s)
    crowded = edge("b0", 0.1, NINE, sample=sample)
    quiet = edge("b1", 0.4, Filter.parse("topic = 7"), sample=sample)
    assert allocated([crowded, quiet], sample=sample).broker == "b1"


def test_regular_arrivals_of_the_same_pace_are_not_kept_apart() -> None:
    assert allocated([edge("b0", 0.1, NINE), edge("b1", 0.4)]).broker == "b0"


def test_without_brokers_there_is_no_allocation() -> None:
    assert allocate(interest_of([EIGHT], STEADY, 1.0), 1, 1, [], STEADY, CONFIG) is None
