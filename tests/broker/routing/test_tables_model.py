"""Routing tables against a plain model: sets of filters, and what each neighbour knows from what it was told."""

from __future__ import annotations

from itertools import product
from typing import Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.broker.routing.forwarding import CoveredAdvertisements, CoveredSubscriptions, Everything, ForwardingSet
from trimtab.broker.routing.tables import Route, RoutingTables, Say
from trimtab.language import Filter
from trimtab.protocol.messages import Advertise, Subscribe, Unadvertise, Unsubscribe

NEIGHBOURS: Final = ("B1", "B2", "B3")
CLIENTS: Final = ("ann", "bob")
FILTERS: Final = tuple(
    Filter.parse(text)
    for text in ("n > 0", "n > 5", "n > 5 AND n < 9", "n < 4", "n = 7", "m > 0", "n > 0 AND m > 0", "n = 2 AND m = 1")
)
PUBLICATIONS: Final = ({"n": 1}, {"n": 7}, {"n": 2, "m": 1}, {"m": 3}, {"n": 20, "m": 0})

Step: TypeAlias = tuple[str, str, str]
"""What happens (advertise, unadvertise, subscribe, unsubscribe, leave, come), to which id, from which direction."""

steps: Final = st.lists(
    st.tuples(
        st.sampled_from(["advertise", "advertise", "unadvertise", "subscribe", "subscribe", "unsubscribe", "link"]),
        st.sampled_from([str(number) for number in range(len(FILTERS))]),
        st.sampled_from(NEIGHBOURS + CLIENTS),
    ),
    min_size=12,
    max_size=40,
)


class Network:
    """The tables of one broker, and for each neighbour what it knows by what it was told."""

    def __init__(self, *, has_covering: bool) -> None:
        self.tables = RoutingTables(subscription_covering=has_covering, advertisement_covering=has_covering)
        self.advertisements: dict[str, dict[str, None]] = {}
        """By id: the directions that it comes from."""
        self.subscriptions: dict[str, dict[str, None]] = {}
        self.known: dict[str, tuple[dict[str, Filter], dict[str, Filter]]] = {}
        """By neighbour: the advertisements and subscriptions that it was told, and not the end of."""
        for name in NEIGHBOURS:
            self.link(name)
        self.do(("advertise", "0", NEIGHBOURS[0]))
        self.do(("advertise", "5", NEIGHBOURS[1]))

    def link(self, name: str) -> None:
        """A link to a neighbour appears, or ends with all that came over it."""
        if name in self.known:
            del self.known[name]
            self.tables.cut_neighbour(name)
            for routes in (self.advertisements, self.subscriptions):
                for id in [id for id, hops in routes.items() if name in hops]:
                    del routes[id][name]
                    if not routes[id]:
                        del routes[id]
            self.hear(self.tables.remove_all_from(name))
        else:
            self.known[name] = ({}, {})
            self.hear(self.tables.add_neighbour(name))

    def do(self, step: Step) -> None:
        """One step, if it means anything now."""
        what, number, hop = step
        if what == "link":
            self.link(hop) if hop in NEIGHBOURS else None
            return
        if hop in NEIGHBOURS and hop not in self.known:
            return
        routes = self.advertisements if "adv" in what else self.subscriptions
        if what.startswith("un") and (there := [(id, each) for id, hops in routes.items() for each in hops]):
            id, hop = there[int(number) % len(there)]
            number = id[1:]
        filter = FILTERS[int(number)]
        id = f"{'a' if 'adv' in what else 's'}{number}"
        if what in ("advertise", "subscribe"):
            routes.setdefault(id, {})[hop] = None
            add = self.tables.add_advertisement if what == "advertise" else self.tables.add_subscription
            self.hear(add(id, filter, hop))
        elif hop in routes.get(id, ()):
            del routes[id][hop]
            if not routes[id]:
                del routes[id]
            remove = self.tables.remove_advertisement if what == "unadvertise" else self.tables.remove_subscription
            wanted = {name: self.wanted(name) & self.covered(name) for name in self.known}
            for say in remove(id, hop):
                self.hear([say])
                still = wanted[say.to] & self.wanted(say.to)
                assert still <= self.covered(say.to), "what a filter covered is told before its end is"

    def hear(self, said: list[Say]) -> None:
        """Neighbours hear what they are told, and nothing twice."""
        for say in said:
            advertisements, subscriptions = self.known[say.to]
            match say.message:
                case Advertise(id=id, filter=filter):
                    assert id not in advertisements
                    advertisements[id] = filter
                case Subscribe(id=id, filter=filter):
                    assert id not in subscriptions
                    subscriptions[id] = filter
                case Unadvertise(id=id):
                    del advertisements[id]
                case Unsubscribe(id=id):
                    del subscriptions[id]

    def announced(self, name: str) -> set[str]:
        """The advertisements that a neighbour must know: those that come from another direction."""
        return {id for id, hops in self.advertisements.items() if any(hop != name for hop in hops)}

    def wanted(self, name: str) -> set[str]:
        """The subscriptions that a neighbour must know: from another direction, and it announces some of it."""
        ours = [FILTERS[int(id[1:])] for id, hops in self.advertisements.items() if name in hops]
        return {
            id
            for id, hops in self.subscriptions.items()
            if any(hop != name for hop in hops) and any(each.intersects(FILTERS[int(id[1:])]) for each in ours)
        }

    def covered(self, name: str) -> set[str]:
        """The subscriptions that a neighbour knows, or knows one that covers them."""
        told = self.known[name][1].values()
        return {id for id in self.subscriptions if any(each.covers(FILTERS[int(id[1:])]) for each in told)}

    def check(self) -> None:
        """The tables say what the model says."""
        for values in PUBLICATIONS:
            hops = {
                hop for id, hops in self.subscriptions.items() if FILTERS[int(id[1:])].matches(values) for hop in hops
            }
            found = self.tables.hops_for(values)
            assert set(found) == hops and len(found) == len(hops)
        for name, (advertisements, subscriptions) in self.known.items():
            told = self.tables.told_to(name)
            assert (set(told[0]), set(told[1])) == (set(advertisements), set(subscriptions))
            assert set(advertisements) <= self.announced(name)
            assert set(subscriptions) <= self.wanted(name) <= self.covered(name)
            for id in self.announced(name):
                assert any(each.announces_all(FILTERS[int(id[1:])]) for each in advertisements.values())


