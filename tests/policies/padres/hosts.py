"""A broker as its agents see it, without a broker."""

from __future__ import annotations

from trimtab.language import Filter
from trimtab.load.indices import LoadIndices
from trimtab.policies.api import BrokerCapacity, QueueReading, TrafficTotals


class FakeHost:
    """What an agent may know, set by the test."""

    def __init__(self, name: str, clients: dict[str, list[Filter]] | None = None, ratio: float = 0.1) -> None:
        self.name = name
        self.served = clients or {}
        self.ratio = ratio
        self.matching_s_per_subscription: float | None = None
        self.streams: dict[str, dict[str, int]] = {}
        self.queues: dict[str, QueueReading] = {}
        self.totals = TrafficTotals()
        self.source = ""
        self.rate_per_s = 10.0

    def neighbours(self) -> list[str]:
        """One neighbour."""
        return ["B0"]

    def brokers(self) -> list[str]:
        """Three brokers."""
        return ["B0", "B1", "B2"]

    def clients(self) -> list[str]:
        """All clients."""
        return list(self.served)

    def publishers(self) -> list[str]:
        """None."""
        return []

    def filters_of(self, client: str) -> list[Filter]:
        """The client's filters."""
        return self.served.get(client, [])

    def requirements_of(self, client: str) -> list[float | None]:
        """No requirements."""
        return [None for _ in self.filters_of(client)]

    def channel_clients(self) -> list[str]:
        """Those with channels."""
        return list(self.streams)

    def streams_of(self, client: str) -> dict[str, int]:
        """The client's channels."""
        return self.streams.get(client, {})

    def covering_filters(self) -> list[Filter]:
        """All filters."""
        return [filter for filters in self.served.values() for filter in filters]

    def subscription_count(self) -> int:
        """The number of filters."""
        return len(self.covering_filters())

    def load(self, now_s: float) -> LoadIndices:
        """The same share of input and output."""
        return LoadIndices(
            self.rate_per_s, self.ratio / 10, self.ratio * 1_000, self.ratio, self.ratio, self.ratio, 0, 0, 0, 0, 0
        )

    def capacity(self) -> BrokerCapacity:
        """A small broker."""
        return BrokerCapacity(1_000.0, 1_000_000.0, self.matching_s_per_subscription)

    def publication_bytes(self) -> float:
        """A small publication."""
        return 10.0

    def matched_bytes(self) -> float:
        """The same for all."""
        return 10.0

    def matched_from(self) -> str:
        """As the test says."""
        return self.source

    def queue_of(self, client: str) -> QueueReading:
        """As the test says."""
        return self.queues.get(client, QueueReading())

    def address_of(self, broker: str) -> str:
        """By name."""
        return f"{broker}:1"

    def objection_to_coming(self, publisher: str) -> str:
        """Nobody objects."""
        return ""

    def traffic(self) -> TrafficTotals:
        """As the test says."""
        return self.totals

    def meter_window_s(self) -> float:
        """Half a minute."""
        return 30.0
