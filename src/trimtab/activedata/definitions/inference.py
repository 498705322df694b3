"""Fields that records have and their dataset does not: which types they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trimtab.activedata.definitions.fields import Field
from trimtab.activedata.definitions.types import DEPTH_MAX, Type

NEW_FIELDS_MAX_COUNT: Final = 100
"""A dataset does not get more fields than this from one batch: such records are not meant for it."""


def new_fields(records: Iterable[object], known: Iterable[str]) -> tuple[Field, ...]:
    """The fields, in the order in which they come, that these records have beyond the known ones.

    A field whose values contradict each other, or have no value at all, gets no type and is left out.

    >>> new_fields([{"a": 1, "b": None}, {"a": 2.5, "tags": ["x"]}], ["id"])
    (Field(name='a', type='DOUBLE', optional=True), Field(name='tags', type='ARRAY<STRING>', optional=True))
    """
    names = {name.lower() for name in known}
    found: dict[str, Type | None] = {}
    for record in records:
        if not isinstance(record, Mapping):
            continue
        for name, value in record.items():
            if value is None or name.lower() in names or not _is_name(name):
                continue
            here = _type_of(value, 0)
            found[name] = _wider(found[name], here) if name in found else here
    folded = [name.lower() for name in found]
    usable = [
        Field(name, each.text, True)
        for name, each in found.items()
        if each is not None and folded.count(name.lower()) == 1
    ]
    return tuple(usable) if len(usable) <= NEW_FIELDS_MAX_COUNT else ()


def _is_name(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not name.startswith("_")


def _type_of(value: Any, depth: int) -> Type | None:
    if depth > DEPTH_MAX:
        return None
    match value:
        case bool():
            return Type("BOOLEAN")
        case int():
            return Type("BIGINT") if -(1 << 63) <= value < 1 << 63 else None
        case float():
            return Type("DOUBLE")
        case str():
            return Type("STRING")
        case list():
            element: Type | None = None
            for each in (each for each in value if each is not None):
                here = _type_of(each, depth + 1)
                element = here if element is None else _wider(element, here)
                if element is None:
                    return None
            return None if element is None else Type("ARRAY", members=(("", element),))
        case dict():
            members = [(name, _type_of(each, depth + 1)) for name, each in value.items() if each is not None]
            named = tuple((name, each) for name, each in members if each is not None and _is_name(name))
            folded = {name.lower() for name, _ in named}
            return Type("STRUCT", members=named) if named and len(folded) == len(members) else None
    return None


def _wider(one: Type | None, other: Type | None) -> Type | None:
    """A type that takes the values of both."""
    if one is None or other is None or one == other:
        return one if one == other else None
    if {one.name, other.name} == {"BIGINT", "DOUBLE"}:
        return Type("DOUBLE")
    if one.name == other.name == "ARRAY":
        element = _wider(one.members[0][1], other.members[0][1])
        return None if element is None else Type("ARRAY", members=(("", element),))
    if one.name == other.name == "STRUCT":
        members = dict(one.members)
        for name, each in other.members:
            wide = _wider(members[name], each) if name in members else each
            if wide is None:
                return None
            members[name] = wide
        return Type("STRUCT", members=tuple(members.items()))
    return None
