"""The JSON forms: a filter is an array of [attribute, operator, value], a publication an object of attributes."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from trimtab.language import limits
from trimtab.language.errors import LanguageError, LimitError, ParseError
from trimtab.language.predicates import Predicate

OPEN_MARK: Final = "*"
"""The last element of an open advertisement's form."""

_BYTE: Final = re.compile(r" \(byte (\d+)\)$")


def read_json_filter(text: str | bytes) -> list[Predicate]:
    """Read a filter's predicates; null as a value, or none, asks for any value."""
    return predicates_from_data(decoded_filter(text))


def decoded_filter(text: str | bytes) -> object:
    """A filter's JSON form, decoded."""
    return _decoded(text, limits.FILTER_TEXT_MAX_CHARS, "filter")


def without_open_mark(data: object) -> object:
    """A filter's decoded JSON form without the mark of an open advertisement; the same object if there is none."""
    if isinstance(data, (list, tuple)) and data and data[-1] == OPEN_MARK:
        return data[:-1]
    return data


def read_json_publication(text: str | bytes) -> dict[str, object]:
    """Read a publication's attributes, not yet checked."""
    decoded = _decoded(text, limits.PUBLICATION_TEXT_MAX_CHARS, "publication")
    if not isinstance(decoded, dict):
        raise LanguageError('a publication in JSON is an object of attributes, such as {"class": "STOCK"}')
    return decoded


def predicates_from_data(data: object) -> list[Predicate]:
    """The predicates of a filter's decoded JSON form."""
    if not isinstance(data, (list, tuple)):
        raise LanguageError('a filter in JSON is an array such as [["volume", ">", 300000]]')
    return [_predicate(number, item) for number, item in enumerate(data, 1)]


def _predicate(number: int, item: object) -> Predicate:
    if not isinstance(item, (list, tuple)) or len(item) not in (2, 3) or not isinstance(item[1], str):
        raise LanguageError(f"predicate {number} is not [attribute, operator, value]")
    try:
        return Predicate.spelled(item[0], item[1], item[2] if len(item) == 3 else None)
    except LanguageError as error:
        raise type(error)(f"predicate {number}: {error}") from None


def _decoded(text: str | bytes, max_chars: int, noun: str) -> Any:
    if len(text) > max_chars:
        raise LimitError(f"a {noun} of {len(text):,} characters; at most {max_chars:,} are allowed")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _not_json(text, str(error)) from None


def _not_json(text: str | bytes, reason: str) -> LanguageError:
    """The decoder's error; if it names a byte, with the column of that byte's character."""
    place = _BYTE.search(reason)
    if place is None:
        return LanguageError(f"not JSON: {reason}")
    encoded = text.encode() if isinstance(text, str) else text
    shown = encoded.decode(errors="replace")
    read = encoded[: int(place[1])].decode(errors="replace")
    return ParseError(shown, min(len(read) + 1, len(shown)), f"not JSON: {reason[: place.start()]}")
