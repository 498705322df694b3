"""Daily stock quotes: read from a file, or made up where there is none.

The file is CSV, plain or gzip-compressed, with the header `symbol,date,open,high,low,close,volume` and ISO dates. The
generator lets each price follow a random walk with its own level and volatility, so that symbols differ as real ones do
and a day's high and low enclose its open and close.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import msgspec

HEADER: Final = ("symbol", "date", "open", "high", "low", "close", "volume")

_GZIP_START: Final = b"\x1f\x8b"
_LINE_MAX_BYTES: Final = 4_096
_FIRST_DAY: Final = datetime.date(2014, 1, 2)
_SATURDAY: Final = 5
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Quote(msgspec.Struct, frozen=True, gc=False):
    """One trading day of one stock."""

    symbol: str
    date: datetime.date
    open: float
    high: float
    low: float
    close: float
    volume: int


class QuotesError(ValueError):
    """A quotes file that cannot be used; the message names the file and, where there is one, the line."""


def load_quotes(path: Path) -> list[Quote]:
    """Read a quotes file, compressed or not.

    >>> load_quotes(Path("no-such-file.csv"))
    Traceback (most recent call last):
    ...
    trimtab.simulation.workloads.quotes.QuotesError: no-such-file.csv: No such file or directory
    """
    try:
        with path.open("rb") as plain:
            compressed = plain.read(len(_GZIP_START)) == _GZIP_START
            plain.seek(0)
            if compressed:
                with gzip.open(plain) as unpacked:
                    return _read(path, unpacked)
            return _read(path, plain)
    except OSError as error:
        raise QuotesError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise QuotesError(f"{path}: damaged gzip data: {error}") from None


def _read(path: Path, lines: Iterable[bytes]) -> list[Quote]:
    rows = csv.reader(_decoded(path, lines), strict=True)
    quotes: list[Quote] = []
    try:
        header = next(rows, None)
        if header is None:
            raise QuotesError(f"{path}: the file is empty; its first line must be {','.join(HEADER)}")
        if tuple(name.strip().lower() for name in header) != HEADER:
            raise QuotesError(f"{path}:1: the header must be {','.join(HEADER)}, not {','.join(header)!r}")
        for row in rows:
            if row:
                quotes.append(_quote(row))
    except csv.Error as error:
        raise QuotesError(f"{path}:{rows.line_num}: {error}") from None
    except _BadRow as error:
        raise QuotesError(f"{path}:{rows.line_num}: {error}") from None
    if not quotes:
        raise QuotesError(f"{path}: no quotes after the header")
    return quotes


def _decoded(path: Path, lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > _LINE_MAX_BYTES:
            raise QuotesError(
                f"{path}:{number}: a line of {len(line):,} bytes; at most {_LINE_MAX_BYTES:,} are allowed"
            )
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise QuotesError(f"{path}:{number}: not UTF-8 at byte {error.start + 1} of the line") from None


class _BadRow(ValueError):
    """A row that is not a quote."""


def _quote(row: list[str]) -> Quote:
    if len(row) != len(HEADER):
        raise _BadRow(f"{len(row)} fields; expected {len(HEADER)}: {','.join(HEADER)}")
    symbol, date, *prices, volume = (field.strip() for field in row)
    if not symbol:
        raise _BadRow("symbol: empty")
    try:
        day = datetime.date.fromisoformat(date)
    except ValueError:
        raise _BadRow(f"date: {date!r} is not a date such as 2014-01-02") from None
    opened, high, low, close = (_price(*field) for field in zip(HEADER[2:6], prices, strict=True))
    return Quote(symbol, day, opened, high, low, close, _volume(volume))


def _price(name: str, text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        raise _BadRow(f"{name}: {text!r} is not a number") from None
    if not math.isfinite(price) or price < 0:
        raise _BadRow(f"{name}: {text} is not a price")
    return price


def _volume(text: str) -> int:
    try:
        volume = int(text)
    except ValueError:
        raise _BadRow(f"volume: {text[:40]!r} is not a whole number") from None
    if not 0 <= volume < 2**63:
        raise _BadRow(f"volume: {text[:40]} is not a number of shares")
    return volume


def generate_quotes(rng: Random, symbols_count: int = 60, days_count: int = 250) -> list[Quote]:
    """Make up plausible daily quotes, symbol by symbol.

    >>> quotes = generate_quotes(Random(7), symbols_count=3, days_count=5)
    >>> len(quotes), all(quote.low <= quote.close <= quote.high for quote in quotes)
    (15, True)
    """
    return [quote for symbol in _symbols(rng, symbols_count) for quote in _walk(rng, symbol, days_count)]


def _symbols(rng: Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(_LETTERS, k=rng.choice((2, 3, 3, 4))))] = None
    return sorted(found)


def _walk(rng: Random, symbol: str, days_count: int) -> Iterator[Quote]:
    close = rng.lognormvariate(3.4, 0.9)
    volatility = rng.uniform(0.008, 0.03)
    usual_volume = rng.lognormvariate(13.8, 0.9)
    day = _FIRST_DAY
    for _ in range(days_count):
        opened = close * math.exp(rng.gauss(0.0, volatility / 3))
        close = max(0.05, opened * math.exp(rng.gauss(0.0, volatility)))
        high = max(opened, close) * math.exp(abs(rng.gauss(0.0, volatility / 2)))
        low = min(opened, close) * math.exp(-abs(rng.gauss(0.0, volatility / 2)))
        volume = 100 * max(1, round(usual_volume * rng.lognormvariate(0.0, 0.45) / 100))
        yield Quote(symbol, day, round(opened, 2), round(high, 2), round(low, 2), round(close, 2), volume)
        day = _next_trading_day(day)


def _next_trading_day(day: datetime.date) -> datetime.date:
    day += datetime.timedelta(days=1)
    while day.weekday() >= _SATURDAY:
        day += datetime.timedelta(days=1)
    return day
