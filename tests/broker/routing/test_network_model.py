"""Interests and topology of a tree of brokers against a plain model: who wants what, and which way leads where."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.direct import Direct
from trimtab.language import Filter, LanguageError, Publication
from trimtab.protocol.events import LinkRemoved

FILTERS: Final = tuple(Filter.parse(text) for text in ("n > 0", "n > 5", "n < 4", "n = 7", "m > 0", "n > 0 AND m > 0"))
PUBLICATIONS: Final = ({"n": 1}, {"n": 7}, {"n": 2, "m": 1}, {"m": 3})

WORDS: Final = ("advertise", "subscribe", "subscribe", "end")


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, str]]:
    """The links of a tree, in an order in which they may be made."""
    count = draw(st.integers(2, 6))
    links = [(f"B{number}", f"B{draw(st.integers(0, number - 1))}") for number in range(1, count)]
    return draw(st.permutations(links))


def way(links: list[tuple[str, str]], start: str, goal: str) -> str | None:
    """The neighbour through which a broker is reached, by following links."""
    around = {start: ""}
    reached = [start]
    for here in reached:
        for one, other in [*links, *((b, a) for a, b in links)]:
            if one == here and other not in around:
                around[other] = around[here] or other
                reached.append(other)
    return around.get(goal)


@given(links=trees(), removed=st.data())
@settings(max_examples=40)
def test_every_broker_knows_the_way_to_every_other(links: list[tuple[str, str]], removed: st.DataObject) -> None:
    names = sorted({name for link in links for name in link})
    network = Direct(*names)
    made: list[tuple[str, str]] = []
    for link in links:
        assert network.brokers[link[0]].topology.cycle_with(link[1]) == ""
        network.connect(*link)
        made.append(link)
    gone = removed.draw(st.sampled_from(made))
    for links_now in (made, [link for link in made if link != gone]):
        for one in names:
            for other in names:
                expected = way(links_now, one, other) if one != other else None
                topology = network.brokers[one].topology
                assert topology.towards(other) == expected
                assert bool(topology.cycle_with(other)) == (expected is not None)
        network.brokers[gone[0]].handle(LinkRemoved(gone[1]), 0.0)
        network.brokers[gone[1]].handle(LinkRemoved(gone[0]), 0.0)
        network.run()


@pytest.mark.parametrize("covering", [True, False])
@given(
    links=trees(),
    wants=st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 5), st.integers(0, 5)), min_size=6, max_size=14),
)
@settings(max_examples=40)
def test_clients_get_what_they_want_of_what_is_announced(
    covering: bool, links: list[tuple[str, str]], wants: list[tuple[str, int, int]]
) -> None:
    names = sorted({name for link in links for name in link})
    network = Direct(*names, covering=covering)
    for link in links:
        network.connect(*link)
    clients = [network.client(f"c{index}", name) for index, name in enumerate(names)]
    announced: dict[str, dict[str, Filter]] = {client.name: {} for client in clients}
    wanted: dict[str, dict[str, Filter]] = {client.name: {} for client in clients}
    for what, who, which in wants:
        client, filter = clients[who % len(clients)], FILTERS[which]
        if what == "advertise":
            announced[client.name][client.advertise(filter, 0.0)] = filter
        elif what == "subscribe":
            wanted[client.name][client.subscribe(filter, 0.0)] = filter
        elif wanted[client.name]:
            id = next(iter(wanted[client.name]))
            del wanted[client.name][id]
            client.unsubscribe(id, 0.0)
        network.run()
        for name, filters in announced.items():
            assert {*filters, *wanted[name]} <= set(network.in_force(name)), "all that was asked is confirmed"
    for client in clients:
        for values in PUBLICATIONS:
            network.effects.clear()
            try:
                client.publish(values, 0.0)
            except LanguageError:
                assert not any(each.announces(Publication(values)) for each in announced[client.name].values())
                continue
            network.run()
            for name, filters in wanted.items():
                expected = any(filter.matches(values) for filter in filters.values())
                assert len(network.deliveries(name)) == expected
    for client in clients:
        for id in wanted[client.name]:
            client.unsubscribe(id, 0.0)
        for id in announced[client.name]:
            client.unadvertise(id, 0.0)
    network.run()
    assert [network.brokers[name].tables.subscriptions for name in names] == [{} for _ in names]
    assert [network.brokers[name].tables.advertisements for name in names] == [{} for _ in names]
