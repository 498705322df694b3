"""Trimtab: a content-based publish/subscribe network that keeps itself level.

>>> from trimtab import Filter, Matcher, Publication
>>> matcher = Matcher()
>>> matcher.add("alice", Filter.parse("[class,eq,'STOCK'],[volume,>,300000]"))
>>> set(matcher.match(Publication.parse("[class,'STOCK'],[volume,300001]")))
{'alice'}
"""

from trimtab.language import (
    ContradictionError,
    Filter,
    LanguageError,
    LimitError,
    ParseError,
    Predicate,
    Publication,
    Relation,
    any_value,
    between,
    contains,
    eq,
    ge,
    gt,
    le,
    like,
    lt,
    neq,
    not_like,
    prefix,
    present,
    relate,
    suffix,
)
from trimtab.matching import CoveringSet, Matcher

__version__ = "0.1.0"

__all__ = [
    "ContradictionError",
    "CoveringSet",
    "Filter",
    "LanguageError",
    "LimitError",
    "Matcher",
    "ParseError",
    "Predicate",
    "Publication",
    "Relation",
    "__version__",
    "any_value",
    "between",
    "contains",
    "eq",
    "ge",
    "gt",
    "le",
    "like",
    "lt",
    "neq",
    "not_like",
    "prefix",
    "present",
    "relate",
    "suffix",
]
