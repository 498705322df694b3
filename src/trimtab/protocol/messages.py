"""What brokers and clients say to each other, as frozen values.

Messages travel inside numbered frames of a link (`trimtab.protocol.link`). Each carries the id of what caused it, so
that the story of a move or a balancing decision can be told later.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final, TypeAlias

import msgspec

from trimtab.language import Filter, limits
from trimtab.language.durations import DURATION_MAX_S

VERSION: Final = 1
"""The version of the protocol; two ends that differ do not talk."""

FIRST_LIFE: Final = "1"
"""What a broker calls its first life, if it calls them by numbers."""

HOPS_MAX_COUNT: Final = 127
"""Hops are not counted beyond this, so that they are the last byte of a publication on the wire."""

WireValue: TypeAlias = (
    str
    | Annotated[int, msgspec.Meta(ge=limits.INTEGER_MIN, le=limits.INTEGER_MAX)]
    | Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
    | bool
)
"""A value of the language: MessagePack could say more."""

Within: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=DURATION_MAX_S)] | None
"""A latency requirement in seconds: how long a publication may take from its publisher to the subscriber, if any."""


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
    """Somebody behind the sender wants what the filter matches; travels towards intersecting advertisements.

    A client may say within which time. Its own broker is the one that must know, for there its publications wait; what
    brokers tell each other leaves it out, so that no covering subscription can hide a stricter one.
    """

    id: str
    filter: Filter
    within_s: Within = None


class Unsubscribe(Message, frozen=True, tag="unsub"):
    """A subscription ends."""

    id: str


FROM_NOW_ON: Final = -1
"""The position of a client that wants what comes from now on; positions of results begin at 1."""


class SubscribeChannel(Message, frozen=True, tag="csub"):
    """A client wants the results of a channel for these arguments that come after a position.

    Said again for the same id it means: go on after this position.
    """

    id: str
    channel: str
    arguments: dict[str, WireValue]
    after: int = FROM_NOW_ON


class ChannelConfirmed(Message, frozen=True, tag="cok"):
    """The client's subscription to a channel is in force: all results after this position will come."""

    id: str
    position: int


class Confirmed(Message, frozen=True, tag="ok"):
    """The receiver's advertisement or subscription is in force everywhere behind the sender."""

    id: str


class Publish(Message, frozen=True, kw_only=True, array_like=True, tag=False, eq=False):
    """A publication on its way; `sequence` numbers the publisher's publications of one session, and only grows.

    One that arrived as bytes keeps them (`wire`), because they are passed on with nothing changed but the hops.
    """

    publisher: str
    sequence: int
    values: dict[str, WireValue]
    origin_s: float
    session: str = ""
    hops: Annotated[int, msgspec.Meta(ge=0, le=HOPS_MAX_COUNT)] = 0
    wire: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Publish) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash((self.publisher, self.session, self.sequence))

    def fields(self) -> tuple[str, str, int, dict[str, WireValue], float, str, int]:
        """What is said on the wire, in this order."""
        return self.cause, self.publisher, self.sequence, self.values, self.origin_s, self.session, self.hops


_HOPS: Final = [bytes((min(count + 1, HOPS_MAX_COUNT),)) for count in range(HOPS_MAX_COUNT + 1)]


def one_hop_further(message: Publish) -> Publish | bytes:
    """A publication as it is passed on: as bytes if it came as bytes.

    >>> one_hop_further(Publish(publisher="p", sequence=1, values={}, origin_s=0.0)).hops
    1
    """
    if message.wire:
        return message.wire[:-1] + _HOPS[message.hops]
    return msgspec.structs.replace(message, hops=min(message.hops + 1, HOPS_MAX_COUNT))


class ControlPublish(Publish, frozen=True, kw_only=True, array_like=False, tag_field="kind", tag="cpub", eq=False):
    """A publication of an agent inside a broker, for agents of other brokers; it overtakes those of clients."""


class Accepted(Message, frozen=True, tag="acc"):
    """The publisher's broker has taken over all publications up to this sequence number."""

    publisher: str
    sequence: int


class Refused(Message, frozen=True, tag="no"):
    """A request was not carried out; `about` names it (an id or publisher:sequence) and `reason` says why."""

    about: str
    reason: str


class Limited(Message, frozen=True, tag="limited"):
    """The receiver sends more than it may: what is beyond waits at the sender, for this reason."""

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


class MovedSubscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subscription that moves: its id at the old broker, its id from now on, its filter and its requirement."""

    old_id: str
    new_id: str
    filter: Filter
    within_s: Within = None


class MovedAdvertisement(msgspec.Struct, frozen=True):
    """An advertisement that moves with its publisher; its id stays what it is."""

    id: str
    filter: Filter


class MoveIn(Message, frozen=True, tag="movein"):
    """A client asks its new broker to take over subscriptions and advertisements that the old broker still serves.

    Its publications are all accepted by the old broker, and its advertisements in force, when it says so.
    """

    move: str
    old_broker: str
    subscriptions: tuple[MovedSubscription, ...]
    advertisements: tuple[MovedAdvertisement, ...] = ()
    publishes: bool = False
    """Whether it has advertisements, or has published at the old broker: what it says next must not overtake that."""

    old_session: str = ""
    """The life of the old broker that the client knows, `FIRST_LIFE` if empty; a later one has nothing to hand over."""

    has_moved: bool = False
    """Whether the client has left the old broker: all it asks is when what it published there has passed."""


class Handover(Message, frozen=True, tag="handover"):
    """A marker from the new broker to the old one: behind it every publication also goes to the new one.

    Where it passes, subscriptions to the client's publications are led towards the new broker as well.
    """

    move: str
    client: str
    old_broker: str
    old_ids: tuple[str, ...]
    new_broker: str = ""
    """Where the client moves to; empty if it does not publish."""

    advertisements: tuple[MovedAdvertisement, ...] = ()
    old_session: str = ""
    has_moved: bool = False
    """Whether the client has left the old broker, which has nothing to hand over and answers all the same."""


class Complete(Message, frozen=True, tag="complete"):
    """A marker from the old broker of a publisher to the new one: all that was published there stands before it.

    Where it passes, the publisher's advertisements are turned towards the new broker. `is_lost` says that the path from
    the old broker broke: no more will come, and whether the publisher has moved is not known here.
    """

    move: str
    client: str
    new_broker: str
    advertisements: tuple[str, ...]
    is_lost: bool = False


class Cancel(Message, frozen=True, tag="cancel"):
    """A marker behind a handover: the client has left the new broker, and nothing needs to lead there for its sake."""

    move: str
    old_broker: str


class Resume(Message, frozen=True, tag="resume"):
    """The new broker tells a publisher that it may publish there."""

    move: str


class Stranded(Message, frozen=True, tag="stranded"):
    """The new broker tells a client that the path from its old broker broke during the move."""

    move: str


class Measure(Message, frozen=True, tag="measure"):
    """A broker asks a client how long it takes to and from brokers, found at the addresses in the same order."""

    brokers: tuple[str, ...]
    addresses: tuple[str, ...] = ()


class Measured(Message, frozen=True, tag="measured"):
    """A client's answer: round-trip times by broker, without those that it could not reach."""

    round_trips_s: dict[str, Annotated[float, msgspec.Meta(ge=0)]]


class End(Message, frozen=True, tag="end"):
    """A marker from the old broker to the client: what comes after it comes from the new broker."""

    move: str


class Stay(Message, frozen=True, tag="stay"):
    """A client asks its old broker to undo a move whose end has not come for too long."""

    move: str


class Stayed(Message, frozen=True, tag="stayed"):
    """The old broker goes on serving the client: the move has not happened and will not."""

    move: str


class Neighbours(Message, frozen=True, tag="neighbours"):
    """All brokers that the sender is linked to and where they are found, so that others can replace the sender."""

    names: tuple[str, ...]
    addresses: tuple[str, ...] = ()


class AdvertisementsTold(Message, frozen=True, tag="advsend"):
    """To a replica: the sender has told all advertisements that the broker before it knew from there."""


class SubscriptionsWanted(Message, frozen=True, tag="subs?"):
    """A replica has passed on all advertisements; what they pull may come, and `SubscriptionsTold` behind it."""


class SubscriptionsTold(Message, frozen=True, tag="subsend"):
    """To a replica: the sender has told all subscriptions that the replica's advertisements pull."""


class Replicated(Message, frozen=True, tag="replicated"):
    """A replica has the routing state of the broker that it replaces, as far as neighbours have it.

    The names are those of all brokers that are reached through it.
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...] = ()


class KnownFilter(msgspec.Struct, frozen=True):
    """An advertisement or subscription: its id and its filter."""

    id: str
    filter: Filter


class Unclaimed(Message, frozen=True, tag="unclaimed"):
    """To a replica: what came from the broker before it and has not come again; clients of it may still return."""

    advertisements: tuple[KnownFilter, ...]
    subscriptions: tuple[KnownFilter, ...]


class Sent(msgspec.Struct, frozen=True):
    """The last publication of a publisher's session that was passed on."""

    publisher: str
    session: str
    sequence: int


class Progress(Message, frozen=True, tag="progress"):
    """A marker that a broker sends over both ways where an assistant shares a neighbour's load.

    Who has it over both has all publications that its origin sent before it; whoever passes it on adds which are the
    last of them that it passed on. One of the broker whose load is shared, over its own way alone, is about its own
    clients; its first one, number 0, says that publications may come over both ways from there on.
    """

    origin: str
    number: int
    sent: tuple[Sent, ...] = ()


class Returned(Message, frozen=True, tag="returned"):
    """A client whose broker has begun another life has told it all that the earlier one knew."""


MapMessage = (
    Advertise
    | Unadvertise
    | Subscribe
    | Unsubscribe
    | SubscribeChannel
    | ChannelConfirmed
    | Confirmed
    | ControlPublish
    | Accepted
    | Refused
    | Limited
    | Members
    | Gone
    | Synced
    | Redirect
    | MoveIn
    | Handover
    | Complete
    | Cancel
    | Resume
    | Stranded
    | Measure
    | Measured
    | End
    | Stay
    | Stayed
    | Neighbours
    | AdvertisementsTold
    | SubscriptionsWanted
    | SubscriptionsTold
    | Replicated
    | Unclaimed
    | Progress
    | Returned
)
"""Every message but publications: those that travel as maps."""

AnyMessage = MapMessage | Publish
"""Every message."""


_DATA_TYPES: Final = frozenset({Publish, bytes, Unadvertise, Handover, Complete, Cancel, End, Progress})


def is_control(message: Message | bytes) -> bool:
    """Whether the message overtakes publications in queues.

    Whatever must keep its place among the publications (a marker) is data; the end of an advertisement is, for it ends
    routes that the publications before it still need.

    >>> is_control(Unsubscribe(id="s1"))
    True
    """
    return type(message) not in _DATA_TYPES
