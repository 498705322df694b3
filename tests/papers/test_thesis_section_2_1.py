"""Section 2.1 of the thesis on load balancing in content-based publish/subscribe: its language, covering and routing.

Section 2.1.2: the example publication, advertisement and subscription, the covering subscription set (CSS) of five
subscriptions, and Figure 2.1, their poset. Section 2.1.3: the filters of Figure 2.2.
"""

from itertools import permutations

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

STOCK = Filter.parse("[class,eq,'STOCK']")
STOCK_YHOO = Filter.parse("[class,eq,'STOCK'],[symbol,eq,'YHOO']")
STOCK_VOLUME = Filter.parse("[class,eq,'STOCK'],[volume,>,1000]")
SPORTS = Filter.parse("[class,eq,'SPORTS']")
SPORTS_RACING = Filter.parse("[class,eq,'SPORTS'],[type,eq,'RACING']")
SUBSCRIPTIONS = [STOCK, STOCK_YHOO, STOCK_VOLUME, SPORTS, SPORTS_RACING]


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


def test_the_covering_subscription_set_holds_the_most_general_subscriptions() -> None:
    covering = [f for f in SUBSCRIPTIONS if not any(other.covers(f) for other in SUBSCRIPTIONS if other != f)]
    assert covering == [STOCK, SPORTS]


def test_figure_2_1_the_poset_of_the_five_subscriptions() -> None:
    children = {
        parent: [child for child in SUBSCRIPTIONS if child != parent and parent.covers(child)]
        for parent in SUBSCRIPTIONS
    }
    assert children == {
        STOCK: [STOCK_YHOO, STOCK_VOLUME],
        STOCK_YHOO: [],
        STOCK_VOLUME: [],
        SPORTS: [SPORTS_RACING],
        SPORTS_RACING: [],
    }


def test_figure_2_1_siblings_intersect_or_are_disjoint() -> None:
    assert relate(STOCK_YHOO, STOCK_VOLUME) is Relation.INTERSECTS
    assert relate(STOCK, SPORTS) is Relation.DISJOINT
    assert relate(STOCK_VOLUME, SPORTS_RACING) is Relation.DISJOINT


def test_figure_2_1_no_two_subscriptions_are_equal() -> None:
    assert Relation.EQUAL not in {relate(one, other) for one, other in permutations(SUBSCRIPTIONS, 2)}


def test_figure_2_2_the_second_subscription_is_covered_by_the_first() -> None:
    advertisement, first, second = Filter.parse("a > 1"), Filter.parse("a > 5"), Filter.parse("a > 9")
    assert advertisement.intersects(first)
    assert advertisement.intersects(second)
    assert relate(first, second) is Relation.COVERS
