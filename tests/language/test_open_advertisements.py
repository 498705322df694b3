"""Open advertisements: what they announce, intersect and cover, and how they are written."""

from __future__ import annotations

import pickle

import pytest

from trimtab import Filter
from trimtab.matching.announcements import Announcements

STOCK = Filter.parse("class = 'STOCK' AND volume > 5")


def test_an_open_advertisement_admits_any_further_attribute() -> None:
    assert STOCK.opened().announces({"class": "STOCK", "price": 5, "note": "x"})
    assert not STOCK.announces({"class": "STOCK", "price": 5})
    assert not STOCK.opened().announces({"class": "BOND", "price": 5})


def test_it_intersects_subscriptions_to_attributes_that_it_does_not_name() -> None:
    wanted = Filter.parse("class = 'STOCK' AND price > 5")
    assert STOCK.opened().intersects(wanted) and not STOCK.intersects(wanted)
    assert not STOCK.opened().intersects(Filter.parse("class = 'BOND'"))


@pytest.mark.parametrize(
    ("outer", "inner", "covers"),
    [
        ("[a,>,0]", "[a,>,5]", True),
        ("[a,>,0]", "[a,>,5],[b,=,1]", False),
        ("[a,>,0],...", "[a,>,5],[b,=,1]", True),
        ("[a,>,0],...", "[b,=,1]", True),
        ("[a,>,0],...", "[b,=,1],...", False),
        ("[a,isPresent,*],...", "[b,=,1],...", True),
        ("[a,>,0],...", "[a,>,5],...", True),
        ("[a,>,0]", "[a,>,5],...", False),
        ("*,...", "[a,>,5],...", True),
    ],
)
def test_covering_of_advertisements_knows_what_is_open(outer: str, inner: str, covers: bool) -> None:
    def read(text: str) -> Filter:
        filter = Filter.parse(text.removesuffix(",..."))
        return filter.opened() if text.endswith(",...") else filter

    assert read(outer).announces_all(read(inner)) is covers
    assert str(read(outer)) == outer


def test_it_is_another_value_than_the_closed_one() -> None:
    assert STOCK.opened() != STOCK
    assert STOCK.opened() == STOCK.opened() and hash(STOCK.opened()) == hash(STOCK.opened())
    assert STOCK.opened().closed() == STOCK
    assert repr(STOCK.opened()) == """Filter.parse("[class,eq,'STOCK'],[volume,>,5]").opened()"""


def test_it_survives_json_and_pickling() -> None:
    assert Filter.from_json(STOCK.opened().to_json()) == STOCK.opened()
    assert pickle.loads(pickle.dumps(STOCK.opened())) == STOCK.opened()
    assert Filter.from_json('["*"]') == Filter([]).opened()


def test_announcements_of_a_client_ask_open_ones_about_what_they_name_only() -> None:
    mine = Announcements()
    mine.add("a1", STOCK.opened())
    assert mine.announce({"class": "STOCK", "price": 5})
    assert not mine.announce({"class": "STOCK", "volume": 1})
    assert mine.objection({"class": "STOCK", "volume": 1}).endswith(": [volume,1] is not announced")


def test_a_refusal_names_what_is_missing_in_the_nearest_advertisement() -> None:
    mine = Announcements()
    mine.add("a1", Filter.parse("class = 'STOCK'"))
    mine.add("a2", Filter.parse("class = 'BOND' AND rate > 0 AND issuer isPresent ''"))
    assert mine.objection({"class": "BOND", "rate": 2, "price": 1}) == (
        "no advertisement of this client announces the publication: the attribute price is not announced"
    )
    assert mine.objection(dict.fromkeys("abcde", 1)) == (
        "no advertisement of this client announces the publication: the attributes a, b, c and 2 more are not announced"
    )
