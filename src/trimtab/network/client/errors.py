"""What ends a client, and what a broker refuses it; and what a client refuses itself because no frame can hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trimtab.language import LimitError, Value
from trimtab.protocol.codec import CLIENT_FRAME_MAX_BYTES

LONG_TEXT_CHARS: Final = 1_000
FEW_ATTRIBUTES_COUNT: Final = 64
ROOM_FOR_THE_REST_BYTES: Final = 2_048
"""A few attributes without long texts always fit a frame; otherwise what surrounds the values needs so much."""


class ClientError(Exception):
    """A client cannot go on: no connection, or the broker refused it; the message says why."""


class ForgottenError(ClientError):
    """A broker has forgotten a client that stores what it is told: something may be missing."""


class RefusedError(ClientError):
    """The broker refused a request; the message says which and why."""


def check_size(values: Mapping[str, Value]) -> None:
    """Refuse a publication that no frame can hold; only long texts or very many attributes make one."""
    for value in values.values():
        if type(value) is str and len(value) > LONG_TEXT_CHARS:
            break
    else:
        if len(values) <= FEW_ATTRIBUTES_COUNT:
            return
    size_bytes = len(msgspec.msgpack.encode(dict(values))) + ROOM_FOR_THE_REST_BYTES
    if size_bytes > CLIENT_FRAME_MAX_BYTES:
        raise LimitError(f"a publication of {size_bytes:,} bytes; at most {CLIENT_FRAME_MAX_BYTES:,} are allowed")
