"""The language of A. Cheung's thesis (2006), section 2.1.

Section 2.1.2: the example publication, advertisement and subscription. Section 2.1.3: the filters of Figure 2.2. The
covering subscription set and Figure 2.1 have a file of their own.
"""

import pytest

from trimtab import Filter, Publication, Relation, relate

PUBLICATION = Publication.parse(
    "[class,'STOCK'],[symbol,'YHOO'],[open,30.25],[high,31.75],[low,30.00],[close,31.62],[volume,203400],[date,'1-May-96']"
)
SUBSCRIPTION = Filter.parse("[class,eq,'STOCK'],[symbol,eq,'YHOO'],[volume,>,300000]")
ADVERTISEMENT = Filter.parse(
    "[class,eq,'STOCK'],[symbol,eq,'YHOO'],[open,isPresent,0],[high,isPresent,0],[low,isPresent,0],[close,isPresent,0],"
    "[volume,isPresent,0],[date,isPresent,'00-00-00']"
)


def test_the_example_publication_has_strings_and_numbers() -> None:
    assert len(PUBLICATION) == 8
    assert [type(value) for value in PUBLICATION.values()] == [str, str, float, float, float, float, int, str]


@pytest.mark.parametrize(("volume", "expected"), [(203400, False), (300000, False), (300001, True)])
def test_the_example_subscription_wants_volumes_above_its_limit(volume: int, expected: bool) -> None:
    assert SUBSCRIPTION.matches(Publication({**PUBLICATION, "volume": volume})) is expected


def test_the_example_advertisement_announces_the_example_publication() -> None:
    assert ADVERTISEMENT.announces(PUBLICATION)
    assert ADVERTISEMENT.announces(Publication({"class": "STOCK", "symbol": "YHOO"}))
    assert not ADVERTISEMENT.announces(Publication({**PUBLICATION, "currency": "USD"}))
    assert not ADVERTISEMENT.announces(Publication({**PUBLICATION, "symbol": "IBM"}))


def test_presence_is_asked_for_with_a_kind() -> None:
    assert not ADVERTISEMENT.announces(Publication({**PUBLICATION, "date": 19960501}))
    assert not ADVERTISEMENT.announces(Publication({**PUBLICATION, "volume": "203400"}))


def test_the_example_subscription_travels_towards_the_example_advertisement() -> None:
    assert ADVERTISEMENT.intersects(SUBSCRIPTION)
    assert not ADVERTISEMENT.intersects(Filter.parse("[class,eq,'STOCK'],[symbol,eq,'IBM']"))
    assert not ADVERTISEMENT.intersects(Filter.parse("[class,eq,'STOCK'],[exchange,eq,'NYSE']"))


def test_figure_2_2_the_second_subscription_is_covered_by_the_first() -> None:
    advertisement, first, second = Filter.parse("a > 1"), Filter.parse("a > 5"), Filter.parse("a > 9")
    assert advertisement.intersects(first)
    assert advertisement.intersects(second)
    assert relate(first, second) is Relation.COVERS
