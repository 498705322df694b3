"""Records as they came: lines of JSON, rows of CSV and rows of Parquet, each decoded or with the mistake in it."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.definitions.fields import Field

if TYPE_CHECKING:
    import pyarrow as pa

_TRUTHS: Final = {"true": True, "t": True, "1": True, "yes": True, "false": False, "f": False, "0": False, "no": False}


class RawRecord(msgspec.Struct, frozen=True):
    """A record: where it stands in its source, what it says (None if it cannot be read) and the mistake in it."""

    place: int
    text: str
    value: object
    mistake: str | None = None


def format_of(name: str, given: str | None = None) -> tuple[str, bool]:
    """The format of a file and whether it is compressed, by its name unless the feed says it.

    >>> format_of("a.csv.gz"), format_of("part-0.parquet"), format_of("log"), format_of("x.txt", "CSV")
    (('CSV', True), ('PARQUET', False), ('JSON', False), ('CSV', False))
    """
    name = name.lower()
    packed = name.endswith(".gz")
    name = name.removesuffix(".gz")
    if given is not None:
        return given, packed and given != "PARQUET"
    if name.endswith((".parquet", ".pq")):
        return "PARQUET", False
    return ("CSV" if name.endswith(".csv") else "JSON"), packed


def json_records(data: bytes, place: int) -> list[RawRecord]:
    """The records of lines of JSON; `place` is where the first line stands in its source.

    >>> [(each.place, each.value, each.mistake) for each in json_records(b'{"x": 1}\\n\\n[', 10)]
    [(10, {'x': 1}, None), (20, None, 'Input data was truncated')]
    """
    found: list[RawRecord] = []
    for line in data.split(b"\n"):
        if line.strip():
            found.append(json_record(line, place))
        place += len(line) + 1
    return found


def json_record(line: bytes, place: int) -> RawRecord:
    """The record of one line."""
    text = line.decode(errors="replace")
    try:
        return RawRecord(place, text, msgspec.json.decode(line))
    except Exception as error:  # whatever a line does to the decoder is a mistake of the line
        return RawRecord(place, text, None, str(error) or type(error).__name__)


def csv_records(data: bytes, place: int, header: Sequence[str], fields: Sequence[Field]) -> list[RawRecord]:
    """The records of rows of CSV whose columns a header names; each value is read as its field's type.

    >>> fields = [Field("id", "STRING"), Field("n", "INT", optional=True)]
    >>> [each.value for each in csv_records(b'a,1\\n"b, c",\\n', 0, ["id", "n"], fields)]
    [{'id': 'a', 'n': 1}, {'id': 'b, c', 'n': None}]
    """
    types = {field.name: field.type for field in fields}
    found: list[RawRecord] = []
    for row_bytes in _csv_rows(data):
        text = row_bytes.decode(errors="replace").rstrip("\r\n")
        if text.strip():
            found.append(_csv_record(text, place, header, types))
        place += len(row_bytes)
    return found


def csv_header(row: bytes) -> list[str]:
    """The names in a header row."""
    text = row.decode(errors="replace").removeprefix("\ufeff").rstrip("\r\n")
    return [name.strip() for name in next(csv.reader([text]), [])]


def whole_rows(data: bytes, file_format: str) -> bytes:
    """The part of data that ends with the end of a record; in CSV a line break within quotes ends none.

    >>> whole_rows(b'a\\nb', "JSON"), whole_rows(b'1,"x\\ny', "CSV"), whole_rows(b'1,"x\\ny"\\n', "CSV")
    (b'a\\n', b'', b'1,"x\\ny"\\n')
    """
    end = data.rfind(b"\n") + 1
    while file_format == "CSV" and end and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return data[:end]


def parquet_records(file: IO[bytes], after: int, at_once_count: int) -> Iterator[list[RawRecord]]:
    """The rows of a Parquet file after the first so many, in parts; a row's place is its number."""
    import pyarrow.parquet as pq

    place = 0
    for batch in pq.ParquetFile(file).iter_batches(at_once_count):
        if place + batch.num_rows > after:
            start = max(0, after - place)
            yield list(_rows(batch.slice(start), place + start))
        place += batch.num_rows


def _rows(batch: pa.RecordBatch, place: int) -> Iterator[RawRecord]:
    for number, row in enumerate(batch.to_pylist()):
        yield row_record(row, place + number)


def row_record(row: dict[str, object], place: int) -> RawRecord:
    """The record of a row of a table.

    >>> row_record({"at": datetime.date(2026, 5, 1), "n": 1}, 7).text
    '{"at":"2026-05-01","n":1}'
    """
    value = {name: _plain(each) for name, each in row.items()}
    return RawRecord(place, msgspec.json.encode(value, enc_hook=str).decode(), value)


def _plain(value: object) -> object:
    """A value as JSON would write it, which is how records are checked."""
    match value:
        case datetime.datetime() | datetime.date():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case bytes():
            return value.decode(errors="replace")
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value


def _csv_rows(data: bytes) -> Iterator[bytes]:
    """The rows with their ends; lines within quotes belong together."""
    row = b""
    for line in io.BytesIO(data):
        row += line
        if row.count(b'"') % 2 == 0:
            yield row
            row = b""
    if row:
        yield row


def _csv_record(text: str, place: int, header: Sequence[str], types: dict[str, str]) -> RawRecord:
    try:
        row = next(csv.reader(io.StringIO(text, newline=""), strict=True))
        if len(row) != len(header):
            return RawRecord(place, text, None, f"{len(row)} values under {len(header)} columns")
        value = {name: _typed(types.get(name, "STRING"), each) for name, each in zip(header, row, strict=True)}
    except Exception as error:  # whatever a row does to the reader is a mistake of the row
        return RawRecord(place, text, None, str(error) or type(error).__name__)
    return RawRecord(place, text, value)


def _typed(type_name: str, text: str) -> Any:
    """A value of a column by its field's type; what cannot be read stays a text, which the field refuses."""
    if type_name == "STRING":
        return text or None
    text = text.strip()
    if not text:
        return None
    try:
        match type_name:
            case "INT" | "BIGINT":
                return int(text)
            case "DOUBLE":
                return float(text)
            case "BOOLEAN":
                return _TRUTHS.get(text.lower(), text)
            case _ if text[0] in "[{":
                return msgspec.json.decode(text)
    except (ValueError, msgspec.DecodeError):
        pass
    return text
