"""Frames: the units of a link, and the greeting that begins or resumes one."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from trimtab.protocol.messages import VERSION, VERSION_MIN, AnyMessage
from trimtab.protocol.snapshots import Snapshot, SnapshotRequest
from trimtab.security.credentials import Credential

Role: TypeAlias = Literal["broker", "client"]

NAME_MAX_CHARS: Final = 256
"""In the name of a client or broker, and in a session."""

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=NAME_MAX_CHARS)]

BATCH_MAX_COUNT: Final = 4_096
"""Messages in one frame; a window of a busy link."""

Sendable: TypeAlias = AnyMessage | bytes
"""What travels in frames; bytes are a publication that is passed on as it came."""


ELSEWHERE_MAX_COUNT: Final = 4_096
"""Neighbours that a broker tells a client of."""

Order: TypeAlias = Literal["publisher", "any"]
"""publisher: publications of one publisher arrive in the order in which it published them; any: each arrives once, in
whatever order."""


class Hello(msgspec.Struct, frozen=True, tag_field="frame", tag="hello", omit_defaults=True):
    """The first frame of each connection, in both directions.

    `version` is the highest version of the protocol that the sender speaks and `version_min` the lowest; both ends use
    the highest that both speak. `session` stays the same during one incarnation of the sender, so that the other end
    can tell a reconnection from a restart; `epoch` numbers the incarnations of a broker, and only grows; an assistant
    has that of the broker that it assists. `expects` is the number of the next frame that the sender has not seen;
    `resumes` is the session of the other end that the sender remembers, empty if it remembers none. A link goes on only
    where both ends remember each other; otherwise a new link epoch begins. `granted` is the highest epoch of the
    receiver that the sender knows.
    `replica` is the protocol by which the sender takes over from an earlier incarnation of its name, if it does, or
    learns the routes of the broker that it `assists`; with `reorders` publications of the two are put in order again.
    `elsewhere` tells a client the names and addresses of neighbours, to be asked where the broker is if it fails.
    `order` is what a broker's network promises its subscribers.
    `stay` is the number of a client's stay at the receiver; its stays elsewhere up to `burned` will not happen.
    `credential` proves who the sender is, where the certificate of the connection does not.
    """

    version: int
    role: Role
    name: Name
    session: Name
    expects: int
    resumes: Name = ""
    replica: Name = ""
    assists: Name = ""
    reorders: bool = False
    elsewhere: Annotated[dict[Name, Name], msgspec.Meta(max_length=ELSEWHERE_MAX_COUNT)] = {}
    order: Order = "publisher"
    version_min: int = 0
    epoch: int = 1
    granted: int = 0
    stay: int = 1
    burned: int = 0
    credential: Credential | None = None


def version_problem(hello: Hello, version_max: int = VERSION) -> str:
    """Why there is no version of the protocol that both ends speak, empty if there is one.

    >>> version_problem(Hello(1, "client", "ann", "1", 1))
    'protocol version 1 is not spoken here, but 2 to 4 is'
    >>> version_problem(Hello(4, "client", "ann", "1", 1, version_min=2))
    ''
    """
    if hello.version >= VERSION_MIN and (hello.version_min or hello.version) <= version_max:
        return ""
    spoken = f"{VERSION_MIN} to {version_max}" if version_max > VERSION_MIN else f"{version_max}"
    return f"protocol version {hello.version} is not spoken here, but {spoken} is"


class Payload(msgspec.Struct, frozen=True):
    """Messages with consecutive numbers, the first of which is given.

    `ack` is the number of the last message seen in the other direction, `done` how many data messages of the other
    direction need not be retained there any more. `credit` is how many of them have been processed, where that is
    another number: each of them lets the other end send one more.
    """

    number: int
    ack: int
    messages: list[Sendable]
    done: int = 0
    credit: int = 0


class Ack(msgspec.Struct, frozen=True, tag_field="frame", tag="ack", omit_defaults=True):
    """Nothing to say but what has been seen and done.

    With `gap` something after it arrived while the next is missing; with `asks` the sender wants to be told in turn.
    """

    ack: int
    gap: bool = False
    done: int = 0
    asks: bool = False
    credit: int = 0


class Goodbye(msgspec.Struct, frozen=True, tag_field="frame", tag="bye", omit_defaults=True):
    """The last frame: the sender closes the connection for this reason.

    One that leaves does not come back, and all that it has told ends; one that returns is away for a while, and nothing
    ends. Without either the peer is refused.
    """

    reason: str
    leaves: bool = False
    returns: bool = False


class StatusRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="status?"):
    """Ask a broker how it is; allowed at any time, also without a greeting."""


class PeerStatus(msgspec.Struct, frozen=True):
    """One neighbour or client of a broker."""

    name: str
    role: Role
    connected: bool
    queued_count: int
    unacknowledged_count: int
    advertisements_count: int
    subscriptions_count: int
    verdict: str = ""
    """How a neighbour is, where neighbours are watched: alive, suspected, congestion, crash or hang."""
    wire_version: int = VERSION_MIN
    """The version of the protocol that is spoken with it."""


class FailureStatus(msgspec.Struct, frozen=True):
    """A neighbour that failed: how, when that was noticed, and what came of it."""

    broker: str
    why: str
    protocol: str
    noticed_s: float
    outcome: str
    """What was done, or is being done, or why nothing is."""
    replaced_s: float | None = None
    """When the replica had all routes, if it has."""


class AgentStatus(msgspec.Struct, frozen=True):
    """What an agent inside a broker does and why, in words."""

    name: str
    role: str
    status: str
    doing: str
    """What is done at present, or why nothing is."""
    decision: str
    """What was decided last."""
    decided_ago_s: float | None


class ChannelsStatus(msgspec.Struct, frozen=True):
    """What a broker does for subscribers to channels."""

    is_reached: bool
    """Whether the back end answers at present."""
    streams_count: int
    """Back-end subscriptions: channels with different arguments."""
    subscriptions_count: int
    """Front-end subscriptions: what clients asked for."""
    cached_count: int
    results_in_count: int
    """Results fetched, each once."""
    results_out_count: int
    """Results put into the queues of clients."""


class ClientToMove(msgspec.Struct, frozen=True):
    """A client of a broker that is being drained."""

    client: str
    why: str
    """Why it is still there."""


class DrainStatus(msgspec.Struct, frozen=True):
    """How far a broker is that is being drained."""

    phase: str
    """moving: clients have to move; emptying: something waits for others; leaving: neighbours are told."""
    carries: bool
    """Whether it stays for its neighbours."""
    moved_count: int
    """Clients that have moved."""
    clients_count: int
    """Clients that have not."""
    clients: tuple[ClientToMove, ...]
    """The first of those."""


class BrokerStatus(msgspec.Struct, frozen=True):
    """What a broker process tells about itself; rates are those of the last few seconds."""

    name: str
    pid: int
    uptime_s: float
    cpu_s: float
    memory_bytes: int
    input_count: int
    advertisements_count: int
    subscriptions_count: int
    publications_in_count: int
    publications_out_count: int
    control_in_count: int
    control_out_count: int
    dropped_count: int
    refused_count: int
    publications_in_per_s: float
    publications_out_per_s: float
    load: dict[str, float]
    """The load indices of section 3.3.1 of the thesis, by the names that `trimtab.load` gives them."""
    links_missing: tuple[str, ...]
    peers: tuple[PeerStatus, ...]
    policy: str = "none"
    """Who moves subscribers."""
    agents: tuple[AgentStatus, ...] = ()
    moved_in_count: int = 0
    moved_out_count: int = 0
    """Clients that came from another broker, and that went to one."""
    channels: ChannelsStatus | None = None
    """Where there is a back end."""
    session: str = ""
    """This incarnation of the broker."""
    replica: str = ""
    """The protocol by which it replaces an earlier incarnation, if it does."""
    failures: tuple[FailureStatus, ...] = ()
    """Neighbours that failed lately, as this broker saw it."""
    assistances: tuple[FailureStatus, ...] = ()
    """Neighbours that were congested lately and got an assistant, or are to get one."""
    epoch: int = 1
    """The number of this incarnation of the broker."""
    is_learning: bool = False
    """Whether it does not know all its routes yet, or neighbours have not said again what only they have."""
    disk_damage: tuple[str, ...] = ()
    """What was found damaged on its disk at the start: file, offset and how many bytes were skipped."""
    disk_problem: str = ""
    """Why publishers have to wait for room on its disk, if they do."""
    fenced: str = ""
    """Why nothing is acknowledged or confirmed, if so: it hears no majority and may have been replaced."""
    drain: DrainStatus | None = None
    """How far it is with leaving, if it does."""


class StatusReply(msgspec.Struct, frozen=True, tag_field="frame", tag="status"):
    """How the broker is."""

    status: BrokerStatus


class LinkRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="link?"):
    """Ask a broker to call a neighbour at an address and keep that link, or to end the link; needs no greeting."""

    change: Literal["add", "remove"]
    neighbour: str
    address: str = ""


class LinkReply(msgspec.Struct, frozen=True, tag_field="frame", tag="link"):
    """The link is changed, or it is not, for this reason."""

    done: bool
    reason: str = ""


class PlaceRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="place?", omit_defaults=True):
    """A client asks the coordinator where to connect, and says where it is if it knows; needs no greeting."""

    client: str
    site: tuple[float, float] | None = None


class PlaceReply(msgspec.Struct, frozen=True, tag_field="frame", tag="place", omit_defaults=True):
    """Connect to this broker at this address; without a broker, why there is none."""

    broker: str
    address: str = ""
    reason: str = ""


class MoveRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="move?"):
    """Ask a broker to have one of its clients move to another broker; needs no greeting."""

    client: str
    to_broker: str


class MoveReply(msgspec.Struct, frozen=True, tag_field="frame", tag="move", omit_defaults=True):
    """The client has moved, or it has not, for this reason."""

    done: bool
    reason: str = ""


class ReplaceRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="replace?", omit_defaults=True):
    """Ask a neighbour of a broker that has failed to have it replaced, by its usual protocol or another."""

    broker: str
    protocol: str = ""


class ReplaceReply(msgspec.Struct, frozen=True, tag_field="frame", tag="replace", omit_defaults=True):
    """A replica has taken the broker's place, or it has not, for this reason."""

    done: bool
    reason: str = ""


class AssistRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="assist?", omit_defaults=True):
    """Ask a neighbour of a broker to have an assistant started that shares its load."""

    broker: str
    protocol: str = ""
    reorders: bool = False


class AssistReply(msgspec.Struct, frozen=True, tag_field="frame", tag="assist", omit_defaults=True):
    """An assistant shares the broker's load, or it does not, for this reason."""

    done: bool
    reason: str = ""


class ReplicaRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="replica?", omit_defaults=True):
    """Ask a process that stands by to replace a broker, or to assist it; needs no greeting."""

    broker: str
    protocol: str
    neighbours: tuple[tuple[str, str], ...]
    """Names and addresses of all brokers that the one before was linked to."""
    listen: str
    """Where the one before was found."""
    assists: bool = False
    reorders: bool = False
    epoch: int = 1
    """The number of the new incarnation, above that of the one before."""


class ReplicaReply(msgspec.Struct, frozen=True, tag_field="frame", tag="replica", omit_defaults=True):
    """The process becomes that broker, or it does not, for this reason."""

    done: bool
    reason: str = ""


class WhereRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="where?"):
    """A client whose broker does not answer asks another where it is; needs no greeting."""

    broker: str


class WhereReply(msgspec.Struct, frozen=True, tag_field="frame", tag="where", omit_defaults=True):
    """Where a broker is, as far as the one that was asked knows; no address if it knows of no such broker."""

    address: str = ""


class PolicyRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="policy?"):
    """Ask a broker to work by another policy from now on; needs no greeting."""

    policy: str


class PolicyReply(msgspec.Struct, frozen=True, tag_field="frame", tag="policy", omit_defaults=True):
    """The broker works by that policy, or it does not, for this reason."""

    done: bool
    reason: str = ""


class DrainRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="drain?", omit_defaults=True):
    """Ask a broker to leave the network when its clients have moved to these brokers; needs no greeting.

    One that `carries` only has its clients moved and takes no others. With `cancel` it stays, and takes clients again.
    The answer comes when it has begun; how far it is stands in its status.
    """

    targets: tuple[str, ...] = ()
    carries: bool = False
    cancel: bool = False


class DrainReply(msgspec.Struct, frozen=True, tag_field="frame", tag="drain", omit_defaults=True):
    """The broker does so, or it does not, for this reason."""

    done: bool
    reason: str = ""


class RestartRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="restart?"):
    """Ask a broker to end as it does when it is asked to, and to begin again in its process; needs no greeting."""


class RestartReply(msgspec.Struct, frozen=True, tag_field="frame", tag="restart", omit_defaults=True):
    """The broker is about to begin again, or it does not, for this reason."""

    done: bool
    reason: str = ""


class VoiceRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="voice?", omit_defaults=True):
    """An incarnation of a broker asks a voter for its voice, which is given for a while; needs no greeting.

    A process that stands by has no place, names no broker, and wants to hear what the voter knows.
    """

    broker: str = ""
    epoch: int = 0
    nonce: str = ""


