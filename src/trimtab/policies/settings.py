"""Reads tables of settings into frozen values; what is wrong is told in plain words, with the key.

Network files, scenario files and policies read their tables with it, so that the same mistake reads the same.
"""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

Settings = TypeVar("Settings", bound=msgspec.Struct)

_HEADER: Final = re.compile(r"""\s*(\[\[?)\s*([\w."' :/-]+?)\s*\]\]?\s*(#.*)?$""")
_KEY: Final = re.compile(r"""\s*([\w."' :/-]+?)\s*=""")
_NAME: Final = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([^."'\s]+))(?:\s*\.\s*)?""")

_WORDS: Final = {
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


class SettingsError(ValueError):
    """A setting that cannot be used: its key, empty where it is no single one, and why."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}" if key else reason)
        self.key = key
        self.reason = reason


def read_settings(table: object, kind: type[Settings], where: str = "") -> Settings:
    """The settings in a table; `where` is how its header reads.

    >>> class Pace(msgspec.Struct, frozen=True):
    ...     every_s: float = 1.0
    >>> read_settings({"every_s": 3}, Pace, "policy.mine")
    Pace(every_s=3.0)
    >>> read_settings({"every_s": "often"}, Pace, "policy.mine")
    Traceback (most recent call last):
    ...
    trimtab.policies.settings.SettingsError: policy.mine.every_s: expected a number, not a text
    """
    if not isinstance(table, dict):
        raise SettingsError(where, f"expected a section [{where}]")
    prefix = f"{where}." if where else ""
    for key in table:
        if key not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__)
            raise SettingsError(f"{prefix}{key}", f"unknown key {key} in {where or 'the file'}; expected {known}")
    try:
        return msgspec.convert(table, kind)
    except (msgspec.ValidationError, ValueError) as error:
        key, reason = wrong_value(error, kind)
        key = key or _at_fault(table, kind)
        raise SettingsError(f"{prefix}{key}".removesuffix("."), reason) from None


def wrong_value(error: Exception, kind: type[msgspec.Struct]) -> tuple[str, str]:
    """The key with dots that an error of msgspec is about, empty if it is about several, and what is wrong with it."""
    text, _, path = str(error).partition(" - at `$")
    key = path.removesuffix("`").replace("[...]", "").replace("[", ".").replace("]", "").strip(".")
    if choices := _choices(kind, key.split(".")):
        return key, f"expected one of {', '.join(map(str, choices))}"
    if wanted := re.fullmatch(r"Expected `(.+)`, got `(.+)`", text):
        names = [_WORDS.get(name, name) for name in wanted[1].split(" | ") if name != "null"]
        return key, f"expected {' or '.join(names)}, not {_WORDS.get(wanted[2], wanted[2])}"
    if unknown := re.fullmatch(r"Object contains unknown field `(.+)`", text):
        return f"{key}.{unknown[1]}".strip("."), "there is no such key"
    if missing := re.fullmatch(r"Object missing required field `(.+)`", text):
        return key, f"{missing[1]} is missing"
    return key, text


def _choices(kind: Any, path: Sequence[str]) -> tuple[Any, ...]:
    """The values that a key may have, if they are so few that they can be listed."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _choices(get_args(kind)[0], path)
    if origin is Union or isinstance(kind, types.UnionType):
        inner = [each for each in get_args(kind) if each is not type(None)]
        return _choices(inner[0], path) if len(inner) == 1 else ()
    if not path:
        return get_args(kind) if origin is Literal else ()
    if origin in (list, tuple, dict):
        return _choices(get_args(kind)[-1 if origin is dict else 0], path[1:] if path[0].isdigit() else path)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _choices(get_type_hints(kind, include_extras=True).get(path[0]), path[1:])
    return ()


def _at_fault(settings: dict[str, Any], kind: type[msgspec.Struct]) -> str:
    """The last setting without which the others go together, for an error that concerns several; else none."""
    for key in reversed(settings):
        try:
            msgspec.convert({name: value for name, value in settings.items() if name != key}, kind)
        except (msgspec.ValidationError, ValueError):
            continue
        return key
    return ""


def line_of(lines: Sequence[str], path: Sequence[str]) -> int | None:
    """The line of a TOML text where a key stands, or the innermost table around it; tables of lists by their number.

    >>> text = ["[[broker]]", 'name = "B1"', "[[broker]]", 'name = "B2"', "[policy.padres]", "inert_patience_s = 3"]
    >>> line_of(text, ["broker", "1", "name"]), line_of(text, ["policy", "padres", "press_sample_count"])
    (4, 5)
    """
    here: list[str] = []
    numbers: dict[tuple[str, ...], int] = {}
    found, depth = None, 0
    for number, line in enumerate(lines, 1):
        if header := _HEADER.match(line):
            here = _names(header[2])
            if header[1] == "[[":
                place = numbers[tuple(here)] = numbers.get(tuple(here), -1) + 1
                here.append(str(place))
            candidate = here
        elif key := _KEY.match(line):
            candidate = [*here, *_names(key[1])]
        else:
            continue
        if len(candidate) > depth and list(path[: len(candidate)]) == candidate:
            found, depth = number, len(candidate)
    return found


def _names(dotted: str) -> list[str]:
    """The parts of a key with dots, of which some may be in quotes."""
    return ["".join(found) for found in _NAME.findall(dotted)]
