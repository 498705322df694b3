"""The queues of an edge-broker's subscribers: how fast they grow, how long messages may wait, and which are too long.

Source: R. Tao, S. Poslad, J. Bigham (2013), section IV.B.2 (`thresholds.py` has the formulas).

Each filter (topic) of a subscriber has its own requirement, its own publishers and so its own allowed wait.

Deviations: a subscriber has one queue for all of its filters, which messages leave in the order in which they came; its
threshold is that of the filter whose messages may wait least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from trimtab.language import Filter
from trimtab.load.indices import LoadIndices
from trimtab.policies.api import AgentHost
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.messages import PublisherWay
from trimtab.policies.delay.priorities import Waiting
from trimtab.policies.delay.thresholds import QueueRates, Transmission, allowed_wait_s, is_queue_overloaded, one_way_s


class Ways(msgspec.Struct):
    """What is known of the time that publications take outside the edge's queues."""

    publisher_head_s: float = 0.0
    head_s: float = 0.0
    """In the head itself."""

    head_edge_s: float = 0.0
    subscriber_round_trips_s: dict[str, float] = {}
    publishers: dict[str, PublisherWay] = {}
    """Up to and through the heads, by publisher."""
    heard_by_filter: dict[Filter, dict[str, None]] = {}
    """By filter (topic) the publishers whose publications it has matched."""

    def heard(self, filter: Filter, publisher: str) -> None:
        """A publication of this publisher satisfied the filter."""
        self.heard_by_filter.setdefault(filter, {})[publisher] = None

    def before_edge(self, filter: Filter) -> PublisherWay:
        """The longest way of all publishers that a filter has heard (t_trans-sel is the longest of their ways); of one
        that has heard nobody yet, or of nobody whose way is known, the longest of all in this cluster."""
        known = [self.publishers[name] for name in self.heard_by_filter.get(filter, ()) if name in self.publishers]
        if not known:
            return PublisherWay(self.publisher_head_s, self.head_s)
        return max(known, key=lambda way: way.total_s)

    def edge_subscriber_s(self, client: str) -> float:
        """To a subscriber; as long as to the farthest one if it has not been measured."""
        round_trip_s = self.subscriber_round_trips_s.get(client)
        if round_trip_s is None:
            round_trip_s = max(self.subscriber_round_trips_s.values(), default=0.0)
        return one_way_s(round_trip_s)

    def transmission_s(self, client: str, before: PublisherWay) -> float:
        """From a filter's farthest publisher to a subscriber, without time in brokers."""
        return Transmission(
            publisher_head_s=before.links_s,
            head_edge_s=self.head_edge_s,
            edge_subscriber_s=self.edge_subscriber_s(client),
        ).total_s


class Queues:
    """The queues for the subscribers of one edge-broker."""

    def __init__(self, host: AgentHost, config: DelayConfig) -> None:
        self._host = host
        self._config = config
        self._rates: dict[str, QueueRates] = {}
        self._beyond_counts: dict[str, int] = {}
        self._queued: dict[str, int] = {}
        self.waits_s: dict[str, float] = {}
        """How long messages of each client with requirements may wait here."""

    def read(self, load: LoadIndices, ways: Ways, balancing_s: float, message_bytes: float, now_s: float) -> None:
        """Take a reading of all queues."""
        host, config = self._host, self._config
        clients = host.clients()
        self._rates = {client: self._rates.get(client) or QueueRates(config.smoothing_alpha) for client in clients}
        self._queued, self.waits_s = {}, {}
        capacity = host.capacity()
        arrival_s = message_bytes / capacity.receivable_bytes_per_s
        departure_s = message_bytes / capacity.bandwidth_bytes_per_s
        is_busy = load.output_utilization_ratio >= config.busy_ratio
        beyond: dict[str, int] = {}
        for client in clients:
            queue, rates = host.queue_of(client), self._rates[client]
            self._queued[client] = queue.queued_count
            rates.read(now_s, entered_count=queue.entered_count, left_count=queue.entered_count - queue.queued_count)
            waits_s: list[float] = []
            for filter, within_s in zip(host.filters_of(client), host.requirements_of(client), strict=True):
                if within_s is None:
                    continue
                before = ways.before_edge(filter)
                waits_s.append(
                    allowed_wait_s(
                        within_s,
                        ways.transmission_s(client, before),
                        other_brokers_s=before.heads_s,
                        arrival_s=arrival_s,
                        matching_s=load.matching_delay_s,
                        departure_s=departure_s,
                    )
                )
            if not waits_s:
                continue
            self.waits_s[client] = wait_s = min(waits_s)
            if queue.is_held or not is_busy or rates.input_per_s is None or rates.output_per_s is None:
                continue
            if is_queue_overloaded(
                queue.queued_count, wait_s, balancing_s, rates.input_per_s, rates.output_per_s, config
            ):
                beyond[client] = self._beyond_counts.get(client, 0) + 1
        self._beyond_counts = beyond

    def overloaded(self) -> list[str]:
        """Clients whose queues are too long, for enough readings in a row."""
        enough = self._config.overloaded_readings_count
        return [client for client, count in self._beyond_counts.items() if count >= enough]

    def forget(self) -> None:
        """Count readings anew: the load has been changed."""
        self._beyond_counts = {}

    def waiting(self, clients: Sequence[str]) -> Waiting:
        """What waits for clients that are one bundle: as much as for the worst of them."""
        if any(client in self._beyond_counts for client in clients):
            return Waiting.TOO_LONG
        return Waiting.SOMETHING if any(self._queued.get(client) for client in clients) else Waiting.NOTHING

    def wait_s(self, clients: Sequence[str]) -> float:
        """The shortest allowed wait of clients; infinite without requirements."""
        return min((self.waits_s.get(client, math.inf) for client in clients), default=math.inf)
