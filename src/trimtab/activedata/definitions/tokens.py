"""Splits statements into tokens, each with its position in the text."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from trimtab.activedata.errors import StatementError

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--[^\n]*|/\*.*?\*/)
  | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")
  | (?P<quoted>`[^`]+`)
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<parameter>:[A-Za-z_]\w*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<mark>=>|<=>|<=|>=|<>|!=|==|\|\||::|->|[-+*/%=<>(),.;\[\]{}!&|^~?@:])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


class Token(msgspec.Struct, frozen=True):
    """A piece of a statement: what it is, what it says, and where it starts and ends."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The text in capitals, for comparing words of the language."""
        return self.text.upper()


def split_tokens(text: str) -> list[Token]:
    """All tokens of a text without spaces and comments, and one of kind `end` behind them.

    >>> [token.text for token in split_tokens("DROP FEED x; -- gone")]
    ['DROP', 'FEED', 'x', ';', '']
    """
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise StatementError(text, position, _unreadable(text[position]))
        if found.lastgroup not in ("space", "comment"):
            tokens.append(Token(found.lastgroup or "", found[0], position, found.end()))
        position = found.end()
    tokens.append(Token("end", "", len(text), len(text)))
    return _with_names(tokens)


def _with_names(tokens: list[Token]) -> list[Token]:
    """Fields may be named `case` and `end`: behind a point, and `end` also where no CASE is open, they are names."""
    open_count = 0
    for index, token in enumerate(tokens):
        if token.kind != "word" or token.upper not in ("CASE", "END"):
            continue
        if (index and tokens[index - 1].text == ".") or (token.upper == "END" and not open_count):
            tokens[index] = msgspec.structs.replace(token, kind="name")
        else:
            open_count += 1 if token.upper == "CASE" else -1
    return tokens


def string_value(token: Token) -> str:
    """What a quoted string says.

    >>> string_value(split_tokens("'it''s'")[0])
    "it's"
    """
    quote = token.text[0]
    inner = token.text[1:-1]
    if quote == "'":
        inner = inner.replace("''", "'")
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inner, flags=re.DOTALL)


def _unreadable(char: str) -> str:
    if char in "'\"`":
        return f"no closing {char} for this quote"
    if char == "/":
        return "no closing */ for this comment"
    return f"unexpected character {char!r}"


class TokenReader:
    """Reads the tokens of one text from left to right, with errors that point into it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = split_tokens(text)
        self.index = 0

    @property
    def next(self) -> Token:
        """The next token, which stays."""
        return self.tokens[self.index]

    def take(self) -> Token:
        """The next token, which is then read."""
        token = self.tokens[self.index]
        if token.kind != "end":
            self.index += 1
        return token

    def at(self, *texts: str) -> bool:
        """Whether the next tokens say this, words in any case."""
        ahead = self.tokens[self.index : self.index + len(texts)]
        return [_spoken(token) for token in ahead] == [text.upper() for text in texts]

    def skip(self, *texts: str) -> bool:
        """Read these tokens if they come next, and tell whether they did."""
        if self.at(*texts):
            self.index += len(texts)
            return True
        return False

    def need(self, *texts: str) -> Token:
        """Read these tokens, which must come next; answers the last of them."""
        for text in texts:
            if not self.at(text):
                raise self.expected(text)
            token = self.take()
        return token

    def need_name(self, what: str) -> Token:
        """Read a name; back quotes around it are dropped."""
        token = self.take()
        if token.kind == "quoted":
            return msgspec.structs.replace(token, text=token.text[1:-1])
        if token.kind not in ("word", "name"):
            raise self.expected(what, token)
        return token

    def need_string(self, what: str) -> str:
        """Read a quoted string."""
        token = self.take()
        if token.kind != "string":
            raise self.expected(f"{what} in quotes", token)
        return string_value(token)

    def expected(self, what: str, at: Token | None = None) -> StatementError:
        """The error that something else should stand at a token (the next one unless given)."""
        token = at or self.next
        found = (
            "the end" if token.kind == "end" else repr(token.text if len(token.text) < 40 else token.text[:37] + "...")
        )
        return StatementError(self.text, token.start, f"expected {what}, found {found}")

    def refuse(self, token: Token, reason: str) -> StatementError:
        """The error that a token is wrong for a reason."""
        return StatementError(self.text, token.start, reason)


def _spoken(token: Token) -> str:
    return token.upper if token.kind in ("word", "mark") else "\0"
