"""A publication that satisfies a filter, made from the filter alone.

Whatever covers a filter matches each of its examples, so an example and a matcher rule out most of what might cover it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.language.constraints import Booleans, Constraint, Number, Numbers, Strings
from trimtab.language.filters import Filter
from trimtab.language.publications import Publication
from trimtab.language.string_sets import NoText, find_text
from trimtab.language.values import Value


def example_of(filter: Filter) -> Publication | None:
    """A publication that the filter matches, with no attributes but the filter's; None if none was found.

    >>> print(example_of(Filter.parse("class = 'STOCK' AND symbol LIKE 'YH%' AND volume BETWEEN 4 AND 6")))
    [class,'STOCK'],[symbol,'YH~'],[volume,5.0]
    """
    values: dict[str, Value] = {}
    for name, constraint in filter.constraints.items():
        value = _value_of(constraint)
        if value is None:
            return None
        values[name] = value
    return Publication.trusted(values)


def _value_of(constraint: Constraint) -> Value | None:
    match constraint:
        case Numbers():
            return next((number for number in _numbers_of(constraint) if constraint.admits(number)), None)
        case Strings():
            text = find_text(constraint.all_conditions())
            return None if isinstance(text, NoText) else text
        case Booleans(true=true):
            return true
        case _:
            return True


def _numbers_of(constraint: Numbers) -> Iterator[Number]:
    """Numbers that may lie inside: the ends, the middle, and the neighbours of what is left out."""
    low, high = constraint.low, constraint.high
    if low is not None and high is not None and low != high:
        yield low / 2 + high / 2
    ends = [end for end in (low, high) if end is not None]
    yield from ends
    yield 0
    for point in (*ends, *constraint.excluded):
        for neighbour in (math.nextafter(point, math.inf), math.nextafter(point, -math.inf)):
            if math.isfinite(neighbour):
                yield neighbour
