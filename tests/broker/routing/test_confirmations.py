"""An answer counts for the telling that it answers, and for no other."""

from __future__ import annotations

from tests.broker.told_broker import ToldBroker
from trimtab.broker.routing.confirmations import Confirmations, Representatives

KEY = ("s1", "ann")


def confirmations(*told: tuple[str, str]) -> tuple[Confirmations, Representatives]:
    """Where one key is represented at neighbours as told, which a test may change."""
    representatives = list(told)
    return Confirmations(lambda key: representatives), representatives


def test_an_answer_to_an_earlier_telling_does_not_count() -> None:
    asked, _ = confirmations(("B2", "s1"))
    asked.told("B2", "s1", 3)
    assert not asked.begin(KEY)
    asked.told("B2", "s1", 5)
    assert asked.confirm("B2", "s1", 3) == []
    assert asked.confirm("B2", "s1", 5) == [KEY]


def test_what_ended_and_was_told_again_waits_for_the_answer_to_that() -> None:
    asked, _ = confirmations(("B2", "s1"))
    asked.told("B2", "s1", 3)
    assert asked.withdrawn("B2", "s1") == []
    asked.told("B2", "s1", 4)
    assert not asked.begin(KEY)
    assert asked.confirm("B2", "s1", 3) == []
    assert asked.confirm("B2", "s1", 4) == [KEY]


def test_an_answer_to_what_was_not_told_does_not_count() -> None:
    asked, _ = confirmations(("B2", "s1"))
    assert not asked.begin(KEY)
    assert asked.confirm("B2", "s1", 0) == []


def test_a_new_epoch_voids_what_was_told_and_what_was_answered() -> None:
    asked, _ = confirmations(("B2", "s1"))
    asked.told("B2", "s1", 3)
    asked.begin(KEY)
    assert asked.confirm("B2", "s1", 3) == [KEY]
    asked.begin_epoch("B2")
    assert asked.forget_neighbour("B2") == []
    assert not asked.begin(KEY)
    assert asked.confirm("B2", "s1", 3) == [], "said in the epoch before"
    asked.told("B2", "s1", 4)
    assert asked.confirm("B2", "s1", 4) == [KEY]


def test_each_neighbour_is_waited_for() -> None:
    asked, _ = confirmations(("B2", "s1"), ("B3", "s0"))
    asked.told("B2", "s1", 1)
    asked.told("B3", "s0", 2)
    assert not asked.begin(KEY)
    assert asked.confirm("B3", "s0", 2) == []
    assert asked.confirm("B2", "s1", 1) == [KEY]


def test_a_key_that_ended_is_not_confirmed() -> None:
    asked, _ = confirmations(("B2", "s1"))
    asked.told("B2", "s1", 1)
    asked.begin(KEY)
    asked.forget(KEY)
    assert asked.confirm("B2", "s1", 1) == []


def test_what_no_longer_needs_a_neighbour_is_in_force_when_that_is_told_the_end() -> None:
    asked, representatives = confirmations(("B2", "s0"))
    asked.told("B2", "s0", 1)
    asked.begin(KEY)
    representatives.clear()
    assert asked.withdrawn("B2", "s0") == [KEY]


def test_at_a_broker_a_subscription_that_is_pulled_again_waits_for_the_second_answer() -> None:
    told = ToldBroker()
    told.happens("a received broker B with neighbours N1")
    told.happens("from N1: Advertise q/a1, number 1")
    told.happens("s greets with stay 1")
    assert told.happens("from s: Subscribe s/s1, number 1") == ["to N1: Subscribe s/s1, number 1"]
    assert told.happens("from N1: Unadvertise q/a1, number 1") == [
        "to N1: Unsubscribe s/s1",
        "to s: Confirmed s/s1, number 1",
    ]
    told.happens("from N1: Advertise q/a1, number 2")
    told.happens("t greets with stay 1")
    assert told.happens("from t: Subscribe t/s1, number 1") == [], "that of s covers it"
    assert told.happens("from N1: Confirmed s/s1, number 1") == [], "an answer to the first telling"
    assert told.happens("from N1: Confirmed s/s1, number 2") == ["to t: Confirmed t/s1, number 1"]


def test_an_answer_carries_the_number_of_what_it_answers() -> None:
    told = ToldBroker()
    told.happens("a received broker B with neighbours N1")
    assert told.happens("from N1: Subscribe r/s1, number 7") == ["to N1: Confirmed r/s1, number 7"]
    assert told.happens("from N1: Subscribe r/s1, number 9") == ["to N1: Confirmed r/s1, number 9"]
