"""Global detection (thesis, sections 3.3.1.2, 3.3.2.2 and 3.4.3)."""

from __future__ import annotations

import pytest

from tests.policies.padres.loads import broker, cluster, known_clusters
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import NoAction, Reason, Status
from trimtab.policies.padres.detection_global import (
    GlobalTrigger,
    HelpAnswer,
    answer_call_for_help,
    cluster_load,
    cluster_status,
    detect_global,
    is_complete,
)

CONFIG = PadresConfig()


def test_a_clusters_load_is_the_mean_of_its_edge_brokers() -> None:
    load = cluster_load(
        "C1", "B0", False, [broker("B1", 0.2, 0.4), broker("B2", 0.6, 0.8, matching_delay_s=0.04)], CONFIG
    )
    assert load is not None
    means = (load.input_utilization_ratio, load.output_utilization_ratio, load.matching_delay_s)
    assert means == pytest.approx((0.4, 0.6, 0.03))
    assert (load.status, load.edge_broker_count) == (Status.OK, 2)
    assert cluster_load("C1", "B0", False, [], CONFIG) is None


def test_one_overloaded_edge_broker_makes_a_cluster_unavailable_and_a_session_makes_it_busy() -> None:
    brokers = [broker("B1"), broker("B2", status=Status.NOT_AVAILABLE)]
    statuses = [cluster_load("C1", "B0", in_session, brokers, CONFIG) for in_session in (False, True)]
    assert [load.status for load in statuses if load] == [Status.NOT_AVAILABLE, Status.BUSY]


@pytest.mark.parametrize("status", [Status.STABILIZING, Status.BUSY])
def test_a_member_above_the_threshold_makes_it_unavailable_whatever_it_does(status: Status) -> None:
    assert cluster_status(False, [broker("B1"), broker("B2", 0.91, status=status)], CONFIG) == Status.NOT_AVAILABLE
    assert cluster_status(False, [broker("B1"), broker("B2", 0.89, status=status)], CONFIG) == Status.OK


def test_clusters_that_lie_far_enough_below_are_asked_the_furthest_first() -> None:
    found = detect_global(
        cluster("C1", 0.7), known_clusters(cluster("C2", 0.5), cluster("C3", 0.6), cluster("C4", 0.2)), CONFIG
    )
    assert isinstance(found, GlobalTrigger)
    assert found.ask == ("C4", "C2")


def test_a_busy_cluster_asks_nobody() -> None:
    found = detect_global(cluster("C1", 0.9, status=Status.BUSY), known_clusters(cluster("C2", 0.1)), CONFIG)
    assert found == NoAction(Reason.BUSY)


def test_clusters_within_the_threshold_are_balanced() -> None:
    assert detect_global(cluster("C1", 0.6), known_clusters(cluster("C2", 0.5)), CONFIG) == NoAction(Reason.BALANCED)
    assert detect_global(cluster("C1", 0.6), {}, CONFIG) == NoAction(Reason.NOBODY_KNOWN)


def test_overloaded_clusters_go_first() -> None:
    others = known_clusters(cluster("C2", 0.2), cluster("C3", 0.9, status=Status.NOT_AVAILABLE))
    assert detect_global(cluster("C1", 0.6), others, CONFIG) == NoAction(Reason.OVERLOADED_FIRST, "C3")
    found = detect_global(cluster("C1", 0.6, status=Status.NOT_AVAILABLE), others, CONFIG)
    assert isinstance(found, GlobalTrigger)
    assert found.ask == ("C2",)


def test_a_call_for_help_reaches_available_clusters_even_if_the_means_agree() -> None:
    others = known_clusters(cluster("C2", 0.5), cluster("C3", 0.45), cluster("C4", 0.1, status=Status.BUSY))
    found = detect_global(cluster("C1", status=Status.NOT_AVAILABLE), others, CONFIG, called_for_help=True)
    assert isinstance(found, GlobalTrigger)
    assert found.ask == ("C3", "C2")


def test_the_third_call_for_help_ends_a_session() -> None:
    answers = [answer_call_for_help(Status.BUSY, count, CONFIG) for count in (1, 2, 3)]
    assert answers == [HelpAnswer.WAIT, HelpAnswer.WAIT, HelpAnswer.CHANGE_CLUSTER]
    assert answer_call_for_help(Status.NOT_AVAILABLE, 1, CONFIG) == HelpAnswer.DETECT


def test_a_session_is_complete_when_all_balanced_sets_are() -> None:
    members = ["B1", "B2", "B3"]
    loads = [
        broker("B1", balanced_with=("B2", "B3")),
        broker("B2", balanced_with=("B1", "B3")),
        broker("B3", balanced_with=("B1", "B2")),
    ]
    assert is_complete(loads, members)
    assert not is_complete(loads[:2], members)
    assert not is_complete([*loads[:2], broker("B3", balanced_with=("B1",))], members)
