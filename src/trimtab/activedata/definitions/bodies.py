"""Takes the body of a channel apart: its select list, the relations it joins, and its conditions.

Only what the set-oriented form needs is understood here; the expressions themselves are Spark's, and stay text.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trimtab.activedata.definitions.tokens import Token, TokenReader

_REFUSED: Final = {
    "ORDER": "results have no order of their own; they come in the order of the records",
    "LIMIT": "every match is a result; there is no LIMIT",
    "OFFSET": "every match is a result; there is no OFFSET",
    "UNION": "a channel is one SELECT; make a second channel instead of UNION",
    "INTERSECT": "a channel is one SELECT, without INTERSECT",
    "WINDOW": "a channel is one SELECT without WINDOW",
    "LATERAL": "a channel joins datasets, without LATERAL",
    "QUALIFY": "a channel is one SELECT without QUALIFY",
    "SORT": "results have no order of their own; they come in the order of the records",
}
_CLAUSES: Final = ("FROM", "WHERE", "GROUP", "HAVING")
_ENDS_ITEM: Final = frozenset(
    {"JOIN", "INNER", "LEFT", "CROSS", "RIGHT", "FULL", "ON", "NATURAL", "USING", "SEMI", "ANTI"}
)


class Conjunct(msgspec.Struct, frozen=True):
    """A condition that must hold, with its tokens."""

    tokens: tuple[Token, ...]


class FromItem(msgspec.Struct, frozen=True):
    """A relation of the FROM clause: a dataset or a query in brackets, and how it is joined."""

    dataset: str | None
    query: str | None
    alias: str
    outer: bool
    on: tuple[Conjunct, ...]
    position: int


class Body(msgspec.Struct, frozen=True):
    """The parts of a channel's body; positions count from the start of the body."""

    text: str
    select: tuple[tuple[Token, ...], ...]
    items: tuple[FromItem, ...]
    where: tuple[Conjunct, ...]
    group_by: tuple[Token, ...]
    having: tuple[Token, ...]

    @property
    def tokens(self) -> list[Token]:
        """All tokens of the body."""
        return TokenReader(self.text).tokens[:-1]


def parse_body(text: str) -> Body:
    """Take a body apart, or say where it is not one SELECT over datasets.

    >>> body = parse_body("SELECT r.x FROM Reports r JOIN Users u ON u.id = r.id WHERE r.x > :low AND u.y = 1")
    >>> [(item.dataset, item.alias) for item in body.items]
    [('Reports', 'r'), ('Users', 'u')]
    >>> len(body.where)
    2
    """
    reader = TokenReader(text)
    reader.need("SELECT")
    if reader.at("DISTINCT"):
        raise reader.refuse(reader.next, "every match is a result; SELECT DISTINCT says nothing here")
    parts = _clauses(reader)
    if "FROM" not in parts:
        raise reader.refuse(reader.tokens[-1], "expected FROM and the datasets")
    select = tuple(tuple(item) for item in split_at(parts["SELECT"], ","))
    for field in select:
        if not field:
            raise reader.refuse(parts["FROM_WORD"][0], "expected a result field")
    items = _from_items(reader, parts["FROM"], parts["FROM_WORD"][0])
    aliases = [item.alias.lower() for item in items]
    for item in items:
        if aliases.count(item.alias.lower()) > 1:
            raise reader.refuse(_token_at(reader, item.position), f"two relations are named {item.alias!r}")
    return Body(
        text,
        select,
        items,
        conjuncts_of(parts.get("WHERE", [])),
        tuple(parts.get("GROUP", [])),
        tuple(parts.get("HAVING", [])),
    )


def _token_at(reader: TokenReader, position: int) -> Token:
    return next(token for token in reader.tokens if token.start == position)


def _clauses(reader: TokenReader) -> dict[str, list[Token]]:
    parts: dict[str, list[Token]] = {"SELECT": []}
    current = "SELECT"
    depth = 0
    previous = ""
    while reader.next.kind != "end":
        token = reader.take()
        depth += _depth_change(token)
        if depth < 0:
            raise reader.refuse(token, "a closing bracket without an opening one")
        word = token.upper if token.kind == "word" and depth == 0 and previous != "." else ""
        if word in _REFUSED:
            raise reader.refuse(token, _REFUSED[word])
        if word in _CLAUSES and not (word == "FROM" and previous == "DISTINCT"):
            if word in parts or _CLAUSES.index(word) < _CLAUSES.index(current if current in _CLAUSES else "FROM"):
                raise reader.refuse(token, f"{word} is in the wrong place")
            current = word
            parts[word] = []
            parts[f"{word}_WORD"] = [token]
            if word == "GROUP":
                reader.need("BY")
        else:
            parts[current].append(token)
        previous = token.upper
    if depth:
        raise reader.refuse(reader.next, "a bracket is not closed")
    return parts


