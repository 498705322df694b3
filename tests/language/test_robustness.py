"""Whatever is given as text, the answer is a filter, a publication or a `LanguageError`."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.language.generators import any_predicates, bracket_texts, sql_texts
from trimtab import Filter, LanguageError, Predicate, Publication

PIECES = [
    *(
        "[",
        "]",
        "(",
        ")",
        ",",
        "*",
        "'",
        '"',
        "`",
        "E'",
        "\\",
        "%",
        "_",
        "=",
        "<",
        ">=",
        "<>",
        "!",
        "-",
        ".",
        " ",
        "\n",
        "\0",
    ),
    *("v", "class", "and", "or", "not", "between", "in", "like", "is", "null", "true", "isPresent", "str-prefix", "eq"),
    *("5", "-1e9", "1e400", "9223372036854775808", "nan", "'x'", "'%a_'", "{", "}", ":", "\ud800", "é", "\u2028"),
]


def read_everything(text: str) -> None:
    """Read a text in every way; anything but a `LanguageError` fails the test."""
    for read in (Filter.parse, Filter.parse_all, Filter.from_json, Publication.parse, Publication.from_json):
        try:
            read(text)
        except LanguageError as error:
            str(error).encode()


@settings(max_examples=200)
@given(st.text(max_size=60))
@example("[v,=,\x1c5]")
@example("\x1f*")
@example("[[")
@example("E'")
@example("v=E'\\")
def test_any_text_is_read_or_refused(text: str) -> None:
    read_everything(text)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_row_of_pieces_is_read_or_refused(text: str) -> None:
    read_everything(text)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_as_json_or_refused(data: bytes) -> None:
    for read in (Filter.from_json, Publication.from_json):
        try:
            read(data)
        except LanguageError as error:
            str(error).encode()


@given(st.data(), st.lists(any_predicates, min_size=1, max_size=3))
def test_a_filter_with_a_slip_is_read_or_refused(data: st.DataObject, predicates: list[Predicate]) -> None:
    write = data.draw(st.sampled_from([bracket_texts, sql_texts]))
    separator = "," if write is bracket_texts else " AND "
    text = separator.join(data.draw(write(predicate)) for predicate in predicates)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 5)))
    read_everything(text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:])


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@given(json_values)
def test_any_decoded_json_makes_a_filter_or_is_refused(data: object) -> None:
    try:
        Filter.from_data(data)
    except LanguageError as error:
        str(error).encode(errors="strict")


@pytest.mark.parametrize("text", ["[v,=,5]", "v = 5 AND w LIKE 'a%' OR NOT x IN (1, 2)", "[v,5],[w,'x']", '{"v": [1]}'])
def test_every_beginning_of_a_text_is_read_or_refused(text: str) -> None:
    for end in range(len(text)):
        read_everything(text[:end])
