"""The language's meaning, written down a second time as naively as possible, for the tests to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

from trimtab.language.predicates import Op, Predicate
from trimtab.language.values import Value


def naive_like(pattern: str, text: str) -> bool:
    """Whether a text fits a LIKE pattern, one character at a time."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return naive_like(pattern[1:], text) or (bool(text) and naive_like(pattern, text[1:]))
    if pattern[0] == "\\":
        return bool(text) and text[0] == pattern[1] and naive_like(pattern[2:], text[1:])
    return bool(text) and pattern[0] in ("_", text[0]) and naive_like(pattern[1:], text[1:])


def naive_kind(value: Value) -> str:
    """The kind of a value."""
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def naive_holds(predicate: Predicate, value: Value | None, *, negated: bool = False) -> bool:
    """Whether a value (None: absent) satisfies a predicate, or its opposite, which needs the same kind too."""
    op, operand = predicate.op, predicate.operand
    if value is None:
        return False
    if operand is None:
        return not negated
    if naive_kind(value) != naive_kind(operand):
        return False
    return _compare(op, value, operand) is not negated


def _compare(op: Op, value: Value, operand: Value) -> bool:
    if op is Op.PRESENT:
        return True
    if op is Op.EQ or op is Op.NEQ:
        return (value == operand) is (op is Op.EQ)
    if isinstance(value, str) and isinstance(operand, str):
        return _compare_strings(op, value, operand)
    assert not isinstance(value, str) and not isinstance(operand, str)
    return {Op.LT: value < operand, Op.LE: value <= operand, Op.GT: value > operand, Op.GE: value >= operand}[op]


def _compare_strings(op: Op, value: str, operand: str) -> bool:
    match op:
        case Op.PREFIX:
            return value[: len(operand)] == operand
        case Op.SUFFIX:
            return value[max(0, len(value) - len(operand)) :] == operand
        case Op.CONTAINS:
            return any(value[start : start + len(operand)] == operand for start in range(len(value) + 1))
        case Op.LIKE:
            return naive_like(operand, value)
        case Op.NOT_LIKE:
            return not naive_like(operand, value)
        case _:
            ours, theirs = value.encode(), operand.encode()
            return {Op.LT: ours < theirs, Op.LE: ours <= theirs, Op.GT: ours > theirs, Op.GE: ours >= theirs}[op]


def texts_over(letters: str, max_chars: int) -> list[str]:
    """All texts of some letters up to a length."""
    return ["".join(chars) for count in range(max_chars + 1) for chars in product(letters, repeat=count)]


class Universe:
    """All values that an attribute may have in a test, and absence; sets of them are the bits of an integer."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.values: list[Value | None] = [None, *values]
        self.everything = (1 << len(self.values)) - 1
        self._satisfying = cache(self._satisfying_uncached)

    def satisfying(self, predicates: Sequence[Predicate]) -> int:
        """The values that satisfy all predicates."""
        found = self.everything
        for predicate in predicates:
            found &= self._satisfying(predicate, naive_kind(predicate.operand) if predicate.operand is not None else "")
        return found

    def _satisfying_uncached(self, predicate: Predicate, _kind: str) -> int:
        return sum(1 << place for place, value in enumerate(self.values) if naive_holds(predicate, value))
