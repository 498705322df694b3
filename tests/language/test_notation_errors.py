"""Errors point at the column and say what was expected."""

import pickle

import pytest

from trimtab import ContradictionError, Filter, LanguageError, LimitError, ParseError, Publication
from trimtab.language import Op, Predicate


@pytest.mark.parametrize(
    ("text", "column", "essence"),
    [
        ("", 1, "expected a condition"),
        ("   ", 4, "found the end"),
        ("[", 2, "expected an attribute's name, found the end"),
        ("[]x", 3, "not JSON: JSON is malformed: trailing characters"),
        ("[v]", 3, "',' and an operator"),
        ("[v,]", 4, "expected an operator (eq, neq"),
        ("[v,like,'x']", 4, "found 'like'"),
        ("[v,===,5]", 6, "',' and a value, found '='"),
        ("[v,~,5]", 4, "unexpected character '~'"),
        ("[v,>]", 5, "',' and a value"),
        ("[v,>,]", 6, "expected a value (a number, true, false or a quoted string), found ']'"),
        ("[v,>,5", 7, "expected ']', found the end"),
        ("[v,>,5]]", 8, "',' or the end, found ']'"),
        ("[v,>,5],", 9, "expected '[' of a predicate"),
        ("[v,>,5][w,>,5]", 8, "',' or the end"),
        ("[v,eq,STOCK]", 7, "found 'STOCK'; a string needs quotes"),
        ("[v,>,*]", 6, "any value (*) goes with eq and isPresent"),
        ("[v,<,true]", 6, "< does not apply to a boolean"),
        ("[v,str-prefix,5]", 15, "str-prefix compares strings; put the value in quotes"),
        ("[v,str-lt,5]", 11, "str-lt compares strings; put the value in quotes"),
        ("[v,str-like,'a\\']", 13, "lone backslash"),
        ("[v,=,nan]", 6, "nan is not a value: numbers must be finite"),
        ("[v,<,Infinity]", 6, "numbers must be finite"),
        ("[v,<,-inf]", 6, "-inf is not a value: numbers must be finite"),
        ("v > +NaN", 5, "+NaN is not a value: numbers must be finite"),
        ("v > -information", 5, "unexpected character '-'"),
        ("[v,=,1e400]", 6, "beyond the range of decimals"),
        ("[v,=,9223372036854775808]", 6, "an integer beyond 64 bits"),
        ("[v,=,-9223372036854775809]", 6, "an integer beyond 64 bits"),
        ("[v,=," + "9" * 5000 + "]", 6, "an integer beyond 64 bits"),
        ("[v,=,12x]", 6, "a number that goes on with letters or points"),
        ("[v,=,1.2.3]", 6, "a number that goes on with letters or points"),
        ("[1v,=,5]", 2, "a number that goes on"),
        ("[v,=,\u0663]", 6, "unexpected character"),
        ("[v,eq,'abc]", 7, "no closing ' for this quote"),
        ('[v,eq,"abc]', 7, 'no closing " for this quote'),
        ("[`v,eq,1]", 2, "no closing ` for this quote"),
        ("[``,eq,1]", 2, "an empty name"),
        ("[v,eq,E'abc\\']", 8, "no closing ' for this quote"),
        ("[v,eq,E'a\\qb']", 10, "unknown escape \\q"),
        ("[v,eq,E'\\U00110000']", 9, "is not a character"),
        ("[v,eq,E'\\ud800']", 7, "lone surrogate"),
        ("[v,eq,'a\x00b']", 9, "control character U+0000 in quotes; write E'\\u0000'"),
        ("[v,eq,E'a\x7fb']", 10, "control character U+007F in quotes"),
        ("[v\x01,eq,5]", 3, "control character U+0001"),
        ("[v,eq,'\ud800']", 7, "lone surrogate"),
        ("[`\udfff`,eq,1]", 2, "lone surrogate"),
        ("[\ud800,eq,1]", 2, "unexpected character '\\ud800'"),
        ("[" + "n" * 257 + ",eq,1]", 2, "a name of 257 characters; at most 256"),
        ("v", 2, "expected a comparison (=, <>, <"),
        ("v >", 4, "expected a value"),
        ("v > 5 AND", 10, "expected a condition such as volume > 300000, found the end"),
        ("v > 5 w > 6", 7, "expected AND, OR or the end, found 'w'"),
        ("(v > 5", 7, "expected AND, OR or ')'"),
        ("v > 5)", 6, "expected AND, OR or the end"),
        ("v BETWEEN 1", 12, "AND and the upper end of BETWEEN"),
        ("v BETWEEN * AND 5", 11, "expected a value"),
        ("v BETWEEN true AND false", 11, ">= does not apply to a boolean"),
        ("v IN 5", 6, "'(' and the values of IN"),
        ("v IN ()", 7, "expected a value"),
        ("v IN (1 2)", 9, "',' or ')'"),
        ("v LIKE 5", 8, "compares strings; put the value in quotes"),
        ("v NOT > 5", 7, "IN, LIKE or BETWEEN after NOT"),
        ("v IS 5", 6, "expected NOT NULL"),
        ("v IS NULL", 1, "a filter cannot ask for v to be absent"),
        ("NOT w IS NOT NULL", 5, "a filter cannot ask for w to be absent"),
        ("w = 1 AND NOT v isPresent 0", 15, "cannot ask for v to be absent or of another kind"),
        ("and = 5", 1, "back-quote a name that is a keyword"),
        ("5 < and", 5, "back-quote a name that is a keyword"),
        ("5 isPresent v", 3, "expected a comparison"),
        ("v ~ 5", 3, "unexpected character '~'"),
        ("v = 5; w = 6", 6, "unexpected character ';'"),
        ("v = 1 OR w = 2", 1, "this text means 2 filters; read it with Filter.parse_all"),
        ('[["v", "around", 5]]', 1, "predicate 1: unknown operator 'around'"),
        ('[["v", "=", 5], ["w"]]', 1, "predicate 2 is not [attribute, operator, value]"),
        ('[["v", "str-lt", 5]]', 1, "predicate 1: str-lt compares strings"),
        ('[["v", "=", [5]]]', 1, "predicate 1: list is not a kind of value"),
        ('[[5, "=", 5]]', 1, "an attribute's name must be a string, not int"),
        ('[ ["v", "<", null]]', 1, "str-lt needs a value"),
        ('[["v", "=", NaN]]', 13, "not JSON: JSON is malformed: invalid character"),
        ('[["über", "=", NaN]]', 16, "invalid character"),
        ('[["v", "=", 9223372036854775808]]', 1, "an integer beyond 64 bits"),
        ('[["v", "=", 5]', 1, "not JSON"),
    ],
)
def test_a_filter_that_is_refused(text: str, column: int, essence: str) -> None:
    with pytest.raises(ParseError) as caught:
        Filter.parse(text)
    assert (caught.value.column, essence in caught.value.reason) == (column, True), str(caught.value)[:300]
    assert not caught.value.reason.startswith("column")


