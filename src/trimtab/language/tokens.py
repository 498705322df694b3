"""Splits the text of either notation into tokens, each with its column."""

from __future__ import annotations

import math
import re
from typing import Final, TypeAlias

import msgspec

from trimtab.language import limits
from trimtab.language.errors import LanguageError, ParseError
from trimtab.language.predicates import Predicate
from trimtab.language.values import CONTROL, Value, check_name, check_value

PlacedPredicate: TypeAlias = tuple[int, Predicate]
"""A predicate and the column of its attribute's name."""

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
  | (?P<escaped>[eE]'[^'\\\x00-\x1f\x7f-\x9f]*(?:\\.[^'\\\x00-\x1f\x7f-\x9f]*)*')
  | (?P<single>'[^'\x00-\x1f\x7f-\x9f]*(?:''[^'\x00-\x1f\x7f-\x9f]*)*')
  | (?P<double>"[^"\x00-\x1f\x7f-\x9f]*(?:""[^"\x00-\x1f\x7f-\x9f]*)*")
  | (?P<quoted_name>`[^`\x00-\x1f\x7f-\x9f]+`)
  | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))
  | (?P<operator><=|>=|<>|!=|==|=|<|>)
  | (?P<mark>[\[\](),*])
  | (?!e')(?!E')(?P<word>[^\W\d][\w.:@$/-]*)
    """,
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIMPLE_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"', "0": "\0"}
_NOT_FINITE: Final = re.compile(r"[+-]?(?:nan|inf|infinity)\b", re.IGNORECASE)
_INTEGER_MAX_DIGITS: Final = 400


class Token(msgspec.Struct, frozen=True):
    """A piece of text: what it is, what it says, and where it starts."""

    kind: str
    text: str
    column: int


class TokenStream:
    """The tokens of one text, read from left to right, with the errors that point into it.

    The text is split no further than it is read, so that a limit stops the work as well.

    >>> TokenStream("a <= 5").take()
    Token(kind='word', text='a', column=1)
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._position = 0
        self._predicates_count = 0
        self._next = self._split_off()

    def peek(self) -> Token:
        """The next token, which stays; after the last one come tokens of kind `end`."""
        return self._next

    def take(self) -> Token:
        """The next token, which is then read."""
        token = self._next
        self._next = self._split_off()
        return token

    def _split_off(self) -> Token:
        while self._position < len(self.text):
            start = self._position
            found = _TOKEN.match(self.text, start)
            if found is None:
                raise _unreadable(self.text, start)
            self._position = found.end()
            if found.lastgroup != "space":
                return Token(found.lastgroup or "", found[0], start + 1)
        return Token("end", "", len(self.text) + 1)

    def take_mark(self, mark: str, instead_of: str) -> None:
        """Read the mark that must stand here."""
        if not self.at_mark(mark):
            raise self.expected(instead_of)
        self.take()

    def at_mark(self, mark: str) -> bool:
        """Whether the next token is this mark."""
        token = self.peek()
        return token.kind == "mark" and token.text == mark

    def at_word(self, *words: str) -> bool:
        """Whether the next token is one of these words, in any case."""
        token = self.peek()
        return token.kind == "word" and token.text.lower() in words

    def at_end(self) -> bool:
        """Whether everything has been read."""
        return self.peek().kind == "end"

    def expected(self, what: str, at: Token | None = None) -> ParseError:
        """The error that something else should stand at a token (the next one unless given)."""
        token = at or self.peek()
        found = "the end" if token.kind == "end" else _shortened(token.text)
        return ParseError(self.text, token.column, f"expected {what}, found {found}")

    def refuse(self, token: Token, reason: object) -> ParseError:
        """The error that a token is wrong for a reason."""
        return ParseError(self.text, token.column, str(reason))

    def take_name(self) -> Token:
        """Read an attribute's name."""
        token = self.take()
        if token.kind not in ("word", "quoted_name"):
            raise self.expected("an attribute's name", token)
        name = token.text if token.kind == "word" else token.text[1:-1]
        try:
            return Token(token.kind, check_name(name), token.column)
        except LanguageError as error:
            raise self.refuse(token, error) from None

    def at_value(self) -> bool:
        """Whether the next token is a value."""
        return self.peek().kind in ("escaped", "single", "double", "number") or self.at_word("true", "false")

    def take_value(self) -> Value:
        """Read a value."""
        token = self.peek()
        if not self.at_value():
            what = "a value (a number, true, false or a quoted string)"
            if token.kind == "word":
                if _NOT_FINITE.fullmatch(token.text):
                    raise self.refuse(token, f"{token.text} is not a value: numbers must be finite")
                raise self.refuse(token, f"expected {what}, found {_shortened(token.text)}; a string needs quotes")
            raise self.expected(what)
        self.take()
        try:
            return check_value(self._value(token))
        except ParseError:
            raise
        except LanguageError as error:
            raise self.refuse(token, error) from None

    def _value(self, token: Token) -> Value:
        match token.kind:
            case "single":
                return token.text[1:-1].replace("''", "'")
            case "double":
                return token.text[1:-1].replace('""', '"')
            case "escaped":
                return _ESCAPE.sub(lambda found: self._unescape(token, found), token.text[2:-1])
            case "number":
                return _number(token.text)
            case _:
                return token.text.lower() == "true"

    def _unescape(self, token: Token, found: re.Match[str]) -> str:
        column = token.column + len("E'") + found.start()
        code = found[1] or found[2]
        if code is not None:
            if int(code, 16) > 0x10FFFF:
                raise ParseError(self.text, column, f"{found[0]} is not a character")
            return chr(int(code, 16))
        char = _SIMPLE_ESCAPES.get(found[3])
        if char is None:
            known = "\\n \\r \\t \\0 \\\\ \\' \\\" \\uXXXX \\UXXXXXXXX"
            raise ParseError(self.text, column, f"unknown escape {found[0]}; known are {known}")
        return char

    def take_predicate(self, name: Token, spelling: str, *, or_any: bool = False) -> PlacedPredicate:
        """Read the operand (a value; with `or_any` also * for any value) and put the predicate together."""
        operand = self.peek()
        if or_any and self.at_mark("*"):
            self.take()
            return self.predicate(name, spelling, None, operand)
        return self.predicate(name, spelling, self.take_value(), operand)

    def predicate(self, name: Token, spelling: str, value: Value | None, operand: Token) -> PlacedPredicate:
        """Put a predicate together; what is wrong with it is wrong at its operand."""
        self._predicates_count += 1
        if self._predicates_count > limits.TEXT_PREDICATES_MAX_COUNT:
            raise self.refuse(name, f"more than {limits.TEXT_PREDICATES_MAX_COUNT:,} predicates in one text")
        try:
            return name.column, Predicate.spelled(name.text, spelling, value)
        except LanguageError as error:
            raise self.refuse(operand, error) from None


def _number(text: str) -> int | float:
    if text.lstrip("+-").isdigit():
        if len(text) > _INTEGER_MAX_DIGITS:
            raise LanguageError("an integer beyond 64 bits; write it as a decimal or a string")
        return int(text)
    value = float(text)
    if math.isinf(value):
        raise LanguageError(f"{_shortened(text)} is beyond the range of decimals (about 1.8e308)")
    return value


def _unreadable(text: str, position: int) -> ParseError:
    """Say what is wrong with a character that starts no token."""
    if text.startswith(("e'", "E'"), position):
        position += 1
    char = text[position]
    column = position + 1
    if char in "'\"`":
        end = text.find(char, position + 1)
        control = CONTROL.search(text, position, end if end >= 0 else len(text))
        if control:
            code = f"{ord(control[0]):04X}"
            return ParseError(text, control.start() + 1, f"control character U+{code} in quotes; write E'\\u{code}'")
        what = "an empty name" if text.startswith("``", position) else f"no closing {char} for this quote"
        return ParseError(text, column, what)
    if CONTROL.match(char):
        return ParseError(text, column, f"control character U+{ord(char):04X}")
    if re.compile(r"[+-]?\.?[0-9]").match(text, position):
        return ParseError(text, column, "a number that goes on with letters or points; quote it, or back-quote a name")
    not_finite = _NOT_FINITE.match(text, position)
    if not_finite:
        return ParseError(text, column, f"{not_finite[0]} is not a value: numbers must be finite")
    return ParseError(text, column, f"unexpected character {_shortened(char)}")


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
