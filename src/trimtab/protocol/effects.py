"""What a protocol role asks its world to do.

Frames to send are not effects: a world takes them with `take_frame(peer, now_s)` when the peer's transport has room,
so that queues stay inside the role, where they are metered and bounded. Nor are times: `wake_at_s()` tells when the
role wants its next `Wake` event.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from trimtab.language import Filter, Publication
from trimtab.protocol.messages import Guard, Publish, WireValue


class Close(msgspec.Struct, frozen=True):
    """Send a `Goodbye` with the reason and close the connection to the peer."""

    peer: str
    reason: str


class Deliver(msgspec.Struct, frozen=True):
    """Hand a publication to the application, for each of the subscriptions named."""

    subscriptions: tuple[str, ...]
    publication: Publication
    publisher: str
    sequence: int
    delay_s: float
    hops: int
    session: str = ""
    """The publisher's: in another one it counts anew."""
    late_for: tuple[str, ...] = ()
    """Those of the subscriptions that wanted it within a shorter time."""


class InForce(msgspec.Struct, frozen=True):
    """A subscription or advertisement of this client is in force."""

    id: str
    position: int | None = None
    """Of a channel: all results after this one will come."""
    narrowed: Filter | None = None
    """Of a subscription that is permitted in part: the filter that is in force."""


class Taken(msgspec.Struct, frozen=True):
    """The broker has accepted the publisher's publications up to this sequence number."""

    sequence: int


class Rejected(msgspec.Struct, frozen=True):
    """The broker refused a request of this client."""

    about: str
    reason: str


class GapNotice(msgspec.Struct, frozen=True):
    """Publications may be lost that this client wanted: those of a publisher from the first to the last number.

    Without a last number it is not known how many: all before the next one that is delivered. Without a publisher it is
    not known whose: something was lost, and of publishers that are gone nobody can tell.
    """

    publisher: str
    first: int | None = None
    last: int | None = None
    reason: str = ""
    session: str = ""
    """The publisher's: in another one it counts anew."""


class Throttled(msgspec.Struct, frozen=True):
    """What this client sends waits at its broker, because it is more than a limit allows."""

    reason: str


class Open(msgspec.Struct, frozen=True):
    """Open a connection to this broker as well, and keep it open; the address is empty where the world knows it.

    `cause` names what the client moves for.
    """

    broker: str
    address: str = ""
    cause: str = ""


class Shut(msgspec.Struct, frozen=True):
    """Close the connection to this broker; it is no longer needed."""

    broker: str


class Moved(msgspec.Struct, frozen=True):
    """The client is served by this broker from now on."""

    broker: str
    waited_s: float = 0.0
    """How long a publisher's publications were held back for the move."""


class NotMoved(msgspec.Struct, frozen=True):
    """The client was asked to move to this broker but stays where it is."""

    broker: str
    reason: str


class MeasureRoundTrips(msgspec.Struct, frozen=True):
    """Find out how long it takes to and from these brokers, by name with addresses (empty where the world knows them).

    The world answers with the event `RoundTripsMeasured` for the same question, however few it could reach.
    """

    question: str
    addresses: dict[str, str]


class OpenStream(msgspec.Struct, frozen=True):
    """Ask the back end to make results of a channel for these arguments, and to tell of them."""

    stream: str
    channel: str
    arguments: dict[str, WireValue]


class CloseStream(msgspec.Struct, frozen=True):
    """Tell the back end that this broker wants no more results of a stream."""

    stream: str


class FetchResults(msgspec.Struct, frozen=True):
    """Ask the back end for so many results of a stream after a position."""

    stream: str
    after: int
    max_count: int


BackEndRequest: TypeAlias = OpenStream | CloseStream | FetchResults
"""What a broker wants of the back end."""


class Replace(msgspec.Struct, frozen=True):
    """Have a replica started for a broker that has failed; whoever starts it makes sure that the old one is over."""

    broker: str
    session: str
    """The incarnation that has failed; for a later one nothing is to be done. Empty if none was ever seen: a replica
    was told of it and it did not come; then its neighbours are not known either."""
    why: str
    """How it failed: crash or hang."""
    protocol: str
    neighbours: tuple[tuple[str, str], ...]
    """The names and addresses of all brokers that it was linked to, the one that asks included."""
    epoch: int = 1
    """The epoch of the incarnation that has failed; the next one has a higher one."""


class Assist(msgspec.Struct, frozen=True):
    """Have an assistant started that shares the load of a broker that is congested, unless it has one."""

    broker: str
    session: str
    """The incarnation that is congested; for a later one nothing is to be done."""
    protocol: str
    reorders: bool
    """Whether publications that take different ways are put in order again."""
    neighbours: tuple[tuple[str, str], ...]
    """The names and addresses of all brokers that it is linked to, the one that asks included."""
    epoch: int = 1
    """The epoch of the incarnation that is congested."""


class Append(msgspec.Struct, frozen=True):
    """Put a client's publication or a change of its record onto the disk; the event `Stored` tells when it is there."""

    number: int
    """Numbers grow; what is stored is told by the last of them."""
    entry: Publish | Guard


class Forget(msgspec.Struct, frozen=True):
    """A publisher's publications up to a sequence number have reached all who want them: the disk may forget them."""

    publisher: str
    session: str
    sequence: int


class Leave(msgspec.Struct, frozen=True):
    """The broker has nothing left and is to end for good: its connections end, and it does not come back."""


class Record(msgspec.Struct, frozen=True):
    """Something for the records, if any are kept."""

    record: msgspec.Struct


Effect: TypeAlias = (
    Close
    | Deliver
    | InForce
    | Taken
    | Rejected
    | GapNotice
    | Throttled
    | Open
    | Shut
    | Moved
    | NotMoved
    | MeasureRoundTrips
    | Record
    | Replace
    | Assist
    | Append
    | Forget
    | Leave
    | BackEndRequest
)
