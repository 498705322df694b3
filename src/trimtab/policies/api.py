"""Agents: the parts of a broker that watch its load and decide, and what they may see and ask for.

An agent talks as a client does: it advertises, subscribes and publishes, with control publications that overtake those
of clients. It sees its broker through `AgentHost` and returns actions; it opens nothing, sends nothing and reads no
clock itself. The routing code knows no agent by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from trimtab.language import Filter, Value
from trimtab.load.indices import LoadIndices


class AgentPlace(msgspec.Struct, frozen=True):
    """Which broker an agent is made for, and by which name of its policy."""

    policy: str
    broker: str
    seed: int | str
    site: tuple[float, float] | None = None
    """Where the broker stands, if that is known."""

    def rng(self, name: str) -> Random:
        """A source of random choices of this broker's own.

        >>> place = AgentPlace("padres", "B1", 7)
        >>> place.rng("padres").random() == place.rng("padres").random()
        True
        """
        return Random(f"{name} {self.broker} {self.seed}")


# ---- what an agent sees ----


class AgentHost(Protocol):
    """What an agent may know of its broker."""

    @property
    def name(self) -> str:
        """The broker's name."""
        ...

    def neighbours(self) -> list[str]:
        """The brokers that this one has links to."""
        ...

    def brokers(self) -> list[str]:
        """All brokers of the network that this one knows of, itself included."""
        ...

    def clients(self) -> list[str]:
        """The clients that may be moved: those with subscriptions and without advertisements, in a defined order."""
        ...

    def publishers(self) -> list[str]:
        """The clients with advertisements."""
        ...

    def filters_of(self, client: str) -> list[Filter]:
        """A client's subscriptions."""
        ...

    def requirements_of(self, client: str) -> list[float | None]:
        """The times within which a client wants the publications of its subscriptions, in the order of `filters_of`."""
        ...

    def channel_clients(self) -> list[str]:
        """The clients without advertisements that have subscriptions to channels."""
        ...

    def streams_of(self, client: str) -> dict[str, int]:
        """A client's subscriptions to channels, by name, with the bytes of all results that each has had so far."""
        ...

    def covering_filters(self) -> list[Filter]:
        """What the broker has asked its neighbours for on behalf of clients: its covering subscription set."""
        ...

    def subscription_count(self) -> int:
        """Subscriptions in the matching engine."""
        ...

    def load(self, now_s: float) -> LoadIndices:
        """The load of this moment, not smoothed."""
        ...

    def capacity(self) -> BrokerCapacity:
        """What the broker has."""
        ...

    def publication_bytes(self) -> float:
        """The usual size of a publication on the wire."""
        ...

    def matched_bytes(self) -> float:
        """The size of the publication that is being matched, for agents that observe."""
        ...

    def matched_from(self) -> str:
        """The neighbour that the publication which is being matched came from; empty if a client here published it."""
        ...

    def queue_of(self, client: str) -> QueueReading:
        """The output queue for a client."""
        ...

    def meter_window_s(self) -> float:
        """Over how long the rates and delays of `load` are means."""
        ...

    def traffic(self) -> TrafficTotals:
        """What has come and gone since the broker began; two readings tell the rates of the time between them."""
        ...

    def address_of(self, broker: str) -> str:
        """Where clients find a broker, this one included; empty where the world knows it."""
        ...

    def objection_to_coming(self, publisher: str) -> str:
        """Why a publisher is not to be served by this broker, empty if no agent objects."""
        ...


class TrafficTotals(msgspec.Struct, frozen=True):
    """Publications of clients that a broker has received, and what it has queued for others."""

    arrived_count: int = 0
    output_bytes: float = 0.0


class QueueReading(msgspec.Struct, frozen=True):
    """An output queue at one moment."""

    entered_count: int = 0
    """Publications that were ever put into it."""

    queued_count: int = 0
    """Those that wait in it."""

    is_held: bool = False
    """Whether it waits for the client, which has not dealt with what it was sent."""


class BrokerCapacity(msgspec.Struct, frozen=True):
    """A broker's resources that ratios refer to."""

    bandwidth_bytes_per_s: float
    memory_bytes: float
    matching_s_per_subscription: float | None = None
    """What one subscription is known to add to the matching of a publication; None if only measuring will show."""
    downlink_bytes_per_s: float | None = None
    """What it can receive; as much as it can send if nothing else is said."""

    @property
    def receivable_bytes_per_s(self) -> float:
        """What it can receive.

        >>> BrokerCapacity(1_000.0, 1e9).receivable_bytes_per_s
        1000.0
        """
        return self.bandwidth_bytes_per_s if self.downlink_bytes_per_s is None else self.downlink_bytes_per_s


# ---- what an agent is told ----


class Heard(msgspec.Struct, frozen=True):
    """A control publication that one of the agent's subscriptions matches."""

    values: Mapping[str, Value]


class Woken(msgspec.Struct, frozen=True):
    """The time that the agent's `wake_at_s` told has come."""


class ClientSubscribed(msgspec.Struct, frozen=True):
    """A client of this broker has subscribed."""

    client: str


class ClientAdvertised(msgspec.Struct, frozen=True):
    """A client of this broker has advertised."""

    client: str


class ClientCame(msgspec.Struct, frozen=True):
    """A client has moved in: it is served here from now on."""

    client: str
    cause: str


