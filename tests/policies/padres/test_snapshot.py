"""What brokers tell each other about their load, and when (thesis, section 3.3.1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.policies.padres.loads import broker, cluster, known
from trimtab import Filter, Publication
from trimtab.load.estimation import BrokerResources
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import Status
from trimtab.policies.padres.snapshot import (
    broker_load,
    broker_load_from_values,
    broker_load_to_values,
    cluster_load_from_values,
    cluster_load_to_values,
    has_news,
    may_pass_on,
    still_believed,
    with_broker,
    with_cluster,
    without_cluster,
)

CONFIG = PadresConfig()


def test_a_brokers_load_travels_as_an_ordinary_publication() -> None:
    load = broker("B1", balanced_with=("B2", "B3"), subscription_count=7, client_count=3, memory_utilization_ratio=0.1)
    publication = Publication(broker_load_to_values(load))
    assert Filter.parse("[class,eq,'LOCAL_PIE'],[clusterID,eq,'C1']").matches(publication)
    assert broker_load_from_values(Publication.parse(str(publication))) == load


def test_a_clusters_load_travels_as_an_ordinary_publication() -> None:
    load = cluster("C2", status=Status.NOT_AVAILABLE, edge_broker_count=4)
    publication = Publication(cluster_load_to_values(load))
    assert Filter.parse("[class,eq,'GLOBAL_PIE']").matches(publication)
    assert cluster_load_from_values(publication) == load


@pytest.mark.parametrize(
    "wrong", [{"class": "STOCK"}, {"status": "FINE"}, {"inputRatio": "high"}, {"balancedSet": "B2"}, {"brokerID": 7}]
)
def test_what_is_not_load_information_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not load information"):
        broker_load_from_values({**broker_load_to_values(broker("B1")), **wrong})


def test_a_load_is_made_from_what_the_broker_measured() -> None:
    resources = BrokerResources(
        input_rate_per_s=20.0,
        input_rate_bytes_per_s=6_000.0,
        matching_delay_s=0.02,
        subscription_count=100,
        output_rate_bytes_per_s=30_000.0,
        bandwidth_bytes_per_s=60_000.0,
        cpu_utilization_ratio=0.4,
    )
    load = broker_load("B1", "C1", Status.OK, resources, client_count=90, balanced_with=("B3", "B2"))
    assert (load.input_utilization_ratio, load.output_utilization_ratio, load.matching_delay_s) == (0.4, 0.5, 0.02)
    assert (load.subscription_count, load.client_count, load.balanced_with) == (100, 90, ("B2", "B3"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"input_utilization_ratio": 0.52}, False),
        ({"input_utilization_ratio": 0.53}, True),
        ({"output_utilization_ratio": 0.47}, True),
        ({"matching_delay_s": 0.022}, False),
        ({"matching_delay_s": 0.023}, True),
        ({"status": Status.BUSY}, True),
        ({"balanced_with": ("B2",)}, True),
        ({"cluster": "C2"}, True),
        ({"subscription_count": 900}, False),
    ],
)
def test_a_broker_speaks_when_it_has_news(changes: dict[str, Any], expected: bool) -> None:
    told = broker("B1")
    assert has_news(msgspec.structs.replace(told, **changes), told, 30.0, 30.0, CONFIG) == expected


def test_an_unavailable_broker_does_not_tell_every_change() -> None:
    told = broker("B1", status=Status.BUSY)
    later = broker("B1", 0.9, status=Status.BUSY)
    assert not has_news(later, told, 30.0, 30.0, CONFIG)
    assert has_news(later, told, 60.0, 30.0, CONFIG), "or it would be forgotten after three periods"


def test_what_was_heard_is_forgotten_after_three_periods() -> None:
    entries = with_broker({}, broker("B1"), 0.0)
    entries = with_broker(entries, broker("B2"), 50.0)
    assert list(still_believed(entries, 89.0, CONFIG.local_pie_lifetime_s)) == ["B1", "B2"]
    assert list(still_believed(entries, 90.0, CONFIG.local_pie_lifetime_s)) == ["B2"]
    clusters = with_cluster({}, cluster("C2"), 0.0)
    assert not still_believed(clusters, 180.0, CONFIG.global_pie_lifetime_s)


def test_it_is_known_since_when_a_broker_has_its_status() -> None:
    entries = with_broker({}, broker("B1", status=Status.BUSY), 0.0)
    entries = with_broker(entries, broker("B1", status=Status.BUSY), 30.0)
    assert (entries["B1"].heard_s, entries["B1"].status_since_s) == (30.0, 0.0)
    assert with_broker(entries, broker("B1"), 60.0)["B1"].status_since_s == 60.0


def test_brokers_of_another_cluster_are_forgotten_when_its_session_ends() -> None:
    assert list(without_cluster(known(broker("B1"), broker("B7", cluster="C2")), "C2")) == ["B1"]


def test_only_unavailable_clusters_pass_on_what_other_clusters_tell() -> None:
    told = cluster("C3")
    assert may_pass_on(Status.NOT_AVAILABLE, told, "C2")
    assert not may_pass_on(Status.OK, told, "C2")
    assert not may_pass_on(Status.NOT_AVAILABLE, told, "C3")
