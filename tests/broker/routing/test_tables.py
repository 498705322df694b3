"""A filter is known by its id, from one or more directions; a neighbour is told of it once."""

from __future__ import annotations

from trimtab.broker.routing.tables import RoutingTables, Say
from trimtab.language import Filter
from trimtab.protocol.messages import Advertise, Subscribe, Unadvertise, Unsubscribe

ANY = Filter.parse("n > 0")
FEW = Filter.parse("n > 5")


def tables(*neighbours: str) -> RoutingTables:
    made = RoutingTables()
    for name in neighbours:
        made.add_neighbour(name)
    return made


def test_while_its_client_moves_a_subscription_leads_both_ways() -> None:
    routes = tables("B1", "B3")
    routes.add_subscription("s1", ANY, "B1")
    routes.add_subscription("s1", ANY, "B3")
    assert routes.hops_for({"n": 1}) == ["B1", "B3"]
    assert routes.matching_from("B3", {"n": 1}) == ["s1"]
    routes.remove_subscription("s1", "B1")
    assert routes.hops_for({"n": 1}) == ["B3"]
    routes.remove_subscription("s1", "B3")
    assert (routes.hops_for({"n": 1}), routes.subscriptions) == ([], {})


def test_a_neighbour_is_told_once_and_of_the_end_when_no_direction_but_its_own_is_left() -> None:
    routes = tables("B1", "B2", "B3")
    assert routes.add_advertisement("a1", ANY, "B1") == [
        Say("B2", Advertise(id="a1", filter=ANY, number=1)),
        Say("B3", Advertise(id="a1", filter=ANY, number=2)),
    ]
    assert routes.add_advertisement("a1", ANY, "B3") == [Say("B1", Advertise(id="a1", filter=ANY, number=3))]
    assert routes.remove_advertisement("a1", "B1") == [Say("B3", Unadvertise(id="a1", number=3))]
    assert routes.told_to("B2") == (["a1"], []), "it is off the path, and hears nothing"


def test_subscriptions_follow_an_advertisement_to_its_new_direction_and_leave_the_old_one_when_it_ends_there() -> None:
    routes = tables("B1", "B3")
    routes.add_subscription("s1", ANY, "ann")
    routes.add_advertisement("a1", ANY, "B1")
    assert Say("B3", Subscribe(id="s1", filter=ANY, number=4)) in routes.add_advertisement("a1", ANY, "B3")
    assert Say("B1", Unsubscribe(id="s1")) in routes.remove_advertisement("a1", "B1")


def test_a_direction_does_not_wait_for_itself() -> None:
    routes = tables("B1", "B3")
    routes.add_advertisement("a1", ANY, "B1")
    routes.add_advertisement("a2", ANY, "B3")
    routes.add_subscription("s1", ANY, "B1")
    routes.add_subscription("s1", ANY, "B3")
    assert routes.subscription_representatives(("s1", "B1")) == [("B3", "s1")]
    assert routes.subscription_representatives(("s1", "B3")) == [("B1", "s1")]


def test_a_covered_subscription_is_represented_by_the_covering_one() -> None:
    routes = tables("B1")
    routes.add_advertisement("a1", ANY, "B1")
    routes.add_subscription("s1", ANY, "ann")
    assert routes.add_subscription("s2", FEW, "bob") == []
    assert routes.subscription_representatives(("s2", "bob")) == [("B1", "s1")]
    assert routes.remove_subscription("s1", "ann") == [
        Say("B1", Subscribe(id="s2", filter=FEW, number=2)),
        Say("B1", Unsubscribe(id="s1")),
    ]


def test_what_was_told_before_an_epoch_and_not_since_is_found() -> None:
    routes = tables("B1")
    routes.add_subscription("s1", ANY, "B1", epoch=1)
    routes.add_subscription("s2", FEW, "B1", epoch=1)
    routes.add_subscription("s2", FEW, "bob")
    routes.add_advertisement("a1", ANY, "B1", epoch=1)
    routes.add_neighbour("B1", epoch=2)
    routes.add_subscription("s1", ANY, "B1", epoch=2)
    assert routes.told_before(routes.subscriptions, "B1", 2) == ["s2"]
    assert routes.told_before(routes.advertisements, "B1", 2) == ["a1"]