class ClientLeft(msgspec.Struct, frozen=True):
    """A client has moved away: another broker serves it."""

    client: str
    cause: str


class ClientStayed(msgspec.Struct, frozen=True):
    """A client that was asked to move did not, or has left the network."""

    client: str
    cause: str
    reason: str


class PublisherTurned(msgspec.Struct, frozen=True):
    """A publisher has moved along a path through this broker: its publications come from another side from now on.

    Told at every broker of the path, the old and the new one included, behind the last publication of the old side.
    """

    client: str
    cause: str


class RoundTripsTold(msgspec.Struct, frozen=True):
    """A client has measured how long it takes to and from brokers; those that it could not reach are left out."""

    client: str
    round_trips_s: Mapping[str, float]
    cause: str


class NeighboursChanged(msgspec.Struct, frozen=True):
    """A link, or a broker somewhere behind one, appeared or disappeared."""


AgentEvent: TypeAlias = (
    Heard
    | Woken
    | ClientSubscribed
    | ClientAdvertised
    | ClientCame
    | ClientLeft
    | ClientStayed
    | PublisherTurned
    | RoundTripsTold
    | NeighboursChanged
)


# ---- what an agent asks for ----


class Announce(msgspec.Struct, frozen=True):
    """Advertise the agent's control publications."""

    filter: Filter


class Listen(msgspec.Struct, frozen=True):
    """Subscribe to control publications; the key is the agent's own name for the subscription."""

    key: str
    filter: Filter


class Unlisten(msgspec.Struct, frozen=True):
    """End a subscription."""

    key: str


class Tell(msgspec.Struct, frozen=True):
    """Publish a control publication."""

    values: Mapping[str, Value]
    cause: str = ""


class MoveClient(msgspec.Struct, frozen=True):
    """Ask a client to move to another broker."""

    client: str
    to_broker: str
    cause: str


class RelocatePublisher(msgspec.Struct, frozen=True):
    """Ask a client that advertises to go on publishing at another broker.

    Admitted like `MoveClient`, at most one of both in flight for a client; answered by `ClientLeft` here and
    `ClientCame` there, or by `ClientStayed` here with the reason.
    """

    client: str
    to_broker: str
    cause: str


class AskRoundTrips(msgspec.Struct, frozen=True):
    """Ask a client of this broker how long it takes to and from other brokers; answered by `RoundTripsTold`."""

    client: str
    brokers: tuple[str, ...]
    cause: str


class Note(msgspec.Struct, frozen=True):
    """Something for the records."""

    record: msgspec.Struct


AgentAction: TypeAlias = Announce | Listen | Unlisten | Tell | MoveClient | RelocatePublisher | AskRoundTrips | Note


# ---- what people are told of an agent ----


class AgentReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent does and why, in words."""

    role: str
    status: str
    doing: str
    """What is done at present, or why nothing is."""

    decision: str = ""
    """What was decided last, with the reason."""

    decided_s: float | None = None


@runtime_checkable
class Reporting(Protocol):
    """An agent that tells people what it does."""

    def report(self) -> AgentReport:
        """What it does and why."""
        ...


class ClientPlacement(msgspec.Struct, frozen=True):
    """Where a client is to connect; without a broker, why there is none."""

    broker: str
    address: str = ""
    reason: str = ""


@runtime_checkable
class Objecting(Protocol):
    """An agent that knows which brokers serve publishers."""

    def objection_to_leaving(self, publisher: str) -> str:
        """Why a publisher of this broker is not to be relocated, empty if it may be."""
        ...

    def objection_to_coming(self, publisher: str) -> str:
        """Why a publisher is not to be served by this broker, empty if it may come."""
        ...


@runtime_checkable
class Placing(Protocol):
    """An agent that tells clients where to connect."""

    def place(self, client: str, site: tuple[float, float] | None, now_s: float) -> ClientPlacement:
        """The broker for a client that is at this place, if it says so."""
        ...


@runtime_checkable
class Tracing(Protocol):
    """An agent that follows some publications through the network by a tag that they carry as their cause."""

    def tag(self, publisher: str, sequence: int, now_s: float) -> str:
        """What a publication that a client here has just published is to carry; empty if it is not followed."""
        ...

    def traced(self, tag: str, publication: tuple[str, int], way: Way, now_s: float) -> list[AgentAction]:
        """A publication that carries a tag was matched."""
        ...


class Way(msgspec.Struct, frozen=True):
    """A publication's way through a broker."""

    source: str
    """The neighbour that it came from; empty if a client of this broker published it."""

    clients_count: int
    """Clients of this broker that it goes to."""

    neighbours: tuple[str, ...]
    """Neighbours that it goes to."""


class WithoutSamples:
    """An agent, or a part of one, that looks at no publications.

    >>> WithoutSamples().observes, WithoutSamples().matched(("p", 1), {}, ["s"], 0.0)
    (False, [])
    """

    observes = False

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """No samples are taken."""
        return []


class Agent(Protocol):
    """A state machine that lives in a broker."""

    @property
    def name(self) -> str:
        """Distinguishes the agents of one broker."""
        ...

    @property
    def observes(self) -> bool:
        """Whether `matched` is to be called for each publication now."""
        ...

    def start(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        """The broker begins its work."""
        ...

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        ...

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """A client's publication was matched and goes to these neighbours and clients."""
        ...

    def wake_at_s(self) -> float | None:
        """When the agent wants its next `Woken`."""
        ...
