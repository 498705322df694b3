"""Subscriber balancing in the simulated world: the same agents that brokers of a network have."""

from __future__ import annotations

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.policies.registry import agents_of
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario
from trimtab.simulation.world.world import World


def test_the_first_minutes_of_the_local_experiment_relieve_the_weakest_broker_and_lose_nothing() -> None:
    few = {"duration_s": "300", "subscribers.0.count": "600", "subscribers.0.join_s": "[10, 200]"}
    levelled = ScenarioRun(read_scenario("padres-local", few), 1).run()
    left_alone = ScenarioRun(read_scenario("padres-local", {**few, "policy": "none"}), 1).run()
    assert levelled.violations == [] and left_alone.violations == []
    assert levelled.details.balance is not None and left_alone.details.balance is not None
    assert left_alone.details.balance.subscribers_by_broker["B1"] == 600
    assert sum(levelled.details.balance.subscribers_by_broker.values()) == 600
    assert levelled.details.balance.subscribers_by_broker["B1"] < 350
    assert levelled.moves == levelled.moves > 200
    assert sum(levelled.details.balance.sessions_by_kind.values()) > 1
    assert levelled.details.balance.overloaded_broker_seconds < left_alone.details.balance.overloaded_broker_seconds


def test_the_same_seed_balances_the_same_way() -> None:
    few = {"duration_s": "120", "subscribers.0.count": "300", "subscribers.0.join_s": "[10, 60]"}
    first, second, other = (ScenarioRun(read_scenario("padres-local", few), seed).run() for seed in (1, 1, 2))
    assert first == second
    assert first.trace_hash != other.trace_hash


def test_a_publisher_that_came_to_an_edge_broker_goes_to_its_cluster_head_before_it_publishes() -> None:
    """Thesis, section 3.2: cluster-heads serve publishers, edge-brokers serve subscribers."""
    world = World(1)
    for name in ("B0", "B1", "B2"):
        neighbours = ("B1", "B2") if name == "B0" else ("B0",)
        world.add_broker(BrokerConfig(name, neighbours=neighbours), agents=agents_of("padres", name, 1))
    world.add_link("B0", "B1")
    world.add_link("B0", "B2")
    for name in ("quotes", "busy", "reader"):
        world.add_client(name, "B1" if name != "reader" else "B2")
    world.run(1.0)
    numbers = Filter.parse("[n,isPresent,0]")
    world.subscribe("reader", numbers)
    world.subscribe("busy", Filter.parse("[m,isPresent,0]"))
    world.run(2.0)
    world.advertise("busy", numbers)
    world.advertise("quotes", numbers)
    for number in range(50):
        world.publish("quotes", {"n": number})
        world.publish("busy", {"n": 1000 + number})
    world.run(30.0)
    assert world.clients["quotes"].session.broker == "B0"
    assert world.clients["busy"].session.broker == "B1"  # it subscribes too
    assert world.checker.deliveries_count == 100
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(120.0)
    check_rest(world, [("B0", "B1"), ("B0", "B2")])
    assert world.checker.violations == []


def test_a_policy_that_is_switched_on_levels_a_network_that_runs_and_switched_off_leaves_it_alone() -> None:
    few = {"duration_s": "200", "subscribers.0.count": "200", "subscribers.0.join_s": "[5, 10]", "policy": "none"}
    scenario = read_scenario("padres-local", few)
    run = ScenarioRun(scenario, 1)
    moves: list[int] = []

    def switch(policy: str) -> None:
        moves.append(run.world.moves_count)
        for name, host in run.world.brokers.items():
            host.change_agents(agents_of(scenario.policy.named(policy), name, 1))

    run.world.at(20.0, switch, "padres")
    run.world.at(150.0, switch, "naive")
    run.world.at(170.0, switch, "none")
    run.world.at(180.0, lambda: moves.append(run.world.moves_count))
    summary = run.run()
    assert summary.violations == []
    assert moves[0] == 0 and moves[1] > 20
    assert summary.moves == moves[-1]
    assert summary.details.balance is not None and summary.details.balance.subscribers_by_broker["B1"] < 180
