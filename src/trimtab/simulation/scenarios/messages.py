"""The tables of a scenario with messages: a network, its clients, what is published, what changes and what goes wrong.

Equivalents of the workload lines of the thesis (section 5.1):

    1.0 broker add B0 500 16 10      [[broker]] name = "B0", at_s = 1.0, cpu_mhz = 500, memory_mb = 16, ...
    1.0 publisher add P1 YHOO 10 B0  [[publisher]] name = "P1", at_s = 1.0, symbol = "YHOO", rate_per_min = 10, ...
    60.0 publisher chrate P1 20      [[rate]] at_s = 60.0, publisher = "P1", rate_per_min = 20

`scenario` reads and checks them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from trimtab.broker.config import SlowPolicy
from trimtab.broker.flow.rate_limits import RateLimitConfig
from trimtab.broker.flow.uplink import AnyUplink
from trimtab.policies.registry import PolicyChoice
from trimtab.protocol.messages import Within
from trimtab.simulation.faults.attacks import AttackPart
from trimtab.simulation.faults.faults import Fault
from trimtab.simulation.scenarios.balance import BalancePart
from trimtab.simulation.scenarios.clusters import ClustersPart
from trimtab.simulation.scenarios.topics import CrisisPart, TopicPart, Topics

Uniform: TypeAlias = tuple[float, float]
"""The ends of a uniform distribution."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a scenario file."""


class NetworkPart(_Part, frozen=True, kw_only=True):
    """`[network]`: options of all brokers."""

    covering: bool | Literal["on", "off"] = "on"
    """"on" or "off": whether a subscription that another one covers is kept from further brokers."""
    advertisement_covering: bool | Literal["on", "off"] = "on"
    """"on" or "off": the same for advertisements."""
    latency_s: float = 0.001
    """Of links that do not say their own, those of clients included."""
    window_frames_count: int = 1024
    """Messages per link that may be unacknowledged."""
    client_queue_max_count: int = 100_000
    """Publications that may wait for one client before that happens."""
    slow_policy: SlowPolicy = "block"
    """What happens when a subscriber takes too little: its publishers wait (block), its oldest publications are dropped
    (drop-oldest), or it is disconnected."""
    client_lease_s: float = 60.0
    """A client that is not connected is remembered for so long."""
    filters_per_client_max_count: int = 10_000
    """Subscriptions and advertisements that one client may have."""
    clients_max_count: int = 10_000
    """Clients that a broker takes."""
    enforce_capacities: bool = True
    """Whether brokers keep to their CPU and bandwidth."""
    meter_window_s: float = 10.0
    """Rates are means over so long."""
    uplink: AnyUplink = "turns"
    """How the output queues of a broker share its bandwidth."""


class BrokerPart(_Part, frozen=True, kw_only=True):
    """`[[broker]]`: one broker and its machine."""

    name: str
    """Its name."""
    at_s: float = 0.0
    """When it begins."""
    listen: str = ""
    """HOST:PORT where it listens; it means nothing to the simulator."""
    cpu_mhz: float | None = None
    """The speed of its processor; without it matching takes no time."""
    memory_mb: float | None = None
    """Its memory, by which its load is told."""
    bandwidth_mbps: float | None = None
    """What it can send and receive; without it there is no limit."""
    site: tuple[float, float] | None = None
    """Where it stands, for a coordinator that places clients nearby."""


class LinkPart(_Part, frozen=True, kw_only=True):
    """`[[link]]`: two brokers."""

    between: tuple[str, str]
    """The two brokers."""
    at_s: float = 0.0
    """When it is there; brokers that begin later wait for it."""
    latency_s: float | None = None
    """That of `[network]` where it is missing."""


class PublisherPart(_Part, frozen=True, kw_only=True):
    """`[[publisher]]`: one publisher of a stock, with a rate, or of what `[[publish]]` says, with `advertise`."""

    name: str
    """Its name."""
    broker: str
    """Where it joins."""
    at_s: float = 0.0
    """When it joins."""
    symbol: str | None = None
    """The stock that it publishes."""
    rate_per_min: float = 0.0
    """How often it publishes the next quote."""
    advertise: str | None = None
    """The filter that announces what `[[publish]]` lets it publish, in place of a stock."""


class PublishersPart(_Part, frozen=True, kw_only=True):
    """`[[publishers]]`: many publishers, each of its own stock."""

    count: int
    """How many."""
    broker: str | list[str]
    """Where they join: a broker, or a list to draw from."""
    from_s: float = 0.0
    """When the first joins."""
    every_s: float = 0.1
    """Between two of them."""
    rate_per_min: float | Uniform = (0.0, 60.0)
    """Of each: a number, or two between which it is drawn."""
    prefix: str = "P"
    """Names are this and a number."""