class VoiceReply(msgspec.Struct, frozen=True, tag_field="frame", tag="voice", omit_defaults=True):
    """Whether the voice is given, who the voter is if it is a broker, and which epochs it knows, by broker.

    `granted` is the highest epoch of the broker that asks that the voter has granted it as a neighbour, else 0.
    """

    given: bool
    voter: str = ""
    epoch: int = 0
    known: dict[str, int] = {}
    granted: int = 0


class ReachRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="reach?"):
    """Ask a voter whether it finds a broker of the network file gone; needs no greeting."""

    broker: str


class ReachReply(msgspec.Struct, frozen=True, tag_field="frame", tag="reach", omit_defaults=True):
    """The voter finds the broker gone, or it does not, for this reason."""

    gone: bool
    reason: str = ""


class LoginRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="login?"):
    """Say who asks what follows, where the certificate of the connection does not; greetings say it themselves."""

    credential: Credential | None = None


class LoginReply(msgspec.Struct, frozen=True, tag_field="frame", tag="login", omit_defaults=True):
    """The credential is believed; one that is not is answered with a goodbye."""

    done: bool
    name: str = ""


MapFrame: TypeAlias = (
    Hello
    | LoginRequest
    | LoginReply
    | Ack
    | DrainRequest
    | DrainReply
    | Goodbye
    | StatusRequest
    | StatusReply
    | LinkRequest
    | LinkReply
    | PlaceRequest
    | PlaceReply
    | MoveRequest
    | MoveReply
    | ReplaceRequest
    | ReplaceReply
    | AssistRequest
    | AssistReply
    | ReplicaRequest
    | ReplicaReply
    | WhereRequest
    | WhereReply
    | SnapshotRequest
    | Snapshot
    | PolicyRequest
    | PolicyReply
    | RestartRequest
    | RestartReply
    | VoiceRequest
    | VoiceReply
    | ReachRequest
    | ReachReply
)
"""The frames that travel as maps."""

Frame: TypeAlias = MapFrame | Payload
