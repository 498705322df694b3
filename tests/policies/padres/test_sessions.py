"""The book of sessions."""

from __future__ import annotations

import json

from trimtab.load.estimation import BrokerResources
from trimtab.policies.padres.decisions import LoadIndex, Status
from trimtab.policies.padres.detection import BrokerAction, CandidateCard, Trigger
from trimtab.policies.padres.detection_global import GlobalTrigger
from trimtab.policies.padres.mediation_events import SessionEnded, StartSampling
from trimtab.policies.padres.messages import Offer
from trimtab.policies.padres.sessions import ClusterSessionBook, SessionBook
from trimtab.policies.padres.snapshot import BrokerLoad, ClusterLoad, KnownBroker, KnownCluster


def load(broker: str, ratio: float, status: Status = Status.OK) -> BrokerLoad:
    return BrokerLoad(
        broker=broker,
        cluster="B0",
        status=status,
        input_utilization_ratio=ratio,
        output_utilization_ratio=ratio,
        matching_delay_s=ratio / 10,
    )


def cluster(name: str, ratio: float) -> ClusterLoad:
    return ClusterLoad(
        cluster=name,
        head=name,
        status=Status.OK,
        input_utilization_ratio=ratio,
        output_utilization_ratio=ratio,
        matching_delay_s=ratio / 10,
        edge_broker_count=2,
        sent_by=name,
    )


def card(broker: str) -> CandidateCard:
    return CandidateCard(broker, Status.OK, LoadIndex.INPUT, 0.4, True, "we exceed it by 0.400 in input")


RESOURCES = BrokerResources(
    input_rate_per_s=1.0,
    input_rate_bytes_per_s=320.0,
    matching_delay_s=0.01,
    subscription_count=10,
    output_rate_bytes_per_s=100.0,
    bandwidth_bytes_per_s=1000.0,
    cpu_utilization_ratio=0.01,
    input_queue_bytes=0.0,
    output_queue_bytes=0.0,
    matching_memory_bytes=1000.0,
    memory_bytes=1_000_000.0,
)
REQUEST = StartSampling("B1/1/2", "B3", LoadIndex.INPUT, Offer(RESOURCES, ()))
TRIGGER = Trigger(
    False,
    (BrokerAction("B2", LoadIndex.INPUT), BrokerAction("B3", LoadIndex.INPUT)),
    (card("B2"), card("B3")),
)


def after_a_session(moved: tuple[str, ...] = ("S1",)) -> SessionBook:
    book = SessionBook("B1")
    book.triggered(TRIGGER, load("B1", 0.8), 10.0)
    book.refused("B2", "its status is BUSY")
    assert book.began(REQUEST, load("B1", 0.8), 11.0) == []
    ended = SessionEnded(session="B1/1/2", partner="B3", gave=True, action=LoadIndex.INPUT, moved=moved, reason="done")
    told = book.ended(ended, 20.0)
    assert bool(told) == (not moved)
    return book


def test_a_session_is_told_when_both_brokers_have_settled() -> None:
    book = after_a_session()
    ready = KnownBroker(load("B3", 0.5), 60.0, 60.0)
    assert book.settled(load("B1", 0.5), {"B3": ready}, 40.0, 30.0) == []  # too soon after the session
    before = KnownBroker(load("B3", 0.1), 15.0, 15.0)
    assert book.settled(load("B1", 0.55), {"B3": before}, 50.0, 30.0) == []  # nothing heard of it since
    settling = KnownBroker(load("B3", 0.4, Status.STABILIZING), 55.0, 21.0)
    assert book.settled(load("B1", 0.56), {"B3": settling}, 56.0, 30.0) == []
    (record,) = book.settled(load("B1", 0.57), {"B3": ready}, 70.0, 30.0)
    assert (record.initiator, record.acceptor, record.kind, record.index) == ("B1", "B3", "local", "input")
    assert record.initiator_observed_input_utilization_ratio == 0.55
    assert record.acceptor_observed_input_utilization_ratio == 0.5
    assert record.reason == "we exceed it by 0.400 in input"
    whys = [each["why"] for each in json.loads(record.candidates_json)]
    assert whys[0].endswith("; asked, but its status is BUSY")
    assert book.settled(load("B1", 0.57), {"B3": ready}, 90.0, 30.0) == []


def test_the_next_session_tells_what_is_known_of_the_one_before() -> None:
    book = after_a_session()
    (record,) = book.began(REQUEST, load("B1", 0.9), 25.0)
    assert record.subscribers_moved_count == 1
    assert record.initiator_observed_input_utilization_ratio is None
    assert record.acceptor_observed_input_utilization_ratio is None


def test_a_session_without_moves_is_told_at_once() -> None:
    after_a_session(moved=())


def test_an_attempt_that_everybody_refuses_is_told_without_a_partner() -> None:
    book = SessionBook("B1")
    book.triggered(TRIGGER, load("B1", 0.8), 10.0)
    book.refused("B2", "its status is BUSY")
    assert book.nobody_agreed(10.5) == []  # B3 agreed, but no plan came out
    book.triggered(TRIGGER, load("B1", 0.8), 20.0)
    book.refused("B2", "its status is BUSY")
    book.refused("B3", "its status is N/A")
    (record,) = book.nobody_agreed(21.0)
    assert (record.acceptor, record.begin_s, record.end_s) == ("", 20.0, 21.0)
    assert record.outcome == "every broker that was asked refused"
    assert record.acceptor_before_input_utilization_ratio is None


def test_the_head_that_asked_tells_a_session_between_clusters() -> None:
    trigger = GlobalTrigger(("B20",), (card("B20"),))
    book = ClusterSessionBook("B10")
    book.triggered(trigger, cluster("B10", 0.8))
    book.began("B10/1/g1", "B20", {"B20": KnownCluster(cluster("B20", 0.1), 5.0)}, 10.0)
    later = {"B20": KnownCluster(cluster("B20", 0.4), 95.0)}
    (record,) = book.ended("B10/1/g1", "all brokers of both clusters are balanced", cluster("B10", 0.5), later, 100.0)
    assert (record.kind, record.initiator, record.acceptor) == ("global", "B10", "B20")
    assert (record.begin_s, record.end_s) == (10.0, 100.0)
    assert record.acceptor_before_input_utilization_ratio == 0.1
    assert record.acceptor_observed_input_utilization_ratio == 0.4


def test_the_head_that_was_asked_does_not_tell_it_again() -> None:
    book = ClusterSessionBook("B20")
    book.triggered(GlobalTrigger(("B30",), (card("B30"),)), cluster("B20", 0.8))
    book.began("B10/1/g1", "B10", {}, 10.0)
    assert book.ended("B10/1/g1", "done", cluster("B20", 0.5), {}, 100.0) == []


def test_a_session_with_a_broker_of_another_cluster_is_global() -> None:
    book = SessionBook("B1")
    book.triggered(TRIGGER, load("B1", 0.8), 10.0)
    book.began(REQUEST, load("B1", 0.8), 11.0, is_local=False)
    ended = SessionEnded(session="B1/1/2", partner="B3", gave=True, action=LoadIndex.INPUT, reason="no client moves")
    (record,) = book.ended(ended, 20.0)
    assert record.kind == "global"
