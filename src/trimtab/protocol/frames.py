"""Frames: the units of a link, and the greeting that begins or resumes one."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from trimtab.protocol.messages import AnyMessage

Role: TypeAlias = Literal["broker", "client"]


class Hello(msgspec.Struct, frozen=True, tag_field="frame", tag="hello"):
    """The first frame of each connection, in both directions.

    `session` stays the same while one end lives, so that the other can tell a reconnection from a restart; `expects`
    is the number of the next frame that the sender has not seen.
    """

    version: int
    role: Role
    name: str
    session: str
    expects: int


class Payload(msgspec.Struct, frozen=True, tag_field="frame", tag="m"):
    """A numbered message; `ack` is the number of the last frame seen in the other direction."""

    number: int
    ack: int
    message: AnyMessage


class Ack(msgspec.Struct, frozen=True, tag_field="frame", tag="ack"):
    """Nothing to say but what has been seen; with `gap` something after it arrived while the next is missing."""

    ack: int
    gap: bool = False


class Goodbye(msgspec.Struct, frozen=True, tag_field="frame", tag="bye"):
    """The last frame: the sender closes the connection for this reason."""

    reason: str


Frame: TypeAlias = Hello | Payload | Ack | Goodbye
