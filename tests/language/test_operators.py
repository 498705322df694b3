"""What every operator means, in both notations and in JSON."""

import pytest

from trimtab import Filter, Publication
from trimtab.language import Kind, Op, Predicate, Value

NUMBER_CASES: list[tuple[str, list[Value], list[Value]]] = [
    ("=", [5, 5.0], [4, 6, "5", True]),
    ("==", [5], [4]),
    ("eq", [5, 5.0], [4]),
    ("<>", [4, 5.5], [5, 5.0, "4", "x", True]),
    ("!=", [4], [5]),
    ("neq", [4], [5]),
    ("<", [4, 4.99, -1], [5, 6, "4", False]),
    ("<=", [4, 5, 5.0], [5.01, "5"]),
    (">", [6, 5.01], [5, 4, "6", True]),
    (">=", [5, 6], [4.99, "6"]),
    ("isPresent", [5, 0, -1.5], ["5", True]),
]
STRING_CASES: list[tuple[str, list[Value], list[Value]]] = [
    ("eq", ["Mo"], ["mo", "Mo ", "", 5]),
    ("=", ["Mo"], ["M"]),
    ("neq", ["mo", "", "Moo"], ["Mo", 5, True]),
    ("<>", ["mo"], ["Mo"]),
    ("!=", ["mo"], ["Mo"]),
    ("str-lt", ["", "M", "Mn"], ["Mo", "Mo\0", "N", 1]),
    ("<", ["M"], ["Mo"]),
    ("str-le", ["", "M", "Mo"], ["Mo\0", "N"]),
    ("<=", ["Mo"], ["N"]),
    ("str-gt", ["Mo\0", "Mp", "m", "é"], ["Mo", "M", 9]),
    (">", ["N"], ["Mo"]),
    ("str-ge", ["Mo", "Mo\0", "Mp"], ["M", "L"]),
    (">=", ["Mo"], ["M"]),
    ("str-prefix", ["Mo", "Moo"], ["M", "xMo", 1]),
    ("str-suffix", ["Mo", "xMo"], ["o", "Mox"]),
    ("str-postfix", ["Mo", "xMo"], ["o", "Mox"]),
    ("str-contains", ["Mo", "xMox"], ["M-o", "mo"]),
    ("str-like", ["Mo"], ["xMo"]),
    ("str-not-like", ["xMo", ""], ["Mo", 5]),
    ("isPresent", ["Mo", "", "other"], [5, True]),
]


def assert_matches_just(text: str, matching: list[Value], others: list[Value]) -> None:
    wanted = Filter.parse(text)
    assert [value for value in matching if not wanted.matches(Publication(v=value))] == []
    assert [value for value in others if wanted.matches(Publication(v=value))] == []
    assert not wanted.matches(Publication(w=5))
    assert not wanted.matches(Publication())


@pytest.mark.parametrize(("operator", "matching", "others"), NUMBER_CASES)
def test_an_operator_on_numbers(operator: str, matching: list[Value], others: list[Value]) -> None:
    assert_matches_just(f"[v,{operator},5]", matching, others)
    assert_matches_just(f"v {operator} 5", matching, others)
    assert Filter.from_data([["v", operator, 5]]) == Filter.parse(f"[v,{operator.upper()},5.0]")


@pytest.mark.parametrize(("operator", "matching", "others"), STRING_CASES)
def test_an_operator_on_strings(operator: str, matching: list[Value], others: list[Value]) -> None:
    assert_matches_just(f"[v,{operator},'Mo']", matching, others)
    assert_matches_just(f'v {operator} "Mo"', matching, others)
    assert Filter.from_data([["v", operator, "Mo"]]) == Filter.parse(f"[v,{operator.upper()},E'Mo']")


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("[v,eq,true]", [True], [False, 1, "true"]),
        ("v = FALSE", [False], [True, 0]),
        ("[v,neq,true]", [False], [True, 0, "x"]),
        ("v <> false", [True], [False, 1]),
        ("[v,isPresent,true]", [True, False], [1, "true"]),
        ("[v,isPresent,false]", [True, False], [0, ""]),
    ],
)
def test_an_operator_on_booleans(text: str, matching: list[Value], others: list[Value]) -> None:
    assert_matches_just(text, matching, others)


@pytest.mark.parametrize(
    "text",
    [
        "[v,isPresent,*]",
        "[v,isPresent]",
        "[v,eq,*]",
        "[v,=,*]",
        "[v,*]",
        "v IS NOT NULL",
        "v = *",
        "NOT v IS NULL",
        '[["v","isPresent",null]]',
        '[["v","isPresent"]]',
        '[["v","eq",null]]',
    ],
)
def test_any_value_needs_presence_only(text: str) -> None:
    assert_matches_just(text, [0, "", False, 2.5], [])


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("v BETWEEN 2 AND 4", [2, 3.5, 4], [1.99, 4.01, "3"]),
        ("v BETWEEN 'b' AND 'd'", ["b", "cat", "d"], ["a", "da", 3]),
        ("v NOT IN (1, 2)", [0, 3], [1, 2.0, "0"]),
        ("NOT v BETWEEN 2 AND 2 AND v > 0", [1], [2, "1"]),
        ("v LIKE 'a%'", ["a", "abc"], ["ba", 1]),
        ("v LIKE '_a'", ["aa", "ba"], ["a", "aaa"]),
        (r"v LIKE '50\%'", ["50%"], ["50x", "50"]),
        ("v NOT LIKE 'a%'", ["", "b"], ["a", 1]),
        ("NOT v LIKE 'a%b'", ["ab ", "b"], ["ab", "axb"]),
        ("NOT v str-prefix '5%'", ["5x", ""], ["5%", "5%x", 5]),
        ("NOT v str-suffix '_'", ["x", ""], ["x_", 5]),
        ("NOT v str-contains '\\'", ["x"], ["a\\b"]),
        ("NOT NOT v > 3", [4], [3]),
        ("NOT (v <= 3 OR v >= 5)", [4, 3.5], [3, 5, "4"]),
        ("3 < v AND 5 >= v", [4, 5], [3, 6]),
        ("'b' = v", ["b"], ["c"]),
    ],
)
def test_the_words_of_the_notation_for_people(text: str, matching: list[Value], others: list[Value]) -> None:
    if " OR " not in text and "NOT v BETWEEN" not in text:
        assert_matches_just(text, matching, others)
    filters = Filter.parse_all(text)
    assert [v for v in matching if not any(f.matches({"v": v}) for f in filters)] == []
    assert [v for v in others if any(f.matches({"v": v}) for f in filters)] == []


def test_integers_and_decimals_compare_exactly_beyond_53_bits() -> None:
    wanted = Filter.parse(f"[v,>,{2.0**53!r}]")
    assert wanted.matches(Publication(v=2**53 + 1))
    assert not wanted.matches(Publication(v=2**53))


def test_a_predicate_names_its_kind() -> None:
    kinds = [Predicate.of("v", Op.PRESENT, operand).kind for operand in (1, "x", True, None)]
    assert kinds == [Kind.NUMBER, Kind.STRING, Kind.BOOLEAN, None]
    assert [kind.noun for kind in Kind] == ["a number", "a string", "a boolean"]


def test_strings_are_ordered_by_code_point_as_their_utf8_bytes_are() -> None:
    assert Filter.parse("[v,str-gt,'\uffff']").matches(Publication(v="\U00010000"))
