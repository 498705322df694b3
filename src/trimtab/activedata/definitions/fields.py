"""The types of fields and parameters, and what values they take."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

Scalar: TypeAlias = str | int | float | bool | None
"""A value of a record or an argument, as JSON writes it; a time is a text in ISO 8601."""

TYPE_NAMES: Final = {
    "STRING": "STRING",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "DOUBLE": "DOUBLE",
    "FLOAT": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "TIMESTAMP": "TIMESTAMP",
}
"""The spellings of each type, and its name in Spark."""

_INTEGER_BITS: Final = {"INT": 31, "BIGINT": 63}
_SAID: Final = {
    "STRING": "a string",
    "INT": "a whole number of 32 bits",
    "BIGINT": "a whole number of 64 bits",
    "DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "TIMESTAMP": "a time in ISO 8601, such as 2026-05-01T10:00:00Z",
}


class Field(msgspec.Struct, frozen=True):
    """A field of a dataset or a parameter of a channel."""

    name: str
    type: str
    optional: bool = False


class ValueMistake(ValueError):
    """A value that its field does not take; the message says why."""


def check_value(field: Field, value: object) -> Scalar:
    """The value as it is stored, or a mistake that names the field.

    >>> check_value(Field("x", "DOUBLE"), 3)
    3.0
    """
    if value is None:
        if field.optional:
            return None
        raise ValueMistake(f"field {field.name!r} is missing")
    match field.type, value:
        case "STRING", str():
            return value
        case "BOOLEAN", bool():
            return value
        case "DOUBLE", int() | float() if not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        case (("INT" | "BIGINT"), int()) if not isinstance(value, bool):
            if -(1 << _INTEGER_BITS[field.type]) <= value < 1 << _INTEGER_BITS[field.type]:
                return value
        case "TIMESTAMP", str():
            try:
                datetime.datetime.fromisoformat(value)
            except ValueError:
                pass
            else:
                return value
    shown = repr(value if not isinstance(value, str) or len(value) <= 40 else value[:37] + "...")
    raise ValueMistake(f"field {field.name!r} must be {_SAID[field.type]}, and is {shown}")


def stored(field: Field, value: object) -> object:
    """The value as Arrow takes it: times as times, everything else as it is."""
    if field.type == "TIMESTAMP" and isinstance(value, str):
        time = datetime.datetime.fromisoformat(value)
        return time.astimezone(datetime.UTC) if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    return value


def arrow_type(type_name: str) -> pa.DataType:
    """The Arrow type of a field."""
    import pyarrow as pa

    return {
        "STRING": pa.string(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    }[type_name]


def arrow_schema(fields: tuple[Field, ...], *more: tuple[str, pa.DataType]) -> pa.Schema:
    """The Arrow schema of fields, and of further columns behind them."""
    import pyarrow as pa

    own = [pa.field(each.name, arrow_type(each.type), nullable=True) for each in fields]
    return pa.schema([*own, *(pa.field(name, type_) for name, type_ in more)])
