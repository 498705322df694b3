"""Properties 1 to 4 of section 3.3, on histories made by hand that violate each of them and none."""

import pytest

from trimtab.simulation.checkers.properties import (
    PropertyViolation,
    PublicationKey,
    Reception,
    check_properties,
    ordering_degree_ratio,
    repeated_deliveries,
)


def keys(*sequences: int, publisher: str = "p") -> tuple[PublicationKey, ...]:
    return tuple(PublicationKey(publisher, sequence) for sequence in sequences)


def received(subscriber: str, *sequences: int, subscription: str = "a > 1") -> Reception:
    return Reception(subscriber, subscription, keys(*sequences))


def test_equal_histories_in_order_have_all_properties() -> None:
    assert check_properties([received("ann", 1, 3, 7), received("bob", 1, 3, 7)], []) == []


def test_a_hole_between_two_common_publications_is_incomplete() -> None:
    assert check_properties([received("ann", 1, 2, 3), received("bob", 1, 3)], []) == [
        PropertyViolation("strong complete", "bob misses p:2, which ann received for a > 1"),
        PropertyViolation("weak complete", "bob misses p:2, which ann received for a > 1"),
    ]


def test_a_hole_that_was_in_the_faulty_broker_is_weakly_complete() -> None:
    assert check_properties([received("ann", 1, 2, 3), received("bob", 1, 3)], keys(2)) == [
        PropertyViolation("strong complete", "bob misses p:2, which ann received for a > 1")
    ]


def test_subscribers_that_came_later_or_left_earlier_may_have_received_less() -> None:
    assert check_properties([received("ann", 1, 2, 3, 4), received("bob", 2, 3)], []) == []


def test_without_anything_in_common_nothing_can_be_missed() -> None:
    assert check_properties([received("ann", 1, 2), received("bob", 3, 4)], []) == []


def test_different_subscriptions_are_not_compared() -> None:
    assert check_properties([received("ann", 1, 2, 3), received("bob", 1, 3, subscription="a > 2")], []) == []


def test_publishers_are_compared_one_by_one() -> None:
    ann = Reception("ann", "a > 1", (*keys(1, 2, 3), *keys(1, 3, publisher="q")))
    bob = Reception("bob", "a > 1", (*keys(1, 2, 3), *keys(1, 2, 3, publisher="q")))
    assert [each.text for each in check_properties([ann, bob], [])] == [
        "ann misses q:2, which bob received for a > 1"
    ] * 2


def test_an_earlier_publication_after_a_later_one_is_disordered() -> None:
    assert check_properties([received("ann", 1, 3, 2)], []) == [
        PropertyViolation("strong ordered", "ann received p:2 after p:3"),
        PropertyViolation("weak ordered", "ann received p:2 after p:3"),
    ]


@pytest.mark.parametrize("in_faulty_broker", [2, 3])
def test_disorder_with_what_was_in_the_faulty_broker_is_weakly_ordered(in_faulty_broker: int) -> None:
    assert check_properties([received("ann", 1, 3, 2)], keys(in_faulty_broker)) == [
        PropertyViolation("strong ordered", "ann received p:2 after p:3")
    ]


def test_publications_of_different_publishers_have_no_order() -> None:
    history = [Reception("ann", "a > 1", (*keys(5), *keys(1, publisher="q"), *keys(6)))]
    assert check_properties(history, []) == []


def test_a_repetition_is_no_disorder_but_is_found() -> None:
    history = [received("ann", 1, 2, 1)]
    assert check_properties(history, []) == []
    assert list(repeated_deliveries(history)) == ["ann received p:1 again"]


def test_the_ordering_degree_weighs_displacements() -> None:
    assert ordering_degree_ratio([1, 2, 3, 4]) == 1.0
    assert ordering_degree_ratio([4, 3, 2, 1]) == pytest.approx((1 + 3 + 3 + 1) / 16)
    assert ordering_degree_ratio([2, 1, 3, 4]) == pytest.approx((3 + 3 + 4 + 4) / 16)
    with pytest.raises(ValueError, match="twice"):
        ordering_degree_ratio([1, 1])
