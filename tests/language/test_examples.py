"""An example of a filter satisfies it, and there nearly always is one."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.language.generators import any_predicates
from trimtab.language import ContradictionError, Filter, LanguageError, Predicate, Publication
from trimtab.language.examples import example_of


@given(st.lists(any_predicates, max_size=4))
def test_an_example_satisfies_its_filter_and_is_a_publication(predicates: list[Predicate]) -> None:
    try:
        filter = Filter(predicates)
    except (ContradictionError, LanguageError):
        assume(False)
        raise
    example = example_of(filter)
    if example is not None:
        assert filter.matches(example)
        assert example.keys() == filter.constraints.keys()
        assert Publication(dict(example)) == example


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "[v,isPresent,*]",
        "[v,isPresent,0]",
        "[v,<>,0],[v,<>,1]",
        "[v,>,9223372036854775806]",
        "[v,>,1],[v,<,1.0000000000000004]",
        "[b,neq,true]",
        "[s,neq,''],[s,str-suffix,'x'],[s,str-gt,'y']",
    ],
)
def test_there_is_an_example_even_where_little_is_left(text: str) -> None:
    filter = Filter.parse(text)
    example = example_of(filter)
    assert example is not None and filter.matches(example)


def test_there_is_no_example_where_no_machine_number_is_left() -> None:
    assert example_of(Filter.parse("[v,<,-1.7976931348623157e308]")) is None
    assert example_of(Filter.parse("[v,>,1],[v,<,1.0000000000000002]")) is None
