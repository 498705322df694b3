"""The rivals' ways of deciding, each on a few brokers."""

from __future__ import annotations

from random import Random

import pytest

from tests.policies.padres.loads import broker
from trimtab.language import Filter
from trimtab.policies.registry import check_policy
from trimtab.policies.rivals.agent import RIVALS
from trimtab.policies.rivals.average_shedding import AverageShedding
from trimtab.policies.rivals.connection_counts import ConnectionCounts
from trimtab.policies.rivals.decision import Deciding, Moves, ServedClient
from trimtab.policies.rivals.filter_hashing import FilterHashing
from trimtab.policies.rivals.threshold_shedding import ThresholdShedding
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario


def clients(count: int, rate_per_s: float = 1.0) -> list[ServedClient]:
    return [
        ServedClient(f"c{number}", (Filter.parse(f"[class,eq,'STOCK'],[n,eq,{number}]"),), rate_per_s)
        for number in range(count)
    ]


def decided(way: Deciding, ours: float, *others: float, served: int = 40, now_s: float = 0.0) -> Moves:
    """Our usage and the others'; who uses more sends more."""
    loads = [
        broker(f"B{number}", usage, usage, input_rate_per_s=0.0, output_rate_per_s=100 * usage, client_count=10)
        for number, usage in enumerate((ours, *others), 1)
    ]
    return way.decide(loads[0], loads[1:], clients(served), Random(1), now_s)


def test_connection_counts_level_the_number_of_clients_and_look_at_nothing_else() -> None:
    moves = decided(ConnectionCounts(), 0.1, 0.9, 0.9)
    assert len(moves) == 40 - 20, "the surplus above the mean of 40, 10 and 10"
    assert {target for _, target in moves} == {"B2", "B3"}
    assert decided(ConnectionCounts(), 0.9, 0.1, 0.1, served=15) == []


def test_average_shedding_acts_after_two_large_or_eight_small_differences_in_a_row() -> None:
    large, small, broken = AverageShedding(), AverageShedding(), AverageShedding()
    assert [len(decided(large, 0.9, 0.3)) for _ in range(3)] == [0, 30, 0], "half of 90 - 30 publications a second"
    assert [len(decided(small, 0.5, 0.3)) for _ in range(8)] == [0] * 7 + [10]
    assert [len(decided(broken, 0.9 if number != 1 else 0.4, 0.3)) for number in range(3)] == [0, 0, 0]


def test_average_shedding_pairs_the_second_with_the_second_but_last() -> None:
    way = AverageShedding()
    moves = [decided(way, 0.8, 0.9, 0.3, 0.1) for _ in range(2)][1]
    assert {target for _, target in moves} == {"B3"}


def test_threshold_shedding_compares_with_the_mean_and_leaves_a_client_alone_afterwards() -> None:
    way = ThresholdShedding()
    assert decided(way, 0.5, 0.4, 0.4) == []
    first = decided(ThresholdShedding(), 0.9, 0.3, 0.3)
    assert len(first) == 32, "0.9 - 0.5 - 0.1 + 0.05 of 90 publications a second"
    assert {target for _, target in first} == {"B2", "B3"}
    repeated = ThresholdShedding()
    decided(repeated, 0.9, 0.3, 0.3)
    again = decided(repeated, 0.9, 0.3, 0.3, now_s=60.0)
    assert {client for client, _ in again}.isdisjoint(client for client, _ in first)


def test_filter_hashing_sends_equal_filters_to_one_broker_and_then_rests() -> None:
    way = FilterHashing()
    moves = dict(decided(way, 0.5, 0.5, 0.5, served=90))
    assert 30 < len(moves) < 80
    staying = [client for client in clients(90) if client.name not in moves]
    loads = [broker(f"B{number}") for number in (1, 2, 3)]
    assert way.decide(loads[0], loads[1:], staying, Random(1), 10.0) == []


@pytest.mark.parametrize("policy", ["connection-counts", "filter-hashing", "padres-fast"])
def test_a_broker_that_is_added_gets_subscribers_and_nothing_is_lost(policy: str) -> None:
    few = {"policy": policy, "duration_s": "400", "balance.change_s": "400", "subscribers.0.count": "100"}
    summary = ScenarioRun(read_scenario("rivals-scale-out", few), 1).run()
    assert summary.violations == []
    assert summary.details.balance is not None
    assert summary.details.balance.subscribers_by_broker["B4"] > 10


@pytest.mark.parametrize("policy", ["average-shedding", "threshold-shedding"])
def test_shedding_relieves_a_hotspot_and_nothing_is_lost(policy: str) -> None:
    few = {"policy": policy, "duration_s": "300", "balance.change_s": "300", "subscribers.0.count": "150"}
    summary = ScenarioRun(read_scenario("rivals-hotspot", few), 1).run()
    assert summary.violations == []
    assert summary.moves > 10


def test_brokers_that_are_emptied_for_a_restart_give_all_away_and_the_last_one_stays_empty() -> None:
    few = {"policy": "none", "duration_s": "450", "balance.change_s": "450", "subscribers.0.count": "40"}
    summary = ScenarioRun(read_scenario("rivals-rolling-restart", few), 1).run()
    assert summary.violations == []
    assert summary.details.balance is not None
    assert summary.details.balance.subscribers_by_broker["B4"] == 0
    assert sum(summary.details.balance.subscribers_by_broker.values()) == 40


def test_every_rival_is_known_by_name() -> None:
    for name in RIVALS:
        check_policy(name)
