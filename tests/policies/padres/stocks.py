"""Brokers with stock subscribers as in the thesis (Table 5.1), sampled as PRESS does, to write tests with."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from trimtab import Filter
from trimtab.language import Value
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import Sample, Sampler
from trimtab.matching.covering import CoveringSet
from trimtab.matching.matcher import Matcher

PUBLICATION_BYTES = 320


def subscription(rng: Random, symbols: Sequence[str]) -> Filter:
    """A filter drawn from the templates of Table 5.1; one in five wants a stock that nobody quotes."""
    symbol = rng.choice(symbols) if rng.random() > 0.2 else f"NONE{rng.randrange(20)}"
    operand = rng.randrange(1, 100)
    templates = [
        f"[class,eq,'STOCK'],[symbol,eq,'{symbol}'],[high,>,{operand}]",
        f"[class,eq,'STOCK'],[symbol,eq,'{symbol}'],[low,<,{operand}]",
        f"[class,eq,'STOCK'],[symbol,eq,'{symbol}'],[volume,>,{operand}]",
        f"[class,eq,'STOCK'],[symbol,eq,'{symbol}']",
        f"[class,eq,'STOCK'],[volume,>,{operand}]",
        "[class,eq,'STOCK']",
    ]
    return Filter.parse(rng.choices(templates, weights=(20, 20, 20, 34, 5, 1))[0])


def clients(rng: Random, name: str, count: int, symbols: Sequence[str]) -> dict[str, tuple[Filter, ...]]:
    """Clients, most with one subscription and some with a few."""
    return {
        f"{name}{number}": tuple({subscription(rng, symbols): None for _ in range(rng.choice((1, 1, 1, 1, 3)))})
        for number in range(count)
    }


class Quotes:
    """A stream of publications, the same for every broker."""

    def __init__(self, rng: Random, symbols: Sequence[str], count: int, rate_per_s: float) -> None:
        self.rate_per_s = rate_per_s
        self.publications: list[dict[str, Value]] = [
            {
                "class": "STOCK",
                "symbol": rng.choice(symbols),
                "high": rng.randrange(100),
                "low": rng.randrange(100),
                "volume": rng.randrange(100),
            }
            for _ in range(count)
        ]

    def received(self, served: dict[str, tuple[Filter, ...]]) -> list[int]:
        """The numbers of the publications that a broker with these clients receives."""
        return [number for number, names in enumerate(self._matches(served)) if names]

    def _matches(self, served: dict[str, tuple[Filter, ...]]) -> list[list[str]]:
        matcher = Matcher()
        for client, filters in served.items():
            for place, filter in enumerate(filters):
                matcher.add((client, place), filter, client)
        return [[str(name) for name in matcher.match_groups(each)] for each in self.publications]

    def resources(
        self, served: dict[str, tuple[Filter, ...]], cpu_mhz: float, bandwidth_bytes_per_s: float
    ) -> BrokerResources:
        """The load of a broker with these clients, from scratch; each broker also has four subscriptions of its own."""
        share = self.rate_per_s / len(self.publications)
        matches = self._matches(served)
        subscription_count = 4 + sum(len(filters) for filters in served.values())
        input_rate_per_s = share * sum(1 for names in matches if names)
        resources = BrokerResources(
            input_rate_per_s=input_rate_per_s,
            input_rate_bytes_per_s=input_rate_per_s * PUBLICATION_BYTES,
            matching_delay_s=0.0165 * subscription_count / cpu_mhz,
            subscription_count=subscription_count,
            output_rate_bytes_per_s=share * PUBLICATION_BYTES * sum(len(names) for names in matches),
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            matching_memory_bytes=1_000.0 * subscription_count,
            memory_bytes=16e6,
        )
        return msgspec.structs.replace(resources, cpu_utilization_ratio=resources.input_utilization_ratio)

    def sample(self, served: dict[str, tuple[Filter, ...]], other: dict[str, tuple[Filter, ...]]) -> Sample:
        """What PRESS notes at the first broker when it looks at everything that it receives."""
        theirs = set(self.received(other))
        matches = self._matches(served)
        numbers = [number for number, names in enumerate(matches) if names]
        duration_s = len(self.publications) / self.rate_per_s
        sampler = Sampler(sample_count=max(len(numbers), 1), timeout_s=duration_s, now_s=0.0)
        for number in numbers:
            sampler.saw(("quotes", number), PUBLICATION_BYTES, matches[number], accepted=number in theirs)
        return sampler.sample(served, duration_s)


def covering_filters(served: dict[str, tuple[Filter, ...]]) -> tuple[Filter, ...]:
    """The covering subscription set of a broker with these clients."""
    filters = CoveringSet()
    for client, each in served.items():
        for place, filter in enumerate(each):
            filters.add((client, place), filter)
    return tuple(filters.filter_of(key) for key in filters.covering())
