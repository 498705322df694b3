"""The experiments of the replication paper, section 5, in small: what they show holds."""

import pytest

from trimtab.broker.replication.config import Assisting, Protocol
from trimtab.simulation.replication.run import ReplicationRun, ReplicationSummary
from trimtab.simulation.replication.scenario import (
    ReplicationScenario,
    find_replication_text,
    parse_replication,
    shipped_replication_scenarios,
)
from trimtab.simulation.scenarios.scenario import ScenarioError


def replaced(protocol: Protocol, **settings: int) -> ReplicationSummary:
    summary = ReplicationRun(ReplicationScenario(protocol=protocol, **settings), seed=1).run()  # type: ignore[arg-type]
    assert summary.violations == []
    return summary


def congested(assisting: Assisting) -> ReplicationSummary:
    scenario = ReplicationScenario(
        failure="transient", assisting=assisting, subscriptions_count=100, pending_count=300, congestion=3.0
    )
    summary = ReplicationRun(scenario, seed=1).run()
    assert summary.violations == []
    assert summary.missing_ratio == 0.0
    return summary


def test_figure_7_incremental_resumes_at_least_47_percent_sooner_and_can_keep_the_order() -> None:
    synchronous, incremental, ordered = (
        replaced(protocol) for protocol in ("synchronous", "incremental", "incremental-ordered")
    )
    assert incremental.resumption_delay_s <= 0.53 * synchronous.resumption_delay_s
    assert ordered.resumption_delay_s <= 0.53 * synchronous.resumption_delay_s
    assert incremental.ordering_degree_ratio < 1.0
    assert synchronous.ordering_degree_ratio == ordered.ordering_degree_ratio == 1.0
    assert synchronous.missing_ratio == incremental.missing_ratio == ordered.missing_ratio == 0.0


def test_figure_7_basic_loses_some() -> None:
    basic = replaced("basic", subscriptions_count=300)
    assert 0.0 < basic.missing_ratio < 0.2
    assert basic.ordering_degree_ratio == 1.0


def test_figure_10_more_neighbours_do_not_delay_much() -> None:
    few, many = (replaced("incremental", neighbours_count=count) for count in (1, 10))
    assert many.resumption_delay_s < 5 * few.resumption_delay_s
    assert many.resumption_delay_s < 0.53 * replaced("synchronous", neighbours_count=10).resumption_delay_s


def test_what_is_sent_in_order_to_neighbours_that_do_not_want_it_is_counted() -> None:
    ordered = replaced("incremental-ordered", neighbours_count=10, subscriptions_count=20, pending_count=200)
    assert ordered.unwanted_count > 0
    assert replaced("synchronous", neighbours_count=10, subscriptions_count=20, pending_count=200).unwanted_count == 0


def test_figure_11_an_assistant_doubles_throughput_and_order_costs_little() -> None:
    none, scheduling, reordering = (congested(assisting) for assisting in ("never", "scheduling", "reordering"))
    assert scheduling.throughput_per_s == pytest.approx(2 * none.throughput_per_s, rel=0.03)
    assert reordering.last_processed_s <= 1.05 * scheduling.last_processed_s
    assert scheduling.ordering_degree_ratio < reordering.ordering_degree_ratio == 1.0


def test_every_shipped_scenario_is_read_with_all_its_points() -> None:
    points = {name: len(parse_replication(text, name)[1]) for name, text in shipped_replication_scenarios().items()}
    assert points == {
        "replication-congestion": 4 * 7,
        "replication-fanout": 2 * 5 * 3,
        "replication-neighbours": 4 * 3,
        "replication-pending": 4 * 3,
        "replication-subscriptions": 4 * 4,
    }


def test_what_makes_no_sense_is_refused() -> None:
    text = find_replication_text("replication-pending")
    assert text is not None
    with pytest.raises(ScenarioError, match="assistant"):
        parse_replication(text, "mine", {"assisting": "scheduling"})
    with pytest.raises(ScenarioError, match="neighbours_count"):
        parse_replication(text, "mine", {"neighbours_count": "0"})
    assert find_replication_text("stock-small") is None
