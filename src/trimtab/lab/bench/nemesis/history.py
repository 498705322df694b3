"""What publishers said and subscribers got, in one process and on one clock that only goes forward.

Nothing here knows the project: a publication is its publisher's name, its number there, a symbol and a price, and a
subscription wants one symbol, or any, above a price.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Wanted(msgspec.Struct, frozen=True):
    """What a subscription asks for.

    >>> Wanted("S1", 40).text
    "symbol = 'S1' AND price > 40"
    >>> Wanted("S1", 40).takes("S1", 41), Wanted("S1", 40).takes("S1", 40), Wanted("", 40).takes("S2", 50)
    (True, False, True)
    """

    symbol: str
    """Empty if it is any."""
    above_price: int

    @property
    def text(self) -> str:
        """As brokers are told."""
        price = f"price > {self.above_price}"
        return f"symbol = '{self.symbol}' AND {price}" if self.symbol else price

    def takes(self, symbol: str, price: int) -> bool:
        """Whether a publication is wanted."""
        return self.symbol in ("", symbol) and price > self.above_price


class Publications:
    """All publications of one publisher: their numbers are 0, 1, 2 ..."""

    def __init__(self, publisher: str) -> None:
        self.publisher = publisher
        self.symbols: list[str] = []
        self.prices = array("i")
        self.published_s = array("d")
        """When each was handed over: it was accepted later, if it was."""
        self.sequences = array("q")
        """The number that the client gave it; gap notices name these."""
        self._accepted_at_s = array("d")
        self._accepted_counts = array("q")
        self.refused: set[int] = set()
        self.places: list[tuple[float, str]] = []
        """Where the publisher was, and since when."""

    def __len__(self) -> int:
        return len(self.symbols)

    def published(self, symbol: str, price: int, now_s: float) -> int:
        """One is about to be handed over; returns its number."""
        self.symbols.append(symbol)
        self.prices.append(price)
        self.published_s.append(now_s)
        return len(self.symbols) - 1

    def values(self, number: int) -> dict[str, str | int]:
        """What is published under a number."""
        return {"p": self.publisher, "n": number, "symbol": self.symbols[number], "price": self.prices[number]}

    def accepted(self, count: int, now_s: float) -> None:
        """So many, the first ones, are acknowledged by now."""
        if count > self.accepted_count:
            self._accepted_counts.append(count)
            self._accepted_at_s.append(now_s)

    @property
    def accepted_count(self) -> int:
        """How many are acknowledged."""
        return self._accepted_counts[-1] if self._accepted_counts else 0

    def accepted_s(self, number: int) -> float | None:
        """When it was seen that a publication was acknowledged; None if it never was."""
        index = bisect_left(self._accepted_counts, number + 1)
        return self._accepted_at_s[index] if index < len(self._accepted_counts) else None

    def number_of(self, sequence: int) -> int:
        """The first publication whose sequence is not below this one."""
        return bisect_left(self.sequences, sequence)

    def as_values(self) -> dict[str, object]:
        """For a file."""
        return {
            "publisher": self.publisher,
            "symbols": self.symbols,
            "prices": self.prices.tolist(),
            "published_s": _rounded(self.published_s),
            "accepted": list(zip(self._accepted_counts.tolist(), _rounded(self._accepted_at_s), strict=True)),
            "refused": sorted(self.refused),
            "places": self.places,
        }


class Gap(msgspec.Struct, frozen=True):
    """A subscriber was told that publications of a publisher may be missing."""

    publisher: str
    """Empty if it is not known whose: then what was published before it was told."""
    first_sequence: int | None
    """None if it is not known: everything up to the last."""
    last_sequence: int | None
    """None if it is not known: everything before the next one that comes."""
    told_s: float


class Arrivals:
    """What one subscription got of one publisher, as it came."""

    def __init__(self) -> None:
        self.numbers = array("q")
        self.at_s = array("d")


class SubscriptionHistory:
    """One subscription, from its confirmation to its end."""

    def __init__(self, subscriber: str, wanted: Wanted) -> None:
        self.subscriber = subscriber
        self.wanted = wanted
        self.in_force_s: float | None = None
        """When its confirmation was there."""
        self.ended_s: float | None = None
        """When its end was asked for."""
        self.arrivals: dict[str, Arrivals] = {}
        self.strange: list[str] = []
        """Deliveries that are not what their publisher published."""
        self.gaps: list[Gap] = []
        """What it was told that may be missing."""
        self.places: list[tuple[float, str]] = []
        """Where the subscriber was, and since when."""

    def arrived(self, publisher: str, number: int, now_s: float) -> None:
        """A publication came."""
        arrivals = self.arrivals.get(publisher)
        if arrivals is None:
            arrivals = self.arrivals[publisher] = Arrivals()
        arrivals.numbers.append(number)
        arrivals.at_s.append(now_s)

    def as_values(self) -> dict[str, object]:
        """For a file."""
        return {
            "subscriber": self.subscriber,
            "wanted": self.wanted.text,
            "in_force_s": self.in_force_s,
            "ended_s": self.ended_s,
            "arrivals": {name: [each.numbers.tolist(), _rounded(each.at_s)] for name, each in self.arrivals.items()},
            "strange": self.strange,
            "gaps": msgspec.to_builtins(self.gaps),
            "places": self.places,
        }


class History:
    """Everything that was seen."""

    def __init__(self) -> None:
        self.publications: dict[str, Publications] = {}
        self.subscriptions: list[SubscriptionHistory] = []

    def publisher(self, name: str) -> Publications:
        """Begin the publications of a publisher; each name is used once."""
        assert name not in self.publications
        found = self.publications[name] = Publications(name)
        return found

    def take(
        self, subscription: SubscriptionHistory, publisher: str, values: Mapping[str, object], now_s: float
    ) -> None:
        """A delivery came, said to be from a publisher; one that is not what it published is strange."""
        publications, number = self.publications.get(publisher), values.get("n")
        if publications is None or type(number) is not int or not 0 <= number < len(publications):
            subscription.strange.append(f"{publisher} never published {dict(values)}")
        elif values != publications.values(number):
            subscription.strange.append(f"{publisher} published {publications.values(number)}, not {dict(values)}")
        else:
            subscription.arrived(publisher, number, now_s)

    def subscription(self, subscriber: str, wanted: Wanted) -> SubscriptionHistory:
        """Begin a subscription."""
        found = SubscriptionHistory(subscriber, wanted)
        self.subscriptions.append(found)
        return found

    def write(self, path: Path) -> None:
        """Keep it as lines of JSON: publishers, then subscriptions."""
        with path.open("wb") as file:
            for publications in self.publications.values():
                file.write(msgspec.json.encode(publications.as_values()) + b"\n")
            for subscription in self.subscriptions:
                file.write(msgspec.json.encode(subscription.as_values()) + b"\n")


def _rounded(times_s: array[float]) -> list[float]:
    return [round(time_s, 4) for time_s in times_s]
