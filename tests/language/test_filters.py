"""Filters: their normal form, their JSON form, `where`, and that they survive being written and read."""

import copy
import pickle

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.language.generators import any_predicates, bracket_texts, sql_texts, values
from trimtab import (
    ContradictionError,
    Filter,
    LanguageError,
    Predicate,
    Publication,
    any_value,
    between,
    contains,
    eq,
    ge,
    gt,
    le,
    like,
    lt,
    neq,
    not_like,
    prefix,
    present,
    suffix,
)
from trimtab.language import Op, Value
from trimtab.language.constraints import AnyValue, Booleans, Numbers, Strings


def filter_or_skip(predicates: list[Predicate]) -> Filter:
    """The filter of predicates that do not contradict each other."""
    try:
        return Filter(predicates)
    except ContradictionError:
        assume(False)
        raise


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[a,=,1],[b,=,2]", "[b,=,2],[a,=,1]"),
        ("[v,>,1],[v,>,2]", "[v,>,2]"),
        ("[v,>,2],[v,>=,2]", "[v,>,2]"),
        ("[v,>=,2],[v,<>,2]", "[v,>,2]"),
        ("[v,<=,2],[v,<>,2],[v,<>,7]", "[v,<,2]"),
        ("[v,>=,2],[v,<=,2]", "[v,=,2]"),
        ("[v,=,2],[v,>,1],[v,<>,3]", "[v,=,2]"),
        ("[v,<>,3],[v,<>,1],[v,<>,3]", "[v,<>,1],[v,<>,3]"),
        ("[v,isPresent,0],[v,isPresent,7]", "[v,isPresent,-1]"),
        ("[v,isPresent,*],[v,>,2]", "[v,>,2]"),
        ("[v,neq,true]", "[v,eq,false]"),
        ("[v,isPresent,true],[v,eq,true]", "[v,eq,true]"),
        ("[v,str-prefix,'a'],[v,str-prefix,'ab']", "[v,str-prefix,'ab']"),
        ("[v,str-suffix,'b'],[v,str-suffix,'ab']", "[v,str-suffix,'ab']"),
        ("[v,str-contains,'b'],[v,str-prefix,'abc']", "[v,str-prefix,'abc']"),
        ("[v,str-prefix,''],[v,str-contains,'']", "[v,isPresent,'x']"),
        ("[v,str-ge,'']", "[v,isPresent,'']"),
        ("[v,str-le,'']", "[v,eq,'']"),
        ("[v,str-gt,'']", "[v,neq,'']"),
        ("[v,str-ge,'a'],[v,str-le,'a']", "[v,eq,'a']"),
        ("[v,str-ge,'a'],[v,neq,'a']", "[v,str-gt,'a']"),
        (r"[v,str-ge,'ab'],[v,str-lt,E'ab\0']", "[v,eq,'ab']"),
        (r"[v,str-lt,E'\0']", "[v,eq,'']"),
        ("v LIKE '_' AND v >= 'a' AND v < 'b'", "[v,eq,'a']"),
        ("v NOT LIKE '_%'", "[v,eq,'']"),
        ("v LIKE 'a%' AND v NOT LIKE '__%'", "[v,eq,'a']"),
        ("[v,str-le,'a'],[v,neq,'a'],[v,neq,'b']", "[v,str-lt,'a']"),
        ("[v,str-gt,'a'],[v,str-ge,'b'],[v,str-gt,'b']", "[v,str-gt,'b']"),
        ("[v,eq,'a'],[v,str-lt,'b']", "[v,eq,'a']"),
        ("v LIKE 'a%'", "[v,str-prefix,'a']"),
        ("v LIKE '%a'", "[v,str-suffix,'a']"),
        ("v LIKE '%a%'", "[v,str-contains,'a']"),
        ("v LIKE 'a'", "[v,eq,'a']"),
        ("v LIKE '%%'", "[v,isPresent,'']"),
        ("v LIKE ''", "[v,eq,'']"),
        ("v NOT LIKE 'a'", "[v,neq,'a']"),
        ("v NOT LIKE 'a%' AND v <> 'ab'", "v NOT LIKE 'a%'"),
        ("v LIKE 'a%_'", "v LIKE 'a_%'"),
        ("v LIKE '%_%'", "v LIKE '_%'"),
        (r"v LIKE '\a%'", "v LIKE 'a%'"),
        ("v BETWEEN 1 AND 2", "[v,<=,2],[v,>=,1]"),
        ("v NOT IN (2, 1)", "[v,<>,1],[v,<>,2]"),
        ("NOT (v < 1 OR v > 2)", "v BETWEEN 1 AND 2"),
        (" [ v , = , 1 ] ", "v=1"),
        ("*", "[]"),
        (" *\n", "[ ]"),
        ('[["v", "=", 1]]', "v = 1"),
    ],
)
def test_filters_that_ask_for_the_same_in_other_words_are_equal(one: str, other: str) -> None:
    first, second = Filter.parse(one), Filter.parse(other)
    assert first == second
    assert hash(first) == hash(second)
    assert str(first) == str(second)


def test_integers_and_decimals_of_one_value_make_equal_filters() -> None:
    first, second = Filter.parse("[v,=,2],[w,<>,3]"), Filter.parse("[v,=,2.0],[w,<>,3.0]")
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[v,=,1]", "[v,eq,true]"),
        ("[v,=,1]", "[v,eq,'1']"),
        ("[v,=,1]", "[w,=,1]"),
        ("[v,>,1]", "[v,>=,1]"),
        ("*", "[v,*]"),
    ],
)
def test_filters_that_ask_for_something_else_differ(one: str, other: str) -> None:
    assert Filter.parse(one) != Filter.parse(other)
    assert Filter.parse(one) != one


