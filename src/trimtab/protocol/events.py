"""What a world tells a protocol role (`handle(event, now_s) -> list[Effect]`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from trimtab.protocol.channels import ChannelResult
from trimtab.protocol.frames import Ack, Hello, Payload, Sendable
from trimtab.protocol.messages import AnyMessage, ClientRecord, Publish
from trimtab.security.rights import Rights


class Connected(msgspec.Struct, frozen=True):
    """A connection stands and the peer's greeting has arrived.

    A client has these rights (brokers only); without any it may do everything.
    """

    peer: str
    hello: Hello
    rights: Rights | None = None


class RightsChanged(msgspec.Struct, frozen=True):
    """A client may do something else than before (brokers only)."""

    peer: str
    rights: Rights


class Disconnected(msgspec.Struct, frozen=True):
    """The connection to the peer broke or was closed; the link's state stays. One that `returns` has said so."""

    peer: str
    returns: bool = False


class Received(msgspec.Struct, frozen=True):
    """A frame arrived from a connected peer."""

    peer: str
    frame: Payload | Ack


class Step(msgspec.Struct, frozen=True):
    """Process the next message of the input queue, or up to so many (brokers only)."""

    count: int = 1


class Wake(msgspec.Struct, frozen=True):
    """The time that `wake_at_s` told has come."""


class Stored(msgspec.Struct, frozen=True):
    """All publications that were to be appended, up to this number, are on the disk (brokers only)."""

    number: int


class DiskSpaceChanged(msgspec.Struct, frozen=True):
    """The disk has no room for more publications, or has room again (brokers only)."""

    has_room: bool


class FenceChanged(msgspec.Struct, frozen=True):
    """The broker does not hold its place, for this reason, or, without a reason, holds it again (brokers only).

    Told before anything else where brokers are fenced (`trimtab.broker.replication.membership`).
    """

    problem: str


class Recovered(msgspec.Struct, frozen=True):
    """What the disk of an earlier incarnation holds, in its order; told before anything else (brokers only)."""

    publications: tuple[Publish, ...]
    records: tuple[ClientRecord, ...] = ()
    damage: str = ""
    """What of it was found damaged, in words, if anything was."""


class LeftBehind(msgspec.Struct, frozen=True):
    """What a broker that was asked to end leaves for its next incarnation: its clients, and what nobody else has."""

    records: tuple[ClientRecord, ...] = ()
    version: int = 0
    """The version of the records, where neighbours keep them as well."""
    tails: Mapping[str, tuple[Sendable, ...]] = {}
    """Data by the neighbour or client that has not acknowledged it, in its order."""
    waiting: tuple[tuple[str, AnyMessage], ...] = ()
    """Data of neighbours that was not processed, with its sources."""


class Resumed(msgspec.Struct, frozen=True):
    """What the incarnation before has left; told before anything else (brokers only)."""

    left: LeftBehind


class LoadMeasured(msgspec.Struct, frozen=True):
    """What the world has measured of the machine, at times of its choice; what is None is as before (brokers only)."""

    memory_bytes: int | None = None
    """Memory that the broker's work takes."""

    output_delay_s: float | None = None
    """How long a message waits in an output queue."""

    publication_bytes: float | None = None
    """The usual size of a publication on the wire."""


class PublicationSizes(msgspec.Struct, frozen=True):
    """Sizes on the wire by publisher, where publications do not come as bytes; others are as before (brokers only)."""

    by_publisher: Mapping[str, int]


class LinkRemoved(msgspec.Struct, frozen=True):
    """The operator took the link to a neighbour away for good, or a client left for good."""

    peer: str


class KeepClients(msgspec.Struct, frozen=True):
    """From here on no client is asked to move, whatever agents want, to see what becomes of them (brokers only)."""


class MoveTo(msgspec.Struct, frozen=True):
    """Move this client's subscriptions to another broker (clients only); `cause` names what it is for."""

    broker: str
    address: str = ""
    cause: str = ""


class RoundTripsMeasured(msgspec.Struct, frozen=True):
    """How long it takes to and from brokers, for a question of the client session (clients only)."""

    question: str
    round_trips_s: dict[str, float]


class BackEndReached(msgspec.Struct, frozen=True):
    """The back end answers, for the first time or again; what was asked before may be lost (brokers only)."""


class StreamOpened(msgspec.Struct, frozen=True):
    """The back end makes results for a stream; all that come after this position can be fetched (brokers only)."""

    stream: str
    position: int


class StreamRefused(msgspec.Struct, frozen=True):
    """The back end makes no results for a stream, for this reason (brokers only)."""

    stream: str
    reason: str


class ResultsExist(msgspec.Struct, frozen=True):
    """A stream has results up to this position, so many and so large since it was last told of (brokers only)."""

    stream: str
    position: int
    news_count: int = 0
    news_bytes: int = 0


class ResultsFetched(msgspec.Struct, frozen=True):
    """The results of a stream after a position, in order; none if there are none (brokers only)."""

    stream: str
    after: int
    results: tuple[ChannelResult, ...]


BackEndEvent: TypeAlias = BackEndReached | StreamOpened | StreamRefused | ResultsExist | ResultsFetched
"""What the back end has to say to a broker."""

Event: TypeAlias = (
    Connected
    | RightsChanged
    | Disconnected
    | Received
    | Step
    | Wake
    | Stored
    | DiskSpaceChanged
    | FenceChanged
    | Recovered
    | Resumed
    | LoadMeasured
    | PublicationSizes
    | LinkRemoved
    | KeepClients
    | MoveTo
    | RoundTripsMeasured
    | BackEndEvent
)
