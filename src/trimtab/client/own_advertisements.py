"""What a client announces by itself, when its application publishes without saying beforehand what.

Publications of one class become one advertisement: of the class, and of every other attribute with any value of its
kind. A publication that it does not announce widens it: a new attribute is added, one that had values of another kind
may have any. Where a filter cannot say so much (very many attributes or classes) the advertisement becomes open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from trimtab.language import Filter, Kind, LimitError, Op, Predicate, Publication, Value
from trimtab.language.values import kind_of
from trimtab.matching.announcements import Announcements

CLASSES_MAX_COUNT: Final = 64
"""Classes with an advertisement of their own; each costs an entry in the tables of every broker."""

CLASS: Final = "class"
"""The attribute whose value an advertisement names: applications tell kinds of publications apart by it."""

_EXAMPLES: Final[Mapping[Kind, Value]] = {Kind.NUMBER: 0, Kind.STRING: "", Kind.BOOLEAN: True}


_Key: TypeAlias = tuple[Kind, Value]


class Widened(msgspec.Struct, frozen=True):
    """An advertisement that covers what was announced of a class, and a publication more."""

    of_class: Value | None
    kinds: dict[str, Kind | None]
    """Of each attribute but the class; None if its values are of several kinds."""
    filter: Filter


class OwnAdvertisements:
    """The advertisements that a client has made itself, one for each class.

    >>> own = OwnAdvertisements()
    >>> print((wider := own.widened(Publication({"class": "STOCK"}, volume=5))).filter)
    [class,eq,'STOCK'],[volume,isPresent,0]
    >>> own.add("a1", wider)
    >>> own.announce({"class": "STOCK", "volume": 9}), own.announce({"class": "STOCK", "note": "new"})
    (True, False)
    >>> print((wider := own.widened(Publication({"class": "STOCK"}, note="new"))).filter)
    [class,eq,'STOCK'],[note,isPresent,''],[volume,isPresent,0]
    >>> own.add("a2", wider)
    'a1'
    """

    def __init__(self) -> None:
        self._announced = Announcements()
        self._by_class: dict[_Key | None, tuple[str, Widened]] = {}

    def announce(self, values: Mapping[str, Value]) -> bool:
        """Whether a publication with these values is announced."""
        return self._announced.announce(values)

    def widened(self, publication: Publication, *, may_be_open: bool = True) -> Widened:
        """What to announce before a publication that is not announced."""
        of_class = publication.get(CLASS)
        key = _key(of_class)
        if key not in self._by_class and len(self._by_class) >= CLASSES_MAX_COUNT:
            of_class = key = None
        known = self._by_class[key][1].kinds if key in self._by_class else {}
        kinds = dict(known)
        for name, value in publication.items():
            if name != CLASS or of_class is None:
                kind = kind_of(value)
                kinds[name] = kind if known.get(name, kind) is kind else None
        try:
            filter = _filter(of_class, kinds)
        except LimitError:
            if not may_be_open:
                raise
            filter = Filter([] if of_class is None else _class_predicates(of_class)).opened()
        return Widened(of_class, kinds, filter)

    def add(self, id: str, widened: Widened) -> str | None:
        """Note that an advertisement is in force under an id; returns the id of the one that it replaces, if any."""
        former = self._by_class.get(_key(widened.of_class))
        if former is not None:
            self._announced.discard(former[0])
        self._by_class[_key(widened.of_class)] = (id, widened)
        self._announced.add(id, widened.filter)
        return None if former is None else former[0]


def _key(of_class: Value | None) -> _Key | None:
    """A class as a key: Python takes true for 1."""
    return None if of_class is None else (kind_of(of_class), of_class)


def _filter(of_class: Value | None, kinds: Mapping[str, Kind | None]) -> Filter:
    predicates = [] if of_class is None else _class_predicates(of_class)
    for name, kind in kinds.items():
        predicates.append(Predicate.of(name, Op.PRESENT, None if kind is None else _EXAMPLES[kind]))
    return Filter(predicates)


def _class_predicates(of_class: Value) -> list[Predicate]:
    try:
        return [Predicate.of(CLASS, Op.EQ, of_class)]
    except LimitError:  # a class that is too long to be compared with
        return [Predicate.of(CLASS, Op.PRESENT, "")]