def test_constraints_are_sorted_by_name_and_hold_the_normal_form() -> None:
    found = Filter.parse("[s,str-prefix,'x'],[n,>,1],[n,<>,5],[b,eq,true],[a,*],[e,eq,'y']").constraints
    assert list(found) == ["a", "b", "e", "n", "s"]
    assert found["a"] == AnyValue()
    assert found["b"] == Booleans(true=True, false=False)
    assert found["e"] == Strings(equal="y")
    assert found["n"] == Numbers(low=1, low_open=True, excluded=(5,))
    strings = found["s"]
    assert isinstance(strings, Strings)
    assert [condition.holds("xy") for condition in strings.conditions] == [True]


def test_where_takes_values_and_every_condition() -> None:
    wanted = Filter.where(
        {"class": "STOCK"},
        a=eq(1),
        b=neq(2),
        c=gt(1) & le(9),
        d=ge("x") & lt("y"),
        e=between(1, 2),
        f=prefix("p") & suffix("s") & contains("c"),
        g=like("a_b"),
        h=not_like("%z"),
        i=present(0),
        j=any_value(),
        k=True,
    )
    assert wanted == Filter.parse(
        "class = 'STOCK' AND a = 1 AND b <> 2 AND c > 1 AND c <= 9 AND d >= 'x' AND d < 'y' AND e BETWEEN 1 AND 2 AND "
        "f LIKE 'p%' AND f LIKE '%s' AND f LIKE '%c%' AND g LIKE 'a_b' AND h NOT LIKE '%z' AND i isPresent 0 AND "
        "j IS NOT NULL AND k = true"
    )


def test_where_puts_conditions_on_one_attribute_together() -> None:
    assert Filter.where({"v": gt(1)}, v=lt(5)) == Filter.parse("[v,>,1],[v,<,5]")
    assert Filter.where() == Filter.parse("*")


def test_where_refuses_what_is_no_value() -> None:
    with pytest.raises(LanguageError, match="eq needs a value"):
        Filter.where(v=None)  # type: ignore[arg-type]
    with pytest.raises(ContradictionError, match="no number satisfies"):
        Filter.where(v=gt(5) & lt(1))


def test_the_filter_of_everything_matches_everything() -> None:
    assert Filter.parse("*").matches(Publication())
    assert Filter.parse("*").matches(Publication(v=1))
    assert str(Filter([])) == Filter([]).to_sql() == "*"
    assert Filter([]).to_json() == "[]"


def test_the_json_form_is_an_array_of_predicates() -> None:
    wanted = Filter.parse("[class,eq,'STOCK'],[volume,>,5],[open,isPresent,0],[ok,eq,true],[x,*]")
    assert wanted.to_json() == (
        '[["class","eq","STOCK"],["ok","eq",true],["open","isPresent",0],["volume",">",5],["x","isPresent",null]]'
    )
    assert Filter.from_json(wanted.to_json().encode()) == wanted


@given(st.lists(any_predicates, max_size=5))
@example([Predicate.of("v", Op.PREFIX, "%_\\'")])
@example([Predicate.of("e", Op.EQ, "\0\x1f\x7f\x85\u2028'\\\n")])
@example([Predicate.of("v", Op.EQ, -0.0), Predicate.of("w", Op.EQ, 1e22)])
def test_a_filter_survives_every_way_of_writing_it(predicates: list[Predicate]) -> None:
    wanted = filter_or_skip(predicates)
    assert Filter.parse(str(wanted)) == wanted
    assert Filter.parse(wanted.to_sql()) == wanted
    assert Filter.from_json(wanted.to_json()) == wanted
    assert Filter.parse(wanted.to_json()) == wanted
    assert Filter.from_data(wanted.to_data()) == wanted
    assert Filter(wanted.predicates) == wanted
    assert eval(repr(wanted)) == wanted
    for again in (pickle.loads(pickle.dumps(wanted)), copy.copy(wanted), copy.deepcopy(wanted)):
        assert again == wanted
        assert hash(again) == hash(wanted)


@given(st.data(), st.lists(any_predicates, min_size=1, max_size=4))
def test_both_notations_give_the_same_filter(data: st.DataObject, predicates: list[Predicate]) -> None:
    wanted = filter_or_skip(predicates)
    brackets = ",".join(data.draw(bracket_texts(predicate)) for predicate in predicates)
    sql = " AND ".join(data.draw(sql_texts(predicate)) for predicate in predicates)
    assert Filter.parse(brackets) == wanted
    assert Filter.parse(sql) == wanted
    assert Filter.parse(f"({sql})") == wanted


@given(st.data(), st.lists(any_predicates, max_size=5))
def test_a_filter_matches_what_all_its_predicates_hold_for(data: st.DataObject, predicates: list[Predicate]) -> None:
    wanted = filter_or_skip(predicates)
    names = sorted({predicate.attribute for predicate in predicates})
    operands = [predicate.operand for predicate in predicates if predicate.operand is not None]
    likely = st.one_of(values, st.sampled_from(operands)) if operands else values
    attributes: dict[str, Value] = data.draw(
        st.fixed_dictionaries({}, optional=dict.fromkeys([*names, "other"], likely))
    )
    expected = all(predicate.holds(attributes.get(predicate.attribute)) for predicate in predicates)
    assert wanted.matches(Publication(attributes)) is expected
    assert wanted.matches(attributes) is expected
