"""Channels of the active-data back end as clients and brokers speak of them.

A **stream** is a channel with arguments. Its results have positions that grow and are the same for every broker, so
that a client can go on anywhere after the last result that it has. To a client a result is a publication whose
publisher is the stream and whose sequence number is the position.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from trimtab.protocol.messages import WireValue

STREAM_MARK: Final = "#"
"""The first character of a stream's name; no client's or broker's name begins with it."""


class ChannelResult(msgspec.Struct, frozen=True):
    """One result of a stream: its position, what it says, and when its channel was executed."""

    position: int
    values: dict[str, WireValue]
    executed_s: float


def stream_name(channel: str, arguments: Mapping[str, WireValue]) -> str:
    """The name of a channel with arguments, whatever their order.

    >>> stream_name("EmergencyOfType", {"event": "flood", "level": 3})
    '#EmergencyOfType(event="flood",level=3)'
    """
    said = (f"{name}={msgspec.json.encode(arguments[name]).decode()}" for name in sorted(arguments))
    return f"{STREAM_MARK}{channel}({','.join(said)})"


_CHANNEL: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_ARGUMENT: Final = re.compile(
    r"""\s*([A-Za-z_]\w*)\s*=>\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[-+.\w]+)\s*(,|$)""", re.DOTALL
)


def parse_channel(text: str) -> tuple[str, dict[str, WireValue]]:
    """Read a channel with its arguments by name; a ValueError says where it cannot be read.

    >>> parse_channel('EmergencyOfType(event => "flood", level => 3)')
    ('EmergencyOfType', {'event': 'flood', 'level': 3})
    """
    found = _CHANNEL.fullmatch(text)
    if found is None:
        raise ValueError("expected a channel with arguments by name: Name(first => 'text', second => 3)")
    arguments: dict[str, WireValue] = {}
    inside, place = found[2] or "", 0
    while inside[place:].strip():
        argument = _ARGUMENT.match(inside, place)
        if argument is None:
            raise ValueError(f"expected NAME => VALUE at character {found.start(2) + place + 1}")
        name, value = argument[1], argument[2]
        if name in arguments:
            raise ValueError(f"the argument {name} is given twice")
        arguments[name] = _value(value, found.start(2) + argument.start(2) + 1)
        place = argument.end()
        if argument[3] and not inside[place:].strip():
            raise ValueError(f"expected another argument after the comma at character {found.start(2) + place}")
    return found[1], arguments


def _value(text: str, place: int) -> WireValue:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        plain = text.lower() if text.lower() in ("true", "false") else text
        return cast(WireValue, msgspec.json.decode(plain, type=WireValue))
    except msgspec.DecodeError:
        raise ValueError(f"expected a text in quotes, a number, true or false at character {place}") from None


def is_stream(publisher: str) -> bool:
    """Whether a publisher is a stream.

    >>> is_stream("#Quakes()"), is_stream("alice")
    (True, False)
    """
    return publisher.startswith(STREAM_MARK)


def flat_values(values: dict[str, Any]) -> dict[str, WireValue]:
    """The fields of a result as values of the language: what has no value is left out, what is nested becomes JSON.

    >>> flat_values({"type": "flood", "place": {"x": 1}, "level": None, "near": True})
    {'type': 'flood', 'place': '{"x":1}', 'near': True}
    """
    flat: dict[str, WireValue] = {}
    for name, value in values.items():
        if isinstance(value, str | bool | int | float):
            flat[name] = value
        elif value is not None:
            flat[name] = msgspec.json.encode(value).decode()
    return flat
