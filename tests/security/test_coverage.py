"""Exact covering decides what is permitted: compared with brute force over every publication that can matter."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.language import ContradictionError, Filter, Op, Predicate
from trimtab.security.coverage import TOO_LONG, coverage, permitted_part

NUMBERS = [-1, 0, 0.5, 1, 1.5, 2, 2.5, 3]
TEXTS = ["", "a", "aa", "ab", "abx", "ac", "b", "bb", "c"]
VALUES = [None, *NUMBERS, True, False, *TEXTS]
"""One of each region that filters over these bounds and prefixes can tell apart; None: the attribute is absent."""

PUBLICATIONS = [
    {name: value for name, value in zip("ab", values, strict=True) if value is not None}
    for values in product(VALUES, repeat=2)
]

number_predicates = st.builds(
    Predicate.of,
    st.sampled_from("ab"),
    st.sampled_from([Op.EQ, Op.NEQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.PRESENT]),
    st.sampled_from([0, 1, 2]),
)
text_predicates = st.builds(
    Predicate.of,
    st.sampled_from("ab"),
    st.sampled_from([Op.EQ, Op.NEQ, Op.PREFIX, Op.PRESENT]),
    st.sampled_from(["a", "ab", "b"]),
)
other_predicates = st.builds(
    Predicate.of, st.sampled_from("ab"), st.sampled_from([Op.EQ, Op.PRESENT]), st.sampled_from([True, False])
) | st.builds(Predicate.of, st.sampled_from("ab"), st.just(Op.PRESENT), st.none())


def filters() -> st.SearchStrategy[Filter]:
    predicates = st.lists(number_predicates | text_predicates | other_predicates, max_size=3)

    def made(given: list[Predicate]) -> Filter | None:
        try:
            return Filter(given)
        except ContradictionError:
            return None

    return predicates.map(made).filter(lambda each: each is not None)  # type: ignore[return-value]


@given(filters(), st.lists(filters(), max_size=4))
def test_what_is_covered_is_exactly_what_brute_force_says(wanted: Filter, permitted: list[Filter]) -> None:
    outside = [
        publication
        for publication in PUBLICATIONS
        if wanted.matches(publication) and not any(each.matches(publication) for each in permitted)
    ]
    found = coverage(wanted, permitted)
    assert found.is_covered == (not outside), (wanted.to_sql(), [each.to_sql() for each in permitted], outside[:1])
    assert bool(found.missing) == bool(outside)


@given(filters(), st.lists(filters(), max_size=4))
def test_the_permitted_part_is_exactly_the_intersection(wanted: Filter, permitted: list[Filter]) -> None:
    parts = permitted_part(wanted, permitted)
    for publication in PUBLICATIONS:
        is_both = wanted.matches(publication) and any(each.matches(publication) for each in permitted)
        assert any(part.matches(publication) for part in parts) == is_both


@pytest.mark.parametrize(
    ("wanted", "permitted", "missing"),
    [
        ("class = 'A'", "class = 'A' AND v > 5", "class = 'A' AND v <= 5"),
        ("class = 'A'", "class = 'B'", "class = 'A'"),
        ("class = 'A' AND owner IS NOT NULL", "class = 'A' AND owner = 'ann'", "class = 'A' AND owner <> 'ann'"),
        ("v > 1", "v < 5 OR v > 9", "v >= 5 AND v <= 9"),
        ("*", "class = 'A'", "class <> 'A'"),
    ],
)
def test_what_is_missing_is_named(wanted: str, permitted: str, missing: str) -> None:
    assert coverage(Filter.parse(wanted), Filter.parse_all(permitted)).missing == missing


def test_an_attribute_that_must_be_absent_is_named() -> None:
    permitted = [Filter.parse("owner IS NOT NULL")]
    assert coverage(Filter.parse("class = 'A'"), permitted).missing == "class = 'A' without owner"


def test_nothing_is_permitted_by_no_permission() -> None:
    assert coverage(Filter.parse("v = 1"), []).missing == "v = 1"


def test_what_takes_too_long_to_prove_is_not_permitted() -> None:
    names = [f"a{n}" for n in range(8)]
    wanted = Filter([Predicate.of(name, Op.PRESENT, 0) for name in names])
    permitted = [
        Filter([Predicate.of(name, op, 0) for name, op in zip(names, ops, strict=True)])
        for ops in product([Op.GT, Op.LE], repeat=len(names))
    ]
    assert coverage(wanted, permitted).missing == TOO_LONG