@pytest.mark.parametrize("has_covering", [True, False])
@given(steps=steps)
def test_neighbours_know_what_they_must_and_publications_go_where_they_match(
    has_covering: bool, steps: list[Step]
) -> None:
    network = Network(has_covering=has_covering)
    for step in steps:
        network.do(step)
        network.check()


@given(steps=steps)
def test_covering_spares_messages_and_changes_nothing_else(steps: list[Step]) -> None:
    covering, plain = Network(has_covering=True), Network(has_covering=False)
    for step in steps:
        covering.do(step)
        plain.do(step)
        for name in covering.known:
            told = covering.known[name][1]
            assert set(told) <= set(plain.known[name][1])
            pairs = [(one, other) for one, other in product(told, told) if one != other]
            assert not any(told[one].covers(told[other]) for one, other in pairs)


@pytest.mark.parametrize("forwarding", [Everything, CoveredSubscriptions, CoveredAdvertisements])
@given(added=st.lists(st.tuples(st.booleans(), st.integers(0, len(FILTERS) - 1)), max_size=30))
def test_somebody_that_was_told_stands_for_each(forwarding: type[ForwardingSet], added: list[tuple[bool, int]]) -> None:
    kept, told, there = forwarding(), dict[str, None](), dict[str, Filter]()
    for is_added, number in added:
        key = str(number)
        if is_added == (key in there):
            continue
        change = kept.add(key, FILTERS[number]) if is_added else kept.remove(key)
        there.update({key: FILTERS[number]}) if is_added else there.pop(key)
        told.update({str(each): None for each in change.entered})
        for each in change.left:
            del told[str(each)]
        assert set(kept.told()) == set(told)
        for key in there:
            stands = there[kept.representative(key)]
            assert key in kept and kept.representative(key) in told
            assert stands == there[key] or stands.covers(there[key]) or stands.announces_all(there[key])


def test_a_route_from_its_own_direction_alone_comes_from_nowhere_else() -> None:
    route = Route("s1", FILTERS[0])
    route.hops["B1"] = 1
    assert not route.comes_from_other_than("B1") and route.comes_from_other_than("B2")
    route.hops["B2"] = 1
    assert route.comes_from_other_than("B1")
