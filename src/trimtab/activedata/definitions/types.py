"""The types of fields and parameters: how they are written, what values they take, and what they are in Arrow.

A type is kept as its text in one spelling, which is Spark's too: `DECIMAL(10,2)`, `ARRAY<STRING>`,
`STRUCT<x: DOUBLE, y: DOUBLE>`. Values are as JSON writes them until they are stored.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.definitions.tokens import TokenReader
from trimtab.activedata.errors import StatementError

if TYPE_CHECKING:
    import pyarrow as pa

SCALAR_NAMES: Final = {
    "STRING": "STRING",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "DOUBLE": "DOUBLE",
    "FLOAT": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "TIMESTAMP": "TIMESTAMP",
    "DATE": "DATE",
}
"""The spellings of each type without parts, and its name in Spark."""

TYPES_SAID: Final = f"{', '.join(SCALAR_NAMES)}, DECIMAL(digits, scale), ARRAY<type>, STRUCT<name: type, ...>"

DECIMAL_DIGITS_MAX: Final = 38
DEPTH_MAX: Final = 8
"""So deep may arrays and structs be nested."""

_INTEGER_BITS: Final = {"INT": 31, "BIGINT": 63}
_SAID: Final = {
    "STRING": "a string",
    "INT": "a whole number of 32 bits",
    "BIGINT": "a whole number of 64 bits",
    "DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "TIMESTAMP": "a time in ISO 8601, such as 2026-05-01T10:00:00Z",
    "DATE": "a day, such as 2026-05-01",
    "ARRAY": "a list",
    "STRUCT": "an object",
}
_NUMBERS: Final = decimal.Context(prec=60, traps=[decimal.InvalidOperation, decimal.Overflow])


class ValueMistake(ValueError):
    """A value that its field does not take; the message says why."""


class Type(msgspec.Struct, frozen=True):
    """A type taken apart: `members` are the fields of a struct; the member of an array has no name."""

    name: str
    digits: int = 0
    scale: int = 0
    members: tuple[tuple[str, Type], ...] = ()

    @property
    def text(self) -> str:
        """The one spelling of this type."""
        match self.name:
            case "DECIMAL":
                return f"DECIMAL({self.digits},{self.scale})"
            case "ARRAY":
                return f"ARRAY<{self.members[0][1].text}>"
            case "STRUCT":
                return f"STRUCT<{', '.join(f'{name}: {each.text}' for name, each in self.members)}>"
            case _:
                return self.name

    @property
    def said(self) -> str:
        """What a value of this type is, in words."""
        if self.name == "DECIMAL":
            return f"a number of at most {self.digits} digits, {self.scale} of them behind the point"
        return _SAID[self.name]


@functools.cache
def parse_type(text: str) -> Type:
    """Take the text of a type apart.

    >>> parse_type("array<struct<x:decimal(4, 1)>>").text
    'ARRAY<STRUCT<x: DECIMAL(4,1)>>'
    """
    return read_type(TokenReader(text), "the value")


def read_type(reader: TokenReader, of: str, depth: int = 0) -> Type:
    """Read a type where a statement names one; `of` says whose type it is."""
    token = reader.need_name(f"the type of {of!r}")
    name = token.upper
    if name in SCALAR_NAMES:
        return Type(SCALAR_NAMES[name])
    if depth >= DEPTH_MAX:
        raise reader.refuse(token, f"types may be nested {DEPTH_MAX} deep")
    match name:
        case "DECIMAL":
            return _decimal(reader)
        case "ARRAY":
            reader.need("<")
            element = read_type(reader, of, depth + 1)
            reader.need(">")
            return Type("ARRAY", members=(("", element),))
        case "STRUCT":
            return _struct(reader, depth)
    raise reader.refuse(token, f"unknown type {token.text!r}; there are {TYPES_SAID}")


def _decimal(reader: TokenReader) -> Type:
    digits, scale = 10, 0
    if reader.skip("("):
        start = reader.next
        digits = _whole(reader)
        scale = _whole(reader) if reader.skip(",") else 0
        reader.need(")")
        if not (1 <= digits <= DECIMAL_DIGITS_MAX and scale <= digits):
            raise reader.refuse(start, f"a DECIMAL has 1 to {DECIMAL_DIGITS_MAX} digits, and not more behind the point")
    return Type("DECIMAL", digits, scale)


def _whole(reader: TokenReader) -> int:
    token = reader.take()
    if not token.text.isdigit():
        raise reader.expected("a whole number", token)
    return int(token.text)


def _struct(reader: TokenReader, depth: int) -> Type:
    reader.need("<")
    members: list[tuple[str, Type]] = []
    while not reader.skip(">"):
        if members:
            reader.need(",")
        token = reader.need_name("the name of a member")
        if any(name.lower() == token.text.lower() for name, _ in members):
            raise reader.refuse(token, f"there are two members named {token.text!r}")
        if reader.next.kind == "parameter":  # `x:INT` without a space
            inner = reader.next
            reader.tokens[reader.index] = msgspec.structs.replace(
                inner, kind="word", text=inner.text[1:], start=inner.start + 1
            )
        else:
            reader.skip(":")
        members.append((token.text, read_type(reader, token.text, depth + 1)))
    if not members:
        raise StatementError(reader.text, reader.next.start, "a STRUCT needs at least one member")
    return Type("STRUCT", members=tuple(members))


def check(type_: Type, value: Any, what: str) -> Any:
    """The value in the form in which it is kept, or a mistake that names the field (`what`).

    >>> check(parse_type("DECIMAL(5,2)"), 12.5, "field 'price'")
    '12.50'
    """
    match type_.name, value:
        case "STRING", str():
            if _is_text(value):
                return value
        case "BOOLEAN", bool():
            return value
        case "DOUBLE", int() | float() if not isinstance(value, bool):
            if isinstance(value, int) and abs(value) >= 1 << 1023:
                raise ValueMistake(f"{what} must be a number, and is too large")
            if math.isfinite(value):
                return float(value)
        case (("INT" | "BIGINT"), int()) if not isinstance(value, bool):
            bits = _INTEGER_BITS[type_.name]
            if -(1 << bits) <= value < 1 << bits:
                return value
            if value.bit_length() > 128:
                raise ValueMistake(f"{what} must be {type_.said}, and has about {value.bit_length() // 3} digits")
        case "TIMESTAMP", str():
            if _time(value) is not None:
                return value
        case "DATE", str():
            if _day(value) is not None:
                return value
        case "DECIMAL", int() | float() | str() if not isinstance(value, bool):
            found = _number(type_, value)
            if found is not None:
                return found
        case "ARRAY", list():
            element = type_.members[0][1]
            return [None if each is None else check(element, each, f"{what}[{n}]") for n, each in enumerate(value)]
        case "STRUCT", dict():
            return _check_struct(type_, value, what)
    raise ValueMistake(f"{what} must be {type_.said}, and is {_shown(value)}")


def _check_struct(type_: Type, value: dict[str, Any], what: str) -> dict[str, Any]:
    names = {name for name, _ in type_.members}
    unknown = [name for name in value if name not in names]
    if unknown:
        raise ValueMistake(f"{what} has no member {unknown[0]!r}; there are {', '.join(sorted(names))}")
    return {
        name: None if value.get(name) is None else check(each, value[name], f"{what}.{name}")
        for name, each in type_.members
    }


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 128:
        return "a very large number"
    shown = repr(value)
    if isinstance(value, str):
        return shown if len(value) <= 40 else repr(value[:37] + "...")
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    return True


def _time(value: str) -> datetime.datetime | None:
    try:
        time = datetime.datetime.fromisoformat(value)
        return time.astimezone(datetime.UTC) if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    except (ValueError, OverflowError):  # the second: a moment before the year 1 or after 9999
        return None


def _day(value: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(value)
    except ValueError:
        return None


def _number(type_: Type, value: float | str) -> str | None:
    """A decimal as text with all its places; None if it is none or does not fit."""
    try:
        if isinstance(value, int) and value.bit_length() > 192:
            return None
        number = decimal.Decimal(value if isinstance(value, int) else str(value))
        if not number.is_finite() or (number and number.adjusted() >= type_.digits - type_.scale):
            return None
        placed = number.quantize(decimal.Decimal(1).scaleb(-type_.scale), context=_NUMBERS)
    except (decimal.InvalidOperation, ValueError):
        return None
    return f"{placed:f}" if placed == number else None


def stored(type_: Type, value: Any) -> Any:
    """A checked value as Arrow takes it: moments, days and decimals as such, everything else as it is."""
    if value is None:
        return None
    match type_.name, value:
        case "TIMESTAMP", str():
            return _time(value)
        case "DATE", str():
            return _day(value)
        case "DECIMAL", str() | int() | float():
            return decimal.Decimal(str(value))
        case "ARRAY", _:
            element = type_.members[0][1]
            return [stored(element, each) for each in value] if _has_stored_form(element) else value
        case "STRUCT", _ if _has_stored_form(type_):
            return {name: stored(each, value.get(name)) for name, each in type_.members}
    return value


@functools.cache
def _has_stored_form(type_: Type) -> bool:
    """Whether values of a type are stored in another form than JSON's."""
    return type_.name in ("TIMESTAMP", "DATE", "DECIMAL") or any(_has_stored_form(each) for _, each in type_.members)


def arrow(type_: Type) -> pa.DataType:
    """The Arrow type."""
    import pyarrow as pa

    match type_.name:
        case "DECIMAL":
            return pa.decimal128(type_.digits, type_.scale)
        case "ARRAY":
            return pa.list_(pa.field("element", arrow(type_.members[0][1])))
        case "STRUCT":
            return pa.struct([pa.field(name, arrow(each)) for name, each in type_.members])
    found: dict[str, pa.DataType] = {
        "STRING": pa.string(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "DATE": pa.date32(),
    }
    return found[type_.name]


def example(type_: Type) -> Any:
    """A value of the type, for checking a query before there are records."""
    examples: dict[str, Any] = {
        "STRING": "",
        "INT": 1,
        "BIGINT": 1 << 40,
        "DOUBLE": 1.0,
        "BOOLEAN": True,
        "TIMESTAMP": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        "DATE": datetime.date(2026, 1, 1),
        "DECIMAL": decimal.Decimal(1).scaleb(-type_.scale),
    }
    match type_.name:
        case "ARRAY":
            return [example(type_.members[0][1])]
        case "STRUCT":
            return {name: example(each) for name, each in type_.members}
        case name:
            return examples[name]
