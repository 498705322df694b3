"""The bracket notation: [attribute,operator,value],... for filters and [attribute,value],... for publications."""

from __future__ import annotations

from typing import Final

from trimtab.language import limits
from trimtab.language.errors import ParseError
from trimtab.language.predicates import OPERATOR_NAMES, Op, Predicate
from trimtab.language.tokens import PlacedPredicate, TokenStream
from trimtab.language.values import Value

_OPERATORS: Final = (
    "an operator (eq, neq, =, <>, !=, <, <=, >, >=, str-prefix, str-suffix, str-contains, str-lt, str-le, str-gt, "
    "str-ge, str-like, str-not-like, isPresent) or *"
)


def read_bracket_filter(tokens: TokenStream) -> list[PlacedPredicate]:
    """Read predicates in brackets, separated by commas."""
    predicates = [_read_predicate(tokens)]
    while not tokens.at_end():
        tokens.take_mark(",", "',' or the end")
        if len(predicates) == limits.PREDICATES_MAX_COUNT:
            raise tokens.refuse(tokens.peek(), f"a filter with more than {limits.PREDICATES_MAX_COUNT} predicates")
        predicates.append(_read_predicate(tokens))
    return predicates


def _read_predicate(tokens: TokenStream) -> PlacedPredicate:
    """Read [attribute,operator,value], or [attribute,*] or [attribute,isPresent] for any value."""
    tokens.take_mark("[", "'[' of a predicate such as [volume,>,300000]")
    name = tokens.take_name()
    tokens.take_mark(",", "',' and an operator")
    operator = tokens.take()
    op = OPERATOR_NAMES.get(operator.text.lower()) if operator.kind in ("word", "operator") else None
    any_value = operator.kind == "mark" and operator.text == "*"
    if op is None and not any_value:
        raise tokens.expected(_OPERATORS, operator)
    if any_value or (op is Op.PRESENT and tokens.at_mark("]")):
        placed = name.column, Predicate.of(name.text, Op.PRESENT, None)
    else:
        tokens.take_mark(",", "',' and a value")
        placed = tokens.take_predicate(name, operator.text, or_any=True)
    tokens.take_mark("]", "']'")
    return placed


def read_bracket_publication(tokens: TokenStream) -> list[tuple[int, str, Value]]:
    """Read attributes in brackets, separated by commas."""
    attributes = [_read_attribute(tokens)]
    while not tokens.at_end():
        tokens.take_mark(",", "',' or the end")
        if len(attributes) == limits.ATTRIBUTES_MAX_COUNT:
            raise too_many_attributes(tokens)
        attributes.append(_read_attribute(tokens))
    return attributes


def too_many_attributes(tokens: TokenStream) -> ParseError:
    """The error that a publication has more attributes than allowed."""
    reason = f"a publication with more than {limits.ATTRIBUTES_MAX_COUNT:,} attributes"
    return tokens.refuse(tokens.peek(), reason)


def _read_attribute(tokens: TokenStream) -> tuple[int, str, Value]:
    tokens.take_mark("[", "'[' of an attribute such as [volume,203400]")
    name = tokens.take_name()
    tokens.take_mark(",", "',' and a value")
    value = tokens.take_value()
    tokens.take_mark("]", "']'")
    return name.column, name.text, value
