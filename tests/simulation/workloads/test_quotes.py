"""Quotes are read from files with clear errors, and made up plausibly."""

import datetime
import gzip
from pathlib import Path
from random import Random

import pytest

from trimtab.simulation.workloads.quotes import Quote, QuotesError, generate_quotes, load_quotes

HEADER = "symbol,date,open,high,low,close,volume\n"
ROW = "ABX,2014-01-02,19.1,19.57,19.0,19.54,3120900\n"
QUOTE = Quote("ABX", datetime.date(2014, 1, 2), 19.1, 19.57, 19.0, 19.54, 3120900)


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv"
    path.write_text(HEADER + ROW, encoding="utf-8")
    assert load_quotes(path) == [QUOTE]


def test_a_compressed_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "quotes.data"
    path.write_bytes(gzip.compress((HEADER + ROW).encode()))
    assert load_quotes(path) == [QUOTE]


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv"
    path.write_bytes(b"\xef\xbb\xbf" + (HEADER + "\n" + ROW).replace("\n", "\r\n").encode())
    assert load_quotes(path) == [QUOTE]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "quotes.csv: the file is empty"),
        (HEADER, "quotes.csv: no quotes after the header"),
        ("a,b\n", "quotes.csv:1: the header must be symbol,date,open,high,low,close,volume"),
        (HEADER + "ABX,2014-01-02,19.1\n", "quotes.csv:2: 3 fields; expected 7"),
        (HEADER + ROW + ROW.replace("19.57", "much"), "quotes.csv:3: high: 'much' is not a number"),
        (HEADER + ROW.replace("19.57", "nan"), "quotes.csv:2: high: nan is not a price"),
        (HEADER + ROW.replace("19.0,", "-1,"), "quotes.csv:2: low: -1 is not a price"),
        (HEADER + ROW.replace("2014-01-02", "2. Jan."), "quotes.csv:2: date: '2. Jan.' is not a date"),
        (HEADER + ROW.replace("3120900", "3.5"), "quotes.csv:2: volume: '3.5' is not a whole number"),
        (HEADER + ROW.replace("3120900", "9" * 30), "quotes.csv:2: volume: 9"),
        (HEADER + ROW.replace("ABX", ""), "quotes.csv:2: symbol: empty"),
        (HEADER + "x" * 5_000 + "\n", "quotes.csv:2: a line of 5,001 bytes"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "quotes.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(QuotesError) as refusal:
        load_quotes(path)
    assert str(refusal.value).startswith(f"{tmp_path}/{message}")


def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv"
    path.write_bytes(HEADER.encode() + b"\xff\n")
    with pytest.raises(QuotesError, match=r"quotes\.csv:2: not UTF-8 at byte 1"):
        load_quotes(path)


def test_a_damaged_compressed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv.gz"
    path.write_bytes(gzip.compress((HEADER + ROW * 100).encode())[:40])
    with pytest.raises(QuotesError, match=r"quotes\.csv\.gz: damaged gzip data"):
        load_quotes(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuotesError, match="directory"):
        load_quotes(tmp_path)


def test_generated_quotes_are_plausible_and_the_same_for_the_same_seed() -> None:
    quotes = generate_quotes(Random(3), symbols_count=10, days_count=40)
    assert quotes == generate_quotes(Random(3), symbols_count=10, days_count=40)
    assert quotes != generate_quotes(Random(4), symbols_count=10, days_count=40)
    assert len({quote.symbol for quote in quotes}) == 10
    for quote in quotes:
        assert 0 < quote.low <= min(quote.open, quote.close) <= max(quote.open, quote.close) <= quote.high
        assert quote.volume >= 100
        assert quote.date.weekday() < 5
