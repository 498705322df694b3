"""Values inside values become attributes with dots in their names: how nested JSON fits the language.

An object's attributes are named `outer.inner`, the elements of an array `outer.0`, `outer.1` and so on, and null means
absent, so that an empty object or array leaves nothing. Arrays hold strings, numbers, booleans and null only: filters
cannot ask for elements of objects in arrays in a useful way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Final

from trimtab.language import limits
from trimtab.language.errors import LanguageError, LimitError

NESTED_TYPES: Final = frozenset({dict, list, tuple, NoneType})
"""Types of values that are no values of the language, but are flattened to some, or to none."""


def flattened(values: Mapping[str, object]) -> dict[str, object]:
    """The attributes that nested values become, with values that are not yet checked.

    >>> flattened({"class": "ORDER", "address": {"city": "Ayr", "floor": None}, "tags": ["new", "red"]})
    {'class': 'ORDER', 'address.city': 'Ayr', 'tags.0': 'new', 'tags.1': 'red'}
    """
    found: dict[str, object] = {}
    for name, value in _attributes(values, 1):
        if name in found:
            raise LanguageError(f"the attribute {name} is given twice")
        found[name] = value
        if len(found) > limits.ATTRIBUTES_MAX_COUNT:
            raise LimitError(
                f"a publication with more than {limits.ATTRIBUTES_MAX_COUNT:,} attributes; no more are allowed"
            )
    return found


def _attributes(values: Mapping[str, object], depth: int, outer: str = "") -> Iterator[tuple[str, object]]:
    """The attributes of an object whose own name is `outer`; the outermost has none."""
    if depth > limits.NESTING_MAX_DEPTH:
        raise LimitError(f"objects inside one another {depth} deep; at most {limits.NESTING_MAX_DEPTH} are allowed")
    for inner, value in values.items():
        if type(inner) is not str:
            where = f"attribute {outer}: the names inside" if outer else "names of attributes"
            raise LanguageError(f"{where} must be strings, not {type(inner).__name__}")
        name = f"{outer}.{inner}" if outer else inner
        if type(value) is dict:
            yield from _attributes(value, depth + 1, name)
        elif type(value) in (list, tuple):
            yield from _elements(name, value)  # type: ignore[arg-type]  # its type was looked at
        elif value is not None:
            yield name, value


def _elements(name: str, values: list[object] | tuple[object, ...]) -> Iterator[tuple[str, object]]:
    for number, value in enumerate(values):
        if type(value) in (dict, list, tuple):
            kind = "an object" if type(value) is dict else "an array"
            raise LanguageError(f"attribute {name}: {kind} in an array; arrays hold strings, numbers and booleans")
        if value is not None:
            yield f"{name}.{number}", value
