"""What a filter asks of one attribute, in normal form: all its predicates on that attribute taken together.

One class per kind of value. Each knows whether a value satisfies it (`admits`), whether it contains another (`covers`)
and whether the two share a value (`overlaps`). Numbers form a dense order without ends: between any two there is
another.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from trimtab.language.patterns import Shape
from trimtab.language.predicates import SHAPES, Op, Predicate
from trimtab.language.string_sets import Bound, Condition, SearchBudget, equals, implies, satisfiable
from trimtab.language.values import Kind, Value

Number: TypeAlias = int | float


class AnyValue(msgspec.Struct, frozen=True):
    """The attribute is present, with a value of any kind."""

    kind: ClassVar[Kind | None] = None

    def admits(self, value: Value) -> bool:
        """Whether the value satisfies the constraint: it always does."""
        return True

    def covers(self, other: Constraint, budget: SearchBudget | None = None) -> bool:
        """Whether every value of the other constraint satisfies this one: always."""
        return True

    def overlaps(self, other: Constraint, budget: SearchBudget | None = None) -> bool:
        """Whether some value satisfies both: always, for no constraint is empty."""
        return True

    def predicates(self, attribute: str) -> list[Predicate]:
        """The predicates that say the same."""
        return [Predicate(attribute, Op.PRESENT, None)]


class Numbers(msgspec.Struct, frozen=True):
    """An interval of numbers without some points; None means that a side is open-ended."""

    low: Number | None = None
    low_open: bool = False
    high: Number | None = None
    high_open: bool = False
    excluded: tuple[Number, ...] = ()

    kind: ClassVar[Kind | None] = Kind.NUMBER

    @property
    def point(self) -> Number | None:
        """The only number that is left, if there is only one."""
        return self.low if self.low is not None and self.low == self.high else None

    def admits(self, value: Value) -> bool:
        """Whether the value is a number inside."""
        if isinstance(value, (bool, str)):
            return False
        return self._inside(value) and value not in self.excluded

    def _inside(self, value: Number) -> bool:
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return not (self.high is not None and (value > self.high or (self.high_open and value == self.high)))

    def covers(self, other: Constraint, budget: SearchBudget | None = None) -> bool:
        """Whether every value of the other constraint satisfies this one."""
        if not isinstance(other, Numbers):
            return False
        if self.low is not None and (
            other.low is None
            or other.low < self.low
            or (other.low == self.low and self.low_open and not other.low_open)
        ):
            return False
        if self.high is not None and (
            other.high is None
            or other.high > self.high
            or (other.high == self.high and self.high_open and not other.high_open)
        ):
            return False
        return not any(other.admits(point) for point in self.excluded)

    def overlaps(self, other: Constraint, budget: SearchBudget | None = None) -> bool:
        """Whether some value satisfies both."""
        if isinstance(other, AnyValue):
            return True
        return isinstance(other, Numbers) and self.intersection(other) is not None

    def intersection(self, other: Numbers) -> Numbers | None:
        """What satisfies both, None if nothing does."""
        low, low_open = higher((self.low, self.low_open), (other.low, other.low_open))
        high, high_open = lower((self.high, self.high_open), (other.high, other.high_open))
        return normal_numbers(low, low_open, high, high_open, {*self.excluded, *other.excluded})

    def pieces(self) -> list[Numbers]:
        """Simple constraints whose conjunction this is: one bound or one excluded point each."""
        pieces: list[Numbers] = []
        if self.low is not None:
            pieces.append(Numbers(low=self.low, low_open=self.low_open))
        if self.high is not None:
            pieces.append(Numbers(high=self.high, high_open=self.high_open))
        pieces.extend(Numbers(excluded=(point,)) for point in self.excluded)
        return pieces

    def negated(self) -> Numbers:
        """The numbers outside; only for what `pieces` returns."""
        if self.excluded:
            return Numbers(low=self.excluded[0], high=self.excluded[0])
        if self.low is not None:
            return Numbers(high=self.low, high_open=not self.low_open)
        return Numbers(low=self.high, low_open=not self.high_open)

    def predicates(self, attribute: str) -> list[Predicate]:
        """The predicates that say the same."""
        if self.point is not None:
            return [Predicate(attribute, Op.EQ, self.point)]
        found: list[Predicate] = []
        if self.low is not None:
            found.append(Predicate(attribute, Op.GT if self.low_open else Op.GE, self.low))
        if self.high is not None:
            found.append(Predicate(attribute, Op.LT if self.high_open else Op.LE, self.high))
        found.extend(Predicate(attribute, Op.NEQ, point) for point in self.excluded)
        return found or [Predicate(attribute, Op.PRESENT, 0)]


class Booleans(msgspec.Struct, frozen=True):
    """True, false, or either."""

    true: bool
    false: bool

    kind: ClassVar[Kind | None] = Kind.BOOLEAN

    def admits(self, value: Value) -> bool:
        """Whether the value is an allowed boolean."""
        return (self.true if value else self.false) if isinstance(value, bool) else False

    def covers(self, other: Constraint, budget: SearchBudget | None = None) -> bool:
        """Whether every value of the other constraint satisfies this one."""
        return isinstance(other, Booleans) and self.true >= other.true and self.false >= other.false

    def overlaps(self, other: Constraint, budget: SearchBudget | None = None) -> bool:
        """Whether some value satisfies both."""
        if isinstance(other, AnyValue):
            return True
        return isinstance(other, Booleans) and ((self.true and other.true) or (self.false and other.false))

    def predicates(self, attribute: str) -> list[Predicate]:
        """The predicates that say the same."""
        if self.true and self.false:
            return [Predicate(attribute, Op.PRESENT, True)]
        return [Predicate(attribute, Op.EQ, self.true)]


class Strings(msgspec.Struct, frozen=True):
    """A conjunction of conditions on a string; an equality stands alone."""

    equal: str | None = None
    conditions: tuple[Condition, ...] = ()

    kind: ClassVar[Kind | None] = Kind.STRING

    def admits(self, value: Value) -> bool:
        """Whether the value is a string that satisfies all conditions."""
        if not isinstance(value, str):
            return False
        if self.equal is not None:
            return value == self.equal
        return all(condition.holds(value) for condition in self.conditions)

    def all_conditions(self) -> tuple[Condition, ...]:
        """The conditions, an equality as one of them."""
        return self.conditions if self.equal is None else (equals(self.equal),)

    def covers(self, other: Constraint, budget: SearchBudget | None = None) -> bool:
        """Whether every value of the other constraint satisfies this one; False where the budget was too small."""
        if not isinstance(other, Strings):
            return False
        if other.equal is not None:
            return self.admits(other.equal)
        theirs, budget = other.conditions, budget or SearchBudget()
        return all(wanted in theirs or implies(theirs, wanted, budget) is True for wanted in self.all_conditions())

    def overlaps(self, other: Constraint, budget: SearchBudget | None = None) -> bool:
        """Whether some value satisfies both; True where the budget was too small."""
        if isinstance(other, AnyValue):
            return True
        if not isinstance(other, Strings):
            return False
        if self.equal is not None:
            return other.admits(self.equal)
        if other.equal is not None:
            return self.admits(other.equal)
        return satisfiable((*self.conditions, *other.conditions), budget) is not False

    def predicates(self, attribute: str) -> list[Predicate]:
        """The predicates that say the same."""
        if self.equal is not None:
            return [Predicate(attribute, Op.EQ, self.equal)]
        found = [_string_predicate(attribute, condition) for condition in self.conditions]
        return found or [Predicate(attribute, Op.PRESENT, "")]


Constraint: TypeAlias = AnyValue | Numbers | Booleans | Strings

ANY_VALUE = AnyValue()
_OPS_BY_SHAPE = {shape: op for op, shape in SHAPES.items()}


def normal_numbers(
    low: Number | None, low_open: bool, high: Number | None, high_open: bool, excluded: set[Number]
) -> Numbers | None:
    """The normal form of an interval without some points, None if nothing is left."""
    if excluded:
        low_open = low_open or (low is not None and low in excluded)
        high_open = high_open or (high is not None and high in excluded)
    if low is not None and high is not None and (low > high or (low == high and (low_open or high_open))):
        return None
    bare = Numbers(low, low_open, high, high_open)
    if not excluded:
        return bare
    inside = tuple(sorted(point for point in excluded if bare.admits(point)))
    return Numbers(low, low_open, high, high_open, inside)


def higher(a: tuple[Number | None, bool], b: tuple[Number | None, bool]) -> tuple[Number | None, bool]:
    """The lower bound that leaves less."""
    if a[0] is None or b[0] is None:
        return b if a[0] is None else a
    if a[0] == b[0]:
        return (a[0], a[1] or b[1])
    return a if a[0] > b[0] else b


def lower(a: tuple[Number | None, bool], b: tuple[Number | None, bool]) -> tuple[Number | None, bool]:
    """The upper bound that leaves less."""
    if a[0] is None or b[0] is None:
        return b if a[0] is None else a
    if a[0] == b[0]:
        return (a[0], a[1] or b[1])
    return a if a[0] < b[0] else b


def _string_predicate(attribute: str, condition: Condition) -> Predicate:
    if isinstance(condition, Bound):
        ops = (Op.LE, Op.LT) if condition.below else (Op.GE, Op.GT)
        return Predicate(attribute, ops[0] if condition.inclusive else ops[1], condition.limit)
    pattern = condition.pattern
    if not condition.wanted:
        if pattern.shape is Shape.EXACT:
            return Predicate(attribute, Op.NEQ, pattern.literal)
        return Predicate(attribute, Op.NOT_LIKE, pattern.text)
    if pattern.shape in _OPS_BY_SHAPE:
        return Predicate(attribute, _OPS_BY_SHAPE[pattern.shape], pattern.literal)
    return Predicate(attribute, Op.LIKE, pattern.text)
