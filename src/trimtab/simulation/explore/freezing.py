"""What decides the future of an object, as a short hash: two objects with the same hash behave alike.

Objects are taken apart by reflection, so that nothing here knows the fields of brokers and clients, except for those
that only measure (`NOT_DECIDING`). Dictionaries and sets are compared without their order: order only decides in which
order different neighbours are told, and messages for different neighbours are in different queues. If that were ever
wrong, a state would be taken for another that was seen, and something be overlooked; nothing is ever made up by it.
"""

from __future__ import annotations

import marshal
from collections import deque
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

import msgspec

from trimtab.language import Filter

NOT_DECIDING: Final = frozenset(
    {
        "counters",  # what a broker has done since it began
        "meters",
        "_checker",  # who is told what a broker does
        "acks_count",  # a sign of life for those who watch, and nobody watches
        "delays",
        "now_s",  # the time of the last event
        "deliveries_count",
        "accepted_count",
        "published_count",
        "moved_in_count",
        "moved_out_count",
        "_version",  # of an index of filters, for readers that have begun to read
        "_times",  # of when to look after whom; those that count stand in another field
        "_shapes",  # what was worked out before
    }
)
"""Fields that are left out: they count or measure, or repeat what other fields say."""

_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
_KEY: Final = itemgetter(0)


def freeze(value: object) -> bytes:
    """The hash of what decides.

    >>> freeze({"a": 1, "b": [2]}) == freeze({"b": [2], "a": 1}), freeze([1, 2]) == freeze([2, 1])
    (True, False)
    """
    return blake2b(marshal.dumps(_Freezer().freeze(value), 0), digest_size=16).digest()


class _Freezer:
    """One graph of objects; what is met again is named by the number under which it was met first."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._met: list[object] = []
        """Keeps what was met, so that no other object gets its place in memory."""

    def freeze(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return ("tuple", *map(self.freeze, value))
        if kind is Filter:
            return ("filter", str(value))
        number = self._numbers.get(id(value))
        if number is not None:
            return ("again", number)
        self._numbers[id(value)] = len(self._met)
        self._met.append(value)
        how = _HOW.get(kind)
        if how is None:
            how = _HOW[kind] = _how(kind)
        return how(self, value)

    def fields(self, value: Any, names: tuple[str, ...]) -> Any:
        """Those fields of an object that are there."""
        freeze = self.freeze
        return (
            type(value).__qualname__,
            *((name, freeze(getattr(value, name))) for name in names if hasattr(value, name)),
        )


def _freeze_list(freezer: _Freezer, value: Any) -> Any:
    return ("list", *map(freezer.freeze, value))


def _freeze_dict(freezer: _Freezer, value: dict[Any, Any]) -> Any:
    if all(type(key) is str for key in value):
        items = sorted(value.items(), key=_KEY)
    else:
        items = sorted(value.items(), key=lambda item: repr(item[0]))
    return ("dict", *((freezer.freeze(key), freezer.freeze(item)) for key, item in items))


def _freeze_set(freezer: _Freezer, value: Any) -> Any:
    return ("set", *map(freezer.freeze, sorted(value, key=repr)))


def _freeze_method(freezer: _Freezer, value: MethodType) -> Any:
    return ("method", value.__func__.__qualname__, freezer.freeze(value.__self__))


def _freeze_builtin(freezer: _Freezer, value: BuiltinFunctionType) -> Any:
    return ("method", value.__qualname__, freezer.freeze(value.__self__))


def _freeze_partial(freezer: _Freezer, value: partial[Any]) -> Any:
    return ("partial", freezer.freeze(value.func), freezer.freeze(value.args), freezer.freeze(value.keywords))


def _freeze_name(freezer: _Freezer, value: Any) -> Any:
    return ("name", value.__qualname__)


_How = Callable[[_Freezer, Any], Any]

_HOW: dict[type, _How] = {
    list: _freeze_list,
    deque: _freeze_list,
    dict: _freeze_dict,
    set: _freeze_set,
    frozenset: _freeze_set,
    MethodType: _freeze_method,
    BuiltinFunctionType: _freeze_builtin,
    partial: _freeze_partial,
    FunctionType: _freeze_name,
    type: _freeze_name,
}


def _how(kind: type) -> _How:
    """How objects of a class are taken apart, worked out when the first of them is met."""
    if issubclass(kind, msgspec.Struct):
        names = tuple(name for name in kind.__struct_fields__ if name not in NOT_DECIDING)
        return lambda freezer, value: freezer.fields(value, names)
    slots = [name for each in kind.__mro__ for name in _slots_of(each)]
    names = tuple(sorted(name for name in slots if name not in NOT_DECIDING))
    contents = next((how for base, how in _HOW.items() if base in (deque, dict, list) and issubclass(kind, base)), None)

    def taken_apart(freezer: _Freezer, value: Any) -> Any:
        own = getattr(value, "__dict__", {})
        inside = tuple(sorted(name for name in own if name not in NOT_DECIDING))
        fields = freezer.fields(value, names + inside)
        return fields if contents is None else (fields, contents(freezer, value))

    return taken_apart


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
