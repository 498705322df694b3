"""A coordinator among simulated brokers with real messages: the same agents as in a network, every delivery checked."""

from __future__ import annotations

from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario


def clients_by_broker(run: ScenarioRun) -> dict[str, int]:
    """How many subscribers each broker serves."""
    return {
        name: sum(peer.role == "client" and bool(peer.subscriptions) for peer in host.broker.peers.values())
        for name, host in run.world.brokers.items()
    }


def test_a_coordinator_spreads_subscribers_and_nothing_is_lost_while_it_pauses() -> None:
    run = ScenarioRun(read_scenario("stock-coordinated"), 1)
    summary = run.run()
    assert summary.violations == []
    counts = clients_by_broker(run)
    assert sum(counts.values()) == 160
    assert counts["coordinator"] == 0  # it sends on whoever comes to it
    assert max(counts.values()) < 80 and min(counts[name] for name in ("B1", "B2", "B3", "B4")) > 10
    assert summary.moves >= 80


def test_the_same_seed_coordinates_the_same_way() -> None:
    first, again = (ScenarioRun(read_scenario("stock-coordinated", {"duration_s": "90"}), 3).run() for _ in range(2))
    assert first == again


def test_without_a_coordinator_everybody_is_served_where_they_are() -> None:
    """The pause outlasts the run: the coordinator never says a word."""
    settings = {"fault.0.at_s": "0.0", "fault.0.for_s": "1000", "subscribers.1.count": "0", "duration_s": "120"}
    run = ScenarioRun(read_scenario("stock-coordinated", settings), 1)
    summary = run.run()
    assert summary.violations == []
    assert summary.moves == 0
    assert clients_by_broker(run)["B2"] == 120
