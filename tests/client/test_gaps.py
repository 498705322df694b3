"""From marks and answers to gap notices: what a client session makes of what brokers say."""

from __future__ import annotations

from trimtab.client.gaps import ANSWERS_WITHIN_S, OPEN_TOLD_MAX_COUNT, Gaps
from trimtab.protocol.effects import GapNotice
from trimtab.protocol.messages import Gap

BREAK = Gap(id="B2 x 1", reason="B2 died")
SOMETHING = GapNotice("", reason="B2 died")


def answer(publisher: str, last: int, *, has_crossed: bool = True, session: str = "1") -> Gap:
    return Gap(id=BREAK.id, publisher=publisher, session=session, last=last, has_crossed=has_crossed)


def notice(publisher: str, first: int, last: int | None, session: str = "1") -> GapNotice:
    return GapNotice(publisher, first, last, "B2 died", session)


def test_an_interval_ends_where_the_next_delivery_or_the_publisher_does() -> None:
    gaps = Gaps({"p": ("1", 4), "q": ("1", 4)})
    assert gaps.heard(BREAK, 0.0) == [SOMETHING]
    gaps.delivered("p", "1", 8)
    gaps.delivered("p", "1", 9)
    assert gaps.heard(answer("p", 9), 0.1) == [notice("p", 5, 7)]
    assert gaps.heard(answer("q", 6), 0.1) == [notice("q", 5, 6)]


def test_a_break_and_its_answers_count_once() -> None:
    gaps = Gaps({"p": ("1", 4)})
    gaps.heard(BREAK, 0.0)
    assert gaps.heard(answer("p", 6), 0.1) == [notice("p", 5, 6)]
    assert gaps.heard(answer("p", 6), 0.2) == []
    assert gaps.heard(BREAK, 0.3) == []
    assert gaps.wake(ANSWERS_WITHIN_S) == []


def test_who_has_had_all_that_was_accepted_is_told_nothing() -> None:
    gaps = Gaps({"p": ("1", 4)})
    gaps.heard(BREAK, 0.0)
    assert gaps.heard(answer("p", 4), 0.1) == []
    assert gaps.wake(ANSWERS_WITHIN_S) == []


def test_a_publisher_whose_publications_take_another_way_is_not_concerned() -> None:
    gaps = Gaps({"p": ("1", 4), "q": ("1", 4)})
    assert gaps.heard(answer("q", 9, has_crossed=False), 0.0) == []  # questions overtake breaks
    gaps.heard(BREAK, 0.1)
    assert gaps.heard(answer("p", 9, has_crossed=False), 0.2) == []
    assert gaps.wake(0.1 + ANSWERS_WITHIN_S) == []


def test_of_a_publisher_that_moves_what_either_broker_says_counts() -> None:
    gaps = Gaps({"p": ("1", 4), "q": ("1", 4)})
    gaps.heard(answer("p", 9, has_crossed=False), 0.0)
    gaps.heard(BREAK, 0.1)
    assert gaps.heard(answer("q", 9, has_crossed=False), 0.2) == []
    assert gaps.heard(answer("p", 6), 0.2) == [notice("p", 5, 6)]
    assert gaps.heard(answer("q", 6), 0.2) == [notice("q", 5, 6)]
    assert gaps.heard(answer("q", 9, has_crossed=False), 0.3) == []
    assert gaps.heard(answer("q", 8), 0.3) == [notice("q", 7, 8)]
    assert gaps.wake(0.1 + ANSWERS_WITHIN_S) == []


def test_an_answer_that_overtakes_its_break_counts() -> None:
    gaps = Gaps({"p": ("1", 4)})
    assert gaps.heard(answer("p", 6), 0.0) == []
    assert gaps.heard(answer("p", 6, has_crossed=False), 0.0) == []
    assert gaps.heard(BREAK, 0.1) == [SOMETHING, notice("p", 5, 6)]
    assert gaps.wake(0.1 + ANSWERS_WITHIN_S) == []


def test_of_who_is_gone_an_open_interval_is_told_after_a_while_and_once() -> None:
    gaps = Gaps({"p": ("1", 4)})
    gaps.heard(BREAK, 0.0)
    assert gaps.wake_at_s() == ANSWERS_WITHIN_S
    assert gaps.wake(ANSWERS_WITHIN_S - 0.1) == []
    assert gaps.wake(ANSWERS_WITHIN_S) == [notice("p", 5, None)]
    assert (gaps.is_open, gaps.wake_at_s()) == (False, None)
    assert gaps.heard(Gap(id="B2 y 1", reason="B2 died"), 100.0) == [SOMETHING]
    assert gaps.wake(200.0) == []


