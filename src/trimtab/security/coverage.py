"""Whether a filter lies within what is permitted, what of it does not, and the part that does.

The decision is that of `trimtab.language.relations`: exact, by subtraction. Where the comparison would take too long
the answer is no: what cannot be proven to be permitted is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from trimtab.language import ContradictionError, Filter, LimitError
from trimtab.language.relations import Remainder, remainder
from trimtab.language.string_sets import SearchBudget

QUESTION_MAX_STEPS: Final = 8_000
"""Steps of the exact decision about strings that one question may take: some milliseconds."""

COMPARISONS_MAX_STEPS: Final = 2_000
"""Constraints that one question may visit: some milliseconds as well."""

TOO_LONG: Final = (
    "it takes too long to prove that this is permitted; ask for parts of it, with fewer or simpler patterns"
)


class Coverage(msgspec.Struct, frozen=True):
    """Whether a filter is covered by what is permitted; if not, what of it is not, in words."""

    is_covered: bool
    missing: str = ""


def coverage(wanted: Filter, permitted: Sequence[Filter]) -> Coverage:
    """Whether every publication that a filter matches is matched by some permitted one.

    >>> coverage(Filter.parse("class = 'A' AND v > 5"), [Filter.parse("class = 'A'")]).is_covered
    True
    >>> coverage(Filter.parse("class = 'A'"), Filter.parse_all("class = 'A' AND v > 5")).missing
    "class = 'A' AND v <= 5"
    """
    if any(not each.constraints for each in permitted):
        return Coverage(True)
    budget, steps = SearchBudget(QUESTION_MAX_STEPS), SearchBudget(COMPARISONS_MAX_STEPS)
    try:
        left = remainder(wanted, permitted, budget, steps)
    except LimitError:
        return Coverage(False, TOO_LONG)
    return Coverage(True) if left is None else Coverage(False, in_words(left))


def in_words(left: Remainder) -> str:
    """What is not permitted, as a filter where a filter can say it."""
    text = " AND ".join(filter.to_sql() for filter in left.filters) if left.filters else ""
    absent = [f"without {name}" for name in left.absent]
    other = [f"with a {name} that is {kinds}" for name, kinds in left.other_kinds]
    return " ".join(part for part in (text, " and ".join((*absent, *other))) if part) or "everything"


def permitted_part(wanted: Filter, permitted: Sequence[Filter]) -> tuple[Filter, ...]:
    """The part of a filter that is permitted: its intersection with each permitted filter, where there is any.

    >>> [each.to_sql() for each in permitted_part(Filter.parse("v > 1"), Filter.parse_all("v < 3 OR w = 1"))]
    ['v > 1 AND v < 3', 'v > 1 AND w = 1']
    """
    budget = SearchBudget(QUESTION_MAX_STEPS)
    found: dict[Filter, None] = {}
    for each in permitted:
        try:
            found[Filter([*wanted.predicates, *each.predicates], budget)] = None
        except (ContradictionError, LimitError):
            continue
    parts = tuple(found)
    return tuple(
        part
        for place, part in enumerate(parts)
        if not any(
            other.covers(part, budget) and (index < place or not part.covers(other, budget))
            for index, other in enumerate(parts)
            if index != place
        )
    )
