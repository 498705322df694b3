"""The stock-quote workload.

Source: A. K. Y. Cheung, "Dynamic Load Balancing in Distributed Content-based Publish/Subscribe" (thesis, 2006), section
5.1 and Table 5.1; the advertisement is that of section 2.1.2.

A publisher sends the quotes of one stock. A subscriber's filter is one of six templates, drawn with the table's
probabilities; its symbol is one that is published, and its operand is taken from a random quote of that stock, so that
operands lie where the values lie.

Deviations: the thesis does not say how it makes subscriptions without traffic. Here they are the four templates that
name a symbol, in the table's proportions, with a symbol that nobody publishes; the two templates without a symbol would
always attract traffic.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from enum import Enum
from random import Random
from typing import Final

from trimtab.language import Filter, Op, Predicate, Publication
from trimtab.simulation.workloads.quotes import Quote

SYMBOLS_COUNT: Final = 40
"""Stocks that are published: 40 publishers in every experiment of the thesis."""

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_IS_STOCK: Final = Predicate("class", Op.EQ, "STOCK")


class Template(Enum):
    """The subscription templates of Table 5.1: what they ask for besides the class, and their probability in %."""

    SYMBOL_HIGH = "symbol and high", 20
    SYMBOL_LOW = "symbol and low", 20
    SYMBOL_VOLUME = "symbol and volume", 20
    SYMBOL = "symbol", 34
    VOLUME = "volume", 5
    CLASS = "class only", 1

    @property
    def probability_percent(self) -> int:
        """How often the template is drawn."""
        return self.value[1]


_TEMPLATES: Final = tuple(Template)
_WEIGHTS: Final = tuple(template.probability_percent for template in _TEMPLATES)
_SYMBOL_TEMPLATES: Final = (Template.SYMBOL_HIGH, Template.SYMBOL_LOW, Template.SYMBOL_VOLUME, Template.SYMBOL)
_SYMBOL_WEIGHTS: Final = tuple(template.probability_percent for template in _SYMBOL_TEMPLATES)


class StockWorkload:
    """Publications, subscriptions and advertisements of stock quotes.

    >>> from trimtab.simulation.workloads.quotes import generate_quotes
    >>> workload = StockWorkload(generate_quotes(Random(1), symbols_count=5, days_count=10), Random(2), symbols_count=3)
    >>> len(workload.symbols), len(list(workload.subscriptions(4)))
    (3, 4)
    >>> quote = workload.publication()
    >>> workload.advertisement(str(quote["symbol"])).announces(quote)
    True
    """

    symbols: list[str]
    """The stocks that are published, in ascending order."""

    def __init__(
        self,
        quotes: Sequence[Quote],
        rng: Random,
        *,
        symbols_count: int = SYMBOLS_COUNT,
        zero_traffic_ratio: float = 0.0,
    ) -> None:
        if not 0 <= zero_traffic_ratio <= 1:
            raise ValueError(f"the zero-traffic ratio must lie between 0 and 1, not {zero_traffic_ratio}")
        by_symbol: dict[str, list[Quote]] = {}
        for quote in quotes:
            by_symbol.setdefault(quote.symbol, []).append(quote)
        if not 1 <= symbols_count <= len(by_symbol):
            raise ValueError(f"{symbols_count} symbols are wanted, but the quotes have {len(by_symbol)}")
        self._rng = rng
        self._zero_traffic_ratio = zero_traffic_ratio
        self._quotes = by_symbol
        self.symbols = sorted(rng.sample(sorted(by_symbol), symbols_count))
        self._published = [quote for symbol in self.symbols for quote in by_symbol[symbol]]
        published = set(self.symbols)
        self._silent = [symbol for symbol in sorted(by_symbol) if symbol not in published]
        if not self._silent:
            self._silent = [_unused_symbol(symbol, by_symbol) for symbol in self.symbols]
            for symbol, silent in zip(self.symbols, self._silent, strict=True):
                by_symbol[silent] = by_symbol[symbol]
        self._equals = {symbol: Predicate("symbol", Op.EQ, symbol) for symbol in by_symbol}

    def publication(self) -> Publication:
        """A random day of a random published stock."""
        return publication_of(self._rng.choice(self._published))

    def publications(self, count: int) -> Iterator[Publication]:
        """Several publications, made one at a time."""
        return (self.publication() for _ in range(count))

    def advertisement(self, symbol: str) -> Filter:
        """What the publisher of a stock announces before its first quote (thesis, section 2.1.2)."""
        prices = [Predicate(name, Op.PRESENT, 0) for name in ("open", "high", "low", "close", "volume")]
        return Filter(
            [_IS_STOCK, Predicate("symbol", Op.EQ, symbol), *prices, Predicate("date", Op.PRESENT, "00-00-00")]
        )

    def subscription(self) -> Filter:
        """A subscription by Table 5.1, or one without traffic, by the given ratio."""
        rng = self._rng
        if self._zero_traffic_ratio and rng.random() < self._zero_traffic_ratio:
            return self.silent_subscription()
        return self.subscription_of(rng.choices(_TEMPLATES, _WEIGHTS)[0], rng.choice(self.symbols))

    def silent_subscription(self) -> Filter:
        """A subscription without traffic."""
        rng = self._rng
        return self.subscription_of(rng.choices(_SYMBOL_TEMPLATES, _SYMBOL_WEIGHTS)[0], rng.choice(self._silent))

    def subscriptions(self, count: int) -> Iterator[Filter]:
        """Several subscriptions, made one at a time."""
        return (self.subscription() for _ in range(count))

    def subscription_of(self, template: Template, symbol: str) -> Filter:
        """A subscription by a given template, with an operand from a random quote of the symbol."""
        predicates = [_IS_STOCK]
        if template in _SYMBOL_TEMPLATES:
            predicates.append(self._equals[symbol])
        match template:
            case Template.SYMBOL_HIGH:
                predicates.append(Predicate("high", Op.GT, self._quote(symbol).high))
            case Template.SYMBOL_LOW:
                predicates.append(Predicate("low", Op.LT, self._quote(symbol).low))
            case Template.SYMBOL_VOLUME | Template.VOLUME:
                predicates.append(Predicate("volume", Op.GT, self._quote(symbol).volume))
            case _:
                pass
        return Filter(predicates)

    def _quote(self, symbol: str) -> Quote:
        return self._rng.choice(self._quotes[symbol])


def publication_of(quote: Quote) -> Publication:
    """A quote as the thesis publishes it.

    >>> day = datetime.date(1996, 4, 12)
    >>> print(publication_of(Quote("YHOO", day, 25.25, 43.0, 24.5, 33.0, 17030000)))
    [class,'STOCK'],[symbol,'YHOO'],[open,25.25],[high,43.0],[low,24.5],[close,33.0],[volume,17030000],[date,'12-Apr-96']
    """
    return Publication.trusted(
        {
            "class": "STOCK",
            "symbol": quote.symbol,
            "open": quote.open,
            "high": quote.high,
            "low": quote.low,
            "close": quote.close,
            "volume": quote.volume,
            "date": short_date(quote.date),
        }
    )


def short_date(date: datetime.date) -> str:
    """A date as the quotes of the thesis write it, in English whatever the machine's language.

    >>> short_date(datetime.date(1996, 5, 1))
    '1-May-96'
    """
    return f"{date.day}-{_MONTHS[date.month - 1]}-{date.year % 100:02d}"


def _unused_symbol(symbol: str, used: dict[str, list[Quote]]) -> str:
    candidate = f"{symbol}.X"
    while candidate in used:
        candidate += "X"
    return candidate
