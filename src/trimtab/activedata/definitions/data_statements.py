"""The statements that change the records of datasets: INSERT, UPSERT, UPDATE, DELETE, COPY and ALTER.

Conditions, expressions and queries are Spark's SQL, and stay text with their place.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias

import msgspec

from trimtab.activedata.definitions.fields import Field, Value
from trimtab.activedata.definitions.tokens import Token, TokenReader, string_value
from trimtab.activedata.definitions.types import read_type
from trimtab.activedata.errors import StatementError

DURATION_MAX_S: Final = 1e9

FORMATS: Final = ("JSON", "CSV", "PARQUET")
_ENDINGS: Final = {".json": "JSON", ".jsonl": "JSON", ".ndjson": "JSON", ".csv": "CSV", ".parquet": "PARQUET"}
_COMPRESSIONS: Final = frozenset({".gz", ".bz2", ".zst"})


class Part(msgspec.Struct, frozen=True):
    """A part of a statement that is Spark's SQL, and where it starts in the statements' text."""

    text: str
    start: int = 0


class Put(msgspec.Struct, frozen=True):
    """`INSERT INTO dataset [(field, ...)] VALUES (value, ...), ...` or a SELECT; or UPSERT, there also `AS NEW`."""

    dataset: str
    columns: tuple[str, ...] | None
    rows: tuple[tuple[Value, ...], ...]
    upsert: bool
    position: int = 0
    query: Part | None = None
    as_new: bool = False


class Update(msgspec.Struct, frozen=True):
    """`UPDATE dataset SET field = expression, ... [WHERE condition] [AS NEW]`."""

    dataset: str
    assignments: tuple[tuple[str, Part], ...]
    condition: Part | None
    as_new: bool = False
    position: int = 0


class Delete(msgspec.Struct, frozen=True):
    """`DELETE FROM dataset [WHERE condition]`."""

    dataset: str
    condition: Part | None
    position: int = 0


class Copy(msgspec.Struct, frozen=True):
    """`COPY INTO dataset FROM 'path' [FORMAT JSON | CSV | PARQUET] [WITHOUT HEADER] [AS NEW]`: files, by Spark."""

    dataset: str
    path: str
    format: str
    header: bool = True
    position: int = 0


class AlterDataset(msgspec.Struct, frozen=True):
    """`ALTER DATASET name ADD FIELD field TYPE, ...` (records have it or not) or `ALTER DATASET name RETAIN n DAYS`."""

    name: str
    fields: tuple[Field, ...] = ()
    retain_s: float | None = None
    position: int = 0


DataStatement: TypeAlias = Put | Update | Delete | Copy | AlterDataset


def read_put(reader: TokenReader) -> Put:
    """Read INSERT or UPSERT."""
    upsert = reader.take().upper == "UPSERT"
    reader.need("INTO")
    dataset = reader.need_name("the dataset's name")
    columns: list[str] | None = None
    if reader.skip("("):
        columns = [reader.need_name("a field").text]
        while reader.skip(","):
            columns.append(reader.need_name("a field").text)
        reader.need(")")
    names = None if columns is None else tuple(columns)
    as_new = upsert and reader.skip("AS", "NEW")
    if reader.at("SELECT") or reader.at("WITH"):
        return Put(dataset.text, names, (), upsert, dataset.start, _rest(reader), as_new)
    if not reader.at("VALUES"):
        raise reader.expected("VALUES or SELECT")
    reader.take()
    rows: list[tuple[Value, ...]] = []
    while not rows or reader.skip(","):
        row_start = reader.need("(")
        row = [read_value(reader)]
        while reader.skip(","):
            row.append(read_value(reader))
        reader.need(")")
        if columns is not None and len(row) != len(columns):
            raise StatementError(reader.text, row_start.start, f"{len(row)} values for {len(columns)} fields")
        rows.append(tuple(row))
    return Put(dataset.text, names, tuple(rows), upsert, dataset.start, None, as_new)


def read_update(reader: TokenReader) -> Update:
    """Read UPDATE."""
    reader.need("UPDATE")
    dataset = reader.need_name("the dataset's name")
    reader.need("SET")
    assignments: list[tuple[str, Part]] = []
    while not assignments or reader.skip(","):
        field = reader.need_name("a field")
        if any(name.lower() == field.text.lower() for name, _ in assignments):
            raise reader.refuse(field, f"{field.text!r} is set twice")
        reader.need("=")
        assignments.append(
            (field.text, _until(reader, lambda: reader.at(",") or reader.at("WHERE") or _at_end(reader)))
        )
    condition = _condition(reader)
    as_new = reader.skip("AS", "NEW")
    return Update(dataset.text, tuple(assignments), condition, as_new, dataset.start)


def read_delete(reader: TokenReader) -> Delete:
    """Read DELETE."""
    reader.need("DELETE", "FROM")
    dataset = reader.need_name("the dataset's name")
    return Delete(dataset.text, _condition(reader), dataset.start)


def read_copy(reader: TokenReader) -> Copy:
    """Read COPY; the format is known by the ending of the path, or said."""
    reader.need("COPY", "INTO")
    dataset = reader.need_name("the dataset's name")
    reader.need("FROM")
    at = reader.next
    path = reader.need_string("the path of a file or directory")
    file_format = format_of(path)
    if reader.skip("FORMAT"):
        token = reader.take()
        if token.upper not in FORMATS:
            raise reader.expected(", ".join(FORMATS), token)
        file_format = token.upper
    if not file_format:
        raise reader.refuse(at, "the format cannot be known from the path; say FORMAT JSON, CSV or PARQUET")
    header = not reader.skip("WITHOUT", "HEADER")
    if not header and file_format != "CSV":
        raise reader.refuse(at, "only CSV has a header")
    return Copy(dataset.text, path, file_format, header, dataset.start)


def format_of(path: str) -> str:
    """The format that the ending of a path tells, empty if none.

    >>> format_of("reports/2026-05.jsonl.gz")
    'JSON'
    """
    endings = [each.lower() for each in PurePosixPath(path).suffixes]
    if endings and endings[-1] in _COMPRESSIONS:
        endings.pop()
    return _ENDINGS.get(endings[-1], "") if endings else ""


def read_alter(reader: TokenReader) -> AlterDataset:
    """Read ALTER DATASET."""
    reader.need("ALTER", "DATASET")
    name = reader.need_name("the dataset's name")
    if reader.skip("RETAIN"):
        return AlterDataset(name.text, retain_s=read_duration_s(reader), position=name.start)
    reader.need("ADD", "FIELD")
    fields: list[Field] = []
    while not fields or reader.skip(","):
        field = reader.need_name("the name of a field")
        if field.text.startswith("_") or not field.text.isidentifier() or not field.text.isascii():
            raise reader.refuse(field, f"{field.text!r} is no name for a field: letters, digits and _ only, no _ first")
        fields.append(Field(field.text, read_type(reader, field.text).text, True))
        reader.skip("OPTIONAL")
    return AlterDataset(name.text, tuple(fields), position=name.start)


UNITS_S: Final = {"SECOND": 1.0, "MINUTE": 60.0, "HOUR": 3_600.0, "DAY": 86_400.0}


def read_duration_s(reader: TokenReader) -> float:
    """Read a number and a unit of time."""
    number = reader.take()
    if number.kind != "number" or not 0 < float(number.text) < DURATION_MAX_S:
        raise reader.expected("a number above 0 and below a billion", number)
    unit = reader.take()
    factor = UNITS_S.get(unit.upper.removesuffix("S"))
    if factor is None:
        raise reader.expected("SECONDS, MINUTES, HOURS or DAYS", unit)
    return float(number.text) * factor


def read_value(reader: TokenReader) -> Any:
    """Read a value: a number, a quoted string, true, false, null, `[value, ...]` or `{name: value, ...}`."""
    token = reader.take()
    if token.text == "[":
        found: list[Any] = []
        while not reader.skip("]"):
            if found:
                reader.need(",")
            found.append(read_value(reader))
        return found
    if token.text == "{":
        return _members(reader)
    return _scalar(reader, token)


def _members(reader: TokenReader) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while not reader.skip("}"):
        if found:
            reader.need(",")
        name = reader.take()
        if name.kind not in ("word", "string", "quoted"):
            raise reader.expected("the name of a member", name)
        reader.need(":")
        found[string_value(name) if name.kind == "string" else name.text.strip("`")] = read_value(reader)
    return found


def _scalar(reader: TokenReader, token: Token) -> Any:
    sign = 1
    if token.text in ("-", "+"):
        sign = -1 if token.text == "-" else 1
        token = reader.take()
        if token.kind != "number":
            raise reader.expected("a number", token)
    match token.kind, token.upper:
        case "string", _:
            return string_value(token)
        case "number", text:
            return sign * (int(text) if text.isdigit() else float(text))
        case "word", "TRUE" | "FALSE":
            return token.upper == "TRUE"
        case "word", "NULL":
            return None
    raise reader.expected("a value (a number, true, false, null or a quoted string)", token)


def _at_end(reader: TokenReader) -> bool:
    return reader.next.kind == "end" or reader.at(";") or reader.at("AS", "NEW")


def _condition(reader: TokenReader) -> Part | None:
    return _until(reader, lambda: _at_end(reader)) if reader.skip("WHERE") else None


def _rest(reader: TokenReader) -> Part:
    return _until(reader, lambda: reader.next.kind == "end" or reader.at(";"))


def _until(reader: TokenReader, is_over: Callable[[], bool]) -> Part:
    """What stands before the next token, outside brackets, at which it is over."""
    start = reader.next.start
    end = start
    depth = 0
    while reader.next.kind != "end" and not reader.at(";") and not (depth == 0 and is_over()):
        token = reader.take()
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0) if token.kind == "mark" else 0
        end = token.end
    if end == start:
        raise reader.expected("an expression")
    return Part(reader.text[start:end], start)
