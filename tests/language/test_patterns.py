"""LIKE patterns against a definition that a reader can check."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.language.generators import patterns_over
from tests.language.oracles import naive_like
from trimtab import LanguageError
from trimtab.language.patterns import Pattern, Shape

texts = st.text("ab%_\\\n", max_size=7)


@given(patterns_over("ab\n", max_size=7), texts)
def test_a_pattern_matches_as_the_definition_says(pattern: str, text: str) -> None:
    assert Pattern.parse(pattern).matches(text) is naive_like(pattern, text)


@given(patterns_over("ab", max_size=7), texts)
def test_the_normal_form_means_the_same(pattern: str, text: str) -> None:
    normal = Pattern.parse(pattern).text
    assert naive_like(normal, text) is naive_like(pattern, text)
    assert Pattern.parse(normal).text == normal
    assert len(normal) <= len(pattern)


@given(st.sampled_from([Shape.PREFIX, Shape.SUFFIX, Shape.CONTAINS, Shape.EXACT]), texts, texts)
def test_the_pattern_of_a_shape_matches_as_the_shape_says(shape: Shape, literal: str, text: str) -> None:
    expected = {
        Shape.PREFIX: text.startswith(literal),
        Shape.SUFFIX: text.endswith(literal),
        Shape.CONTAINS: literal in text,
        Shape.EXACT: text == literal,
    }
    pattern = Pattern.of(shape, literal)
    assert pattern.matches(text) is naive_like(pattern.text, text) is expected[shape]


@pytest.mark.parametrize(
    ("text", "shape", "literal"),
    [
        ("", Shape.EXACT, ""),
        ("ab", Shape.EXACT, "ab"),
        ("%", Shape.ANY, ""),
        ("%%", Shape.ANY, ""),
        ("ab%", Shape.PREFIX, "ab"),
        ("%ab", Shape.SUFFIX, "ab"),
        ("%ab%", Shape.CONTAINS, "ab"),
        (r"\%%", Shape.PREFIX, "%"),
        ("a%b", Shape.GENERAL, ""),
        ("_", Shape.GENERAL, ""),
        ("%_", Shape.GENERAL, ""),
    ],
)
def test_simple_shapes_are_recognised(text: str, shape: Shape, literal: str) -> None:
    pattern = Pattern.parse(text)
    assert (pattern.shape, pattern.literal) == (shape, literal)


def test_a_lone_backslash_at_the_end_is_refused() -> None:
    with pytest.raises(LanguageError, match="lone backslash"):
        Pattern.parse("a%\\")


def test_the_parts_of_a_pattern_do_not_overlap() -> None:
    assert not Pattern.parse("aba%aba").matches("ababa")
    assert Pattern.parse("aba%aba").matches("abaaba")
    assert not Pattern.parse("%ab%ba%").matches("aba")
