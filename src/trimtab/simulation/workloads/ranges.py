"""A workload of numeric ranges, the hard case for a matcher: no equality to look up, many filters that nearly match.

Filters ask for two-sided ranges of 3 to 5 out of 20 attributes, popular ones more often (Zipf); a publication carries
all 20 with uniform values. A range lies anywhere inside the domain, so it holds with a probability that equals its
width as a share of the domain; widths vary around the k-th root of the wanted match ratio for a filter of k ranges,
and each filter therefore matches a publication with the wanted ratio on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import Final

from trimtab.language import Filter, Op, Predicate, Publication

ATTRIBUTES: Final = tuple(f"a{number:02d}" for number in range(20))
DOMAIN: Final = 1_000.0
"""Values lie between 0 and this."""

RANGES_COUNTS: Final = (3, 4, 5)
"""How many ranges a filter may have, each with the same probability."""

MATCH_RATIO: Final = 0.001
"""The share of filters that match a publication."""

WIDTH_SPREAD: Final = 0.5
"""A width differs from its mean by up to this share; covering would be unheard of if all were equal."""


def mean_width_ratio(ranges_count: int, match_ratio: float = MATCH_RATIO) -> float:
    """The mean width, as a share of the domain, of the ranges in a filter that has so many of them.

    >>> round(mean_width_ratio(3), 3), round(mean_width_ratio(5), 3)
    (0.1, 0.251)
    """
    return float(match_ratio ** (1 / ranges_count))


class RangesWorkload:
    """Publications and subscriptions over 20 numeric attributes.

    >>> workload = RangesWorkload(Random(1))
    >>> len(workload.publication()), len(workload.subscription().constraints) in RANGES_COUNTS
    (20, True)
    """

    def __init__(self, rng: Random, *, match_ratio: float = MATCH_RATIO, zipf_exponent: float = 1.0) -> None:
        if not 0 < match_ratio <= (1 / (1 + WIDTH_SPREAD)) ** max(RANGES_COUNTS):
            raise ValueError(f"no ranges of varying width give the match ratio {match_ratio}")
        self._rng = rng
        self._widths = {count: DOMAIN * mean_width_ratio(count, match_ratio) for count in RANGES_COUNTS}
        self._cumulative_popularity = list(
            accumulate(1 / rank**zipf_exponent for rank in range(1, len(ATTRIBUTES) + 1))
        )

    def publication(self) -> Publication:
        """A value for each attribute."""
        uniform = self._rng.uniform
        return Publication.trusted({name: uniform(0.0, DOMAIN) for name in ATTRIBUTES})

    def publications(self, count: int) -> Iterator[Publication]:
        """Several publications, made one at a time."""
        return (self.publication() for _ in range(count))

    def subscription(self) -> Filter:
        """Ranges of 3 to 5 different attributes."""
        rng = self._rng
        count = rng.choice(RANGES_COUNTS)
        mean_width = self._widths[count]
        predicates: list[Predicate] = []
        for name in self._attributes(count):
            width = mean_width * rng.uniform(1 - WIDTH_SPREAD, 1 + WIDTH_SPREAD)
            low = rng.uniform(0.0, DOMAIN - width)
            predicates.append(Predicate(name, Op.GE, low))
            predicates.append(Predicate(name, Op.LE, low + width))
        return Filter(predicates)

    def subscriptions(self, count: int) -> Iterator[Filter]:
        """Several subscriptions, made one at a time."""
        return (self.subscription() for _ in range(count))

    def _attributes(self, count: int) -> list[str]:
        chosen: dict[str, None] = {}
        while len(chosen) < count:
            missing = count - len(chosen)
            chosen.update(
                dict.fromkeys(self._rng.choices(ATTRIBUTES, cum_weights=self._cumulative_popularity, k=missing))
            )
        return list(chosen)
