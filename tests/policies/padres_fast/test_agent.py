"""Balancing many brokers in one plan, as a policy in the simulated world."""

from __future__ import annotations

import pytest

from trimtab.language import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.policies.padres_fast.publication_window import WINDOW_MAX_COUNT, PublicationWindow, settled_resources
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario

FAST = {"policy": "padres-fast", "subscribers.0.count": "300", "balance.joined_s": "100"}


def test_a_cluster_is_levelled_while_subscribers_join_and_hardly_anybody_moves_twice() -> None:
    few = {**FAST, "duration_s": "180", "subscribers.0.join_s": "[10, 100]"}
    summary = ScenarioRun(read_scenario("padres-local", few), 1).run()
    balance = summary.details.balance
    assert summary.violations == [] and balance is not None
    assert sum(balance.subscribers_by_broker.values()) == 300
    clients = balance.subscribers_by_broker
    assert clients["B1"] < 60 and clients["B2"] < clients["B3"] < clients["B4"]
    assert summary.moves < 330
    assert balance.overloaded_broker_seconds == 0 and balance.never_overloaded_acceptors


def test_subscribers_go_to_other_clusters_in_one_move() -> None:
    few = {**FAST, "duration_s": "150", "subscribers.0.join_s": "[10, 60]"}
    summary = ScenarioRun(read_scenario("padres-global", few), 1).run()
    balance = summary.details.balance
    assert summary.violations == [] and balance is not None
    assert min(balance.subscribers_by_broker.values()) > 0
    assert summary.moves < 330
    assert any(kind.startswith("global") for kind in balance.sessions_by_kind)


def test_the_same_seed_plans_the_same_way() -> None:
    few = {**FAST, "duration_s": "60", "subscribers.0.count": "120", "subscribers.0.join_s": "[5, 10]"}
    first, second = (ScenarioRun(read_scenario("padres-local", few), 1).run() for _ in range(2))
    assert first == second
    assert first.moves > 0


STOCK = Filter.parse("[class,eq,'STOCK']")
IDLE = BrokerResources(
    input_rate_per_s=0.0,
    input_rate_bytes_per_s=0.0,
    matching_delay_s=0.001,
    subscription_count=10,
    output_rate_bytes_per_s=0.0,
    bandwidth_bytes_per_s=100_000.0,
)


def window_of(count: int, every_s: float) -> PublicationWindow:
    window = PublicationWindow(0.0)
    for number in range(count):
        window.saw(("p", number), {"class": "STOCK"}, number * every_s)
    return window


def test_a_client_that_has_just_come_is_counted_with_all_that_it_will_receive() -> None:
    sample = window_of(100, 0.1).samples({"B1": {"alice": (STOCK,), "bob": (STOCK,)}}, 300, 10.0)["B1"]
    settled = settled_resources(IDLE, sample)
    assert settled is not None
    assert (settled.input_rate_per_s, settled.output_rate_bytes_per_s) == (10.0, 6_000.0)


def test_a_broker_that_receives_what_the_head_does_not_see_is_taken_as_measured() -> None:
    sample = window_of(100, 0.1).samples({"B1": {"alice": (STOCK,)}}, 300, 10.0)["B1"]
    busy = BrokerResources(
        input_rate_per_s=12.0,
        input_rate_bytes_per_s=3_600.0,
        matching_delay_s=0.001,
        subscription_count=10,
        output_rate_bytes_per_s=0.0,
        bandwidth_bytes_per_s=100_000.0,
    )
    assert settled_resources(busy, sample) is None


def test_the_window_is_bounded_and_its_rate_stays_right() -> None:
    count = 2 * WINDOW_MAX_COUNT
    sample = window_of(count, 0.01).samples({"B1": {"alice": (STOCK,)}}, 300, count * 0.01)["B1"]
    assert sample.sample_count == WINDOW_MAX_COUNT
    assert abs(sample.input_rate_per_s - 100.0) < 1.0


def test_when_rates_have_changed_only_the_last_while_counts() -> None:
    """Publishers began 40 s after the head, or are three times as busy for ten seconds: what brokers measure then is
    not the mean of a minute, and a plan by that would find that the head has not seen enough."""
    for slow_count in (0, 100):
        window = PublicationWindow(0.0, recent_s=10.0)
        for number in range(slow_count):
            window.saw(("slow", number), {"class": "STOCK"}, number * 0.4)
        for number in range(200):
            window.saw(("fast", number), {"class": "STOCK"}, 40.0 + number * 0.05)
        sample = window.samples({"B1": {"alice": (STOCK,)}}, 300, 50.0)["B1"]
        assert sample.input_rate_per_s == pytest.approx(20.0, rel=0.02)
        assert sample.sample_count == pytest.approx(200, abs=2)


def test_a_steady_rate_is_that_of_the_whole_window() -> None:
    window = PublicationWindow(0.0, recent_s=10.0)
    for number in range(500):
        window.saw(("p", number), {"class": "STOCK"}, number * 0.1)
    assert window.samples({"B1": {"alice": (STOCK,)}}, 300, 50.0)["B1"].sample_count == 500
