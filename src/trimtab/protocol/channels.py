"""Channels of the active-data back end as clients and brokers speak of them.

A **stream** is a channel with arguments. Its results have positions that grow and are the same for every broker, so
that a client can go on anywhere after the last result that it has. To a client a result is a publication whose
publisher is the stream and whose sequence number is the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trimtab.protocol.messages import WireValue

STREAM_MARK: Final = "#"
"""The first character of a stream's name; no client's or broker's name begins with it."""

FROM_NOW_ON: Final = -1
"""The position of a client that wants what comes from now on; positions of results begin at 1."""


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


def is_stream(publisher: str) -> bool:
    """Whether a publisher is a stream.

    >>> is_stream("#Quakes()"), is_stream("alice")
    (True, False)
    """
    return publisher.startswith(STREAM_MARK)
