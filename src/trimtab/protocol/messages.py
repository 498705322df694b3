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

VERSION: Final = 4
"""The version of the protocol that is spoken here, and the highest that is understood."""

VERSION_MIN: Final = 2
"""The lowest version that is understood; two ends use the highest that both understand: see `versions.py`."""

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
    """A publisher will send publications that the filter announces; floods through the network.

    The filter of an open advertisement admits attributes that it does not name. `number` grows with everything that
    the sender advertises.
    """

    id: str
    filter: Filter
    number: int = 0


class Unadvertise(Message, frozen=True, tag="unadv"):
    """An advertisement ends: what the sender has told of it up to this number.

    It keeps its place among the publications that need its routes, while an advertisement overtakes them; so the end of
    an earlier telling may come behind a later one.
    """

    id: str
    number: int = 0


class Subscribe(Message, frozen=True, tag="sub"):
    """Somebody behind the sender wants what the filter matches; travels towards intersecting advertisements.

    A client may say within which time. Its own broker is the one that must know, for there its publications wait; what
    brokers tell each other leaves it out, so that no covering subscription can hide a stricter one. `number` grows with
    everything that the sender tells.
    """

    id: str
    filter: Filter
    within_s: Within = None
    number: int = 0


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
    """The receiver's advertisement or subscription is in force everywhere behind the sender.

    `number` is that of the telling that is answered: what was told again since needs another answer. `narrowed` is the
    filter that is in force for a client, where its permissions cover a part of what it has asked for.
    """

    id: str
    number: int = 0
    narrowed: Filter | None = None


class Publish(Message, frozen=True, kw_only=True, array_like=True, tag=False, eq=False):
    """A publication on its way; `sequence` numbers the publisher's publications of one session, and only grows.

    One that arrived as bytes keeps them (`wire`), because they are passed on with nothing changed but the hops.
    """

    publisher: str
    sequence: int
    values: dict[str, WireValue]
    origin_s: float
    session: str = ""
    stay: int = 1
    """The publisher's stay at its broker when it said this; publications of a later stay follow those of an earlier."""
    hops: Annotated[int, msgspec.Meta(ge=0, le=HOPS_MAX_COUNT)] = 0
    wire: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Publish) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash((self.publisher, self.session, self.sequence))

    def fields(self) -> tuple[str, str, int, dict[str, WireValue], float, str, int, int]:
        """What is said on the wire, in this order."""
        return (
            self.cause,
            self.publisher,
            self.sequence,
            self.values,
            self.origin_s,
            self.session,
            self.stay,
            self.hops,
        )


_HOPS: Final = [bytes((min(count + 1, HOPS_MAX_COUNT),)) for count in range(HOPS_MAX_COUNT + 1)]


def one_hop_further(message: Publish) -> Publish | bytes:
    """A publication as it is passed on: as bytes if it came as bytes.

    >>> one_hop_further(Publish(publisher="p", sequence=1, values={}, origin_s=0.0)).hops
    1
    """
    if message.wire:
        return message.wire[:-1] + _HOPS[message.hops]
    return msgspec.structs.replace(message, hops=min(message.hops + 1, HOPS_MAX_COUNT))


CONTROL_CLASSES: Final = ("LOCAL_PIE", "GLOBAL_PIE", "LB_CONTROL", "RELOCATION", "DELAY", "COORDINATOR", "COORDINATED")
"""What the attribute `class` of control publications says, of all policies that come with the software."""


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


class Leaving(Message, frozen=True, tag="leaving"):
    """The sender has nothing left and leaves the network: when its connection ends, it is gone for good."""


class Synced(Message, frozen=True, tag="synced"):
    """The receiver has been told all that the sender and everything behind it knew when the link came to be.

    So many data messages come first that the sender has said in an earlier epoch of the link.
    """

    tail_count: int = 0


class Redirect(Message, frozen=True, tag="redirect"):
    """A broker asks a client to move to another broker, found at the address; `cause` names what it is for."""

    broker: str
    address: str = ""


class KnownSubscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A client's subscription: its id, its filter and its requirement."""

    id: str
    filter: Filter
    within_s: Within = None


