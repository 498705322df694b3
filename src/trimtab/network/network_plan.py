"""A network as people describe it: brokers, links, options and the settings of policies, and each broker's share."""

from __future__ import annotations

from typing import Final

import msgspec

from trimtab.broker.config import Acknowledges, BrokerConfig, SlowPolicy
from trimtab.broker.flow.rate_limits import RateLimitConfig
from trimtab.broker.flow.uplink import Uplink
from trimtab.broker.meters import MeterConfig, bucket_of_s
from trimtab.broker.replication.membership import may_decide
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.links.heartbeat import USUAL_HEARTBEAT
from trimtab.network.security.settings import LimitSettings, SecuritySettings
from trimtab.policies.registry import PolicyChoice
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import VERSION

RETRANSMIT_AFTER_S: Final = 3600.0
"""TCP repeats what is lost; a link has to repeat only after a new connection, which needs no timer."""

BYTES_PER_MEGABIT: Final = 125_000
BYTES_PER_MEGABYTE: Final = 1_000_000
MATCHING_S_MHZ_PER_SUBSCRIPTION: Final = 0.0165
"""Where a CPU speed is given, matching one publication takes this, times the subscriptions, divided by the MHz."""


class BrokerEntry(msgspec.Struct, frozen=True):
    """One `[[broker]]`: its name, where it listens, and its capacities if they are limited."""

    name: str
    """Its name in links and commands: letters, digits, _ . or -."""
    listen: Address
    """HOST:PORT where it listens."""
    cpu_mhz: float | None = None
    """The speed of its processor; without it matching takes no time."""
    memory_mb: float | None = None
    """Its memory, by which its load is told."""
    bandwidth_mbps: float | None = None
    """What it can send and receive; without it there is no limit."""
    site: tuple[float, float] | None = None
    """Where it stands, in the unit in which clients tell where they are."""
    wire_version_max: int | None = None
    """The highest version of the wire protocol that it speaks, if it is not that of the network."""
    advertise: Address | None = None
    """Where others reach it, if that is not where it listens: behind address translation, or in a container."""

    @property
    def address(self) -> Address:
        """Where clients and other brokers reach it.

        >>> BrokerEntry("B1", Address("0.0.0.0", 7001), advertise=Address("b1.example.org", 17001)).address.port
        17001
        """
        return self.listen if self.advertise is None else self.advertise


class LinkEntry(msgspec.Struct, frozen=True):
    """One `[[link]]`: the first broker calls the second, at its own address or at another that leads there."""

    first: str
    second: str
    via: Address | None = None


class NetworkOptions(msgspec.Struct, frozen=True):
    """The options of `[network]`; the defaults are those of a broker."""

    covering: bool = True
    """"on" or "off": whether a subscription that another one covers is kept from further brokers."""
    advertisement_covering: bool = True
    """"on" or "off": the same for advertisements."""
    slow_policy: SlowPolicy = "block"
    """What happens when a subscriber takes too little: its publishers wait (block), its oldest publications are dropped
    (drop-oldest), or it is disconnected."""
    client_queue_max_count: int = 100_000
    """Publications that may wait for one client before that happens."""
    client_lease_s: float = 60.0
    """A client that is not connected is remembered for so long."""
    silent_after_s: float = USUAL_HEARTBEAT.silent_after_s
    """A client or neighbour of whom nothing was heard for so long is asked."""
    answer_within_s: float = USUAL_HEARTBEAT.answer_within_s
    """A client or neighbour of whom nothing was heard for so long is asked; if it does not answer within the other time
    its connection is given up: see `trimtab.network.links.heartbeat`."""
    filters_per_client_max_count: int = 10_000
    """Subscriptions and advertisements that one client may have."""
    clients_max_count: int = 10_000
    """Clients that a broker takes."""
    window_frames_count: int = 4_096
    """Messages per link that are unacknowledged, and publications that the peer has not dealt with: some round trips of
    a link that carries 100,000 publications per second."""
    enforce_capacities: bool = False
    """Whether brokers keep to their configured CPU and bandwidth, so that unequal ones can be tried on one machine."""
    uplink: Uplink = "turns"
    """How peers share an enforced bandwidth: each a message in turn, or as latency requirements want ("deadlines")."""
    meter_window_s: float = MeterConfig().window_s
    """Brokers measure rates as means over so long."""
    back_end: str = ""
    """Where channels come from (http://HOST:PORT, see `trimtab active`), if there is an active-data back end."""
    back_end_token_file: str = ""
    """The file that the back end's token stands in, where that asks for one."""
    acknowledges: Acknowledges = "received"
    """When publications are acknowledged: see `BrokerConfig`."""
    disk: str = ""
    """The folder in which brokers keep what is durable, each in a folder of its own."""
    state: str = ""
    """The folder in which brokers that are asked to end leave what they could not hand over; beside the network file if
    it is empty."""
    stop_within_s: float = 5.0
    """A broker that is asked to end hands over what it can within so long."""
    disk_max_mb: int = 0
    """How much a broker's log may take there, in megabytes, before publishers have to wait; 0 is no limit."""
    wire_version_max: int = VERSION
    """The highest version of the wire protocol that brokers speak: see `BrokerConfig`."""


