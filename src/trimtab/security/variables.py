"""Filters with variables of an identity: `owner = '${name}'`.

A variable is put into the predicates of a text before anything is made of them, never into the text: whatever a name
contains, it stays one value. In a pattern its wildcards count as ordinary characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from trimtab.language import ContradictionError, Filter, LanguageError, Op, ParseError, Predicate
from trimtab.language.notation import read_filters

VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}")

_PATTERNS: Final = frozenset({Op.LIKE, Op.NOT_LIKE})
_WILDCARDS: Final = re.compile(r"([\\%_])")


class UnknownVariableError(ValueError):
    """A text names a variable that the identity does not have; the message says which."""


def variables_in(text: str) -> tuple[str, ...]:
    """The variables that a text names, each once.

    >>> variables_in("owner = '${name}' AND area = '${district}'")
    ('name', 'district')
    """
    return tuple(dict.fromkeys(VARIABLE.findall(text)))


def check_text(text: str) -> None:
    """Refuse a text that is no filter, or has a variable outside of quotes; raises `ParseError`."""
    for placed in read_filters(text):
        for column, predicate in placed:
            if VARIABLE.search(predicate.attribute):
                raise ParseError(text, column, "a variable stands for a value, not for the name of an attribute")
    if not variables_in(text):
        Filter.parse_all(text)


def filters_for(text: str, variables: Mapping[str, str]) -> tuple[Filter, ...]:
    """The filters that a text means for an identity; none if nothing can satisfy it for this one.

    >>> [str(each) for each in filters_for("owner = '${name}'", {"name": "o'hara' OR 1 = 1"})]
    ["[owner,eq,'o''hara'' OR 1 = 1']"]
    >>> filters_for("owner = '${name}' AND owner <> 'root'", {"name": "root"})
    ()
    """
    found: dict[Filter, None] = {}
    for placed in read_filters(text):
        try:
            found[Filter([_filled_in(predicate, variables) for _, predicate in placed])] = None
        except ContradictionError:
            continue
    return tuple(found)


def _filled_in(predicate: Predicate, variables: Mapping[str, str]) -> Predicate:
    operand = predicate.operand
    if not isinstance(operand, str) or "${" not in operand:
        return predicate

    def value_of(place: re.Match[str]) -> str:
        name = place.group(1)
        if name not in variables:
            raise UnknownVariableError(f"the identity has no {name}")
        value = variables[name]
        return _WILDCARDS.sub(r"\\\1", value) if predicate.op in _PATTERNS else value

    try:
        return Predicate.of(predicate.attribute, predicate.op, VARIABLE.sub(value_of, operand))
    except LanguageError as error:
        raise UnknownVariableError(f"the identity's value does not fit: {error}") from None
