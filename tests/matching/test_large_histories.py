"""Thousands of filters come and go: blocks fill, split, empty and fill again, and every answer stays right."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from random import Random
from typing import Final, Literal

import pytest

from trimtab.language import Filter, Value, between, ge, gt, le, lt, prefix
from trimtab.matching import BruteForceMatcher, CoveringSet, Matcher

EngineName = Literal["kernel", "python"]

SYMBOLS: Final = [f"SYM{number}" for number in range(40)]
ATTRIBUTES: Final = [f"attribute{number:02}" for number in range(20)]
POPULARITY: Final = [1 / (number + 1) for number in range(len(ATTRIBUTES))]


def stock_filter(random: Random) -> Filter:
    """A filter in the manner of a stock service: mostly one symbol, sometimes with a limit."""
    price = round(random.uniform(10, 100), 2)
    template = random.randrange(8)
    if template == 0:
        return Filter.where({"class": "STOCK"})
    if template == 1:
        return Filter.where({"class": "STOCK"}, volume=gt(random.randrange(1_000_000)))
    if template == 2:
        return Filter.where({"class": "STOCK"}, symbol=prefix(random.choice(SYMBOLS)[: random.randint(1, 5)]))
    symbol = random.choice(SYMBOLS)
    if template == 3:
        return Filter.where({"class": "STOCK"}, symbol=symbol, low=lt(price))
    if template == 4:
        return Filter.where({"class": "STOCK"}, symbol=symbol, high=ge(price))
    if template == 5:
        return Filter.where({"class": "STOCK"}, symbol=symbol, volume=gt(random.randrange(1_000_000)))
    if template == 6:
        return Filter.where({"class": "STOCK"}, symbol=symbol, open=between(price, price + random.uniform(0, 20)))
    return Filter.where({"class": "STOCK"}, symbol=symbol, low=le(price), high=gt(price / 2), volume=gt(1000))


def stock_publication(random: Random) -> dict[str, Value]:
    """One day of one stock."""
    low = round(random.uniform(5, 90), 2)
    return {
        "class": "STOCK",
        "symbol": random.choice(SYMBOLS),
        "open": low + 1,
        "high": low + random.choice([0, 2.5, 10]),
        "low": low,
        "volume": random.randrange(1_000_000),
    }


def range_filter(random: Random) -> Filter:
    """One to five ranges, on the popular attributes more often."""
    wanted = {}
    for name in random.choices(ATTRIBUTES, POPULARITY, k=random.randint(1, 5)):
        low = random.choice([random.randrange(1000), random.uniform(0, 1000)])
        wanted[name] = random.choice([between(low, low + random.uniform(0, 400)), gt(low), le(low)])
    return Filter.where(wanted)


def range_publication(random: Random) -> dict[str, Value]:
    """A number for nearly every attribute, now and then something else."""
    return {
        name: random.choice([random.randrange(1000), random.uniform(0, 1000)]) if random.random() < 0.97 else "none"
        for name in ATTRIBUTES
        if random.random() < 0.9
    }


WORKLOADS: Final[dict[str, tuple[Callable[[Random], Filter], Callable[[Random], dict[str, Value]]]]] = {
    "stock": (stock_filter, stock_publication),
    "ranges": (range_filter, range_publication),
}


class History:
    """A matcher and the oracle, changed together."""

    def __init__(self, engine: EngineName, workload: str, seed: int) -> None:
        print(f"workload {workload}, seed {seed}")
        self.random = Random(seed)
        self.new_filter, self.new_publication = WORKLOADS[workload]
        self.matcher = Matcher(engine)
        self.oracle = BruteForceMatcher()
        self.filters: dict[Hashable, Filter] = {}
        self.keys: list[int] = []
        self.next_key = 0

    def add(self, count: int) -> None:
        for _ in range(count):
            filter = self.new_filter(self.random)
            self.matcher.add(self.next_key, filter)
            self.oracle.add(self.next_key, filter)
            self.filters[self.next_key] = filter
            self.keys.append(self.next_key)
            self.next_key += 1

    def remove(self, count: int) -> None:
        self.random.shuffle(self.keys)
        for key in self.keys[:count]:
            self.matcher.remove(key)
            self.oracle.remove(key)
        del self.keys[:count]

    def check(self, publication_count: int = 12, filter_count: int = 4) -> None:
        asked = [self.new_publication(self.random) for _ in range(publication_count)]
        found = self.matcher.match_many(asked)
        expected = self.oracle.match_many(asked)
        assert [sorted(keys, key=repr) for keys in found] == [sorted(keys, key=repr) for keys in expected]
        assert [len(keys) for keys in found] == [len(keys) for keys in expected]
        for _ in range(filter_count):
            filter = self.new_filter(self.random)
            exclude = self.random.choice([None, *self.keys[:3]])
            covered = self.matcher.find_covered(filter, exclude)
            assert sorted(covered, key=repr) == sorted(self.oracle.find_covered(filter, exclude), key=repr)
            covering = self.matcher.find_covering(filter, exclude)
            assert (covering is None) == (self.oracle.find_covering(filter, exclude) is None)
            if covering is not None:
                assert self.filters[covering].covers(filter)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_thousands_of_filters_come_and_go(engine: EngineName, workload: str, seed: int) -> None:
    history = History(engine, workload, seed)
    for count in (10, 500, 3500):
        history.add(count)
        history.check()
    history.remove(3500)
    history.check()
    for _ in range(6):
        history.add(500)
        history.remove(400)
        history.check()
    history.remove(len(history.keys))
    history.check()
    assert len(history.matcher) == 0
    history.add(1500)
    history.check()


@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_the_covering_set_of_hundreds_of_filters(engine: EngineName, workload: str) -> None:
    seed = 3
    print(f"workload {workload}, seed {seed}")
    random = Random(seed)
    new_filter, _ = WORKLOADS[workload]
    subscriptions = CoveringSet(engine)
    stored: dict[int, Filter] = {}
    for step in range(1200):
        if stored and (random.random() < 0.4 or step > 900):
            key = random.choice(list(stored))
            subscriptions.remove(key)
            del stored[key]
        else:
            filter = new_filter(random)
            subscriptions.add(step, filter)
            stored[step] = filter
        if step % 300 == 299:
            maximal = {
                filter
                for filter in stored.values()
                if not any(other.covers(filter) and not filter.covers(other) for other in stored.values())
            }
            assert {subscriptions.filter_of(key) for key in subscriptions.covering()} == maximal
