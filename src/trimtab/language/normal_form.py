"""From the predicates on one attribute to their constraint: tightest bounds, nothing twice, no contradiction."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.language import limits
from trimtab.language.constraints import (
    ANY_VALUE,
    Booleans,
    Constraint,
    Number,
    Numbers,
    Strings,
    higher,
    lower,
    normal_numbers,
)
from trimtab.language.errors import ContradictionError
from trimtab.language.patterns import Pattern, Shape, Wild
from trimtab.language.predicates import Op, Predicate
from trimtab.language.string_sets import Bound, Condition, Like, NoText, SearchBudget, equals, find_text, is_equality
from trimtab.language.values import Kind

_LISTED_PREDICATES_MAX_COUNT = 4
_LISTED_PREDICATE_MAX_CHARS = 80


def constraint_of(attribute: str, predicates: Sequence[Predicate], budget: SearchBudget | None = None) -> Constraint:
    """The normal form of all predicates on one attribute; raises `ContradictionError` if nothing satisfies them.

    >>> from trimtab.language.predicates import Op, Predicate
    >>> constraint_of("v", [Predicate.of("v", Op.GE, 5), Predicate.of("v", Op.NEQ, 5)])
    Numbers(low=5, low_open=True, high=None, high_open=False, excluded=())
    """
    typed = [predicate for predicate in predicates if predicate.operand is not None]
    if not typed:
        return ANY_VALUE
    kind = typed[0].kind
    for predicate in typed:
        if predicate.kind is not kind:
            raise ContradictionError(attribute, f"{_asks_for(typed[0])} and {_asks_for(predicate)}")
    if kind is Kind.NUMBER:
        return _numbers(attribute, typed)
    if kind is Kind.BOOLEAN:
        return _booleans(attribute, typed)
    return _strings(attribute, typed, budget)


def _asks_for(predicate: Predicate) -> str:
    return f"{_shown(predicate)} asks for {predicate.kind.noun if predicate.kind is not None else 'any value'}"


def _shown(predicate: Predicate) -> str:
    text = str(predicate)
    return text if len(text) <= _LISTED_PREDICATE_MAX_CHARS else text[: _LISTED_PREDICATE_MAX_CHARS - 3] + "..."


def _contradiction(attribute: str, predicates: Sequence[Predicate], noun: str) -> ContradictionError:
    listed = " and ".join(_shown(predicate) for predicate in predicates[:_LISTED_PREDICATES_MAX_COUNT])
    more_count = len(predicates) - _LISTED_PREDICATES_MAX_COUNT
    return ContradictionError(
        attribute, f"no {noun} satisfies {listed}" + (f" and {more_count} more" if more_count > 0 else "")
    )


def _numbers(attribute: str, predicates: Sequence[Predicate]) -> Numbers:
    low: tuple[Number | None, bool] = (None, False)
    high: tuple[Number | None, bool] = (None, False)
    excluded: set[Number] = set()
    for predicate in predicates:
        operand = predicate.operand
        assert not isinstance(operand, str) and operand is not None
        match predicate.op:
            case Op.EQ:
                low, high = higher(low, (operand, False)), lower(high, (operand, False))
            case Op.NEQ:
                excluded.add(operand)
            case Op.GT | Op.GE:
                low = higher(low, (operand, predicate.op is Op.GT))
            case Op.LT | Op.LE:
                high = lower(high, (operand, predicate.op is Op.LT))
            case _:
                pass
    found = normal_numbers(*low, *high, excluded)
    if found is None:
        raise _contradiction(attribute, predicates, "number")
    return found


def _booleans(attribute: str, predicates: Sequence[Predicate]) -> Booleans:
    true = all(predicate.holds(True) for predicate in predicates)
    false = all(predicate.holds(False) for predicate in predicates)
    if not true and not false:
        raise _contradiction(attribute, predicates, "boolean")
    return Booleans(true, false)


def _strings(attribute: str, predicates: Sequence[Predicate], budget: SearchBudget | None) -> Strings:
    conditions = [condition for predicate in predicates for condition in _string_conditions(predicate)]
    point = _single_text(conditions)
    if point is not None:
        if not all(condition.holds(point) for condition in conditions):
            raise _contradiction(attribute, predicates, "string")
        return Strings(equal=point)
    reduced = _without_implied(conditions)
    found = find_text(reduced, budget)
    if found is NoText.NONE:
        raise _contradiction(attribute, predicates, "string")
    if isinstance(found, str) and len(found) <= limits.OPERAND_MAX_CHARS and _is_only_text(found, reduced, budget):
        return Strings(equal=found)
    return Strings(conditions=tuple(sorted(reduced, key=_condition_order)))


def _is_only_text(text: str, conditions: list[Condition], budget: SearchBudget | None) -> bool:
    """Whether no text but this one satisfies the conditions.

    Parts that a text must have and texts that it must not equal always leave more than one.
    """
    if any(_bounds_length_or_order(condition) for condition in conditions):
        return find_text([*conditions, equals(text).negated()], budget) is NoText.NONE
    return False


def _bounds_length_or_order(condition: Condition) -> bool:
    if isinstance(condition, Bound):
        return condition.below
    if condition.wanted:
        return Wild.MANY not in condition.pattern.tokens
    return condition.pattern.shape is not Shape.EXACT


def _single_text(conditions: Sequence[Condition]) -> str | None:
    """The only text that can satisfy the conditions, where an equality or two equal closed bounds say so."""
    lows = {""}
    highs: set[str] = set()
    for condition in conditions:
        if is_equality(condition):
            return condition.pattern.literal
        if isinstance(condition, Bound) and condition.inclusive:
            (highs if condition.below else lows).add(condition.limit)
    return min(lows & highs, default=None)


def _string_conditions(predicate: Predicate) -> list[Condition]:
    operand = str(predicate.operand)
    match predicate.op:
        case Op.EQ:
            return [equals(operand)]
        case Op.NEQ:
            return [equals(operand).negated()]
        case Op.LT | Op.LE:
            return [Bound(operand, below=True, inclusive=predicate.op is Op.LE)]
        case Op.GT if operand == "":
            return [equals("").negated()]
        case Op.GT | Op.GE:
            return [Bound(operand, below=False, inclusive=predicate.op is Op.GE)]
        case Op.PRESENT:
            return []
        case _:
            pattern = predicate.pattern
            assert pattern is not None
            wanted = predicate.op is not Op.NOT_LIKE
            return [] if wanted and pattern.shape is Shape.ANY else [Like(pattern, wanted)]


def _without_implied(conditions: Sequence[Condition]) -> list[Condition]:
    """Drop what another condition alone makes superfluous, by cheap rules: the tightest bounds, the longest texts."""
    bounds = [c for c in conditions if isinstance(c, Bound)]
    refusals = list(dict.fromkeys(c for c in conditions if isinstance(c, Like) and is_equality(c.negated())))
    likes = list(dict.fromkeys(c for c in conditions if isinstance(c, Like) and not is_equality(c.negated())))
    refused = {refusal.pattern.literal for refusal in refusals}
    wanted = [like.pattern for like in likes if like.wanted]
    kept: list[Condition] = [_opened(bound, refused) for bound in _tightest(bounds)]
    for like in likes:
        if not like.wanted or not any(_says_more(other, like.pattern) for other in wanted if other != like.pattern):
            kept.append(like)
    return kept + [refusal for refusal in refusals if all(c.holds(refusal.pattern.literal) for c in kept)]


def _tightest(bounds: Sequence[Bound]) -> list[Bound]:
    """The lower and the upper bound that leave least."""
    lows = [c for c in bounds if not c.below and c.limit]
    highs = [c for c in bounds if c.below]
    low = [max(lows, key=lambda c: (c.limit, not c.inclusive))] if lows else []
    high = [min(highs, key=lambda c: (c.limit, c.inclusive))] if highs else []
    return low + high


def _opened(bound: Bound, refused: set[str]) -> Bound:
    """The bound without its limit if that text is refused."""
    return Bound(bound.limit, bound.below, bound.inclusive and bound.limit not in refused)


def _says_more(pattern: Pattern, than: Pattern) -> bool:
    """Whether fitting the first pattern includes fitting the second, where that shows from their texts."""
    if than.shape is Shape.PREFIX:
        return pattern.shape is Shape.PREFIX and pattern.literal.startswith(than.literal)
    if than.shape is Shape.SUFFIX:
        return pattern.shape is Shape.SUFFIX and pattern.literal.endswith(than.literal)
    if than.shape is Shape.CONTAINS:
        return pattern.shape in (Shape.PREFIX, Shape.SUFFIX, Shape.CONTAINS) and than.literal in pattern.literal
    return False


def _condition_order(condition: Condition) -> tuple[int, str, bool]:
    if isinstance(condition, Bound):
        return (0, condition.limit, condition.below)
    return (1, condition.pattern.text, condition.wanted)
