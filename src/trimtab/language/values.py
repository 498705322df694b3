"""Values of publications and operands of filters: strings, numbers and booleans."""

from __future__ import annotations

import math
import re
from enum import IntEnum
from typing import Final, TypeAlias

from trimtab.language import limits
from trimtab.language.errors import LanguageError, LimitError

Value: TypeAlias = str | int | float | bool
"""A string, a number (integers and decimals compare with each other) or a boolean."""

BARE_NAME: Final = re.compile(r"[^\W\d][\w.:@$/-]*")
"""Attribute names that need no back-quotes."""

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Characters that stand for themselves in no text; E'...' writes them with a backslash."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Kind(IntEnum):
    """The three kinds of value; a predicate never holds for a value of another kind than its operand's."""

    NUMBER = 0
    STRING = 1
    BOOLEAN = 2

    @property
    def noun(self) -> str:
        """The kind in words, for messages.

        >>> Kind.NUMBER.noun
        'a number'
        """
        return ("a number", "a string", "a boolean")[self]


def kind_of(value: Value) -> Kind:
    """The kind of a value that `check_value` has accepted.

    >>> kind_of(3.5).name, kind_of(True).name
    ('NUMBER', 'BOOLEAN')
    """
    if isinstance(value, str):
        return Kind.STRING
    return Kind.BOOLEAN if isinstance(value, bool) else Kind.NUMBER


def check_value(value: object, max_chars: int = limits.STRING_MAX_CHARS) -> Value:
    """Return the value if the language has it, otherwise raise an error that says why not.

    >>> check_value(float("nan"))
    Traceback (most recent call last):
    ...
    trimtab.language.errors.LanguageError: nan is not a value: numbers must be finite
    """
    if isinstance(value, str):
        if len(value) > max_chars:
            raise LimitError(f"a string of {len(value):,} characters; at most {max_chars:,} are allowed")
        if not value.isascii() and _SURROGATE.search(value):
            raise LanguageError("a string with a lone surrogate, which has no UTF-8 form")
        return value if type(value) is str else str(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not limits.INTEGER_MIN <= value <= limits.INTEGER_MAX:
            raise LanguageError("an integer beyond 64 bits; write it as a decimal or a string")
        return value if type(value) is int else int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise LanguageError(f"{value} is not a value: numbers must be finite")
        return value if type(value) is float else float(value)
    raise LanguageError(f"{type(value).__name__} is not a kind of value; use a string, a number or a boolean")


def check_name(name: object) -> str:
    """Return an attribute's name if it is one, otherwise raise an error that says why not."""
    if type(name) is not str:
        raise LanguageError(f"an attribute's name must be a string, not {type(name).__name__}")
    if not name:
        raise LanguageError("an attribute's name is empty")
    if len(name) > limits.NAME_MAX_CHARS:
        raise LimitError(f"a name of {len(name):,} characters; at most {limits.NAME_MAX_CHARS} are allowed")
    if CONTROL.search(name) or "`" in name:
        raise LanguageError(f"the attribute name {name!r} has a control character or a back-quote")
    if not name.isascii() and _SURROGATE.search(name):
        raise LanguageError("an attribute's name with a lone surrogate, which has no UTF-8 form")
    return name


def format_name(name: str) -> str:
    """An attribute's name as the bracket notation writes it.

    >>> format_name("volume"), format_name("two words")
    ('volume', '`two words`')
    """
    return name if BARE_NAME.fullmatch(name) else f"`{name}`"


def format_value(value: Value) -> str:
    r"""A value as both notations write it.

    >>> format_value("O'Brien"), format_value(True), format_value(2.5), format_value("two\nlines")
    ("'O''Brien'", 'true', '2.5', "E'two\\nlines'")
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    if CONTROL.search(value) is None:
        return "'" + value.replace("'", "''") + "'"
    return "E'" + "".join(_escape(char) for char in value) + "'"


def _escape(char: str) -> str:
    known = _ESCAPES.get(char)
    if known is not None:
        return known
    return f"\\u{ord(char):04x}" if CONTROL.match(char) else char
