"""What the coordination server and brokers say to each other, as control publications addressed by brokerID.

    COORDINATOR   coordinator -> brokers: it is there (to all), or moves that one broker is to ask for
    COORDINATED   broker -> coordinator: reports, and how moves have ended

The whole message is one attribute, `body`, in JSON. A report that is too long for one publication comes in parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from trimtab.language import Value
from trimtab.policies.multistage.coordinator import ClientTold, Site

COORDINATOR: Final = "COORDINATOR"
COORDINATED: Final = "COORDINATED"
EVERYBODY: Final = "*"
"""The brokerID of what all brokers are told."""

PART_NAMES_COUNT: Final = 10_000
"""Names in one publication of a report, some 20 characters each; a string may have a million."""

PART_MOVES_COUNT: Final = 500
"""Moves in one publication."""


class CoordinationMessage(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True, omit_defaults=True):
    """Anything that is said; `life` names the coordinator's present life."""

    life: str


class Present(CoordinationMessage, frozen=True, tag="present"):
    """The coordinator is there: tell it what changes so often, and everything if this life is new to you."""

    report_every_s: float


class Moves(CoordinationMessage, frozen=True, tag="moves"):
    """These clients are to move, each to its broker."""

    cause: str
    moves: tuple[tuple[str, str], ...]


class Report(CoordinationMessage, frozen=True, tag="report"):
    """Clients of a broker: all of them, or those that changed."""

    broker: str
    is_whole: bool = False
    clients: tuple[ClientTold, ...] = ()
    gone: tuple[str, ...] = ()
    rates_bytes_per_s: dict[str, float] = {}
    site: Site | None = None
    address: str = ""


class MoveResult(CoordinationMessage, frozen=True, tag="ended"):
    """A client that was asked to move has left, or stays for this reason."""

    broker: str
    client: str
    cause: str
    is_moved: bool
    reason: str = ""


FromCoordinator: TypeAlias = Present | Moves
FromBroker: TypeAlias = Report | MoveResult
AnyCoordination: TypeAlias = FromCoordinator | FromBroker

_ENCODER: Final = msgspec.json.Encoder()
_FROM_COORDINATOR: Final[msgspec.json.Decoder[FromCoordinator]] = msgspec.json.Decoder(FromCoordinator)
_FROM_BROKER: Final[msgspec.json.Decoder[FromBroker]] = msgspec.json.Decoder(FromBroker)


class MalformedError(ValueError):
    """A control publication of these classes that says nothing we understand."""


def to_values(message: AnyCoordination, to: str) -> dict[str, Value]:
    """The publication that carries a message to a broker, to all (`EVERYBODY`), or to the coordinator."""
    of = COORDINATOR if isinstance(message, FromCoordinator) else COORDINATED
    return {"class": of, "brokerID": to, "body": _ENCODER.encode(message).decode()}


def from_coordinator(values: Mapping[str, Value]) -> FromCoordinator:
    """What the coordinator says.

    >>> from_coordinator(to_values(Present(life="a", report_every_s=10.0), EVERYBODY)).life
    'a'
    """
    try:
        return _FROM_COORDINATOR.decode(str(values.get("body", "")))
    except msgspec.MsgspecError as error:
        raise MalformedError(f"a message of the coordinator: {error}") from None


def from_broker(values: Mapping[str, Value]) -> FromBroker:
    """What a broker tells the coordinator."""
    try:
        return _FROM_BROKER.decode(str(values.get("body", "")))
    except msgspec.MsgspecError as error:
        raise MalformedError(f"a message to the coordinator: {error}") from None
