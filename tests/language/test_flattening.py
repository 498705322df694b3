"""Nested values: what attributes they become, and what is refused."""

from __future__ import annotations

import pytest

from trimtab import Filter, LanguageError, LimitError, Publication


def test_objects_inside_objects_become_names_with_dots() -> None:
    order = Publication.from_json('{"class": "ORDER", "address": {"city": "Ayr", "geo": {"x": 1.5}}}')
    assert dict(order) == {"class": "ORDER", "address.city": "Ayr", "address.geo.x": 1.5}
    assert Filter.parse("address.city = 'Ayr' AND address.geo.x > 1").matches(order)


def test_elements_of_an_array_are_numbered_from_zero() -> None:
    assert dict(Publication(tags=["new", "red"], sizes=(1, 2.5, True))) == {
        "tags.0": "new",
        "tags.1": "red",
        "sizes.0": 1,
        "sizes.1": 2.5,
        "sizes.2": True,
    }


def test_null_means_absent_and_keeps_its_place_in_an_array() -> None:
    assert dict(Publication.parse('{"a": null, "b": {"c": null}, "d": [null, 1], "e": [], "f": {}, "g": 1}')) == {
        "d.1": 1,
        "g": 1,
    }


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"a": {"b": 1}, "a.b": 2}, "the attribute a.b is given twice"),
        ({"a": [{"b": 1}]}, "attribute a: an object in an array; arrays hold strings, numbers and booleans"),
        ({"a": {"b": [[1]]}}, "attribute a.b: an array in an array; arrays hold strings, numbers and booleans"),
        ({"a": {1: 2}}, "attribute a: the names inside must be strings, not int"),
        ({"a": {"b": b""}}, "attribute a.b: bytes is not a kind of value; use a string, a number or a boolean"),
        ({"a": {"": 1}, "b": {"c`": 1}}, "the attribute name 'b.c`' has a control character or a back-quote"),
    ],
)
def test_what_cannot_be_flattened_is_refused_by_name(values: dict[str, object], reason: str) -> None:
    with pytest.raises(LanguageError) as refused:
        Publication(values)
    assert str(refused.value) == reason


def test_nesting_and_attributes_have_limits() -> None:
    deep: dict[str, object] = {"a": 1}
    for _ in range(70):
        deep = {"a": deep}
    with pytest.raises(LimitError, match="at most 64 are allowed"):
        Publication(deep)
    with pytest.raises(LimitError, match="more than 1,024 attributes"):
        Publication(many=list(range(2_000)))


def test_a_text_or_a_number_is_no_publication() -> None:
    with pytest.raises(
        TypeError, match=r"from names and their values, not from a text; read it with Publication\.parse"
    ):
        Publication("class = 'STOCK'")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not from int"):
        Publication(5)  # type: ignore[arg-type]