class KnownAdvertisement(msgspec.Struct, frozen=True):
    """A client's advertisement: its id and its filter."""

    id: str
    filter: Filter


class MoveIn(Message, frozen=True, tag="movein"):
    """A client begins a stay at a new broker, while its old broker still serves it.

    Its publications are all accepted by the old broker, and its advertisements in force, when it says so.
    """

    stay: int
    old_broker: str
    subscriptions: tuple[KnownSubscription, ...] = ()
    advertisements: tuple[KnownAdvertisement, ...] = ()
    publishes: bool = False
    """Whether it has advertisements, or has published at the old broker: what it says next must not overtake that."""
    accepted: int = 0
    """The last of its publications that it knows to be accepted."""


class Handover(Message, frozen=True, tag="handover"):
    """A marker from the new broker of a client to the old one: behind it every publication also goes to the new one.

    The old broker ends all stays of the client before this one, unless the client has burned it, and answers
    (`Complete`). Saying it again changes nothing and is answered again.
    """

    client: str
    session: str
    stay: int
    old_broker: str
    new_broker: str
    publishes: bool = False


class Complete(Message, frozen=True, tag="complete"):
    """A marker from the old broker of a client to the new one: all that it published there stands before it.

    `is_lost` says that the path to the old broker has two ways for publications, so that no marker can pass. Without a
    new broker it is for all: the old one was started again and has said what was on its disk.
    """

    client: str
    session: str
    stay: int
    new_broker: str
    publishes: bool = False
    is_lost: bool = False


class Resume(Message, frozen=True, tag="resume"):
    """The new broker tells a client that its old stream has passed: it may publish there."""

    stay: int


class Stranded(Message, frozen=True, tag="stranded"):
    """The new broker tells a client that no path leads to its old broker any more."""

    stay: int


class Measure(Message, frozen=True, tag="measure"):
    """A broker asks a client how long it takes to and from brokers, found at the addresses in the same order."""

    brokers: tuple[str, ...]
    addresses: tuple[str, ...] = ()


class Measured(Message, frozen=True, tag="measured"):
    """A client's answer: round-trip times by broker, without those that it could not reach."""

    round_trips_s: dict[str, Annotated[float, msgspec.Meta(ge=0)]]


class End(Message, frozen=True, tag="end"):
    """A marker from the old broker to the client: what comes after it comes from the broker of its next stay."""

    stay: int


class Stay(Message, frozen=True, tag="stay"):
    """A client asks its old broker to burn a stay elsewhere, whose handover has not come for too long."""

    stay: int


class Stayed(Message, frozen=True, tag="stayed"):
    """The old broker goes on serving the client: the stay elsewhere is burned."""

    stay: int


class Neighbours(Message, frozen=True, tag="neighbours"):
    """All brokers that the sender is linked to and where they are found, so that others can replace the sender."""

    names: tuple[str, ...]
    addresses: tuple[str, ...] = ()


class SubscriptionsWanted(Message, frozen=True, tag="subs?"):
    """The sender has passed on all advertisements; what they pull may come, and `SubscriptionsTold` behind it."""


class SubscriptionsTold(Message, frozen=True, tag="subsend"):
    """The sender has told all subscriptions that the receiver's advertisements pull."""


class Swept(Message, frozen=True, tag="swept"):
    """The sender has told all it knows in this link epoch; what it told in earlier ones and not again, ends.

    The names are those of all brokers that are reached through it. A client says up to which number it will say again
    what was not accepted, and up to which it knows to be accepted.
    """

    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    sequence: int = 0
    accepted: int = 0


class Passing(Message, frozen=True, tag="passing"):
    """Behind what the sender will send waits the `Complete` of a publisher's stay.

    Publications of that stay or a later one are held until it has come. `is_for_all` says that it goes everywhere.
    """

    client: str
    session: str
    stay: int
    is_for_all: bool = False


class ClientRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a broker must know of a client to go on with it after its own death."""

    client: str
    session: str
    stay: int
    burned: int = 0
    """Up to here stays elsewhere will not happen."""
    leaving_for: int = 0
    """The stay elsewhere that ends this one, if one does."""
    old_broker: str = ""
    """Where the client comes from, as long as its old broker has not answered."""
    publishes: bool = False
    subscriptions: tuple[KnownSubscription, ...] = ()
    advertisements: tuple[KnownAdvertisement, ...] = ()


class Guard(Message, frozen=True, tag="guard"):
    """A broker has the record of a client kept elsewhere: what is new in it, and the ids of filters that have ended."""

    version: int
    record: ClientRecord
    ended: tuple[str, ...] = ()
    is_over: bool = False
    """Whether the record ends."""


class GuardAll(Message, frozen=True, tag="guardall"):
    """All records of the sender's clients follow, so many; with the last one, what was kept before is void."""

    version: int
    count: int


class Guarded(Message, frozen=True, tag="guarded"):
    """The receiver's records are kept by the sender, up to this version."""

    version: int


class ClientRecords(Message, frozen=True, tag="records"):
    """What the sender keeps of the receiver's clients, of an earlier incarnation of the receiver."""

    version: int = 0
    records: tuple[ClientRecord, ...] = ()


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


class Gap(Message, frozen=True, tag="gap"):
    """A marker: publications may be lost. It goes to whoever may be concerned, and keeps its place among the others.

    Without a publisher it is a break: what stands before it in a stream may lack something at its end. With one it
    belongs to a break and says up to which number that publisher's broker has accepted its publications (0: not
    known), or with `first` exactly which are lost.
    """

    id: str
    """The break: its broker, that one's incarnation and a number; empty if there is none."""
    publisher: str = ""
    session: str = ""
    """The publisher's, in which its numbers count."""
    first: int = 0
    last: int = 0
    filters: tuple[Filter, ...] = ()
    """What the publisher announces: it goes to those who want something of that; to all if there are none."""
    has_crossed: bool = False
    """Whether it has come through the broker of the break, so that publications of this publisher have, too."""
    is_wide: bool = False
    """Whether publications may take other ways than this, so that its place tells little."""
    is_own: bool = False
    """Whether it is about the receiver's own session, which was forgotten: all publishers are concerned."""
    reason: str = ""


class GapQuestion(Message, frozen=True, tag="gap?"):
    """Which publishers are there, and what was accepted of them? It goes everywhere; answers are `Gap`s."""

    id: str


class Relieved(Message, frozen=True, tag="relieved"):
    """An assistant says that it is not needed any more: the receiver sends nothing more over it, and `OneWay` to it."""


class TwoWays(Message, frozen=True, tag="twoways"):
    """What the sender sends need not be in order before its `OneWay`; it wants one of the receiver as well."""

    number: int = 0
    """Which of its words counts: that one or a later one. What it says again may hold earlier ones."""


class OneWay(Message, frozen=True, tag="oneway"):
    """A marker: all that the sender sent over an assistant, or what was said again to it, has come before this."""

    number: int = 0


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
    | Leaving
    | Synced
    | Redirect
    | MoveIn
    | Handover
    | Complete
    | Resume
    | Stranded
    | Measure
    | Measured
    | End
    | Stay
    | Stayed
    | Neighbours
    | SubscriptionsWanted
    | SubscriptionsTold
    | Swept
    | Passing
    | Guard
    | GuardAll
    | Guarded
    | ClientRecords
    | Progress
    | Gap
    | GapQuestion
    | Relieved
    | TwoWays
    | OneWay
)
"""Every message but publications: those that travel as maps."""

AnyMessage = MapMessage | Publish
"""Every message."""


_DATA_TYPES: Final = frozenset({Publish, bytes, Unadvertise, Handover, Complete, End, Progress, OneWay, Gap})


def is_control(message: Message | bytes) -> bool:
    """Whether the message overtakes publications in queues.

    Whatever must keep its place among the publications (a marker) is data; the end of an advertisement is, for it ends
    routes that the publications before it still need.

    >>> is_control(Unsubscribe(id="s1"))
    True
    """
    return type(message) not in _DATA_TYPES
