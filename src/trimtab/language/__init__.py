"""The filter language: values, predicates, filters, publications, their notations and how filters relate."""

from trimtab.language.conditions import (
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
    suffix,
)
from trimtab.language.errors import ContradictionError, LanguageError, LimitError, ParseError
from trimtab.language.filters import Filter
from trimtab.language.predicates import Op, Predicate
from trimtab.language.publications import Publication
from trimtab.language.relations import Relation, relate
from trimtab.language.values import Kind, Value

__all__ = [
    "ContradictionError",
    "Filter",
    "Kind",
    "LanguageError",
    "LimitError",
    "Op",
    "ParseError",
    "Predicate",
    "Publication",
    "Relation",
    "Value",
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
