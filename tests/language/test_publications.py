"""Publications: their notations, and that they survive being written and read."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.language.generators import names, values
from trimtab import LanguageError, Publication
from trimtab.language import Value

QUOTE = Publication({"class": "STOCK"}, symbol="YHOO", volume=203400, open=30.25, live=True)


@pytest.mark.parametrize(
    "text",
    [
        "[class,'STOCK'],[symbol,'YHOO'],[volume,203400],[open,30.25],[live,true]",
        " [ class , \"STOCK\" ] , [`symbol`,E'YHOO'],[volume,+203400],[open,3025e-2],[live,TRUE]\n",
        "class = 'STOCK', symbol = 'YHOO', volume = 203400, open = 30.250, live = true",
        "class eq 'STOCK' AND symbol = 'YHOO' AND volume = 203400 AND open = 30.25 and live = true",
        '{"class": "STOCK", "symbol": "YHOO", "volume": 203400, "open": 30.25, "live": true}',
    ],
)
def test_a_publication_in_each_notation(text: str) -> None:
    assert Publication.parse(text) == QUOTE


def test_a_publication_is_a_mapping_that_does_not_change() -> None:
    assert (QUOTE["volume"], QUOTE.get("none"), len(QUOTE), list(QUOTE)[:2]) == (203400, None, 5, ["class", "symbol"])
    assert dict(QUOTE) == QUOTE.values_by_name
    with pytest.raises(AttributeError, match="does not change"):
        QUOTE.values_by_name = {}


def test_numbers_are_equal_across_integers_and_decimals_but_not_to_booleans() -> None:
    assert Publication(v=1) == Publication(v=1.0)
    assert hash(Publication(v=1)) == hash(Publication(v=1.0))
    assert Publication(v=1) != Publication(v=True)
    assert Publication(v=1) != {"v": 1}


def test_an_attribute_is_given_once() -> None:
    with pytest.raises(LanguageError, match="the attribute v is given twice"):
        Publication({"v": 1, "w": 2}, v=1)


def test_json_that_is_no_object_is_refused() -> None:
    with pytest.raises(LanguageError, match="an object of attributes"):
        Publication.from_json("[1]")
    with pytest.raises(LanguageError, match="not JSON"):
        Publication.from_json(b"\xff")


def test_trusted_values_are_wrapped_as_they_are() -> None:
    attributes: dict[str, Value] = {"v": 1}
    assert Publication.trusted(attributes).values_by_name is attributes


@given(st.dictionaries(names, values, max_size=5))
def test_a_publication_survives_every_way_of_writing_it(attributes: dict[str, Value]) -> None:
    publication = Publication(attributes)
    assert Publication.parse(str(publication)) == publication
    assert Publication.parse(publication.to_json()) == publication
    assert Publication.from_json(publication.to_json().encode()) == publication
    assert eval(repr(publication)) == publication
    assert pickle.loads(pickle.dumps(publication)) == publication
