"""Conditions for `Filter.where`: one operator and its operand, without the attribute.

>>> from trimtab import Filter
>>> print(Filter.where(symbol=prefix("YH"), volume=between(100, 200)))
[symbol,str-prefix,'YH'],[volume,>=,100],[volume,<=,200]
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from trimtab.language.predicates import Op, Predicate
from trimtab.language.values import Value


class Condition(msgspec.Struct, frozen=True):
    """One or more operators with operands that all must hold for an attribute."""

    parts: tuple[tuple[Op, Value | None], ...]

    def on(self, attribute: str) -> list[Predicate]:
        """The predicates for an attribute."""
        return [Predicate.of(attribute, op, operand) for op, operand in self.parts]

    def __and__(self, other: Condition) -> Condition:
        """Both conditions.

        >>> len((gt(1) & lt(5)).parts)
        2
        """
        return Condition(self.parts + other.parts)


Wanted: TypeAlias = Value | Condition
"""What `Filter.where` takes for an attribute: a value it must equal, or a condition."""


def eq(value: Value) -> Condition:
    """The value equals this one."""
    return Condition(((Op.EQ, value),))


def neq(value: Value) -> Condition:
    """The value is of the same kind and differs."""
    return Condition(((Op.NEQ, value),))


def lt(value: Value) -> Condition:
    """The value is less."""
    return Condition(((Op.LT, value),))


def le(value: Value) -> Condition:
    """The value is less or equal."""
    return Condition(((Op.LE, value),))


def gt(value: Value) -> Condition:
    """The value is greater."""
    return Condition(((Op.GT, value),))


def ge(value: Value) -> Condition:
    """The value is greater or equal."""
    return Condition(((Op.GE, value),))


def between(low: Value, high: Value) -> Condition:
    """The value lies between the two, both included."""
    return Condition(((Op.GE, low), (Op.LE, high)))


def prefix(text: str) -> Condition:
    """The string starts with the text."""
    return Condition(((Op.PREFIX, text),))


def suffix(text: str) -> Condition:
    """The string ends with the text."""
    return Condition(((Op.SUFFIX, text),))


def contains(text: str) -> Condition:
    """The string contains the text."""
    return Condition(((Op.CONTAINS, text),))


def like(pattern: str) -> Condition:
    """The string fits the pattern: % stands for any text, _ for any one character."""
    return Condition(((Op.LIKE, pattern),))


def not_like(pattern: str) -> Condition:
    """The string does not fit the pattern."""
    return Condition(((Op.NOT_LIKE, pattern),))


def present(sample: Value) -> Condition:
    """The attribute is present with a value of the sample's kind."""
    return Condition(((Op.PRESENT, sample),))


def any_value() -> Condition:
    """The attribute is present, whatever its value."""
    return Condition(((Op.PRESENT, None),))
