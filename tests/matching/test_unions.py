"""The covering set of texts that mean several filters each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matching.strategies import filters
from trimtab.language import Filter
from trimtab.language.relations import union_covers
from trimtab.matching.unions import IncomparableError, covering_unions

unions = st.lists(filters, min_size=1, max_size=3)


def covering_one_by_one(given: list[list[Filter]]) -> list[int]:
    def is_covered(position: int) -> bool:
        mine = given[position]
        return any(
            union_covers(other, mine) and (earlier < position or not union_covers(mine, other))
            for earlier, other in enumerate(given)
            if earlier != position
        )

    return [position for position in range(len(given)) if not is_covered(position)]


@given(st.lists(unions, max_size=6))
def test_the_covering_unions_are_those_of_comparing_all_pairs(given: list[list[Filter]]) -> None:
    assert covering_unions(given) == covering_one_by_one(given)


def test_a_union_is_covered_by_another_although_none_of_its_filters_is_covered_alone() -> None:
    texts = ["[v,>=,0],[v,<=,9]", "v < 5 OR v >= 5"]
    assert covering_unions([Filter.parse_all(text) for text in texts]) == [1]


def test_of_unions_that_are_equal_in_other_words_the_first_is_kept() -> None:
    texts = ["v < 5 OR v >= 5", "[v,isPresent,0]", "v < 9 OR v >= 1"]
    for order in (texts, texts[::-1], [texts[1], texts[0], texts[2]]):
        assert covering_unions([Filter.parse_all(text) for text in order]) == [0]


def test_two_unions_that_are_too_complex_to_compare_are_named() -> None:
    many = [" AND ".join(f"(a{n} < {low + 2} OR a{n} > {low})" for n in range(8)) for low in (2, 3)]
    with pytest.raises(IncomparableError) as caught:
        covering_unions([Filter.parse_all(text) for text in ("[b,=,1]", *many)])
    assert (caught.value.first, caught.value.second) == (1, 2)


def test_many_unions_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def counted(outer: tuple[Filter, ...], inner: tuple[Filter, ...]) -> bool:
        nonlocal compared
        compared += 1
        return union_covers(outer, inner)

    monkeypatch.setattr("trimtab.matching.unions.union_covers", counted)
    texts = [f"symbol IN ('S{n}', 'S{n + 1}') AND price > {n % 7}" for n in range(300)]
    assert len(covering_unions([Filter.parse_all(text) for text in texts])) == 300
    assert compared < 3 * 300
