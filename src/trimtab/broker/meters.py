"""Meters of a broker: what its world tells it about arrivals, matching and output becomes load indices.

The simulation tells modelled delays and sizes, the network measured ones; the meters do not know the difference.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from trimtab.broker.peers import Counters
from trimtab.load.indices import LoadIndices, input_utilization_ratio, output_utilization_ratio
from trimtab.protocol.events import LoadMeasured, PublicationSizes
from trimtab.protocol.messages import Publish
from trimtab.protocol.records import LoadRecord

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class MeterConfig(msgspec.Struct, frozen=True):
    """How a broker measures itself."""

    window_s: float = 10.0
    """Rates are means over so long: a few publications of the slowest publishers worth counting."""

    bucket_s: float = 0.5
    """Rates move in steps of this; a fraction of the window."""

    bandwidth_bytes_per_s: float = 125_000_000.0
    """The output bandwidth that ratios refer to: one gigabit per second unless configured."""

    downlink_bytes_per_s: float | None = None
    """The input bandwidth that ratios refer to; as large as the output bandwidth unless configured."""

    memory_bytes: float = 4_000_000_000.0
    """The memory that ratios refer to."""

    matching_s_per_subscription: float | None = None
    """What one subscription adds to the matching of a publication, where that is known of the machine before anything
    was matched: where the time of matching is modelled or enforced."""

    def __post_init__(self) -> None:
        if not 0 < self.bucket_s <= self.window_s:
            raise ValueError("the bucket of a meter is positive and no longer than its window")
        if self.bandwidth_bytes_per_s <= 0 or self.memory_bytes <= 0:
            raise ValueError("a bandwidth and a memory are positive")


def bucket_of_s(window_s: float) -> float:
    """The bucket that goes with a window: the oldest counts as a whole, so that a short window needs short buckets.

    >>> bucket_of_s(10.0), bucket_of_s(5.0)
    (0.5, 0.05)
    """
    return MeterConfig().bucket_s if window_s >= MeterConfig().window_s else window_s / 100


class WindowSum:
    """The sum of what was told during the last while, kept in buckets.

    >>> arrivals = WindowSum(window_s=10.0, bucket_s=1.0)
    >>> arrivals.add(1.0, now_s=0.5)
    >>> arrivals.add(3.0, now_s=9.0)
    >>> arrivals.total(9.5), arrivals.total(11.5), arrivals.total(30.0)
    (4.0, 3.0, 0.0)
    """

    def __init__(self, window_s: float, bucket_s: float) -> None:
        self._window_s = window_s
        self._bucket_s = bucket_s
        self._buckets: deque[tuple[int, float]] = deque()
        self._total = 0.0

    def add(self, amount: float, now_s: float) -> None:
        """Count an amount."""
        number = int(now_s / self._bucket_s)
        if self._buckets and self._buckets[-1][0] == number:
            self._buckets[-1] = (number, self._buckets[-1][1] + amount)
        else:
            self._forget(now_s)
            self._buckets.append((number, amount))
        self._total += amount

    def total(self, now_s: float) -> float:
        """What was counted during the window."""
        self._forget(now_s)
        return self._total if self._buckets else 0.0

    def per_second(self, now_s: float, since_s: float) -> float:
        """The mean rate over the window, or since the beginning if that is shorter."""
        length_s = min(self._window_s, now_s - since_s)
        return self.total(now_s) / length_s if length_s > 0 else 0.0

    def _forget(self, now_s: float) -> None:
        oldest = int((now_s - self._window_s) / self._bucket_s)
        while self._buckets and self._buckets[0][0] < oldest:
            self._total -= self._buckets.popleft()[1]
        if not self._buckets:
            self._total = 0.0


class Meters:
    """All meters of one broker."""

    def __init__(self, config: MeterConfig, now_s: float = 0.0) -> None:
        self.config = config
        self._since_s = now_s
        self._arrivals = self._new_sum()
        self._matched = self._new_sum()
        self._matching_s = self._new_sum()
        self._output_bytes = self._new_sum()
        self._input_delay_s = 0.0
        self._output_delay_s = 0.0
        self._matching_delay_s = 0.0
        self.memory_bytes = 0
        """Memory in use, as far as the world has told."""
        self.publication_bytes = 320.0
        """The usual size of a publication on the wire, as far as the world has told."""
        self._sizes_bytes: dict[str, int] = {}
        """Sizes by publisher, where the world has told that they differ."""
        self.arrived_count = 0
        """Publications that ever entered the input queue."""
        self.output_bytes = 0.0
        """What ever entered an output queue."""

    def _new_sum(self) -> WindowSum:
        return WindowSum(self.config.window_s, self.config.bucket_s)

    def arrived(self, now_s: float, count: int = 1) -> None:
        """Publications entered the input queue."""
        self._arrivals.add(count, now_s)
        self.arrived_count += count

    def matched(self, matching_s: float, waited_s: float, now_s: float, count: int = 1) -> None:
        """Publications left the input queue after waiting and took so long, together, to match."""
        self._matched.add(count, now_s)
        self._matching_s.add(matching_s, now_s)
        self._input_delay_s = waited_s

    def worked(self, for_s: float, now_s: float) -> None:
        """So much more time went into the publications that were matched lately: their matching delay contains it."""
        self._matching_s.add(for_s, now_s)

    def queued_output(self, size_bytes: int, now_s: float) -> None:
        """A message of this size entered an output queue."""
        self._output_bytes.add(size_bytes, now_s)
        self.output_bytes += size_bytes

    def sent(self, waited_s: float) -> None:
        """A message left an output queue after waiting so long."""
        self._output_delay_s = waited_s

    def told(self, event: LoadMeasured | PublicationSizes) -> None:
        """The world tells what it has measured."""
        if isinstance(event, PublicationSizes):
            self._sizes_bytes.update(event.by_publisher)
            return
        if event.memory_bytes is not None:
            self.memory_bytes = event.memory_bytes
        if event.output_delay_s is not None:
            self.sent(event.output_delay_s)
        if event.publication_bytes is not None:
            self.publication_bytes = event.publication_bytes

    def size_of_bytes(self, message: Publish) -> float:
        """How large a publication is on the wire, as far as is known."""
        return len(message.wire) or self._sizes_bytes.get(message.publisher, self.publication_bytes)

    def read(self, now_s: float, *, input_count: int, output_count: int) -> LoadIndices:
        """The indices of this moment; queue depths are told by the broker."""
        matched_count = self._matched.total(now_s)
        if matched_count:
            self._matching_delay_s = self._matching_s.total(now_s) / matched_count
        input_rate_per_s = self._arrivals.per_second(now_s, self._since_s)
        output_rate_bytes_per_s = self._output_bytes.per_second(now_s, self._since_s)
        return LoadIndices(
            input_rate_per_s=input_rate_per_s,
            matching_delay_s=self._matching_delay_s,
            output_rate_bytes_per_s=output_rate_bytes_per_s,
            input_utilization_ratio=input_utilization_ratio(input_rate_per_s, self._matching_delay_s),
            output_utilization_ratio=output_utilization_ratio(
                output_rate_bytes_per_s, self.config.bandwidth_bytes_per_s
            ),
            cpu_utilization_ratio=self._matching_s.per_second(now_s, self._since_s),
            input_queue_count=input_count,
            input_queue_delay_s=self._input_delay_s if input_count else 0.0,
            output_queue_count=output_count,
            output_queue_delay_s=self._output_delay_s if output_count else 0.0,
            memory_bytes=self.memory_bytes,
        )


class LoadRecords:
    """Makes the records of one broker, in either world."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._counted = Counters()

    def take(self, now_s: float, load: LoadIndices) -> LoadRecord:
        """The record of this moment."""
        broker, counters = self._broker, msgspec.structs.asdict(self._broker.counters)
        before = msgspec.structs.asdict(self._counted)
        self._counted = Counters(**counters)
        return LoadRecord(
            time_s=now_s,
            broker=broker.name,
            **msgspec.structs.asdict(load),
            advertisements_count=len(broker.tables.advertisements),
            subscriptions_count=len(broker.tables.subscriptions),
            clients_count=sum(peer.role == "client" for peer in broker.peers.values()),
            **{name: count - before[name] for name, count in counters.items()},
        )
