"""One condition on one attribute: its operator, its operand, and when it holds."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import StrEnum
from types import NoneType
from typing import Any, Final

import msgspec

from trimtab.language import limits
from trimtab.language.errors import LanguageError, LimitError
from trimtab.language.patterns import Pattern, Shape
from trimtab.language.values import Kind, Value, check_name, check_value, format_name, format_value, kind_of


class Op(StrEnum):
    """The operators, by the name that the bracket notation and JSON write for strings."""

    EQ = "eq"
    NEQ = "neq"
    LT = "str-lt"
    LE = "str-le"
    GT = "str-gt"
    GE = "str-ge"
    PREFIX = "str-prefix"
    SUFFIX = "str-suffix"
    CONTAINS = "str-contains"
    LIKE = "str-like"
    NOT_LIKE = "str-not-like"
    PRESENT = "isPresent"


OPERATOR_NAMES: Final[dict[str, Op]] = {
    "eq": Op.EQ,
    "=": Op.EQ,
    "==": Op.EQ,
    "neq": Op.NEQ,
    "<>": Op.NEQ,
    "!=": Op.NEQ,
    "<": Op.LT,
    "<=": Op.LE,
    ">": Op.GT,
    ">=": Op.GE,
    "str-lt": Op.LT,
    "str-le": Op.LE,
    "str-gt": Op.GT,
    "str-ge": Op.GE,
    "str-prefix": Op.PREFIX,
    "str-suffix": Op.SUFFIX,
    "str-postfix": Op.SUFFIX,
    "str-contains": Op.CONTAINS,
    "str-like": Op.LIKE,
    "str-not-like": Op.NOT_LIKE,
    "ispresent": Op.PRESENT,
}
"""Every spelling of an operator, in lower case."""

NUMBER_NAMES: Final = {Op.EQ: "=", Op.NEQ: "<>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}
SHAPES: Final = {Op.PREFIX: Shape.PREFIX, Op.SUFFIX: Shape.SUFFIX, Op.CONTAINS: Shape.CONTAINS}
"""The operators that stand for a pattern of a simple shape."""

_ORDER_OPS: Final = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})
_LIKE_OPS: Final = frozenset({Op.LIKE, Op.NOT_LIKE})
_COMPARISONS: Final[dict[Op, Callable[[Any, Any], Any]]] = {
    Op.EQ: operator.eq,
    Op.NEQ: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}


class Predicate(msgspec.Struct, frozen=True, gc=False):
    """A condition such as volume > 300000; made by `Predicate.of`, which checks it.

    For PRESENT the operand only tells the kind that is asked for; None asks for any value.

    >>> Predicate.of("volume", Op.GT, 300000).holds(300001)
    True
    """

    attribute: str
    op: Op
    operand: Value | None

    @staticmethod
    def of(attribute: str, op: Op, operand: object) -> Predicate:
        """Check the parts and put them together.

        >>> Predicate.of("b", Op.LT, True)
        Traceback (most recent call last):
        ...
        trimtab.language.errors.LanguageError: < does not apply to a boolean; use eq or neq
        """
        name = check_name(attribute)
        if operand is None:
            if op is not Op.PRESENT:
                raise LanguageError(f"{op} needs a value; any value (*) goes with eq and isPresent")
            return Predicate(name, op, None)
        value = check_value(operand, _PATTERN_TEXT_MAX_CHARS if op in _LIKE_OPS else limits.OPERAND_MAX_CHARS)
        kind = kind_of(value)
        if kind is not Kind.STRING and (op in SHAPES or op in _LIKE_OPS):
            raise LanguageError(f"{op} compares strings, not {kind.noun}; put the value in quotes")
        if kind is Kind.BOOLEAN and op in _ORDER_OPS:
            raise LanguageError(f"{NUMBER_NAMES[op]} does not apply to a boolean; use eq or neq")
        if op in _LIKE_OPS:
            _check_pattern(Pattern.parse(str(value)))
        return Predicate(name, op, value)

    @staticmethod
    def spelled(attribute: str, spelling: str, operand: object) -> Predicate:
        """The predicate with an operator as it is written; None (written *) asks for any value.

        >>> str(Predicate.spelled("symbol", "STR-POSTFIX", "OO"))
        "[symbol,str-suffix,'OO']"
        """
        lowered = spelling.lower()
        op = OPERATOR_NAMES.get(lowered)
        if op is None:
            raise LanguageError(f"unknown operator {spelling[:40]!r}")
        if op is Op.EQ and operand is None:
            op = Op.PRESENT
        if lowered.startswith("str-") and not isinstance(operand, (str, NoneType)):
            raise LanguageError(f"{spelling} compares strings; put the value in quotes")
        return Predicate.of(attribute, op, operand)

    @property
    def kind(self) -> Kind | None:
        """The kind of value that the predicate asks for; None means any."""
        return None if self.operand is None else kind_of(self.operand)

    @property
    def pattern(self) -> Pattern | None:
        """The pattern that the value must fit (for str-not-like: must not fit), None for other operators.

        >>> Predicate.of("discount", Op.PREFIX, "50%").pattern
        Pattern('50\\\\%%')
        """
        if self.op in SHAPES:
            return Pattern.of(SHAPES[self.op], str(self.operand))
        return Pattern.parse(str(self.operand)) if self.op in _LIKE_OPS else None

    @property
    def size_chars(self) -> int:
        """Characters of the name and the operand, the same in every notation."""
        operand = self.operand
        if not isinstance(operand, str):
            return len(self.attribute)
        if self.op in _LIKE_OPS:
            return len(self.attribute) + Pattern.parse(operand).size_chars
        return len(self.attribute) + len(operand)

    def holds(self, value: Value | None) -> bool:
        """Whether a value (None: the attribute is absent) satisfies the predicate.

        This is the language's definition; everything faster is tested against it.

        >>> Predicate.of("v", Op.NEQ, 100).holds("100"), Predicate.of("v", Op.NEQ, 100).holds(None)
        (False, False)
        """
        if value is None:
            return False
        operand = self.operand
        if operand is None:
            return True
        if kind_of(value) is not kind_of(operand):
            return False
        if self.op is Op.PRESENT:
            return True
        comparison = _COMPARISONS.get(self.op)
        if comparison is not None:
            return bool(comparison(value, operand))
        text, pattern = str(value), str(operand)
        match self.op:
            case Op.PREFIX:
                return text.startswith(pattern)
            case Op.SUFFIX:
                return text.endswith(pattern)
            case Op.CONTAINS:
                return pattern in text
            case Op.LIKE:
                return Pattern.parse(pattern).matches(text)
            case _:
                return not Pattern.parse(pattern).matches(text)

    def __str__(self) -> str:
        """The predicate in the bracket notation.

        >>> str(Predicate.of("symbol", Op.PREFIX, "YH")), str(Predicate.of("volume", Op.GE, 5))
        ("[symbol,str-prefix,'YH']", '[volume,>=,5]')
        """
        operand = "*" if self.operand is None else format_value(self.operand)
        return f"[{format_name(self.attribute)},{self.spelling},{operand}]"

    @property
    def spelling(self) -> str:
        """The operator as it is written for the operand's kind."""
        if self.kind is Kind.NUMBER:
            return NUMBER_NAMES.get(self.op, str(self.op))
        return str(self.op)


_PATTERN_TEXT_MAX_CHARS: Final = 2 * limits.OPERAND_MAX_CHARS + 2
"""Room for an operand with a backslash before every character and a % at both ends."""


def _check_pattern(pattern: Pattern) -> None:
    general = pattern.shape is Shape.GENERAL
    max_chars = limits.PATTERN_MAX_CHARS if general else limits.OPERAND_MAX_CHARS
    if pattern.size_chars > max_chars:
        kind = "pattern with wildcards inside" if general else "pattern"
        raise LimitError(f"a {kind} of {pattern.size_chars:,} characters; at most {max_chars:,} are allowed")
