"""The covering subscription set and the poset of Figure 2.1 (A. Cheung, thesis, 2006, section 2.1.2)."""

from typing import Final

import pytest

from trimtab import CoveringSet, Filter, relate
from trimtab.matching import CoveringChange

SUBSCRIPTIONS: Final = {
    "stock": "[class,eq,'STOCK']",
    "stock-yhoo": "[class,eq,'STOCK'],[symbol,eq,'YHOO']",
    "stock-volume": "[class,eq,'STOCK'],[volume,>,1000]",
    "sports": "[class,eq,'SPORTS']",
    "sports-racing": "[class,eq,'SPORTS'],[type,eq,'RACING']",
}


@pytest.fixture
def broker_subscriptions() -> CoveringSet:
    """The five subscriptions of the example, in its order."""
    subscriptions = CoveringSet()
    for name, text in SUBSCRIPTIONS.items():
        subscriptions.add(name, Filter.parse(text))
    return subscriptions


def test_each_pair_of_subscriptions_relates_as_the_figure_shows() -> None:
    filters = [Filter.parse(text) for text in SUBSCRIPTIONS.values()]
    assert [[relate(one, other).value for other in filters] for one in filters] == [
        ["equal", "covers", "covers", "disjoint", "disjoint"],
        ["covered", "equal", "intersects", "disjoint", "disjoint"],
        ["covered", "intersects", "equal", "disjoint", "disjoint"],
        ["disjoint", "disjoint", "disjoint", "equal", "covers"],
        ["disjoint", "disjoint", "disjoint", "covered", "equal"],
    ]


def test_the_covering_set_has_the_two_classes(broker_subscriptions: CoveringSet) -> None:
    assert broker_subscriptions.covering() == ["stock", "sports"]


def test_the_covering_set_does_not_depend_on_the_order_of_addition() -> None:
    subscriptions = CoveringSet()
    changes = {name: subscriptions.add(name, Filter.parse(SUBSCRIPTIONS[name])) for name in reversed(SUBSCRIPTIONS)}
    assert subscriptions.covering() == ["sports", "stock"]
    assert changes["sports"] == CoveringChange(entered=("sports",), left=("sports-racing",))
    assert changes["stock"] == CoveringChange(entered=("stock",), left=("stock-volume", "stock-yhoo"))


def test_the_children_of_the_imaginary_root_are_the_covering_set(broker_subscriptions: CoveringSet) -> None:
    assert {name: broker_subscriptions.covered_by(name) for name in SUBSCRIPTIONS} == {
        "stock": None,
        "stock-yhoo": "stock",
        "stock-volume": "stock",
        "sports": None,
        "sports-racing": "sports",
    }


def test_the_descendants_are_the_nodes_below_in_the_poset(broker_subscriptions: CoveringSet) -> None:
    assert {name: broker_subscriptions.descendants(name) for name in SUBSCRIPTIONS} == {
        "stock": ["stock-yhoo", "stock-volume"],
        "stock-yhoo": [],
        "stock-volume": [],
        "sports": ["sports-racing"],
        "sports-racing": [],
    }


def test_when_stock_leaves_what_it_covered_enters(broker_subscriptions: CoveringSet) -> None:
    assert broker_subscriptions.remove("stock") == CoveringChange(
        entered=("stock-yhoo", "stock-volume"), left=("stock",)
    )
    assert broker_subscriptions.covering() == ["stock-yhoo", "stock-volume", "sports"]


def test_when_racing_leaves_the_covering_set_stays(broker_subscriptions: CoveringSet) -> None:
    assert broker_subscriptions.remove("sports-racing") == CoveringChange()
    assert broker_subscriptions.covering() == ["stock", "sports"]


def test_a_node_may_have_several_parents(broker_subscriptions: CoveringSet) -> None:
    both = Filter.parse("[class,eq,'STOCK'],[symbol,eq,'YHOO'],[volume,>,300000]")
    assert broker_subscriptions.add("stock-both", both) == CoveringChange()
    assert "stock-both" in broker_subscriptions.descendants("stock-yhoo")
    assert "stock-both" in broker_subscriptions.descendants("stock-volume")


def test_one_general_subscription_covers_all_others() -> None:
    """Section 4.2.1: the covering set of four subscriptions on stocks is the most general one."""
    subscriptions = CoveringSet()
    texts = ["[class,eq,'STOCK']", "[volume,>,0]", "[symbol,eq,'YHOO']", "[symbol,eq,'IBM']"]
    for number, text in enumerate(texts):
        subscriptions.add(number, Filter.parse(texts[0] if number == 0 else f"{texts[0]},{text}"))
    assert subscriptions.covering() == [0]
