"""A broker that leaves: clients move first, then queues empty, then its neighbours hear of it, then it ends."""

from __future__ import annotations

from tests.broker.told_broker import ToldBroker


def drained(*clients: str, neighbours: str = "B2", carries: bool = False) -> ToldBroker:
    told = ToldBroker()
    told.happens(f"a received broker B1 with neighbours {neighbours}")
    for client in clients:
        told.happens(f"{client} greets with stay 1")
    told.lines.clear()
    assert told.broker.drain(("B2",), told.now_s, carries=carries) == ""
    return told


def redirects(lines: list[str]) -> list[str]:
    return [line.split(",")[0] for line in lines if "Redirect" in line]


def test_without_clients_it_says_that_it_leaves_and_ends_when_that_was_heard() -> None:
    told = drained()
    assert told.happens("0.1 s pass") == ["to B2: Leaving"]
    assert told.happens("0.1 s pass") == []  # it leaves its neighbours some time
    assert told.happens("0.3 s pass") == ["effect: Leave"]


def test_clients_are_asked_once_and_it_does_not_leave_before_they_have_gone() -> None:
    told = drained("c", "d")
    assert redirects(told.happens("0.1 s pass")) == ["to c: Redirect B2", "to d: Redirect B2"]
    assert told.happens("5 s pass") == []
    told.happens("the link to c is removed")
    assert told.happens("0.1 s pass") == []
    told.happens("the link to d is removed")
    assert "to B2: Leaving" in told.happens("0.1 s pass")


def test_a_client_that_stays_is_asked_again_a_while_later() -> None:
    told = drained("c")
    told.happens("0.1 s pass")
    told.happens("from c: Refused B1/by-hand/1, reason it is busy")
    assert told.happens("0.1 s pass") == []
    [left] = told.broker.draining.clients_left()  # type: ignore[union-attr]
    assert (left.client, left.why) == ("c", "it is busy")
    assert redirects(told.happens("1.1 s pass")) == ["to c: Redirect B2"]


def test_a_client_that_is_away_is_waited_for_until_its_lease_is_over() -> None:
    told = drained("c")
    told.happens("the connection to c breaks")
    assert told.happens("30 s pass") == []
    assert "to B2: Leaving" in [*told.happens("31 s pass"), *told.happens("0.1 s pass")]


def test_one_that_links_others_leaves_only_its_clients() -> None:
    told = ToldBroker()
    told.happens("a received broker B1 with neighbours B2 B3")
    assert told.broker.drain(("B2",), 0.0).startswith("B1 links B2, B3, which would be cut off from each other")
    carrying = drained("c", neighbours="B2 B3", carries=True)
    assert redirects(carrying.happens("0.1 s pass")) == ["to c: Redirect B2"]
    carrying.happens("the link to c is removed")
    assert [*carrying.happens("1 s pass"), *carrying.happens("1 s pass")] == []


def test_a_client_that_comes_late_is_sent_on_and_one_that_comes_at_the_end_is_refused() -> None:
    told = drained(neighbours="B2 B3", carries=True)
    told.happens("0.1 s pass")
    told.happens("c greets with stay 1")
    assert redirects(told.happens("0.1 s pass")) == ["to c: Redirect B2"]
    leaving = drained()
    leaving.happens("0.1 s pass")
    assert leaving.happens("c greets with stay 1") == [
        "effect: Close c, reason B1 leaves the network: connect to another broker"
    ]


def test_a_client_that_moves_there_is_refused() -> None:
    told = drained(neighbours="B2 B3", carries=True)
    told.happens("c greets with stay 2")
    [refused] = told.happens("from c: MoveIn stay 2, old broker B2")
    assert refused == "to c: Refused stay 2, reason B1 is being drained and takes no clients"


def test_it_is_said_again_to_a_neighbour_that_comes_again() -> None:
    told = drained()
    told.happens("0.1 s pass")
    told.happens("the connection to B2 breaks")
    assert told.happens("1 s pass") == []  # it has not heard it for certain, or has forgotten it
    told.happens("B2 greets, started again")
    assert "to B2: Leaving" in told.happens("0.1 s pass")


def test_it_can_be_taken_back_until_it_is_said() -> None:
    told = drained("c")
    told.happens("0.1 s pass")
    assert told.broker.drain_no_more() == ""
    assert told.broker.drain_no_more() == "B1 is not being drained"
    leaving = drained()
    leaving.happens("0.1 s pass")
    assert leaving.broker.drain_no_more() == "B1 has said that it leaves"
    assert leaving.broker.drain(("B2",), 0.0) == ""  # saying it twice changes nothing


def test_without_a_way_to_another_broker_nobody_can_take_the_clients() -> None:
    told = ToldBroker()
    told.happens("a received broker B1 with neighbours B2")
    told.happens("c greets with stay 1")
    assert told.broker.drain(("B9",), 0.0) == "no way leads from B1 to B9, so nobody can take its clients"
    told.happens("the link to B2 is removed")
    assert told.broker.drain(("B2",), 0.0) == "B1 has no link to another broker, so nobody can take its clients"
