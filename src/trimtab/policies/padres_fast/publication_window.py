"""The publications that a cluster-head saw lately, and what brokers carry with the clients they have.

A head passes on everything that the clients of its edge-brokers receive. With the clients' filters at hand it can tell
at any time what each of them receives, those that have just come included, without waiting for a sample: it matches the
publications of the last while against all filters. What that shows is what brokers will measure once their load has
settled. This takes the place of section 4.1.1 of A. Cheung's thesis (2006); bits mean the same as there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from trimtab.language import Filter, Value
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import Bits, ClientProfile, PublicationId, Sample, union
from trimtab.matching import Matcher

WINDOW_S: Final = 60.0
"""How far back publications are kept: a few of even the slowest publishers worth counting."""

WINDOW_MAX_COUNT: Final = 2_000
"""And how many at most: enough for estimates within some percent, and it bounds the time that a plan takes."""

CHANGED_RATIO: Final = 0.15
CHANCE_DEVIATIONS_COUNT: Final = 3
"""The rate has changed if it differs by more than this share, and by more standard deviations than chance explains."""

SEEN_RATIO: Final = 0.9
"""If the head has seen so much of what a broker receives, the broker's load is computed from what the head saw."""

Served: TypeAlias = Mapping[str, tuple[Filter, ...]]
"""Clients and what they subscribe to."""


class PublicationWindow:
    """Remembers publications for a while.

    >>> window = PublicationWindow(now_s=0.0)
    >>> for number in range(10):
    ...     window.saw(("p", number), {"class": "STOCK", "price": number}, now_s=float(number))
    >>> cheap = Filter.parse("[class,eq,'STOCK'],[price,<,3]")
    >>> sample = window.samples({"B1": {"alice": (cheap,)}}, size_bytes=300, now_s=10.0)["B1"]
    >>> f"{sample.clients[0].bits:b}", sample.rate_per_s(sample.clients[0].bits)
    ('111', 0.3)
    """

    def __init__(
        self, now_s: float, window_s: float = WINDOW_S, max_count: int = WINDOW_MAX_COUNT, recent_s: float = WINDOW_S
    ) -> None:
        """An empty window; where the rate of the last `recent_s` is another one, only that time counts."""
        self._begin_s = now_s
        self._window_s = window_s
        self._recent_s = min(recent_s, window_s)
        self._seen: deque[tuple[float, PublicationId, Mapping[str, Value]]] = deque(maxlen=max_count)

    def saw(self, publication: PublicationId, values: Mapping[str, Value], now_s: float) -> None:
        """A publication passed."""
        if len(self._seen) == self._seen.maxlen:
            self._begin_s = self._seen[0][0]
        self._seen.append((now_s, publication, values))

    def samples(self, served: Mapping[str, Served], size_bytes: int, now_s: float) -> dict[str, Sample]:
        """What the clients of each broker receive of the publications in the window."""
        oldest_s = now_s - self._window_s
        while self._seen and self._seen[0][0] < oldest_s:
            self._seen.popleft()
        duration_s = now_s - max(oldest_s, self._begin_s)
        if len(self._seen) > 1:  # not the time before anything was published
            first_s = self._seen[0][0]
            duration_s = min(duration_s, (now_s - first_s) * len(self._seen) / (len(self._seen) - 1))
        seen = list(self._seen)
        if self._has_changed(duration_s, now_s):
            duration_s = self._recent_s
            seen = [each for each in seen if each[0] >= now_s - duration_s]
        bits_by_filter = self._bits(served, seen)
        publications = tuple(publication for _, publication, _ in seen)
        sizes_bytes = (size_bytes,) * len(publications)
        rate_per_s = len(publications) / duration_s if duration_s > 0 else 0.0
        return {
            broker: Sample(
                publications=publications,
                sizes_bytes=sizes_bytes,
                duration_s=duration_s,
                input_rate_per_s=rate_per_s,
                clients=tuple(
                    ClientProfile(client, filters, union(bits_by_filter[each] for each in filters))
                    for client, filters in clients.items()
                ),
            )
            for broker, clients in served.items()
        }

    def _has_changed(self, duration_s: float, now_s: float) -> bool:
        """Whether the rate of late differs from the mean by more than chance explains: publishers began, stopped, or
        changed their rates, and what brokers measure has followed already."""
        if duration_s <= self._recent_s:
            return False
        recent_count = sum(at_s >= now_s - self._recent_s for at_s, _, _ in self._seen)
        expected_count = len(self._seen) * self._recent_s / duration_s
        chance_count = CHANCE_DEVIATIONS_COUNT * math.sqrt(max(expected_count, recent_count))
        change_count = abs(recent_count - expected_count)
        return change_count > chance_count and change_count > CHANGED_RATIO * expected_count

    def _bits(
        self, served: Mapping[str, Served], seen: Sequence[tuple[float, PublicationId, Mapping[str, Value]]]
    ) -> dict[Filter, Bits]:
        filters = dict.fromkeys(each for clients in served.values() for wanted in clients.values() for each in wanted)
        bits: dict[Hashable, Bits] = {}
        matcher: Matcher = Matcher()
        for filter in filters:
            matcher.add(filter, filter)
            bits[filter] = 0
        for number, (_, _, values) in enumerate(seen):
            bit = 1 << number
            for matched in matcher.match(values):
                bits[matched] |= bit
        return {filter: bits[filter] for filter in filters}


def settled_resources(measured: BrokerResources, sample: Sample) -> BrokerResources | None:
    """A broker's load with the clients that it has, as it will be measured once it has settled; None if the head has
    not seen enough of what the broker receives to tell."""
    rate_per_s = sample.rate_per_s(union(client.bits for client in sample.clients))
    if rate_per_s < SEEN_RATIO * measured.input_rate_per_s:
        return None
    sizes = {client.bits for client in sample.clients}
    bandwidth = {bits: sample.bandwidth_bytes_per_s(bits) for bits in sizes}
    return msgspec.structs.replace(
        measured,
        input_rate_per_s=rate_per_s,
        input_rate_bytes_per_s=rate_per_s * sample.mean_size_bytes,
        output_rate_bytes_per_s=sum(bandwidth[client.bits] for client in sample.clients),
        cpu_utilization_ratio=rate_per_s * measured.matching_delay_s,
    )
