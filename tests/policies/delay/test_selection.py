"""Which bundles an overloaded broker gives to whom (section IV.D.2)."""

from __future__ import annotations

import msgspec

from trimtab.load.profiles import Sample
from trimtab.policies.api import BrokerCapacity
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.metrics import EdgeMetrics, Metric
from trimtab.policies.delay.priorities import Bundle, Waiting
from trimtab.policies.delay.selection import Candidate, NoPlan, Offering, OffloadPlan, Selected, plan_offload

CONFIG = DelayConfig()
SAMPLE = Sample(tuple(("p", number) for number in range(8)), (1_000,) * 8, 1.0, 8.0, ())
MBPS = 1e6 / 8


def offering(uplink_mbps: float = 8.56, metric: Metric = Metric.QUEUE_DEPTH, waiting_bytes: float = 0.0) -> Offering:
    return Offering(
        metrics=EdgeMetrics(0.3, 0.2, uplink_mbps / 8, 3),
        metric=metric,
        capacity=BrokerCapacity(8 * MBPS, 1e9, 0.0),
        input_rate_per_s=8.0,
        matching_delay_s=0.01,
        waiting_bytes=waiting_bytes,
    )


def candidate(name: str, uplink_mbps: float, bandwidth_mbps: float) -> Candidate:
    return Candidate(
        name=name,
        metrics=EdgeMetrics(0.1, 0.1, uplink_mbps / bandwidth_mbps),
        capacity=BrokerCapacity(bandwidth_mbps * MBPS, 1e9, 0.0),
        input_rate_per_s=4.0,
        matching_delay_s=0.01,
        received_bits=0,
    )


def bundle(topic: int, mbps: float, clients_count: int, wait_s: float, waiting: Waiting = Waiting.SOMETHING) -> Bundle:
    return Bundle(
        clients=tuple(f"S{topic}.{number}" for number in range(clients_count)),
        bits=1 << topic % 8,
        output_bytes_per_s=mbps * MBPS,
        subscriptions_count=clients_count,
        allowed_wait_s=wait_s,
        waiting=waiting,
    )


PAPER = [
    bundle(1, 0.64, 8, 1.5, Waiting.NOTHING),
    bundle(3, 2.0, 1, 1.3),
    bundle(8, 4.48, 7, 0.8, Waiting.TOO_LONG),
    bundle(14, 1.44, 3, 49.7),
]
"""The topics of b1 in the paper's experiment, during the burst."""


def planned(plan: OffloadPlan | NoPlan) -> OffloadPlan:
    assert isinstance(plan, OffloadPlan)
    return plan


def test_topic_1_goes_from_b1_to_b0_as_in_the_paper() -> None:
    plan = planned(plan_offload(offering(), PAPER, [candidate("b0", 4.0, 6.5)], SAMPLE, CONFIG))
    assert plan.selected == (Selected(PAPER[0].clients, "b0"),)
    assert round(plan.after.uplink_ratio, 2) == 0.99
    assert plan.ends_overload


def test_a_bundle_that_is_too_small_alone_is_passed_over_for_one_that_suffices() -> None:
    plan = planned(plan_offload(offering(9.2), PAPER, [candidate("b0", 4.0, 6.5)], SAMPLE, CONFIG))
    assert plan.selected == (Selected(PAPER[3].clients, "b0"),)


def test_what_waits_must_be_cleared_in_time_as_well() -> None:
    behind = offering(8.56, waiting_bytes=20.0 * MBPS)
    plan = planned(plan_offload(behind, PAPER, [candidate("b0", 4.0, 6.5)], SAMPLE, CONFIG))
    assert plan.selected[0].clients == PAPER[3].clients


def test_several_bundles_go_if_none_alone_suffices() -> None:
    plan = planned(plan_offload(offering(10.0), PAPER, [candidate("b0", 3.0, 6.5)], SAMPLE, CONFIG))
    assert [each.clients[0][:3] for each in plan.selected] == ["S1.", "S14"]
    assert plan.ends_overload


def test_the_broker_with_the_lowest_value_of_the_overloaded_metric_is_filled_first() -> None:
    brokers = [candidate("b0", 4.0, 6.5), candidate("b3", 2.0, 8.0)]
    plan = planned(plan_offload(offering(), PAPER, brokers, SAMPLE, CONFIG))
    assert plan.selected[0].to_broker == "b3"


def test_no_accepting_broker_is_overloaded() -> None:
    full = [candidate("b0", 6.42, 6.5)]
    assert isinstance(plan_offload(offering(), PAPER, full, SAMPLE, CONFIG), NoPlan)
    assert isinstance(plan_offload(offering(), PAPER, [], SAMPLE, CONFIG), NoPlan)


def test_uplinks_are_filled_further_only_where_nothing_else_ends_the_overload() -> None:
    with_room, nearly_full = candidate("b0", 5.0, 6.5), candidate("b2", 4.74, 5.0)
    plan = planned(plan_offload(offering(8.1), PAPER, [with_room, nearly_full], SAMPLE, CONFIG))
    assert {each.to_broker for each in plan.selected} == {"b0"}, "below 0.95"
    alone = planned(plan_offload(offering(8.1), PAPER, [nearly_full], SAMPLE, CONFIG))
    assert alone.ends_overload
    assert {each.to_broker for each in alone.selected} == {"b2"}, "up to 0.99"
    careful = msgspec.structs.replace(CONFIG, full_ratio=CONFIG.high_ratio)
    assert isinstance(plan_offload(offering(8.1), PAPER, [nearly_full], SAMPLE, careful), NoPlan)


def test_clients_of_a_bundle_are_separated_only_if_no_bundle_fits() -> None:
    plan = planned(plan_offload(offering(8.1), PAPER, [candidate("b0", 5.6, 6.5)], SAMPLE, CONFIG))
    assert [len(each.clients) for each in plan.selected] == [1, 1]


def test_a_bundle_is_shared_among_brokers_before_several_bundles_move() -> None:
    brokers = [candidate("b0", 5.12, 6.5), candidate("b2", 3.52, 5.0)]
    plan = planned(plan_offload(offering(9.12), PAPER, brokers, SAMPLE, CONFIG))
    assert sorted((each.clients[0], each.to_broker) for each in plan.selected) == [
        ("S14.0", "b2"),
        ("S14.1", "b0"),
        ("S14.2", "b2"),
    ]
    assert plan.ends_overload


def test_what_can_be_moved_is_moved_even_if_that_does_not_end_the_overload() -> None:
    plan = planned(plan_offload(offering(12.0), PAPER, [candidate("b0", 5.6, 6.5)], SAMPLE, CONFIG))
    assert plan.selected
    assert not plan.ends_overload


def test_an_overload_of_matching_ends_with_fewer_subscriptions() -> None:
    busy = Offering(
        metrics=EdgeMetrics(0.3, 1.0, 0.5),
        metric=Metric.MATCHING,
        capacity=BrokerCapacity(8 * MBPS, 1e9, 0.01),
        input_rate_per_s=8.0,
        matching_delay_s=0.125,
        waiting_bytes=0.0,
    )
    plan = planned(plan_offload(busy, PAPER, [candidate("b0", 1.0, 6.5)], SAMPLE, CONFIG))
    assert plan.after.matching_ratio <= CONFIG.high_ratio
