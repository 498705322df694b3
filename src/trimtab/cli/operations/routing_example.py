"""The routing example of the tour, as plain functions over filters.

Source: Cheung's thesis (2006), section 2.1.3 and Figure 2.2. An advertisement floods the brokers, and each remembers
where it came from. A subscription travels back towards the advertisement, but not beyond a broker that has asked for
all of it already. A publication follows the subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from trimtab.language import Filter, Publication

LINKS: Final[Mapping[str, Sequence[str]]] = {"B1": ("B2",), "B2": ("B1", "B3", "B4"), "B3": ("B2",), "B4": ("B2",)}
"""The brokers of Figure 2.2 and their neighbours."""

Table: TypeAlias = dict[str, dict[str, Filter]]
"""For each broker: whom to send to, a neighbour or a subscriber, and which publications."""


def flood(links: Mapping[str, Sequence[str]], origin: str) -> dict[str, str]:
    """The neighbour from which an advertisement first reaches each broker.

    >>> flood(LINKS, "B1")
    {'B2': 'B1', 'B3': 'B2', 'B4': 'B2'}
    """
    came_from: dict[str, str] = {}
    waiting = [origin]
    for broker in waiting:
        for neighbour in links[broker]:
            if neighbour != origin and neighbour not in came_from:
                came_from[neighbour] = broker
                waiting.append(neighbour)
    return came_from


def subscribe(
    table: Table, came_from: Mapping[str, str], announced: Filter, *, subscriber: str, broker: str, wanted: Filter
) -> list[str]:
    """Enter a subscription at each broker on its way to the publisher; the way, as far as it was forwarded.

    >>> table: Table = {}
    >>> announced = Filter.parse("[a,>,1]")
    >>> subscribe(table, flood(LINKS, "B1"), announced, subscriber="sub1", broker="B4", wanted=Filter.parse("[a,>,5]"))
    ['B4', 'B2', 'B1']
    >>> subscribe(table, flood(LINKS, "B1"), announced, subscriber="sub2", broker="B3", wanted=Filter.parse("[a,>,9]"))
    ['B3', 'B2']
    """
    way = [broker]
    asked_before = list(table.get(broker, {}).values())
    table.setdefault(broker, {})[subscriber] = wanted
    while announced.intersects(wanted) and broker in came_from:
        if any(earlier.covers(wanted) for earlier in asked_before):
            break
        previous, broker = broker, came_from[broker]
        asked_before = list(table.get(broker, {}).values())
        table.setdefault(broker, {})[previous] = wanted
        way.append(broker)
    return way


def deliver(table: Table, broker: str, publication: Publication) -> tuple[list[str], list[str]]:
    """The brokers that a publication passes, and the subscribers that receive it.

    >>> table = {"B1": {"B2": Filter.parse("[a,>,5]")}, "B2": {"sub1": Filter.parse("[a,>,5]")}}
    >>> deliver(table, "B1", Publication(a=7))
    (['B1', 'B2'], ['sub1'])
    """
    passed = [broker]
    received: list[str] = []
    for here in passed:
        for target, wanted in table.get(here, {}).items():
            if wanted.matches(publication):
                (passed if target in LINKS else received).append(target)
    return passed, received
