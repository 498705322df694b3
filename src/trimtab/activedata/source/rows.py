"""Rows of the data source from what publications and results say, and back."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

Columns: TypeAlias = tuple[tuple[str, str], ...]
"""Names and types of columns, as Spark names types."""

PUBLICATION_SCHEMA: Final = "publisher STRING, session STRING, sequence BIGINT, attributes STRING"
RESULT_SCHEMA: Final = "position BIGINT, id STRING, executed_s DOUBLE, fields STRING"
"""Without a schema of the user's, what is said comes as JSON in the last column."""


def columns_of(schema: StructType) -> Columns:
    """The columns of a schema."""
    return tuple((field.name, field.dataType.simpleString()) for field in schema.fields)


def row_of(columns: Columns, own: Mapping[str, object], said: Mapping[str, object], rest: str) -> tuple[object, ...]:
    """A row: columns with a name of `own` have its value, `rest` has everything said as JSON, others what is said.

    With a schema of the user's, `own` is asked for by names with an underscore in front.

    >>> row_of((("sequence", "bigint"), ("attributes", "string")), {"sequence": 3}, {"x": 1}, "attributes")
    (3, '{"x":1}')
    >>> row_of((("x", "double"), ("_sequence", "bigint")), {"sequence": 3}, {"x": 1}, "attributes")
    (1.0, 3)
    """
    names = {name for name, _ in columns}
    is_default = rest in names and names <= {*own, rest}
    row: list[object] = []
    for name, type_name in columns:
        if is_default:
            row.append(msgspec.json.encode(said).decode() if name == rest else own[name])
        elif name.startswith("_") and name[1:] in own:
            row.append(own[name[1:]])
        else:
            row.append(_typed(said.get(name), type_name))
    return tuple(row)


def _typed(value: Any, type_name: str) -> object:
    """A value as its column takes it; null if it is of another type."""
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match type_name:
        case "string":
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        case "double" | "float":
            return float(value) if is_number else None
        case "bigint" | "int" | "smallint" | "tinyint":
            return int(value) if is_number and value == int(value) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "timestamp":
            try:
                time = datetime.datetime.fromisoformat(value)
            except (ValueError, TypeError):
                return None
            return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    return value


def attributes_of(row: Row) -> dict[str, Any]:
    """The attributes that a row is published with: what has no value is left out, what is nested is JSON."""
    found: dict[str, Any] = {}
    for name, value in row.asDict(recursive=True).items():
        match value:
            case None:
                continue
            case str() | bool() | int() | float():
                found[name] = value
            case datetime.datetime() | datetime.date():
                found[name] = value.isoformat()
            case list() | dict():
                found[name] = msgspec.json.encode(value, enc_hook=str).decode()
            case _:
                found[name] = str(value)
    return found