def _depth_change(token: Token) -> int:
    if token.kind == "mark":
        return {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.text, 0)
    if token.kind == "word":
        return {"CASE": 1, "END": -1}.get(token.upper, 0)
    return 0


def split_at(tokens: list[Token] | tuple[Token, ...], text: str) -> list[list[Token]]:
    """Split tokens at a mark or word that stands outside all brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += _depth_change(token)
        if depth == 0 and token.kind in ("mark", "word") and token.upper == text:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def closed_part(tokens: list[Token] | tuple[Token, ...], opening: int) -> list[Token]:
    """The tokens between an opening bracket and the one that closes it."""
    depth = 0
    for index in range(opening, len(tokens)):
        depth += _depth_change(tokens[index])
        if depth == 0:
            return list(tokens[opening + 1 : index])
    return list(tokens[opening + 1 :])


def conjuncts_of(tokens: list[Token] | tuple[Token, ...]) -> tuple[Conjunct, ...]:
    """The conditions that AND joins; one with OR outside brackets stays whole, as does BETWEEN with its own AND."""
    if not tokens:
        return ()
    if len(split_at(tokens, "OR")) > 1:
        return (Conjunct(tuple(tokens)),)
    found: list[list[Token]] = [[]]
    depth = 0
    between = False
    for token in tokens:
        depth += _depth_change(token)
        word = token.upper if token.kind == "word" and depth == 0 else ""
        if word == "BETWEEN":
            between = True
        if word == "AND" and not between:
            found.append([])
            continue
        if word == "AND":
            between = False
        found[-1].append(token)
    return tuple(Conjunct(tuple(each)) for each in found)


def _from_items(reader: TokenReader, tokens: list[Token], from_word: Token) -> tuple[FromItem, ...]:
    end = Token("end", "", tokens[-1].end if tokens else from_word.end, 0)
    inner = TokenReader("")
    inner.text = reader.text
    inner.tokens = [*tokens, end]
    items = [_from_item(inner, outer=False)]
    while inner.next.kind != "end":
        if inner.skip(","):
            items.append(_from_item(inner, outer=False))
        elif inner.skip("JOIN") or inner.skip("INNER", "JOIN"):
            items.append(_from_item(inner, outer=False, with_on=True))
        elif inner.skip("CROSS", "JOIN"):
            items.append(_from_item(inner, outer=False))
        elif inner.skip("LEFT", "JOIN") or inner.skip("LEFT", "OUTER", "JOIN"):
            items.append(_from_item(inner, outer=True, with_on=True))
        else:
            raise inner.expected("',', JOIN, LEFT JOIN, CROSS JOIN or WHERE")
    return tuple(items)


def _from_item(reader: TokenReader, *, outer: bool, with_on: bool = False) -> FromItem:
    start = reader.next
    query = dataset = None
    if reader.at("("):
        query = _bracketed(reader)
    else:
        dataset = reader.need_name("a dataset").text
    reader.skip("AS")
    if reader.next.kind in ("word", "quoted") and reader.next.upper not in _ENDS_ITEM:
        alias = reader.need_name("a name").text
    elif dataset is not None:
        alias = dataset
    else:
        raise reader.expected("a name for this query")
    on: tuple[Conjunct, ...] = ()
    if with_on:
        reader.need("ON")
        on = conjuncts_of(_condition(reader))
        if not on:
            raise reader.expected("a condition")
    return FromItem(dataset, query, alias, outer, on, start.start)


def _bracketed(reader: TokenReader) -> str:
    start = reader.take()
    depth = 1
    while depth:
        token = reader.take()
        if token.kind == "parameter":
            raise reader.refuse(token, "parameters stand in the channel's own conditions, not in a query of its FROM")
        depth += _depth_change(token)
    return reader.text[start.start : token.end]


def _condition(reader: TokenReader) -> list[Token]:
    found: list[Token] = []
    depth = 0
    while reader.next.kind != "end":
        token = reader.next
        if depth == 0 and (token.text == "," or (token.kind == "word" and token.upper in _ENDS_ITEM)):
            break
        depth += _depth_change(token)
        found.append(reader.take())
    return found
