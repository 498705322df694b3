"""Which notation a text is written in: brackets, SQL's manner, or JSON."""

from __future__ import annotations

import re
from typing import Final

from trimtab.language import limits
from trimtab.language.brackets import read_bracket_filter, read_bracket_publication
from trimtab.language.errors import LanguageError, ParseError
from trimtab.language.json_forms import read_json_filter, read_json_publication
from trimtab.language.sql import Conjunctions, read_sql_filters, read_sql_publication
from trimtab.language.tokens import TokenStream

_JSON_FILTER: Final = re.compile(r"\s*\[\s*[\[\]{]")
_JSON_PUBLICATION: Final = re.compile(r"\s*\{")
_BRACKETS: Final = re.compile(r"\s*\[")


def read_filters(text: str) -> Conjunctions:
    """Read a text that means one filter or several, of which any may match; * alone is the filter of everything."""
    _check_length(text, limits.FILTER_TEXT_MAX_CHARS, "filter")
    if _JSON_FILTER.match(text):
        try:
            return [[(1, predicate) for predicate in read_json_filter(text)]]
        except ParseError:
            raise
        except LanguageError as error:
            raise ParseError(text, 1, str(error)) from error
    tokens = TokenStream(text)
    if text.strip(" \t\r\n") == "*":
        return [[]]
    return [read_bracket_filter(tokens)] if _BRACKETS.match(text) else read_sql_filters(tokens)


def read_publication(text: str) -> dict[str, object]:
    """Read a publication's attributes, not yet checked."""
    _check_length(text, limits.PUBLICATION_TEXT_MAX_CHARS, "publication")
    if _JSON_PUBLICATION.match(text):
        try:
            return read_json_publication(text)
        except ParseError:
            raise
        except LanguageError as error:
            raise ParseError(text, 1, str(error)) from error
    tokens = TokenStream(text)
    placed = read_bracket_publication(tokens) if _BRACKETS.match(text) else read_sql_publication(tokens)
    values: dict[str, object] = {}
    for column, name, value in placed:
        if name in values:
            raise ParseError(text, column, f"the attribute {name} is given twice")
        values[name] = value
    return values


def _check_length(text: str, max_chars: int, noun: str) -> None:
    if not isinstance(text, str):
        raise LanguageError(f"a {noun} is read from text, not from {type(text).__name__}")
    if len(text) > max_chars:
        raise ParseError(
            text, max_chars + 1, f"a {noun} of {len(text):,} characters; at most {max_chars:,} are allowed"
        )
