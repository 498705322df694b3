"""What brokers and clients say to each other, as frozen values.

Messages travel inside numbered frames of a link (`trimtab.protocol.link`). Each carries the id of what caused it, so
that the story of a move or a balancing decision can be told later.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trimtab.language import Filter, Value

VERSION: Final = 1
"""The version of the protocol; two ends that differ do not talk."""


class Message(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True, omit_defaults=True):
    """Anything that is said over a link; `cause` names what made the sender say it."""

    cause: str = ""


class Advertise(Message, frozen=True, tag="adv"):
    """A publisher will send publications that the filter announces; floods through the network."""

    id: str
    filter: Filter


class Unadvertise(Message, frozen=True, tag="unadv"):
    """An advertisement ends."""

    id: str


class Subscribe(Message, frozen=True, tag="sub"):
    """Somebody behind the sender wants what the filter matches; travels towards intersecting advertisements."""

    id: str
    filter: Filter


class Unsubscribe(Message, frozen=True, tag="unsub"):
    """A subscription ends."""

    id: str


class Confirmed(Message, frozen=True, tag="ok"):
    """The receiver's advertisement or subscription is in force everywhere behind the sender."""

    id: str


class Publish(Message, frozen=True, tag="pub"):
    """A publication on its way; `sequence` counts the publisher's publications of one session from 1 without gaps."""

    publisher: str
    sequence: int
    values: dict[str, Value]
    origin_s: float
    hops: int = 0
    session: str = ""


class ControlPublish(Publish, frozen=True, tag="cpub"):
    """A publication of an agent inside a broker, for agents of other brokers; it overtakes those of clients."""


class Accepted(Message, frozen=True, tag="acc"):
    """The publisher's broker has taken over all publications up to this sequence number."""

    publisher: str
    sequence: int


class Refused(Message, frozen=True, tag="no"):
    """A request was not carried out; `about` names it (an id or publisher:sequence) and `reason` says why."""

    about: str
    reason: str


class Members(Message, frozen=True, tag="members"):
    """Brokers that can now be reached through the sender, and where clients find them, in the same order."""

    names: tuple[str, ...]
    addresses: tuple[str, ...] = ()


class Gone(Message, frozen=True, tag="gone"):
    """Brokers that can no longer be reached through the sender."""

    names: tuple[str, ...]


class Synced(Message, frozen=True, tag="synced"):
    """The receiver has been told all that the sender and everything behind it knew when the link came to be."""


class Redirect(Message, frozen=True, tag="redirect"):
    """A broker asks a client to move to another broker, found at the address; `cause` names what it is for."""

    broker: str
    address: str = ""


class MovedSubscription(msgspec.Struct, frozen=True):
    """A subscription that moves: its id at the old broker, its id from now on, and its filter."""

    old_id: str
    new_id: str
    filter: Filter


class MoveIn(Message, frozen=True, tag="movein"):
    """A client asks its new broker to take over subscriptions that the old broker still serves."""

    move: str
    old_broker: str
    subscriptions: tuple[MovedSubscription, ...]


class Handover(Message, frozen=True, tag="handover"):
    """A marker from the new broker to the old one: behind it every publication also goes to the new one."""

    move: str
    client: str
    old_broker: str
    old_ids: tuple[str, ...]


class End(Message, frozen=True, tag="end"):
    """A marker from the old broker to the client: what comes after it comes from the new broker."""

    move: str


class Stay(Message, frozen=True, tag="stay"):
    """A client asks its old broker to undo a move whose end has not come for too long."""

    move: str


class Stayed(Message, frozen=True, tag="stayed"):
    """The old broker goes on serving the client: the move has not happened and will not."""

    move: str


AnyMessage = (
    Advertise
    | Unadvertise
    | Subscribe
    | Unsubscribe
    | Confirmed
    | Publish
    | ControlPublish
    | Accepted
    | Refused
    | Members
    | Gone
    | Synced
    | Redirect
    | MoveIn
    | Handover
    | End
    | Stay
    | Stayed
)
"""Every message, for decoding."""


_DATA_TYPES: Final = frozenset({Publish, Unadvertise, Handover, End})


def is_control(message: Message) -> bool:
    """Whether the message overtakes publications in queues.

    Whatever must keep its place among the publications (a marker) is data; the end of an advertisement is, for it ends
    routes that the publications before it still need.

    >>> is_control(Unsubscribe(id="s1"))
    True
    """
    return type(message) not in _DATA_TYPES
