"""The fields of datasets and the parameters of channels, and what values they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from trimtab.activedata.definitions.types import ValueMistake, arrow, check, example, parse_type
from trimtab.activedata.definitions.types import stored as stored_value

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Field",
    "Row",
    "Scalar",
    "Value",
    "ValueMistake",
    "arrow_schema",
    "arrow_type",
    "check_value",
    "example_value",
    "stored",
]

Scalar: TypeAlias = str | int | float | bool | None
"""A value of a record or an argument, as JSON writes it; a time is a text in ISO 8601."""

Value: TypeAlias = Scalar | list[Any] | dict[str, Any]
"""A value of a record, with arrays and structs."""

Row: TypeAlias = tuple[Value, ...]
"""The values of a record in the order of the fields."""


class Field(msgspec.Struct, frozen=True):
    """A field of a dataset or a parameter of a channel."""

    name: str
    type: str
    optional: bool = False


def check_value(field: Field, value: object) -> Any:
    """The value as it is stored, or a mistake that names the field.

    >>> check_value(Field("x", "DOUBLE"), 3)
    3.0
    """
    if value is None:
        if field.optional:
            return None
        raise ValueMistake(f"field {field.name!r} is missing")
    return check(parse_type(field.type), value, f"field {field.name!r}")


def stored(field: Field, value: object) -> Any:
    """The value as Arrow takes it: times as times, everything else as it is."""
    return stored_value(parse_type(field.type), value)


def arrow_type(type_name: str) -> pa.DataType:
    """The Arrow type of a field."""
    return arrow(parse_type(type_name))


def example_value(type_name: str) -> Any:
    """A value of a type, as Arrow takes it."""
    return example(parse_type(type_name))


def arrow_schema(fields: tuple[Field, ...], *more: tuple[str, pa.DataType]) -> pa.Schema:
    """The Arrow schema of fields, and of further columns behind them."""
    import pyarrow as pa

    own = [pa.field(each.name, arrow_type(each.type), nullable=True) for each in fields]
    return pa.schema([*own, *(pa.field(name, type_) for name, type_ in more)])
