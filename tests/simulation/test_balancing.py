"""Subscriber balancing in the simulated world: the same agents that brokers of a network have."""

from __future__ import annotations

from trimtab.simulation.run import ScenarioRun
from trimtab.simulation.scenario import read_scenario


def test_the_first_minutes_of_the_local_experiment_relieve_the_weakest_broker_and_lose_nothing() -> None:
    few = {"duration_s": "300", "subscribers.0.count": "600", "subscribers.0.join_s": "[10, 200]"}
    levelled = ScenarioRun(read_scenario("padres-local", few), 1).run()
    left_alone = ScenarioRun(read_scenario("padres-local", {**few, "policy": "none"}), 1).run()
    assert levelled.violations == [] and left_alone.violations == []
    assert levelled.balance is not None and left_alone.balance is not None
    assert left_alone.balance.subscribers_by_broker["B1"] == 600
    assert sum(levelled.balance.subscribers_by_broker.values()) == 600
    assert levelled.balance.subscribers_by_broker["B1"] < 350
    assert levelled.moves_count == levelled.balance.moves > 200
    assert sum(levelled.balance.sessions_by_kind.values()) > 1
    assert levelled.balance.overloaded_broker_seconds < left_alone.balance.overloaded_broker_seconds


def test_the_same_seed_balances_the_same_way() -> None:
    few = {"duration_s": "120", "subscribers.0.count": "300", "subscribers.0.join_s": "[10, 60]"}
    first, second, other = (ScenarioRun(read_scenario("padres-local", few), seed).run() for seed in (1, 1, 2))
    assert first == second
    assert first.trace_hash != other.trace_hash
