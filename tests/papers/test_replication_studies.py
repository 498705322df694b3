"""The experiments of the replication paper, section 5, in small: what they show holds."""

import pytest

from trimtab.broker.replication.config import Assisting, Protocol
from trimtab.simulation.replication.run import ReplicationRun, ReplicationSummary
from trimtab.simulation.replication.scenario import ReplicationScenario
from trimtab.simulation.scenarios.documents import ScenarioError, bundled_documents
from trimtab.simulation.scenarios.kinds import load, points_of


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
    assert summary.details.missing_ratio == 0.0
    return summary


def test_figure_7_incremental_resumes_at_least_47_percent_sooner_and_can_keep_the_order() -> None:
    synchronous, incremental, ordered = (
        replaced(protocol) for protocol in ("synchronous", "incremental", "incremental-ordered")
    )
    assert incremental.details.resumption_delay_s <= 0.53 * synchronous.details.resumption_delay_s
    assert ordered.details.resumption_delay_s <= 0.53 * synchronous.details.resumption_delay_s
    assert incremental.details.ordering_degree_ratio < 1.0
    assert synchronous.details.ordering_degree_ratio == ordered.details.ordering_degree_ratio == 1.0
    assert (
        synchronous.details.missing_ratio == incremental.details.missing_ratio == ordered.details.missing_ratio == 0.0
    )


def test_figure_7_basic_loses_some() -> None:
    basic = replaced("basic", subscriptions_count=300)
    assert 0.0 < basic.details.missing_ratio < 0.2
    assert basic.details.ordering_degree_ratio == 1.0


def test_figure_10_more_neighbours_do_not_delay_much() -> None:
    few, many = (replaced("incremental", neighbours_count=count) for count in (1, 10))
    assert many.details.resumption_delay_s < 5 * few.details.resumption_delay_s
    assert (
        many.details.resumption_delay_s < 0.53 * replaced("synchronous", neighbours_count=10).details.resumption_delay_s
    )


def test_what_is_sent_in_order_to_neighbours_that_do_not_want_it_is_counted() -> None:
    ordered = replaced("incremental-ordered", neighbours_count=10, subscriptions_count=20, pending_count=200)
    assert ordered.details.unwanted_count > 0
    assert (
        replaced("synchronous", neighbours_count=10, subscriptions_count=20, pending_count=200).details.unwanted_count
        == 0
    )


def test_figure_11_an_assistant_doubles_throughput_and_order_costs_little() -> None:
    none, scheduling, reordering = (congested(assisting) for assisting in ("never", "scheduling", "reordering"))
    assert scheduling.details.throughput_per_s == pytest.approx(2 * none.details.throughput_per_s, rel=0.03)
    assert reordering.details.last_processed_s <= 1.05 * scheduling.details.last_processed_s
    assert scheduling.details.ordering_degree_ratio < reordering.details.ordering_degree_ratio == 1.0


def test_every_shipped_scenario_is_read_with_all_its_points() -> None:
    documents = {name: each for name, each in bundled_documents().items() if each.kind == "replication"}
    assert {name: len(points_of(each).points) for name, each in documents.items()} == {
        "replication-congestion": 4 * 7,
        "replication-fanout": 2 * 5 * 3,
        "replication-neighbours": 4 * 3,
        "replication-pending": 4 * 3,
        "replication-subscriptions": 4 * 4,
    }


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ScenarioError, match="assistant"):
        load("replication-pending", {"assisting": "scheduling"})
    with pytest.raises(ScenarioError, match="neighbours_count"):
        load("replication-pending", {"neighbours_count": "0"})
