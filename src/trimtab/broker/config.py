"""The configuration of a broker: every limit with its unit, default and reason."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from trimtab.broker.flow.rate_limits import RateLimitConfig
from trimtab.broker.meters import MeterConfig
from trimtab.broker.replication.config import PROTOCOLS, ReplicationConfig
from trimtab.protocol.frames import Order
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import VERSION, VERSION_MIN

Acknowledges: TypeAlias = Literal["received", "safe", "durable"]
SlowPolicy: TypeAlias = Literal["block", "drop-oldest", "disconnect"]


class BrokerConfig(msgspec.Struct, frozen=True):
    """One broker's settings."""

    name: str
    session: str = "1"
    """Told in greetings; differs after each start of the broker, so that peers notice a restart."""

    epoch: int = 1
    """Numbers the incarnations of the broker; raised by itself if a neighbour knows one that is not lower."""

    address: str = ""
    """Where clients find this broker; told to other brokers, so that they can send clients here."""

    neighbours: tuple[str, ...] = ()
    """Neighbours by configuration: until each has told what it knows, no data is processed and nothing is confirmed."""

    subscription_covering: bool = True
    advertisement_covering: bool = True
    link: LinkConfig = LinkConfig()
    meters: MeterConfig = MeterConfig()

    client_queue_max_count: int = 100_000
    """Publications that may wait for one client; beyond it the slow policy acts. Seconds of a busy stream."""

    slow_policy: SlowPolicy = "block"
    """block: the publishers whose publications match are held back; drop-oldest: the subscriber loses the oldest;
    disconnect: the subscriber is disconnected and told why."""

    broker_queue_high_count: int = 4_096
    """Publications that may wait for a neighbour; beyond it those who send more are held back until half are gone."""

    filters_per_client_max_count: int = 10_000
    """Subscriptions and advertisements of one client."""

    protection: RateLimitConfig | None = None
    """What one client may send, so that it cannot harm others; without it every client may send what it likes."""

    client_lease_s: float = 60.0
    """A disconnected client's session is kept for so long; then its subscriptions and advertisements end."""

    clients_max_count: int = 10_000
    """Client sessions that one broker keeps."""

    has_back_end: bool = False
    """Whether clients may subscribe to channels here."""

    results_cached_max_count: int = 100_000
    """Results of channels kept in memory for clients that are a little behind; others are fetched again."""

    stream_linger_s: float = 30.0
    """A channel's results are made for so long after the last client has gone; one that moves comes back by then."""

    replication: ReplicationConfig | None = None
    """How neighbours are watched and replaced when they fail; without it nobody watches."""

    acknowledges: Acknowledges = "received"
    """received: a publication is acknowledged when this broker has it; safe: when all to whom it is handed on have it
    as well, so that any one broker may die and be replaced; durable: when it is on this broker's disk, which forgets it
    when all who want it have it, so that all brokers may die at once."""

    replica: str = ""
    """The protocol by which this broker replaces an earlier incarnation, if it does; then `neighbours` are all those
    that it had."""

    assists: str = ""
    """The broker whose load this one shares, if it does; then `replica` is the protocol by which it learns its routes,
    and `neighbours` are those of that broker and the broker itself."""

    reorders: bool = False
    """Of an assistant: whether publications that take different ways are put in order again behind them."""

    wire_version_max: int = VERSION
    """The highest version of the wire protocol that is spoken: lower than what the program can, where an upgrade has to
    be taken back at any time."""

    @property
    def order(self) -> Order:
        """What the network promises about the order of a publisher's publications, as far as this broker knows.

        >>> BrokerConfig("B1").order, BrokerConfig("B1", replication=ReplicationConfig("incremental")).order
        ('publisher', 'any')
        """
        replication = self.replication
        if replication is None:
            return "publisher"
        overtakes = "incremental" in (replication.protocol, "" if self.assists else self.replica)
        takes_two_ways = replication.assisting == "scheduling" or (self.assists != "" and not self.reorders)
        return "any" if overtakes or takes_two_ways else "publisher"

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a broker needs a name")
        if self.replica and (self.replication is None or self.replica not in PROTOCOLS):
            raise ValueError(
                f"broker {self.name}: a replica needs a configuration of replication and one of its protocols"
            )
        if self.assists and not self.replica:
            raise ValueError(f"broker {self.name}: an assistant needs a protocol")
        if self.acknowledges != "received" and (
            self.slow_policy != "block" or (self.replication is not None and self.replication.protocol != "synchronous")
        ):
            raise ValueError(
                f"broker {self.name}: to acknowledge what is {self.acknowledges}, slow clients must hold publishers "
                "back (slow_policy block) and failed brokers be replaced synchronously"
            )
        if not VERSION_MIN <= self.wire_version_max <= VERSION:
            raise ValueError(f"broker {self.name}: versions {VERSION_MIN} to {VERSION} of the wire protocol are spoken")
        limits = (self.client_queue_max_count, self.broker_queue_high_count, self.filters_per_client_max_count)
        if min(*limits, self.clients_max_count) < 1:
            raise ValueError(f"broker {self.name}: every limit must be at least 1")
