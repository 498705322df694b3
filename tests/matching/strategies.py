"""Generated values, filters and publications: few and closely spaced, so that they meet often."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from trimtab.language import ContradictionError, Filter, Op, Predicate, Value

NAMES: Final = ("a", "b", "c", "größe")

NUMBERS: Final[tuple[int | float, ...]] = (
    *range(-2, 4),
    0.0,
    -0.0,
    0.1,
    1.0,
    1.5,
    2**53 - 1,
    2**53,
    2**53 + 1,
    2**53 + 2,
    float(2**53),
    float(2**53 + 2),
    2**63 - 1,
    float(2**63),
    -(2**63),
    float(-(2**63)),
    5e-324,
    -1.7976931348623157e308,
    1.7976931348623157e308,
)
"""Small numbers, both zeros, the ends of the ranges, and integers that decimals cannot tell apart."""

_LETTERS: Final = "ab\0é\uffff😀%_"
_COMPARING: Final = (Op.EQ, Op.NEQ, Op.LT, Op.LE, Op.GT, Op.GE)
_FITTING: Final = (Op.PREFIX, Op.SUFFIX, Op.CONTAINS, Op.LIKE, Op.NOT_LIKE)

numbers: SearchStrategy[int | float] = st.sampled_from(NUMBERS)
texts: SearchStrategy[str] = st.text(_LETTERS, max_size=3)
values: SearchStrategy[Value] = st.one_of(numbers, texts, st.booleans())
names: SearchStrategy[str] = st.sampled_from(NAMES)

predicates: SearchStrategy[Predicate] = st.one_of(
    st.builds(Predicate.of, names, st.sampled_from((*_COMPARING, Op.PRESENT)), numbers),
    st.builds(Predicate.of, names, st.sampled_from((*_COMPARING, Op.PRESENT)), texts),
    st.builds(Predicate.of, names, st.sampled_from(_FITTING), texts),
    st.builds(Predicate.of, names, st.sampled_from((Op.EQ, Op.NEQ, Op.PRESENT)), st.booleans()),
    st.builds(Predicate.of, names, st.just(Op.PRESENT), st.none()),
)

SAME_IN_OTHER_WORDS: Final = tuple(
    Filter(predicates)
    for predicates in (
        [Predicate.of("a", Op.PREFIX, "a")],
        [Predicate.of("a", Op.GE, "a"), Predicate.of("a", Op.LT, "b")],
        [Predicate.of("a", Op.PREFIX, "a"), Predicate.of("a", Op.LT, "b")],
        [Predicate.of("a", Op.PREFIX, "a"), Predicate.of("a", Op.LT, "c")],
        [Predicate.of("a", Op.EQ, "ab")],
        [Predicate.of("a", Op.GE, "ab"), Predicate.of("a", Op.LT, "ab\0")],
        [Predicate.of("a", Op.LIKE, "a_"), Predicate.of("a", Op.LIKE, "_b")],
        [Predicate.of("a", Op.LIKE, "_b"), Predicate.of("a", Op.PREFIX, "a")],
        [Predicate.of("a", Op.PRESENT, "")],
        [Predicate.of("a", Op.GE, "")],
    )
)
"""Filters that are equal in meaning to others here although their normal forms differ."""


@st.composite
def _any_filters(draw: st.DrawFn) -> Filter:
    """A filter of up to four predicates; one that would be a contradiction is left out."""
    chosen: list[Predicate] = []
    for predicate in draw(st.lists(predicates, max_size=4)):
        try:
            Filter([*chosen, predicate])
        except ContradictionError:
            continue
        chosen.append(predicate)
    return Filter(chosen)


filters: SearchStrategy[Filter] = st.one_of(_any_filters(), st.sampled_from(SAME_IN_OTHER_WORDS))
publications: SearchStrategy[dict[str, Value]] = st.dictionaries(st.sampled_from((*NAMES, "d")), values, max_size=5)