class NetworkPlan(msgspec.Struct, frozen=True):
    """A network as its file describes it: a forest of brokers."""

    brokers: tuple[BrokerEntry, ...]
    links: tuple[LinkEntry, ...] = ()
    options: NetworkOptions = NetworkOptions()
    policy: PolicyChoice = PolicyChoice()
    """Who moves subscribers and publishers, and how."""
    replication: ReplicationSettings | None = None
    """How brokers watch their neighbours and who replaces those that fail; nobody does if it is missing."""
    standbys: tuple[Address, ...] = ()
    """Where processes wait to become replicas."""
    protection: RateLimitConfig | None = None
    """What one client may send, if that is limited."""
    security: SecuritySettings = SecuritySettings()
    """Who may connect and how."""
    limits: LimitSettings = LimitSettings()
    """Limits against strangers."""

    def broker(self, name: str) -> BrokerEntry:
        """The entry of a broker; raises KeyError."""
        for entry in self.brokers:
            if entry.name == name:
                return entry
        raise KeyError(name)

    def voters(self) -> dict[str, Address]:
        """Who decides about brokers that cannot be reached, by name or, of those that stand by, by address.

        Empty where nobody is replaced without being provably over, and where those that are left could not decide.
        """
        settings = self.replication
        if settings is None or settings.provisioner == "none" or settings.replaces != "automatic":
            return {}
        if settings.unreachable != "replace":
            return {}
        found = {entry.name: entry.address for entry in self.brokers}
        found.update({str(address): address for address in self.standbys})
        return found if may_decide(len(found)) else {}

    def dialled_by(self, name: str) -> tuple[tuple[str, Address], ...]:
        """The neighbours that a broker calls, and where: it comes first in their links."""
        ours = [link for link in self.links if link.first == name]
        return tuple((link.second, link.via or self.broker(link.second).address) for link in ours)

    def neighbours_of(self, name: str) -> tuple[str, ...]:
        """The brokers that a broker has a link to."""
        ours = [link for link in self.links if name in (link.first, link.second)]
        return tuple(link.second if link.first == name else link.first for link in ours)

    def pieces(self) -> list[tuple[str, ...]]:
        """The brokers that are linked with each other, directly or through others, in the order of the file.

        >>> brokers = tuple(BrokerEntry(name, Address("127.0.0.1", 7001)) for name in ("B1", "B2", "B3"))
        >>> NetworkPlan(brokers, (LinkEntry("B1", "B3"),)).pieces()
        [('B1', 'B3'), ('B2',)]
        """
        piece_of = {entry.name: entry.name for entry in self.brokers}
        for link in self.links:
            joined, gone = piece_of[link.first], piece_of[link.second]
            piece_of = {name: joined if piece == gone else piece for name, piece in piece_of.items()}
        found: dict[str, list[str]] = {}
        for name, piece in piece_of.items():
            found.setdefault(piece, []).append(name)
        return [tuple(names) for names in found.values()]

    def config_of(self, name: str, session: str) -> BrokerConfig:
        """The configuration of a broker of this network."""
        options = self.options
        return BrokerConfig(
            name=name,
            session=session,
            address=str(self.broker(name).address),
            neighbours=self.neighbours_of(name),
            subscription_covering=options.covering,
            advertisement_covering=options.advertisement_covering,
            link=LinkConfig(options.window_frames_count, RETRANSMIT_AFTER_S, options.window_frames_count),
            client_queue_max_count=options.client_queue_max_count,
            slow_policy=options.slow_policy,
            filters_per_client_max_count=options.filters_per_client_max_count,
            client_lease_s=options.client_lease_s,
            clients_max_count=options.clients_max_count,
            has_back_end=bool(options.back_end),
            protection=self.protection,
            meters=self._meters_of(self.broker(name)),
            replication=self.replication,
            acknowledges=options.acknowledges,
            wire_version_max=self.broker(name).wire_version_max or options.wire_version_max,
        )

    def _meters_of(self, entry: BrokerEntry) -> MeterConfig:
        window_s = self.options.meter_window_s
        meters = MeterConfig(window_s, bucket_s=bucket_of_s(window_s))
        if entry.bandwidth_mbps is not None:
            meters = msgspec.structs.replace(meters, bandwidth_bytes_per_s=entry.bandwidth_mbps * BYTES_PER_MEGABIT)
        if entry.memory_mb is not None:
            meters = msgspec.structs.replace(meters, memory_bytes=entry.memory_mb * BYTES_PER_MEGABYTE)
        if entry.cpu_mhz is not None:
            slope_s = MATCHING_S_MHZ_PER_SUBSCRIPTION / entry.cpu_mhz
            meters = msgspec.structs.replace(meters, matching_s_per_subscription=slope_s)
        return meters
