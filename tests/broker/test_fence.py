"""A broker that may have been replaced: it acknowledges and confirms nothing until it holds its place again."""

from __future__ import annotations

import pytest

from tests.broker.told_broker import ToldBroker
from trimtab.protocol.events import FenceChanged

WHY = "it hears 1 of 3 brokers and stand-bys (itself), and needs 2"


def fence(told: ToldBroker, problem: str) -> list[str]:
    told.handle(FenceChanged(problem))
    told.steps()
    return told.said()


def broker_with_a_publisher(level: str) -> ToldBroker:
    told = ToldBroker()
    told.happens(f"a {level} broker B1 with neighbours B2")
    told.happens("a publisher p")
    told.happens("B2 guards everything")
    told.happens("from B2: Subscribe q/s1, number 1")
    told.happens("from B2: Confirmed p/a1, number 1")
    return told


@pytest.mark.parametrize("level", ["received", "safe"])
def test_publications_of_clients_wait_and_go_on_when_the_fence_is_gone(level: str) -> None:
    told = broker_with_a_publisher(level)
    assert fence(told, WHY) == []
    assert told.broker.fence_problem == WHY
    assert told.happens("from p: Publish p, sequence 1") == []
    assert told.broker.held_count == 1
    assert fence(told, "") == ["to B2: Publish p, sequence 1", "to p: Accepted p, sequence 1"]


def test_what_was_passed_on_before_is_not_acknowledged_meanwhile() -> None:
    told = broker_with_a_publisher("received")
    told.says("p", "Publish p, sequence 1")
    told.steps()
    told.handle(FenceChanged(WHY))
    assert told.said() == ["to B2: Publish p, sequence 1"]
    assert fence(told, "") == ["to p: Accepted p, sequence 1"]


def test_publications_of_neighbours_pass() -> None:
    told = ToldBroker()
    told.happens("a received broker B1 with neighbours B2 B3")
    told.happens("from B2: Advertise q/a1, number 1")
    told.happens("from B3: Subscribe r/s1, number 1")
    fence(told, WHY)
    assert told.happens("from B2: Publish q, sequence 1") == ["to B3: Publish q, sequence 1"]


@pytest.mark.parametrize("level", ["received", "safe"])
def test_confirmations_wait(level: str) -> None:
    told = ToldBroker()
    told.happens(f"a {level} broker B1 with neighbours B2")
    fence(told, WHY)
    said = told.happens("a subscriber s")
    said += told.happens("B2 guards everything")
    assert not [line for line in said if "Confirmed" in line]
    told.handle(FenceChanged(""))
    confirmed = [*told.said(), *told.happens("B2 guards everything")]
    assert [line for line in confirmed if "Confirmed" in line] == ["to s: Confirmed s/s1, number 1"]
