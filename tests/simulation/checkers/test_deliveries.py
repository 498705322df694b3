"""The checker with a global view: each broken promise has its name."""

from trimtab.language import Filter, Publication, Value
from trimtab.protocol.effects import Deliver
from trimtab.simulation.checkers.deliveries import DeliveryChecker


def deliver(sequence: int, values: dict[str, Value], *subscriptions: str) -> Deliver:
    return Deliver(subscriptions, Publication(values), "p", sequence, 0.5, 2)


def checker_with_a_subscription() -> DeliveryChecker:
    checker = DeliveryChecker()
    checker.subscribed("s", "alice", Filter.parse("a > 5"))
    checker.in_force("s", 1.0)
    return checker


def kinds(checker: DeliveryChecker) -> list[str]:
    return [violation.kind for violation in checker.violations]


def test_what_was_accepted_in_force_and_delivered_once_is_fine() -> None:
    checker = checker_with_a_subscription()
    for sequence in (1, 2):
        checker.accepted("p", sequence, {"a": 6}, 2.0)
        checker.delivered("alice", deliver(sequence, {"a": 6}, "s"), 3.0)
    checker.check_at_rest()
    assert kinds(checker) == []
    assert checker.deliveries_count == 2


def test_what_is_not_delivered_is_missing() -> None:
    checker = checker_with_a_subscription()
    checker.accepted("p", 1, {"a": 6}, 2.0)
    checker.check_at_rest()
    assert kinds(checker) == ["missing"]


def test_earlier_publications_are_allowed_and_not_demanded() -> None:
    checker = DeliveryChecker()
    checker.subscribed("s", "alice", Filter.parse("a > 5"))
    checker.accepted("p", 1, {"a": 6}, 0.5)
    checker.accepted("p", 2, {"a": 6}, 0.6)
    checker.in_force("s", 1.0)
    checker.delivered("alice", deliver(2, {"a": 6}, "s"), 3.0)
    checker.check_at_rest()
    assert kinds(checker) == []


def test_a_publication_that_comes_twice_or_late_is_found() -> None:
    checker = checker_with_a_subscription()
    checker.accepted("p", 1, {"a": 6}, 2.0)
    checker.accepted("p", 2, {"a": 7}, 2.0)
    checker.delivered("alice", deliver(2, {"a": 7}, "s"), 3.0)
    checker.delivered("alice", deliver(2, {"a": 7}, "s"), 3.0)
    checker.delivered("alice", deliver(1, {"a": 6}, "s"), 3.0)
    checker.check_at_rest()
    assert kinds(checker) == ["delivered twice", "out of order"]


def test_an_ended_subscription_may_lack_the_last_ones_but_has_no_holes() -> None:
    checker = checker_with_a_subscription()
    for sequence in (1, 2, 3):
        checker.accepted("p", sequence, {"a": 6}, 2.0)
    checker.delivered("alice", deliver(2, {"a": 6}, "s"), 3.0)
    checker.unsubscribed("s")
    checker.check_at_rest()
    assert [violation.text for violation in checker.violations] == ["p:1 to s, which got a later one and ended"]


def test_what_nobody_asked_for_or_does_not_match_or_was_altered_is_found() -> None:
    checker = checker_with_a_subscription()
    checker.accepted("p", 1, {"a": 1}, 2.0)
    checker.delivered("alice", deliver(1, {"a": 1}, "s"), 3.0)
    checker.delivered("bob", deliver(2, {"a": 6}, "s"), 3.0)
    checker.delivered("alice", deliver(3, {"a": 6}, "s"), 3.0)
    checker.subscribed("early", "alice", Filter.parse("a > 5"))
    checker.accepted("p", 4, {"a": 9}, 3.5)
    checker.delivered("alice", deliver(4, {"a": 8}, "early"), 4.0)
    assert kinds(checker) == ["does not match", "not asked for", "never accepted", "altered"]


def test_acknowledgement_before_acceptance_is_found() -> None:
    checker = checker_with_a_subscription()
    checker.accepted("p", 1, {"a": 1}, 2.0)
    checker.taken("p", 1)
    checker.taken("p", 2)
    assert kinds(checker) == ["accepted too early"]


def test_what_never_came_into_force_is_found() -> None:
    checker = DeliveryChecker()
    checker.subscribed("s", "alice", Filter.parse("a > 5"))
    checker.advertised("a", "bob", Filter.parse("a > 5"))
    checker.check_at_rest()
    assert kinds(checker) == ["never in force", "never in force"]


def test_a_gap_is_allowed_only_where_a_drop_was_counted() -> None:
    checker = checker_with_a_subscription()
    checker.gaps.demands_notices = False
    for sequence in (1, 2, 3):
        checker.accepted("p", sequence, {"a": 6}, 2.0)
    checker.dropped("alice", "p", 1)
    checker.delivered("alice", deliver(3, {"a": 6}, "s"), 3.0)
    checker.check_at_rest()
    assert [violation.text for violation in checker.violations] == ["p:2 to s"]


def test_nothing_may_come_after_a_disconnection_and_nothing_is_demanded() -> None:
    checker = checker_with_a_subscription()
    for sequence in (1, 2):
        checker.accepted("p", sequence, {"a": 6}, 2.0)
    checker.disconnected("alice")
    checker.check_at_rest()
    assert kinds(checker) == []
    checker.delivered("alice", deliver(1, {"a": 6}, "s"), 3.0)
    assert kinds(checker) == ["not asked for"]


def test_after_a_lease_nothing_is_demanded_until_the_subscription_is_in_force_again() -> None:
    checker = checker_with_a_subscription()
    checker.gaps.demands_notices = False
    checker.accepted("p", 1, {"a": 6}, 2.0)
    checker.lapsed(["s"])
    checker.accepted("p", 2, {"a": 6}, 3.0)
    checker.check_at_rest()
    assert kinds(checker) == []
    checker.in_force("s", 4.0)
    checker.accepted("p", 3, {"a": 6}, 5.0)
    checker.check_at_rest()
    assert [violation.text for violation in checker.violations] == ["p:3 to s"]


def test_publications_are_forgotten_when_everybody_has_them() -> None:
    checker = checker_with_a_subscription()
    for sequence in range(1, 60_000):
        checker.accepted("p", sequence, {"a": 6}, 2.0)
        checker.delivered("alice", deliver(sequence, {"a": 6}, "s"), 3.0)
    assert len(checker._due) == 0
    assert len(checker._values) <= 50_000
    checker.subscribed("late", "alice", Filter.parse("a > 5"))
    checker.delivered("alice", deliver(1, {"a": 6}, "late"), 4.0)
    assert kinds(checker) == []