@pytest.mark.parametrize(
    ("text", "column", "essence"),
    [
        ("", 1, "expected an attribute with its value, such as volume = 300000, found the end"),
        ("and = 5", 1, "back-quote a name that is a keyword"),
        ("[v]", 3, "',' and a value"),
        ("[v,=,5]", 4, "expected a value"),
        ("[v,5],[w,6],[v,7]", 14, "the attribute v is given twice"),
        ("v = 5, w", 9, "'=' and a value"),
        ("v < 5", 3, "'=' and a value"),
        ("v = 5 OR w = 6", 7, "',', AND or the end"),
        ("v = *", 5, "expected a value"),
        ("[v,*]", 4, "expected a value"),
        ("[v,nan]", 4, "numbers must be finite"),
        ("[v,E'\\udfff']", 4, "lone surrogate"),
        ("[`\ud800`,1],[`\ud800`,1]", 2, "lone surrogate"),
        ('{"v": [[1]]}', 1, "attribute v: an array in an array; arrays hold strings, numbers and booleans"),
        ('{"v": 1', 1, "not JSON"),
        ('{"": 1}', 1, "an attribute's name is empty"),
        ('{"`": 1}', 1, "a control character or a back-quote"),
        ('{"v": 18446744073709551616}', 1, "attribute v: an integer beyond 64 bits"),
    ],
)
def test_a_publication_that_is_refused(text: str, column: int, essence: str) -> None:
    with pytest.raises(ParseError) as caught:
        Publication.parse(text)
    assert (caught.value.column, essence in caught.value.reason) == (column, True), str(caught.value)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("[v,>,5],[v,<,5]", 10, "no number satisfies [v,>,5] and [v,<,5]"),
        ("[v,=,5],[w,=,1],[v,<>,5]", 18, "no number satisfies [v,=,5] and [v,<>,5]"),
        ("v = 5 AND v = 'x'", 11, "[v,=,5] asks for a number and [v,eq,'x'] asks for a string"),
        ("v = true AND v = 1", 14, "[v,eq,true] asks for a boolean and [v,=,1] asks for a number"),
        ("v = true AND v <> true", 14, "no boolean satisfies [v,eq,true] and [v,neq,true]"),
        ("[v,str-prefix,'a'],[v,str-prefix,'b']", 21, "no string satisfies"),
        ("[v,str-prefix,'ab'],[v,str-ge,'b']", 22, "no string satisfies"),
        ("[v,str-lt,'']", 2, "no string satisfies [v,str-lt,'']"),
        ("v NOT LIKE '%'", 1, "no string satisfies [v,str-not-like,'%']"),
        ("v LIKE '_' AND v > 'a' AND v < E'a\\0'", 28, "no string satisfies"),
        ("v BETWEEN 2 AND 1", 1, "no number satisfies [v,>=,2] and [v,<=,1]"),
        ("v > 6 AND v > 7 AND v > 8 AND v > 9 AND v < 1", 41, "and [v,>,9] and 1 more"),
    ],
)
def test_a_contradictory_filter_is_refused_with_the_reason(text: str, column: int, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        Filter.parse(text)
    assert caught.value.column == column
    assert isinstance(caught.value.__cause__, ContradictionError)
    assert caught.value.__cause__.attribute == "v"
    assert reason in caught.value.__cause__.reason


def test_contradictory_alternatives_are_left_out() -> None:
    assert Filter.parse_all("v = 1 AND (v < 0 OR v > 0)") == (Filter.parse("v = 1"),)
    with pytest.raises(ParseError, match="column 15: contradictory filter"):
        Filter.parse_all("(v < 0) AND ((v > 1) OR (v > 2))")


def test_a_long_contradiction_is_told_shortly() -> None:
    with pytest.raises(ContradictionError) as caught:
        Filter([Predicate.of("v", Op.EQ, "a" * 4000), Predicate.of("v", Op.EQ, "b" * 4000)])
    assert len(str(caught.value)) < 300


def test_the_caret_stands_under_the_column_of_a_long_text() -> None:
    text = "[v,eq,'" + "x" * 500 + "'],[w,~,5],[z,eq,'" + "y" * 500 + "']"
    with pytest.raises(ParseError) as caught:
        Filter.parse(text)
    shown, caret = caught.value.pointer().split("\n")
    assert len(shown) <= 72
    assert shown[caret.index("^")] == "~"


def test_the_pointer_shows_no_character_that_a_terminal_acts_on_or_cannot_write() -> None:
    with pytest.raises(ParseError) as caught:
        Filter.parse("[\x1b,\ud800 \u202e]")
    assert caught.value.pointer() == "[ ,   ]\n ^"


@pytest.mark.parametrize(
    "error", [ParseError("[a", 3, "expected ','"), ContradictionError("a", "no number"), LimitError("too long")]
)
def test_errors_survive_pickling(error: LanguageError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(LanguageError, match="not from bytes"):
        Filter.parse(b"[v,=,5]")  # type: ignore[arg-type]
    with pytest.raises(LanguageError, match="not from NoneType"):
        Publication.parse(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1j, b"x", object()])
def test_what_is_no_value_is_refused(value: object) -> None:
    with pytest.raises(LanguageError, match="is not a kind of value"):
        Predicate.of("v", Op.EQ, value)
    if not isinstance(value, list | dict):  # these are flattened
        with pytest.raises(LanguageError, match="is not a kind of value"):
            Publication(v=value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 2**63, -(2**63) - 1, "\ud800"])
def test_values_without_a_portable_form_are_refused(value: object) -> None:
    with pytest.raises(LanguageError):
        Publication(v=value)
    with pytest.raises(LanguageError):
        Predicate.of("v", Op.EQ, value)
    with pytest.raises(LanguageError):
        Filter.from_data([["v", "eq", value]])


@pytest.mark.parametrize("name", ["", "a`b", "a\nb", "\x7f", "\ud800", 5, None, "n" * 257])
def test_names_that_no_notation_can_write_are_refused(name: object) -> None:
    with pytest.raises(LanguageError):
        Publication({name: 1})  # type: ignore[dict-item]
    with pytest.raises(LanguageError):
        Filter.from_data([[name, "=", 1]])
