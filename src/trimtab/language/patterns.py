"""String patterns in the manner of SQL's LIKE: % stands for any text, _ for any one character.

Prefix, suffix and contains are patterns too ('YH%', '%OO', '%HO%'), so that one decision procedure serves all.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from trimtab.language.errors import LanguageError


class Wild(Enum):
    """The two wildcards of a pattern."""

    ONE = auto()
    MANY = auto()


Token = str | Wild
"""A character that must stand there, or a wildcard."""


class Shape(Enum):
    """What a pattern amounts to, from the cheapest to test to the dearest."""

    ANY = auto()
    EXACT = auto()
    PREFIX = auto()
    SUFFIX = auto()
    CONTAINS = auto()
    GENERAL = auto()


class Pattern:
    r"""A pattern in normal form; equal patterns have equal `text`.

    >>> Pattern.parse("YH%").matches("YHOO"), Pattern.parse("_").matches("ab"), Pattern.parse(r"50\%").matches("50%")
    (True, False, True)
    """

    __slots__ = ("_parts", "literal", "shape", "text", "tokens")

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens: Final = _normal_tokens(tokens)
        self.text: Final = "".join(_token_text(token) for token in self.tokens)
        self.shape: Shape
        self.literal: str
        self.shape, self.literal = _shape(self.tokens)
        self._parts: list[str | re.Pattern[str]] = _parts(self.tokens) if self.shape is Shape.GENERAL else []

    @staticmethod
    @lru_cache(maxsize=512)
    def parse(text: str) -> Pattern:
        r"""Read a pattern; a backslash takes the character after it literally.

        >>> Pattern.parse("abc\\")
        Traceback (most recent call last):
        ...
        trimtab.language.errors.LanguageError: the pattern ends with a lone backslash; write \\ for a backslash
        """
        tokens: list[Token] = []
        chars = iter(text)
        for char in chars:
            if char == "\\":
                literal = next(chars, None)
                if literal is None:
                    raise LanguageError("the pattern ends with a lone backslash; write \\\\ for a backslash")
                tokens.append(literal)
            else:
                tokens.append(Wild.MANY if char == "%" else Wild.ONE if char == "_" else char)
        return Pattern(tuple(tokens))

    @staticmethod
    @lru_cache(maxsize=512)
    def of(shape: Shape, literal: str) -> Pattern:
        """The pattern of a simple shape.

        >>> Pattern.of(Shape.PREFIX, "5%").text
        '5\\\\%%'
        """
        before = (Wild.MANY,) if shape in (Shape.SUFFIX, Shape.CONTAINS) else ()
        after = (Wild.MANY,) if shape in (Shape.PREFIX, Shape.CONTAINS) else ()
        return Pattern((*before, *literal, *after))

    def matches(self, text: str) -> bool:
        """Whether the whole text fits the pattern."""
        match self.shape:
            case Shape.ANY:
                return True
            case Shape.EXACT:
                return text == self.literal
            case Shape.PREFIX:
                return text.startswith(self.literal)
            case Shape.SUFFIX:
                return text.endswith(self.literal)
            case Shape.CONTAINS:
                return self.literal in text
            case _:
                return self._matches_parts(text)

    @property
    def size_chars(self) -> int:
        """How many characters the pattern asks for, a wildcard in the middle counted as one."""
        return len(self.tokens) if self.shape is Shape.GENERAL else len(self.literal)

    def _matches_parts(self, text: str) -> bool:
        """Leftmost search for each part between the %; no backtracking, so time stays bounded."""
        first, *middle = self._parts
        position = _end_of(first, text, 0, anchored=True)
        if not middle or position < 0:
            return position == len(text)
        last = middle.pop()
        for part in middle:
            position = _end_of(part, text, position, anchored=False)
            if position < 0:
                return False
        tail_start = len(text) - self.tokens[::-1].index(Wild.MANY)
        return tail_start >= position and _end_of(last, text, tail_start, anchored=True) >= 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def _normal_tokens(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """In each run of wildcards the _ come first and at most one % follows; the set of texts stays the same."""
    normal: list[Token] = []
    many = False
    for token in tokens:
        if token is Wild.MANY:
            many = True
            continue
        if token is not Wild.ONE and many:
            normal.append(Wild.MANY)
            many = False
        normal.append(token)
    if many:
        normal.append(Wild.MANY)
    return tuple(normal)


def _token_text(token: Token) -> str:
    if isinstance(token, Wild):
        return "_" if token is Wild.ONE else "%"
    return "\\" + token if token in "\\%_" else token


def _shape(tokens: tuple[Token, ...]) -> tuple[Shape, str]:
    open_start = bool(tokens) and tokens[0] is Wild.MANY
    open_end = bool(tokens) and tokens[-1] is Wild.MANY
    inner = tokens[int(open_start) : len(tokens) - int(open_end and len(tokens) > 1)]
    if any(isinstance(token, Wild) for token in inner):
        return Shape.GENERAL, ""
    literal = "".join(str(token) for token in inner)
    if not literal:
        return (Shape.ANY if open_start else Shape.EXACT), ""
    if open_start:
        return (Shape.CONTAINS if open_end else Shape.SUFFIX), literal
    return (Shape.PREFIX if open_end else Shape.EXACT), literal


def _parts(tokens: tuple[Token, ...]) -> list[str | re.Pattern[str]]:
    """What stands between the %: a text, or an expression where it has a _."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token is Wild.MANY:
            parts.append([])
        else:
            parts[-1].append(token)
    return [_part(part) for part in parts]


def _part(tokens: list[Token]) -> str | re.Pattern[str]:
    letters = [token for token in tokens if isinstance(token, str)]
    if len(letters) == len(tokens):
        return "".join(letters)
    return re.compile("".join(re.escape(t) if isinstance(t, str) else "." for t in tokens), re.DOTALL)


def _end_of(part: str | re.Pattern[str], text: str, start: int, *, anchored: bool) -> int:
    """Where the part ends that stands at the start (`anchored`) or first after it; -1 if it does not."""
    if isinstance(part, str):
        if anchored:
            return start + len(part) if text.startswith(part, start) else -1
        found_at = text.find(part, start)
        return found_at + len(part) if found_at >= 0 else -1
    found = part.match(text, start) if anchored else part.search(text, start)
    return found.end() if found else -1
