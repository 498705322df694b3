"""The notation for people: conditions in the manner of SQL, with AND, OR, NOT, BETWEEN, IN, LIKE and IS NOT NULL.

A text becomes a list of conjunctions, of which any may match. NOT is carried inwards to the comparisons and turns each
into its opposite; a comparison and its opposite both need the attribute to be present with a value of the operand's
kind.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from trimtab.language import limits
from trimtab.language.brackets import too_many_attributes
from trimtab.language.errors import ParseError
from trimtab.language.predicates import NUMBER_NAMES, OPERATOR_NAMES, Op, Predicate
from trimtab.language.tokens import PlacedPredicate, Token, TokenStream
from trimtab.language.values import BARE_NAME, Value, format_value

Conjunctions: TypeAlias = list[list[PlacedPredicate]]

_KEYWORDS: Final = frozenset({"and", "or", "not", "between", "in", "like", "is", "null", "true", "false"})
_OPPOSITES: Final = {
    Op.EQ: Op.NEQ,
    Op.NEQ: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
    Op.PREFIX: Op.NOT_LIKE,
    Op.SUFFIX: Op.NOT_LIKE,
    Op.CONTAINS: Op.NOT_LIKE,
    Op.LIKE: Op.NOT_LIKE,
    Op.NOT_LIKE: Op.LIKE,
}
_MIRRORED: Final = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


class _All(msgspec.Struct):
    """All parts must hold."""

    parts: list[_Node]


class _Any(msgspec.Struct):
    """Some part must hold."""

    parts: list[_Node]


class _Not(msgspec.Struct):
    """The part must not hold."""

    part: _Node


_Node: TypeAlias = PlacedPredicate | _All | _Any | _Not


def format_sql(predicate: Predicate) -> str:
    r"""The predicate as this notation writes it.

    >>> format_sql(Predicate.of("and", Op.PREFIX, "50%"))
    "`and` LIKE '50\\%%'"
    """
    bare = BARE_NAME.fullmatch(predicate.attribute) and predicate.attribute.lower() not in _KEYWORDS
    name = predicate.attribute if bare else f"`{predicate.attribute}`"
    if predicate.operand is None:
        return f"{name} IS NOT NULL"
    if predicate.pattern is not None:
        like = "NOT LIKE" if predicate.op is Op.NOT_LIKE else "LIKE"
        return f"{name} {like} {format_value(predicate.pattern.text)}"
    return f"{name} {NUMBER_NAMES.get(predicate.op, predicate.op)} {format_value(predicate.operand)}"


def read_sql_filters(tokens: TokenStream) -> Conjunctions:
    """Read a whole text and normalise it to conjunctions."""
    node = _read_any(tokens, 0)
    if not tokens.at_end():
        raise tokens.expected("AND, OR or the end")
    return _normalise(tokens, node, negated=False)


def read_sql_publication(tokens: TokenStream) -> list[tuple[int, str, Value]]:
    """Read equalities, separated by commas or AND."""
    attributes: list[tuple[int, str, Value]] = []
    while True:
        name = _take_name(tokens, "an attribute with its value, such as volume = 300000")
        operator = tokens.take()
        if OPERATOR_NAMES.get(operator.text.lower()) is not Op.EQ:
            raise tokens.expected("'=' and a value", operator)
        attributes.append((name.column, name.text, tokens.take_value()))
        if tokens.at_end():
            return attributes
        if not (tokens.at_mark(",") or tokens.at_word("and")):
            raise tokens.expected("',', AND or the end")
        tokens.take()
        if len(attributes) == limits.ATTRIBUTES_MAX_COUNT:
            raise too_many_attributes(tokens)


def _read_any(tokens: TokenStream, depth: int) -> _Node:
    parts = [_read_all(tokens, depth)]
    while tokens.at_word("or"):
        tokens.take()
        parts.append(_read_all(tokens, depth))
    return parts[0] if len(parts) == 1 else _Any(parts)


def _read_all(tokens: TokenStream, depth: int) -> _Node:
    parts = [_read_not(tokens, depth)]
    while tokens.at_word("and"):
        tokens.take()
        parts.append(_read_not(tokens, depth))
    return parts[0] if len(parts) == 1 else _All(parts)


def _read_not(tokens: TokenStream, depth: int) -> _Node:
    if depth > limits.NESTING_MAX_DEPTH:
        raise tokens.refuse(tokens.peek(), f"nested deeper than {limits.NESTING_MAX_DEPTH} levels")
    if tokens.at_word("not"):
        tokens.take()
        return _Not(_read_not(tokens, depth + 1))
    if tokens.at_mark("("):
        tokens.take()
        node = _read_any(tokens, depth + 1)
        tokens.take_mark(")", "AND, OR or ')'")
        return node
    return _read_test(tokens)


def _read_test(tokens: TokenStream) -> _Node:
    if tokens.at_value():
        return _read_mirrored(tokens)
    name = _take_name(tokens)
    if tokens.at_word("not"):
        tokens.take()
        if not tokens.at_word("in", "like", "between"):
            raise tokens.expected("IN, LIKE or BETWEEN after NOT")
        return _Not(_read_after_name(tokens, name))
    return _read_after_name(tokens, name)


def _take_name(tokens: TokenStream, instead_of: str = "a condition such as volume > 300000") -> Token:
    if tokens.at_word(*_KEYWORDS):
        raise tokens.expected(f"{instead_of} (back-quote a name that is a keyword)")
    if tokens.peek().kind not in ("word", "quoted_name"):
        raise tokens.expected(instead_of)
    return tokens.take_name()


def _read_after_name(tokens: TokenStream, name: Token) -> _Node:
    operator = tokens.take()
    match operator.text.lower() if operator.kind == "word" else "":
        case "between":
            return _read_between(tokens, name)
        case "in":
            return _read_in(tokens, name)
        case "is":
            return _read_is(tokens, name)
        case "like":
            return tokens.take_predicate(name, Op.LIKE)
    if operator.kind not in ("word", "operator") or operator.text.lower() not in OPERATOR_NAMES:
        raise tokens.expected("a comparison (=, <>, <, <=, >, >=, BETWEEN, IN, LIKE, IS NOT NULL)", operator)
    return tokens.take_predicate(name, operator.text, or_any=True)


def _read_mirrored(tokens: TokenStream) -> _Node:
    """A comparison with the value first, such as 5 < volume."""
    operand = tokens.peek()
    value = tokens.take_value()
    operator = tokens.take()
    if operator.kind != "operator":
        raise tokens.expected("a comparison (=, <>, <, <=, >, >=)", operator)
    return tokens.predicate(_take_name(tokens), _MIRRORED.get(operator.text, operator.text), value, operand)


def _read_between(tokens: TokenStream, name: Token) -> _Node:
    low = tokens.take_predicate(name, ">=")
    if not tokens.at_word("and"):
        raise tokens.expected("AND and the upper end of BETWEEN")
    tokens.take()
    return _All([low, tokens.take_predicate(name, "<=")])


def _read_in(tokens: TokenStream, name: Token) -> _Node:
    tokens.take_mark("(", "'(' and the values of IN")
    values: list[_Node] = [tokens.take_predicate(name, "=")]
    while tokens.at_mark(","):
        tokens.take()
        values.append(tokens.take_predicate(name, "="))
    tokens.take_mark(")", "',' or ')'")
    return _Any(values)


def _read_is(tokens: TokenStream, name: Token) -> _Node:
    negated = tokens.at_word("not")
    if negated:
        tokens.take()
    if not tokens.at_word("null"):
        raise tokens.expected("NOT NULL")
    tokens.take()
    present = (name.column, Predicate.of(name.text, Op.PRESENT, None))
    return present if negated else _Not(present)


def _normalise(tokens: TokenStream, node: _Node, negated: bool) -> Conjunctions:
    """Disjunctive normal form, with negations at the comparisons."""
    if isinstance(node, _Not):
        return _normalise(tokens, node.part, not negated)
    if isinstance(node, tuple):
        return [[_opposite(tokens, node) if negated else node]]
    parts = [_normalise(tokens, part, negated) for part in node.parts]
    if isinstance(node, _Any) is not negated:
        return _limited(tokens, [conjunction for part in parts for conjunction in part])
    product: Conjunctions = [[]]
    for part in parts:
        if len(product) * len(part) > limits.CONJUNCTIONS_MAX_COUNT:
            raise _too_many_filters(tokens)
        product = _limited(tokens, [left + right for left in product for right in part])
    return product


def _opposite(tokens: TokenStream, placed: PlacedPredicate) -> PlacedPredicate:
    """What holds for just the other values of the same kind."""
    column, predicate = placed
    op = _OPPOSITES.get(predicate.op)
    if op is None:
        reason = f"a filter cannot ask for {predicate.attribute} to be absent or of another kind"
        raise ParseError(tokens.text, column, reason)
    operand = predicate.operand if predicate.pattern is None else predicate.pattern.text
    return column, Predicate(predicate.attribute, op, operand)


def _limited(tokens: TokenStream, conjunctions: Conjunctions) -> Conjunctions:
    """The conjunctions, if they are within the limits."""
    if len(conjunctions) > limits.CONJUNCTIONS_MAX_COUNT:
        raise _too_many_filters(tokens)
    if max(map(len, conjunctions)) > limits.PREDICATES_MAX_COUNT:
        raise ParseError(tokens.text, 1, f"a filter with more than {limits.PREDICATES_MAX_COUNT} predicates")
    if sum(map(len, conjunctions)) > limits.TEXT_PREDICATES_MAX_COUNT:
        reason = f"OR, IN and NOT make filters with more than {limits.TEXT_PREDICATES_MAX_COUNT:,} predicates in all"
        raise ParseError(tokens.text, 1, reason)
    return conjunctions


def _too_many_filters(tokens: TokenStream) -> ParseError:
    return ParseError(tokens.text, 1, f"OR, IN and NOT make more than {limits.CONJUNCTIONS_MAX_COUNT} filters")