class SubscriberPart(_Part, frozen=True, kw_only=True):
    """`[[subscriber]]`: one subscriber."""

    name: str
    """Its name."""
    broker: str
    """Where it joins."""
    filters: list[str]
    """What it asks for."""
    at_s: float = 0.0
    """When it joins and asks."""
    until_s: float | None = None
    """When it ends its subscriptions; never where it is missing."""
    within_s: Within = None
    """The latency requirement of its subscriptions."""


class SubscribersPart(_Part, frozen=True, kw_only=True):
    """`[[subscribers]]`: many subscribers with a stock subscription each, joining at uniformly distributed times."""

    count: int
    """How many."""
    broker: str | list[str]
    """Where they join: a broker, or a list to draw from."""
    join_s: Uniform = (0.0, 0.0)
    """They join between these times."""
    zero_traffic_ratio: float = 0.0
    """So many ask for what nobody publishes."""
    prefix: str = "S"
    """Names are this and a number."""
    subscriptions_per_client: int = 1
    """Subscriptions of each."""


class RatePart(_Part, frozen=True, kw_only=True):
    """`[[rate]]`: publication rates change: of one publisher, or of a random share of all that have a rate."""

    at_s: float
    """When."""
    publisher: str | None = None
    """One publisher, or else a share of all."""
    rate_per_min: float | None = None
    """The new rate."""
    share_ratio: float = 1.0
    """The share of publishers that is drawn."""
    factor: float | None = None
    """What rates are multiplied with, in place of a new rate."""


class PublishPart(_Part, frozen=True, kw_only=True):
    """`[[publish]]`: publications at a time."""

    at_s: float
    """When the first is published."""
    publisher: str
    """By whom."""
    publications: list[str]
    """What."""
    every_s: float = 0.0
    """Between two of them."""


class MovePart(_Part, frozen=True, kw_only=True):
    """`[[move]]`: a subscriber is sent to another broker."""

    at_s: float
    """When."""
    subscriber: str
    """Who."""
    broker: str
    """The broker where it is to go."""


class DrainPart(_Part, frozen=True, kw_only=True):
    """`[[drain]]`: as if before a restart, a broker's subscribers are sent to the other edge-brokers in turn."""

    at_s: float
    """When."""
    broker: str
    """The broker that they leave."""


class Scenario(_Part, frozen=True, kw_only=True):
    """A whole scenario file."""

    kind: Literal["messages"] = "messages"
    """The kind of scenario; see `trimtab sim list --json`."""
    paper: str = ""
    """Whose experiment it is."""

    name: str = ""
    """What it is called in summaries; the file's name where it is missing."""

    description: str = ""
    """What it shows, in one sentence."""
    duration_s: float = 60.0
    """Publishers with a rate stop then; what is under way is still delivered."""

    seed: int = 1
    """Seed of all random choices; `--seed` counts more."""
    symbols_count: int = 40
    """Stocks that are published."""
    quotes: str = ""
    """A quotes file; quotes are made up without one."""

    record_every_s: float = 10.0
    """Virtual time between the load records of each broker, where records are kept."""

    policy: PolicyChoice = PolicyChoice()
    """Who moves subscribers and publishers while the scenario runs; see `[policy]`."""

    topics: Topics = "listed"
    """Whether `[[topic]]` is meant as it stands, or numbers are drawn by the seed."""

    topic: list[TopicPart] = []
    """Kinds of data with their publishers and subscribers."""
    crisis: CrisisPart | None = None
    """Who the clients of topics are and when they burst."""

    protection: RateLimitConfig | Literal["off"] = "off"
    """What one client may send to its broker."""

    attack: AttackPart | None = None
    """Somebody who misbehaves on purpose, in a scenario with topics."""

    balance: BalancePart | None = None
    """What the summary of balance refers to, if it is wanted."""
    network: NetworkPart = NetworkPart()
    """Options of all brokers."""
    clusters: ClustersPart | None = None
    """Brokers and links in clusters, instead of `[[broker]]` and `[[link]]`."""

    broker: list[BrokerPart] = []
    """The brokers."""
    link: list[LinkPart] = []
    """The links between them, which make a tree."""
    publisher: list[PublisherPart] = []
    """Single publishers."""
    publishers: list[PublishersPart] = []
    """Many publishers, each of its own stock."""
    subscriber: list[SubscriberPart] = []
    """Single subscribers."""
    subscribers: list[SubscribersPart] = []
    """Many subscribers of stocks."""
    rate: list[RatePart] = []
    """Changes of publication rates."""
    publish: list[PublishPart] = []
    """Publications at a time."""
    move: list[MovePart] = []
    """Subscribers that are sent elsewhere."""
    drain: list[DrainPart] = []
    """Brokers whose subscribers are sent away."""

    fault: list[Fault] = []
    """What goes wrong."""
