"""What the matcher promises, one behaviour at a time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from types import MappingProxyType
from typing import Literal

import pytest

from trimtab.language import Filter, Publication, Value
from trimtab.matching import Matcher

EngineName = Literal["kernel", "python"]


def matcher_of(engine: EngineName, *texts: str) -> Matcher:
    """A matcher with the filters under the keys 0, 1, 2 ..."""
    matcher = Matcher(engine)
    for number, text in enumerate(texts):
        matcher.add(number, Filter.parse(text))
    return matcher


def matching(engine: EngineName, text: str, candidates: Iterable[Value]) -> list[Value]:
    """Those of the values for v that a filter on v accepts."""
    matcher = matcher_of(engine, text)
    return [value for value in candidates if matcher.match({"v": value})]


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("[v,=,2]", [2, 2.0]),
        ("[v,<>,2]", [-1, 1, 2.5, 3]),
        ("[v,<,2]", [-1, 1]),
        ("[v,<=,2]", [-1, 1, 2, 2.0]),
        ("[v,>,2]", [2.5, 3]),
        ("[v,>=,2]", [2, 2.0, 2.5, 3]),
        ("[v,>=,1],[v,<,2.5]", [1, 2, 2.0]),
        ("[v,>=,1],[v,<>,2]", [1, 2.5, 3]),
        ("[v,isPresent,0]", [-1, 1, 2, 2.0, 2.5, 3]),
        ("[v,eq,true]", [True]),
        ("[v,neq,true]", [False]),
        ("[v,isPresent,true]", [True, False]),
        ("[v,eq,'YHOO']", ["YHOO"]),
        ("[v,neq,'YHOO']", ["", "OO", "YAHOO", "YH"]),
        ("[v,str-prefix,'YH']", ["YHOO", "YH"]),
        ("[v,str-suffix,'OO']", ["YHOO", "OO", "YAHOO"]),
        ("[v,str-postfix,'OO']", ["YHOO", "OO", "YAHOO"]),
        ("[v,str-contains,'HO']", ["YHOO", "YAHOO"]),
        ("[v,str-lt,'YH']", ["", "OO", "YAHOO"]),
        ("[v,str-le,'YH']", ["", "OO", "YAHOO", "YH"]),
        ("[v,str-gt,'YH']", ["YHOO"]),
        ("[v,str-ge,'YH']", ["YHOO", "YH"]),
        ("[v,str-like,'_OO']", []),
        ("[v,str-like,'Y_O_']", ["YHOO"]),
        ("[v,str-not-like,'Y%']", ["", "OO"]),
        ("[v,isPresent,'']", ["YHOO", "", "OO", "YAHOO", "YH"]),
        ("[v,isPresent,*]", [-1, 1, 2, 2.0, 2.5, 3, True, False, "YHOO", "", "OO", "YAHOO", "YH"]),
    ],
)
def test_each_operator_accepts_just_its_values(engine: EngineName, text: str, accepted: list[Value]) -> None:
    candidates: list[Value] = [-1, 1, 2, 2.0, 2.5, 3, True, False, "YHOO", "", "OO", "YAHOO", "YH"]
    assert repr(matching(engine, text, candidates)) == repr(accepted)


def test_a_filter_without_predicates_matches_everything(engine: EngineName) -> None:
    matcher = Matcher(engine)
    matcher.add("all", Filter([]))
    assert [list(keys) for keys in matcher.match_many([{}, {"v": 1}, {"w": "x"}])] == [["all"]] * 3


def test_an_absent_attribute_satisfies_no_predicate(engine: EngineName) -> None:
    texts = ["[v,<>,5]", "[v,neq,'x']", "[v,neq,true]", "[v,isPresent,*]", "[v,<,5]", "[v,=,5]", "[v,>,1],[v,<,5]"]
    assert list(matcher_of(engine, *texts).match({"w": 1})) == []


def test_a_number_in_quotes_is_not_a_number(engine: EngineName) -> None:
    assert list(matcher_of(engine, "[v,=,100]", "[v,eq,'100']").match({"v": "100"})) == [1]


def test_true_is_not_one_and_false_is_not_zero(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[v,=,1]", "[v,eq,true]", "[v,=,0]", "[v,eq,false]", "[v,>=,0]", "[v,>=,0],[v,<=,1]")
    found = [sorted(matcher.match({"v": value}), key=repr) for value in (True, 1, False, 0)]
    assert found == [[1], [0, 4, 5], [3], [2, 4, 5]]


def test_integers_that_decimals_cannot_tell_apart_are_told_apart(engine: EngineName) -> None:
    big = 2**53
    matcher = matcher_of(engine, f"[v,=,{big + 1}]", f"[v,>,{big}]", f"[v,<=,{big}]", f"[v,>,{big}.0],[v,<,{big + 2}]")
    given: list[Value] = [big, big + 1, big + 2, float(big), float(big + 2)]
    assert [sorted(keys, key=repr) for keys in matcher.match_many([{"v": value} for value in given])] == [
        [2],
        [0, 1, 3],
        [1],
        [2],
        [1],
    ]


def test_the_ends_of_64_bits_are_not_the_decimals_next_to_them(engine: EngineName) -> None:
    matcher = matcher_of(engine, f"[v,=,{2**63 - 1}]", f"[v,<,{float(2**63)!r}]", f"[v,>=,{-(2**63)}]")
    assert sorted(matcher.match({"v": 2**63 - 1}), key=repr) == [0, 1, 2]
    assert sorted(matcher.match({"v": float(2**63)}), key=repr) == [2]


def test_minus_zero_equals_zero(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[v,=,0]", "[v,=,-0.0]", "[v,>=,0]", "[v,<,0]", "[v,>=,-0.0],[v,<=,0]")
    assert sorted(matcher.match({"v": -0.0}), key=repr) == [0, 1, 2, 4]
    assert sorted(matcher.match({"v": 0}), key=repr) == [0, 1, 2, 4]


def test_strings_are_compared_by_code_point_whatever_they_contain(engine: EngineName) -> None:
    matcher = Matcher(engine)
    matcher.add("nul", Filter.where(v="a\0b"))
    matcher.add("a", Filter.where(v="a"))
    matcher.add("umlaut", Filter.parse("[v,str-prefix,'größ']"))
    matcher.add("above", Filter.parse("[v,str-gt,'\uffff']"))
    given = ["a\0b", "a", "größer", "grosser", "😀"]
    assert [list(keys) for keys in matcher.match_many([{"v": text} for text in given])] == [
        ["nul"],
        ["a"],
        ["umlaut"],
        [],
        ["above"],
    ]


def test_several_equalities_must_all_hold(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[a,=,1],[b,eq,'x']", "[a,=,1],[b,eq,'y']", "[a,=,1]", "[b,eq,'x'],[c,eq,true]")
    assert sorted(matcher.match({"a": 1, "b": "x", "c": True}), key=repr) == [0, 2, 3]


def test_publications_and_plain_mappings_are_matched_alike(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[class,eq,'STOCK'],[volume,>,5]")
    values: dict[str, Value] = {"class": "STOCK", "volume": 6}
    given = [values, Publication(values), MappingProxyType(values)]
    assert [list(matcher.match(publication)) for publication in given] == [[0], [0], [0]]
    assert [list(keys) for keys in matcher.match_many(given)] == [[0], [0], [0]]


@pytest.mark.parametrize("given", [None, 5, "[v,5]", ["v", 5], [("v", 5)]])
def test_what_is_not_a_publication_is_refused(engine: EngineName, given: object) -> None:
    matcher = matcher_of(engine, "[v,=,5]")
    with pytest.raises(TypeError):
        matcher.match(given)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        matcher.match_many([{"v": 5}, given])  # type: ignore[list-item]
    assert list(matcher.match({"v": 5})) == [0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**63, -(2**63) - 1, 10**400])
def test_a_number_that_is_no_value_is_refused_if_a_filter_asks_for_it(engine: EngineName, value: float) -> None:
    matcher = matcher_of(engine, "[v,>,5]", "[w,>,5],[w,<,9],[x,<,3]")
    for name in ("v", "w"):
        with pytest.raises(ValueError, match=f"attribute {name}: "):
            matcher.match({name: value})
    assert list(matcher.match({"v": 6, "other": value})) == [0]


@pytest.mark.parametrize("value", [None, b"6", [6], 6j])
def test_what_is_of_no_kind_is_refused_if_a_filter_asks_for_it(engine: EngineName, value: Value) -> None:
    matcher = matcher_of(engine, "[v,>,5]")
    with pytest.raises(TypeError, match=r"attribute v: .* is not a kind of value"):
        matcher.match({"v": value})
    assert list(matcher.match({"v": 6, "other": value})) == [0]


def test_an_attribute_that_no_filter_asks_for_any_more_is_not_looked_at(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[v,>,5]", "[w,>,5]")
    matcher.remove(1)
    assert list(matcher.match({"v": 6, "w": math.nan})) == [0]


def test_what_is_not_a_filter_is_refused(engine: EngineName) -> None:
    matcher = Matcher(engine)
    with pytest.raises(TypeError):
        matcher.add("text", "[v,=,5]")  # type: ignore[arg-type]
    for question in (matcher.find_covering, matcher.find_covered):
        with pytest.raises(TypeError):
            question("[v,=,5]")  # type: ignore[arg-type]
    assert len(matcher) == 0 and "text" not in matcher


@pytest.mark.parametrize(
    "key", ["text", 5, 2.5, (1, ("a", None)), frozenset({1}), True, b"bytes", Filter.where(v=1), object()]
)
def test_anything_hashable_may_be_a_key(engine: EngineName, key: Hashable) -> None:
    matcher = Matcher(engine)
    matcher.add(key, Filter.where(v=5))
    assert key in matcher
    assert list(matcher.match({"v": 5})) == [key]
    matcher.remove(key)
    assert key not in matcher
    assert list(matcher.match({"v": 5})) == []


def test_a_key_that_is_not_hashable_is_refused(engine: EngineName) -> None:
    matcher = Matcher(engine)
    with pytest.raises(TypeError):
        matcher.add(["list"], Filter.where(v=5))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        matcher.remove(["list"])  # type: ignore[arg-type]
    assert len(matcher) == 0
    assert not matcher.match({"v": 5})


def test_a_key_in_use_is_refused_and_nothing_changes(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[v,=,5]")
    with pytest.raises(KeyError, match="the key 0 is already in use"):
        matcher.add(0, Filter.where(v=6))
    assert len(matcher) == 1
    assert [list(keys) for keys in matcher.match_many([{"v": 5}, {"v": 6}])] == [[0], []]


def test_an_unknown_key_cannot_be_removed(engine: EngineName) -> None:
    with pytest.raises(KeyError, match="unknown key 'nobody'"):
        matcher_of(engine, "[v,=,5]").remove("nobody")


def test_a_key_may_be_used_again_after_its_removal(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[v,=,5]")
    matcher.remove(0)
    matcher.add(0, Filter.where(v=6))
    assert [list(keys) for keys in matcher.match_many([{"v": 5}, {"v": 6}])] == [[], [0]]


@pytest.mark.parametrize("text", ["[v,=,5]", "[v,>,4]", "[v,<,6]", "[v,>,4],[v,<,6]", "[v,>,4],[w,>,0]", "[v,<>,4]"])
def test_many_keys_may_share_a_filter(engine: EngineName, text: str) -> None:
    matcher = Matcher(engine)
    for key in range(1000):
        matcher.add(key, Filter.parse(text))
    for key in range(0, 1000, 2):
        matcher.remove(key)
    found = matcher.match({"v": 5, "w": 1})
    assert len(matcher) == 500
    assert len(found) == 500
    assert sorted(found, key=lambda key: int(str(key))) == list(range(1, 1000, 2))


def test_matches_can_be_counted_asked_and_read_more_than_once(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[v,>,1]", "[v,>,2]", "[v,>,3],[v,<,9]", "[v,>,7]")
    found, nothing = matcher.match_many([{"v": 5}, {"v": 0}])
    assert (len(found), bool(found), sorted(found, key=repr), sorted(found, key=repr)) == (
        3,
        True,
        [0, 1, 2],
        [0, 1, 2],
    )
    assert (len(nothing), bool(nothing), list(nothing)) == (0, False, [])


@pytest.mark.parametrize("change", ["add", "add a twin", "remove"])
def test_matches_end_with_the_next_change(engine: EngineName, change: str) -> None:
    matcher = matcher_of(engine, "[v,>,1]", "[v,>,2]")
    found = matcher.match({"v": 5})
    many = matcher.match_many([{"v": 5}])
    if change == "remove":
        matcher.remove(0)
    else:
        matcher.add("new", Filter.parse("[v,>,1]" if change == "add a twin" else "[w,=,1]"))
    for stale in (found, *many):
        with pytest.raises(RuntimeError, match="the matcher changed"):
            list(stale)
        with pytest.raises(RuntimeError, match="the matcher changed"):
            len(stale)
        with pytest.raises(RuntimeError, match="the matcher changed"):
            bool(stale)


def test_a_loop_over_matches_may_change_the_matcher(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[v,>,1]", "[v,>,2]", "[v,>,3],[v,<,9]", "[v,>,7]")
    for key in matcher.match({"v": 5}):
        matcher.remove(key)
    assert (len(matcher), 3 in matcher) == (1, True)


def test_matches_stay_valid_when_a_change_was_refused(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[v,>,1]")
    found = matcher.match({"v": 5})
    with pytest.raises(KeyError):
        matcher.add(0, Filter.where(v=6))
    with pytest.raises(KeyError):
        matcher.remove("nobody")
    assert list(found) == [0]


def test_matches_outlive_the_matcher(engine: EngineName) -> None:
    assert list(matcher_of(engine, "[v,>,1]").match({"v": 5})) == [0]


def test_a_covering_filter_is_found_and_really_covers(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[class,eq,'STOCK']", "[class,eq,'SPORTS']", "[v,>,5]", "[s,str-gt,'Y']")
    assert matcher.find_covering(Filter.parse("[class,eq,'STOCK'],[w,>,9]")) == 0
    assert matcher.find_covering(Filter.parse("[v,>,5],[v,<,7]")) == 2
    assert matcher.find_covering(Filter.parse("[s,str-prefix,'YH']")) == 3
    assert matcher.find_covering(Filter.parse("[class,eq,'NEWS']")) is None
    assert matcher.find_covering(Filter.parse("[class,isPresent,*]")) is None


def test_an_excluded_filter_is_not_found_under_any_of_its_keys(engine: EngineName) -> None:
    matcher = matcher_of(engine, "[v,>,5]", "[v,>,5]", "[v,>,3]")
    assert matcher.find_covering(Filter.parse("[v,>,5]"), exclude=1) == 2
    assert matcher.find_covered(Filter.parse("[v,>,4]"), exclude=1) == []
    assert sorted(matcher.find_covered(Filter.parse("[v,>,3]"), exclude=1), key=repr) == [2]


def test_all_covered_filters_are_found_with_all_their_keys(engine: EngineName) -> None:
    texts = [
        "[v,>,5]",
        "[v,>,5]",
        "[v,>,6],[w,=,1]",
        "[v,>,4]",
        "[v,=,7]",
        "[v,=,7],[x,eq,'y']",
        "[v,eq,'7']",
        "[v,<,9]",
    ]
    found = matcher_of(engine, *texts).find_covered(Filter.parse("[v,>,5]"))
    assert sorted(found, key=repr) == [0, 1, 2, 4, 5]


def test_an_equality_in_other_words_is_seen_through(engine: EngineName) -> None:
    equality = Filter.where(s="ab")
    for other in (Filter.parse("s LIKE 'a_' AND s LIKE '_b'"), Filter.where(s="ab")):
        matcher = Matcher(engine)
        matcher.add("equality", equality)
        matcher.add("other", other)
        assert matcher.find_covering(other, exclude="other") == ("equality" if other != equality else None)
        assert sorted(matcher.find_covered(equality), key=repr) == ["equality", "other"]


@pytest.mark.parametrize(
    "text", ["[v,isPresent,0]", "[v,<,9]", "[v,>,9]", "[v,>,5],[v,<,7]", "[w,eq,1],[v,isPresent,0]"]
)
def test_a_number_that_must_only_be_there_covers_every_number(engine: EngineName, text: str) -> None:
    assert matcher_of(engine, "[v,isPresent,0]").find_covering(Filter.parse(text)) == 0