def test_what_is_answered_about_a_later_break_bounds_one_whose_answers_were_lost() -> None:
    gaps = Gaps({"p": ("1", 4), "q": ("1", 4)})
    gaps.heard(BREAK, 0.0)
    gaps.heard(Gap(id="B2 y 1", is_own=True, reason="B2 died"), 1.0)
    for publisher, last in (("p", 4), ("q", 6)):
        answered = Gap(id="B2 y 1", publisher=publisher, session="1", last=last)
        assert gaps.heard(answered, 1.1) == ([] if last == 4 else [notice(publisher, 5, last)])
    assert gaps.wake(1.0 + ANSWERS_WITHIN_S) == []


def test_what_is_told_of_a_later_break_says_nothing_of_what_was_lost_at_an_earlier_one() -> None:
    delivered = {"p": ("1", 4)}
    gaps = Gaps(delivered)
    gaps.heard(BREAK, 0.0)
    gaps.delivered("p", "1", 8)
    delivered["p"] = ("1", 12)
    gaps.heard(Gap(id="B2 y 1", reason="B2 died"), 1.0)
    later = Gap(id="B2 y 1", publisher="p", session="1", last=14, has_crossed=True)
    assert gaps.heard(later, 1.1) == [notice("p", 13, 14)]
    assert gaps.wake(ANSWERS_WITHIN_S) == [notice("p", 5, 7)]


def test_of_very_many_that_are_silent_no_open_intervals_are_told() -> None:
    gaps = Gaps({f"p{number}": ("1", 4) for number in range(OPEN_TOLD_MAX_COUNT + 1)})
    gaps.heard(BREAK, 0.0)
    gaps.delivered("p7", "1", 9)
    assert gaps.wake(ANSWERS_WITHIN_S) != []
    more = Gaps({f"p{number}": ("1", 4) for number in range(OPEN_TOLD_MAX_COUNT + 2)})
    more.heard(BREAK, 0.0)
    more.delivered("p7", "1", 9)
    assert more.wake(ANSWERS_WITHIN_S) == [notice("p7", 5, 8)]


def test_two_breaks_with_deliveries_between_them_are_two_intervals() -> None:
    delivered = {"p": ("1", 4)}
    gaps = Gaps(delivered)
    gaps.heard(BREAK, 0.0)
    delivered["p"] = ("1", 8)
    gaps.delivered("p", "1", 8)
    gaps.heard(Gap(id="B3 x 1", reason="B2 died"), 1.0)
    delivered["p"] = ("1", 12)
    gaps.delivered("p", "1", 12)
    assert gaps.heard(answer("p", 20), 1.1) == [notice("p", 5, 7)]
    second = Gap(id="B3 x 1", publisher="p", session="1", last=20, has_crossed=True)
    assert gaps.heard(second, 1.2) == [notice("p", 9, 11)]


def test_a_publisher_that_was_started_again_counts_anew() -> None:
    gaps = Gaps({"p": ("1", 40)})
    gaps.heard(BREAK, 0.0)
    gaps.delivered("p", "2", 3)
    assert gaps.heard(answer("p", 5, session="2"), 0.1) == [notice("p", 41, None), notice("p", 1, 2, "2")]


def test_a_client_that_was_forgotten_counts_from_the_end_of_its_link() -> None:
    delivered = {"p": ("1", 4)}
    gaps = Gaps(delivered)
    gaps.link_ended(0.0)
    delivered["p"] = ("1", 9)
    gaps.delivered("p", "1", 9)
    assert gaps.heard(Gap(id=BREAK.id, is_own=True, reason="B2 died"), 0.1) == [SOMETHING]
    assert gaps.heard(answer("p", 12, has_crossed=False), 0.2) == [notice("p", 5, 12)]


def test_a_client_that_was_not_forgotten_is_told_nothing() -> None:
    gaps = Gaps({"p": ("1", 4)})
    gaps.link_ended(0.0)
    assert gaps.wake(ANSWERS_WITHIN_S) == []
    assert not gaps.is_open


def test_where_publications_overtake_each_other_intervals_begin_at_the_beginning() -> None:
    gaps = Gaps({"p": ("1", 4)})
    gaps.any_order = True
    gaps.heard(BREAK, 0.0)
    gaps.delivered("p", "1", 8)
    assert gaps.heard(answer("p", 9), 0.1) == [notice("p", 1, 9)]


def test_behind_a_move_what_is_said_straight_counts_for_what_was_lost_before_it() -> None:
    gaps = Gaps({"p": ("1", 4)})
    gaps.heard(BREAK, 0.0)
    gaps.moved()
    assert gaps.heard(answer("p", 6, has_crossed=False), 0.1) == [notice("p", 5, 6)]


def test_a_second_answer_after_all_was_told_says_nothing_new() -> None:
    gaps = Gaps({"p": ("1", 4)})
    gaps.heard(BREAK, 0.0)
    assert gaps.heard(answer("p", 6), 0.1) == [notice("p", 5, 6)]
    gaps.wake(ANSWERS_WITHIN_S)
    assert gaps.heard(answer("p", 90), ANSWERS_WITHIN_S + 1) == []
