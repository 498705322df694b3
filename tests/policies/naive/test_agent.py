"""The naive balancer as a policy, in the simulated world."""

from __future__ import annotations

from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario

FEW = {"duration_s": "200", "subscribers.0.count": "300", "subscribers.0.join_s": "[10, 60]", "policy": "naive"}


def test_random_subscribers_go_to_less_loaded_brokers_and_nothing_is_lost() -> None:
    summary = ScenarioRun(read_scenario("padres-local", FEW), 1).run()
    balance = summary.details.balance
    assert summary.violations == [] and balance is not None
    assert summary.policy == "naive"
    assert sum(balance.subscribers_by_broker.values()) == 300
    assert balance.subscribers_by_broker["B1"] < 150
    assert min(balance.subscribers_by_broker.values()) > 0
    assert summary.moves > 100
    assert sum(balance.sessions_by_kind.values()) > 1


def test_subscribers_that_come_to_a_cluster_head_are_sent_to_its_edge_brokers() -> None:
    summary = ScenarioRun(read_scenario("padres-local", {**FEW, "subscribers.0.broker": "B0"}), 1).run()
    assert summary.violations == [] and summary.details.balance is not None
    assert sum(summary.details.balance.subscribers_by_broker.values()) == 300


def test_the_same_seed_moves_the_same_subscribers() -> None:
    short = {**FEW, "duration_s": "80", "subscribers.0.count": "120", "subscribers.0.join_s": "[5, 10]"}
    first, second = (ScenarioRun(read_scenario("padres-local", short), 1).run() for _ in range(2))
    assert first == second
    assert first.moves > 0
