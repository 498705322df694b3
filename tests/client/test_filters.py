"""For which of a client's subscriptions is a publication that arrives?"""

import pytest

from trimtab.client.filters import ASKED_ONE_BY_ONE_MAX_COUNT, OwnFilters
from trimtab.language import Filter


@pytest.mark.parametrize("count", [2, ASKED_ONE_BY_ONE_MAX_COUNT, ASKED_ONE_BY_ONE_MAX_COUNT + 1, 20])
def test_the_same_ids_match_whether_asked_one_by_one_or_by_an_engine(count: int) -> None:
    mine = OwnFilters()
    for number in range(count):
        mine.add(f"s{number:02}", Filter.parse(f"a > {number}"))
    for value in range(count + 2):
        assert mine.matching({"a": value}) == tuple(f"s{number:02}" for number in range(count) if value > number)
    mine.remove("s00")
    assert mine.matching({"a": 1}) == ()


def test_what_was_under_way_for_a_filter_that_ended_is_not_for_the_one_that_stays() -> None:
    mine = OwnFilters()
    mine.add("s1", Filter.parse("a > 5"))
    mine.add("s2", Filter.parse("a < 3"))
    mine.remove("s1")
    assert mine.matching({"a": 9}) == ()
    assert mine.matching({"a": 2}) == ("s2",)


def test_the_only_filter_there_has_ever_been_is_not_asked() -> None:
    mine = OwnFilters()
    mine.add("s1", Filter.parse("a > 5"))
    assert mine.matching({"a": 9}) == ("s1",)
    mine.remove("s1")
    mine.add("s2", Filter.parse("a < 3"))
    assert mine.matching({"a": 9}) == ()
