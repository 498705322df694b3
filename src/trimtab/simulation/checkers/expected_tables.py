"""The routing tables that brokers at rest must have, from scratch: the tree, live advertisements and subscriptions.

Over each link in each direction: an advertisement passes if it was made on the near side; a subscription if it was made
on the near side and an advertisement of the far side intersects it. With covering, fewer may pass, but each that does
not must be covered by one that does, and of the subscriptions that pass none covers another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from trimtab.broker.core import Broker
from trimtab.broker.routing.tables import Route
from trimtab.language import Filter


class Placed(msgspec.Struct, frozen=True):
    """An advertisement or subscription, with the client that made it and the broker where that client is."""

    id: str
    filter: Filter
    client: str
    broker: str


def table_mistakes(
    brokers: Mapping[str, Broker],
    links: Sequence[tuple[str, str]],
    advertisements: Sequence[Placed],
    subscriptions: Sequence[Placed],
) -> Iterator[str]:
    """What is wrong with the tables of brokers at rest, one line each."""
    for near, far in [*links, *((second, first) for first, second in links)]:
        side = _side_of(near, far, links)
        made_here = [placed for placed in advertisements if placed.broker in side]
        made_there = [placed for placed in advertisements if placed.broker not in side]
        wanted = [
            placed
            for placed in subscriptions
            if placed.broker in side and any(other.filter.intersects(placed.filter) for other in made_there)
        ]
        config, tables = brokers[far].config, brokers[far].tables
        where = f"{far} from {near}"
        yield from _differences(
            f"advertisements of {where}",
            made_here,
            _from(tables.advertisements, near),
            Filter.announces_all if config.advertisement_covering else None,
        )
        yield from _differences(
            f"subscriptions of {where}",
            wanted,
            _from(tables.subscriptions, near),
            Filter.covers if config.subscription_covering else None,
        )
        if config.subscription_covering:
            yield from _superfluous(f"subscriptions of {where}", _from(tables.subscriptions, near))
    for name, broker in brokers.items():
        peers = {placed.client for placed in (*advertisements, *subscriptions) if placed.broker == name}
        neighbours = {end for link in links if name in link for end in link}
        for kind, table, placed in (
            ("advertisements", broker.tables.advertisements, advertisements),
            ("subscriptions", broker.tables.subscriptions, subscriptions),
        ):
            local = [entry for entry in table.values() if not entry.hops.keys() <= neighbours]
            yield from _differences(f"{kind} of {name}'s clients", [p for p in placed if p.broker == name], local, None)
            strangers = [entry.id for entry in local if entry.hops.keys() - neighbours - peers]
            if strangers:
                yield f"{kind} of {name} lead to clients without any: {', '.join(strangers)}"


def _side_of(near: str, far: str, links: Sequence[tuple[str, str]]) -> set[str]:
    """The brokers on the near side of a link."""
    found = {near}
    waiting = [near]
    for name in waiting:
        for first, second in links:
            for here, there in ((first, second), (second, first)):
                if here == name and there not in found and {here, there} != {near, far}:
                    found.add(there)
                    waiting.append(there)
    return found


def _from(table: Mapping[str, Route], hop: str) -> list[Route]:
    return [entry for entry in table.values() if hop in entry.hops]


def _differences(
    what: str, expected: Sequence[Placed], found: Sequence[Route], covers: Callable[[Filter, Filter], bool] | None
) -> Iterator[str]:
    expected_by_id = {placed.id: placed for placed in expected}
    found_ids = {entry.id for entry in found}
    for entry in found:
        if entry.id not in expected_by_id:
            yield f"{what}: {entry.id} should not be there"
        elif entry.filter != expected_by_id[entry.id].filter:
            yield f"{what}: {entry.id} has another filter"
    for placed in expected:
        if placed.id in found_ids:
            continue
        if covers is None or not any(covers(entry.filter, placed.filter) for entry in found):
            yield f"{what}: {placed.id} is not there" + (" and nothing covers it" if covers else "")


def _superfluous(what: str, found: Sequence[Route]) -> Iterator[str]:
    for entry in found:
        for other in found:
            if entry is not other and entry.filter.covers(other.filter):
                yield f"{what}: {entry.id} covers {other.id}"
