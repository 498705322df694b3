"""Subscribers of a stock by how much of its traffic they want, spread over some brokers.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 5.1.

Low-rated subscribers sink about a tenth of their publisher's traffic, medium-rated ones about half, high-rated ones
all. *Random*: 70 % are low, 25 % medium, 5 % high, each at a random one of X brokers. *Clustered*: 95 % are low, 5 %
high; all high-rated ones are at one of the X brokers, the low-rated ones at random ones of the others.

Deviations: the paper gives one example of each kind of subscription, ours vary: a low-rated one sinks 5 to 15 %, a
medium-rated one 40 to 60 %, with operands taken from the quotes that are published. Its quotes are daily closing values
from Yahoo! Finance; ours are made up (`quotes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Final, Literal, TypeAlias

import msgspec

from trimtab.language import Filter, Op, Predicate, Publication
from trimtab.simulation.workloads.quotes import Quote
from trimtab.simulation.workloads.stock import publication_of

Distribution: TypeAlias = Literal["clustered", "random"]


class Rating(StrEnum):
    """How much of its publisher's traffic a subscriber sinks."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


SHARES_PERCENT: Final[dict[Distribution, dict[Rating, int]]] = {
    "clustered": {Rating.LOW: 95, Rating.HIGH: 5},
    "random": {Rating.LOW: 70, Rating.MEDIUM: 25, Rating.HIGH: 5},
}
"""Of all subscribers of a publisher."""

_OPEN_CLOSE: Final = "openClose%Diff"
_HIGH_LOW: Final = "highLow%Diff"
_IS_STOCK: Final = Predicate("class", Op.EQ, "STOCK")


class RatedSubscriber(msgspec.Struct, frozen=True):
    """A subscriber of one publisher."""

    rating: Rating
    filter: Filter
    broker: str


def rated_publication(quote: Quote) -> Publication:
    """A quote with the paper's four additional attributes.

    >>> import datetime
    >>> quote = Quote("YHOO", datetime.date(1996, 9, 5), 18.37, 18.62, 18.37, 18.37, 6200)
    >>> publication = rated_publication(quote)
    >>> publication["highLow%Diff"], publication["closeEqualsLow"], publication["closeEqualsHigh"]
    (0.013609, 'true', 'false')
    """
    return Publication.trusted(
        {
            **publication_of(quote),
            _OPEN_CLOSE: round((quote.close - quote.open) / quote.open, 6) if quote.open else 0.0,
            _HIGH_LOW: round((quote.high - quote.low) / quote.low, 6) if quote.low else 0.0,
            "closeEqualsLow": str(quote.close == quote.low).lower(),
            "closeEqualsHigh": str(quote.close == quote.high).lower(),
        }
    )


def rated_advertisement(symbol: str) -> Filter:
    """What the publisher of a stock announces."""
    numbers = ("open", "high", "low", "close", "volume", _OPEN_CLOSE, _HIGH_LOW)
    texts = ("date", "closeEqualsLow", "closeEqualsHigh")
    return Filter(
        [
            _IS_STOCK,
            Predicate("symbol", Op.EQ, symbol),
            *(Predicate(name, Op.PRESENT, 0) for name in numbers),
            *(Predicate(name, Op.PRESENT, "") for name in texts),
        ]
    )


def rated_filter(rating: Rating, publications: Sequence[Publication], rng: Random) -> Filter:
    """A subscription that sinks as much of a publisher's publications as its rating says."""
    symbol = str(publications[0]["symbol"])
    predicates = [_IS_STOCK, Predicate("symbol", Op.EQ, symbol)]
    match rating:
        case Rating.LOW:
            operand = _exceeded_by(publications, _HIGH_LOW, rng.uniform(0.05, 0.15))
            predicates.append(Predicate(_HIGH_LOW, Op.GT, operand))
        case Rating.MEDIUM:
            volume = _exceeded_by(publications, "volume", 0.75)
            wanted_ratio = rng.uniform(0.4, 0.6)
            left = [each for each in publications if float(each["volume"]) > volume]
            operand = _exceeded_by(left, _OPEN_CLOSE, wanted_ratio * len(publications) / len(left))
            predicates += [Predicate("volume", Op.GT, volume), Predicate(_OPEN_CLOSE, Op.GT, operand)]
        case Rating.HIGH:
            pass
    return Filter(predicates)


def _exceeded_by(publications: Sequence[Publication], name: str, ratio: float) -> float:
    """The value that such a share of the publications exceeds."""
    values = sorted((float(each[name]) for each in publications), reverse=True)
    return values[min(round(ratio * len(values)), len(values) - 1)]


def ratings(distribution: Distribution, count: int) -> list[Rating]:
    """The ratings of a publisher's subscribers, in the paper's proportions; at least one is high-rated.

    >>> [ratings("clustered", 40).count(each) for each in Rating]
    [38, 0, 2]
    >>> [ratings("random", 40).count(each) for each in Rating]
    [28, 10, 2]
    """
    shares = SHARES_PERCENT[distribution]
    high_count = max(round(count * shares[Rating.HIGH] / 100), 1)
    medium_count = round(count * shares.get(Rating.MEDIUM, 0) / 100)
    low_count = count - high_count - medium_count
    return [Rating.HIGH] * high_count + [Rating.MEDIUM] * medium_count + [Rating.LOW] * low_count


def rated_subscribers(
    distribution: Distribution, count: int, brokers: Sequence[str], publications: Sequence[Publication], rng: Random
) -> list[RatedSubscriber]:
    """A publisher's subscribers at these brokers; with "clustered" the first one has all high-rated ones."""
    found: list[RatedSubscriber] = []
    for rating in ratings(distribution, count):
        filter = rated_filter(rating, publications, rng)
        if distribution == "clustered":
            broker = brokers[0] if rating == Rating.HIGH or len(brokers) == 1 else rng.choice(brokers[1:])
        else:
            broker = rng.choice(brokers)
        found.append(RatedSubscriber(rating, filter, broker))
    return found
