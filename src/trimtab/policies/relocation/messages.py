"""What the agents of neighbouring brokers say to each other, as frozen values that travel as ordinary publications.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009): trace result (TRM), relocation
request and answer (RRM, RAM), trace information request and answer (TIR, TIA).

Messages go from a broker to a neighbour only; what is for a broker further away is passed on. So each agent announces
what it says (`sentBy`), and asks for what its neighbours say to it (`brokerID`), and no routing table has more than
the subscriptions of its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from trimtab.language import Filter, Value
from trimtab.policies.relocation.grape_joint import PathChange
from trimtab.policies.relocation.grape_tracing import BrokerTrace, Headroom
from trimtab.policies.relocation.pop_selection import Walk

RELOCATION: Final = "RELOCATION"
"""The class of these messages."""

BROKERS_MAX_COUNT: Final = 10_000
"""Brokers in one answer or on one path."""

_Brokers = Annotated[tuple[str, ...], msgspec.Meta(max_length=BROKERS_MAX_COUNT)]


class RelocationMessage(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True, omit_defaults=True):
    """Anything that an agent says to a neighbour's."""

    sender: str
    publisher: str = ""


class Echo(RelocationMessage, frozen=True, tag="echo"):
    """How far are you? The time is the sender's own."""

    sent_s: float


class EchoAnswer(RelocationMessage, frozen=True, tag="echo-answer"):
    """The same time, and how long matching takes here, which the way there and back has in it."""

    sent_s: float
    matching_delay_s: float


class TraceResult(RelocationMessage, frozen=True, tag="trace-result"):
    """So many subscribers at and behind the sender got this publication (POP's TRM)."""

    sequence: int
    subscribers_count: int


class RelocationRequest(RelocationMessage, frozen=True, tag="relocation-request"):
    """Are you the closest broker to the publisher's subscribers (POP's RRM)?"""

    walk: Walk
    brokers: _Brokers
    """The brokers that the request has been to, the last one first."""


class RelocationAnswer(RelocationMessage, frozen=True, tag="relocation-answer"):
    """The first of these brokers is the closest one, the last one asked (POP's RAM); passed on from each to the
    next."""

    brokers: _Brokers
    saved_hops_per_delivery: float


class TraceRequest(RelocationMessage, frozen=True, tag="trace-request"):
    """A trace session is over: who has what of it (GRAPE's TIR)? So many of its publications were sent to you."""

    session: str
    sent_count: int


class TraceAnswer(RelocationMessage, frozen=True, tag="trace-answer"):
    """What the sender and the brokers behind it have of a session (GRAPE's TIA)."""

    session: str
    traces: Annotated[tuple[BrokerTrace, ...], msgspec.Meta(max_length=BROKERS_MAX_COUNT)]


class HeadroomRequest(RelocationMessage, frozen=True, tag="room-request"):
    """May the publisher move along this path? What it does to each broker is told; each that can bear it keeps room."""

    session: str
    changes: Annotated[tuple[PathChange, ...], msgspec.Meta(max_length=BROKERS_MAX_COUNT)]


class HeadroomAnswer(RelocationMessage, frozen=True, tag="room-answer"):
    """All on the path have room, or the broker that has none; passed back along the path."""

    session: str
    brokers: _Brokers
    full: str = ""


class BrokerHeadroom(RelocationMessage, frozen=True, tag="room"):
    """What the sender carries and can carry, for subscribers that might come."""

    room: Headroom


AnyRelocation: TypeAlias = (
    TraceResult
    | BrokerHeadroom
    | RelocationRequest
    | RelocationAnswer
    | TraceRequest
    | TraceAnswer
    | HeadroomRequest
    | HeadroomAnswer
    | Echo
    | EchoAnswer
)

_decoder: Final[msgspec.json.Decoder[AnyRelocation]] = msgspec.json.Decoder(AnyRelocation)
_encoder: Final = msgspec.json.Encoder()


def announced_by(broker: str) -> Filter:
    """What the agent of a broker announces.

    >>> announced_by("B1") == Filter.parse("[class,eq,'RELOCATION'],[sentBy,eq,'B1'],[brokerID,isPresent,'']")
    True
    """
    return Filter.parse(f"[class,eq,'{RELOCATION}'],[sentBy,eq,'{broker}'],[brokerID,isPresent,'']")


def wanted_from(neighbour: str, broker: str) -> Filter:
    """What the agent of a broker asks for: what a neighbour's says to it.

    >>> wanted_from("B2", "B1") == Filter.parse("[class,eq,'RELOCATION'],[sentBy,eq,'B2'],[brokerID,eq,'B1']")
    True
    """
    return Filter.where({"class": RELOCATION, "sentBy": neighbour, "brokerID": broker})


def relocation_to_values(message: AnyRelocation, to: str) -> dict[str, Value]:
    """A message to a neighbour as the attributes of a publication.

    >>> result = TraceResult(sender="B2", publisher="P", sequence=7, subscribers_count=3)
    >>> values = relocation_to_values(result, to="B1")
    >>> values["kind"], values["brokerID"], relocation_from_values(values) == result
    ('trace-result', 'B1', True)
    """
    return {
        "class": RELOCATION,
        "sentBy": message.sender,
        "brokerID": to,
        "kind": str(message.__struct_config__.tag),
        "body": _encoder.encode(message).decode(),
    }


def relocation_from_values(values: Mapping[str, Value]) -> AnyRelocation:
    """Read a message; raises a ValueError that says what is wrong with the attributes."""
    if values.get("class") != RELOCATION:
        raise ValueError(f"not a relocation message: the class is {values.get('class')!r}, not {RELOCATION!r}")
    body = values.get("body")
    if not isinstance(body, str):
        raise ValueError("not a relocation message: no body")
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a relocation message: {error}") from None
