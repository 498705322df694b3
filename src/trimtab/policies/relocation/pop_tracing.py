"""POP, phase 1: how many subscribers each link leads to, from a few tagged publications.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 3.1.

The publisher's first broker tags some of its publications. Every broker that passes a tagged one on waits for the
counts of those it sent it to, adds its own, and tells the sum to the broker it came from; on the way each notes the
counts by neighbour in the publisher's profile. A profile keeps running averages only, so that its size does not grow.

Deviations:
- A neighbour that a traced publication is not sent to counts 0 in the average, and so does the broker itself without a
  matching subscriber: POP is to find where most deliveries are, and a subscriber with a tenth of the traffic is not as
  much worth as one with all of it.
- A count that does not come within `answer_timeout_s` counts as 0 (the paper loses no message).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from trimtab.policies.relocation.config import RelocationConfig


def trace_probability(tagged_count: int, window_count: int) -> float:
    """How likely the next publication is tagged (P_trace = 1 - T/N).

    >>> [trace_probability(tagged, 50) for tagged in (0, 10, 50)]
    [1.0, 0.8, 0.0]
    """
    return 1 - tagged_count / window_count


def running_average(newest: float, average: float | None, newest_weight: float) -> float:
    """The average with a new value in it; the first value is the average.

    >>> running_average(4.0, None, 0.25), running_average(8.0, 4.0, 0.25)
    (4.0, 5.0)
    """
    return newest if average is None else newest_weight * newest + (1 - newest_weight) * average


class Tagger:
    """Which publications of one publisher are traced."""

    def __init__(self, config: RelocationConfig, now_s: float) -> None:
        self._config = config
        self._window_ends_s = now_s + config.pop_window_s
        self._tagged_count = 0

    def tags(self, rng: Random, now_s: float) -> bool:
        """Whether the next publication is to be traced."""
        if now_s >= self._window_ends_s:
            self._window_ends_s = now_s + self._config.pop_window_s
            self._tagged_count = 0
        if rng.random() >= trace_probability(self._tagged_count, self._config.pop_window_count):
            return False
        self._tagged_count += 1
        return True


class Profile(msgspec.Struct, frozen=True):
    """What a broker knows of one publisher's subscribers: the publisher profile table.

    Counts are averages per traced publication that came here.
    """

    local_count: float | None = None
    by_neighbour: dict[str, float] = {}
    """Subscribers at and behind each neighbour away from the publisher."""

    traced_count: int = 0

    def with_result(self, local_count: int, by_neighbour: dict[str, int], newest_weight: float) -> Profile:
        """The profile after one more traced publication.

        >>> Profile().with_result(1, {"B2": 6}, 0.25).with_result(1, {}, 0.25).by_neighbour
        {'B2': 4.5}
        """
        known = self.by_neighbour
        names = [*known, *(name for name in by_neighbour if name not in known)]
        counts = {
            name: running_average(
                by_neighbour.get(name, 0), known.get(name, 0.0 if self.traced_count else None), newest_weight
            )
            for name in names
        }
        return Profile(running_average(local_count, self.local_count, newest_weight), counts, self.traced_count + 1)

    @property
    def total_count(self) -> float:
        """Subscribers here and behind all neighbours away from the publisher."""
        return (self.local_count or 0.0) + sum(self.by_neighbour.values())


class _Trace:
    """A traced publication whose counts have not all come."""

    def __init__(self, publisher: str, upstream: str, local_count: int, waiting: Sequence[str], now_s: float) -> None:
        self.publisher = publisher
        self.upstream = upstream
        self.local_count = local_count
        self.counts: dict[str, int] = {}
        self.waiting = dict.fromkeys(waiting)
        self.began_s = now_s


class Result(msgspec.Struct, frozen=True):
    """What is to be told upstream: a trace result message; `to` is empty at the publisher's own broker."""

    to: str
    publisher: str
    sequence: int
    subscribers_count: int


class PopTraces:
    """The traced publications and the profiles of one broker."""

    def __init__(self, config: RelocationConfig) -> None:
        self._config = config
        self._traces: dict[tuple[str, int], _Trace] = {}
        self.profiles: dict[str, Profile] = {}

    def saw(
        self, publication: tuple[str, int], upstream: str, local_count: int, neighbours: Sequence[str], now_s: float
    ) -> Result | None:
        """A traced publication was delivered to so many clients here and sent to these neighbours."""
        publisher, _ = publication
        if len(self._traces) >= self._config.traces_max_count:
            del self._traces[next(iter(self._traces))]
        self._traces[publication] = _Trace(publisher, upstream, local_count, neighbours, now_s)
        return self._finish_if_complete(publication)

    def heard(self, publication: tuple[str, int], neighbour: str, subscribers_count: int) -> Result | None:
        """A neighbour tells its count; what is not awaited (any more) is ignored."""
        trace = self._traces.get(publication)
        if trace is None or neighbour not in trace.waiting:
            return None
        del trace.waiting[neighbour]
        trace.counts[neighbour] = subscribers_count
        return self._finish_if_complete(publication)

    def overdue(self, now_s: float) -> list[Result]:
        """Give up waiting for counts that should have come, or whose neighbours are gone."""
        timeout_s = self._config.answer_timeout_s
        late = [key for key, trace in self._traces.items() if trace.began_s + timeout_s <= now_s]
        results: list[Result] = []
        for key in late:
            self._traces[key].waiting.clear()
            result = self._finish_if_complete(key)
            if result is not None:
                results.append(result)
        return results

    def next_overdue_s(self) -> float | None:
        """When `overdue` will have something to do; traces are kept in the order in which they began."""
        first = next(iter(self._traces.values()), None)
        return None if first is None else first.began_s + self._config.answer_timeout_s

    def outstanding_count(self, publisher: str) -> int:
        """Traced publications of a publisher whose counts have not all come."""
        return sum(trace.publisher == publisher for trace in self._traces.values())

    @property
    def kept_bytes(self) -> int:
        """What all of this takes, about."""
        rows_count = sum(1 + len(profile.by_neighbour) for profile in self.profiles.values())
        return 100 * len(self.profiles) + 60 * rows_count + 300 * len(self._traces)

    def forget(self, publisher: str) -> None:
        """The publisher moves: what is known of it is of its old place."""
        self.profiles.pop(publisher, None)
        for key in [key for key, trace in self._traces.items() if trace.publisher == publisher]:
            del self._traces[key]

    def _finish_if_complete(self, publication: tuple[str, int]) -> Result | None:
        trace = self._traces[publication]
        if trace.waiting:
            return None
        del self._traces[publication]
        profile = self.profiles.pop(trace.publisher, Profile())
        if len(self.profiles) >= self._config.traces_max_count:
            del self.profiles[next(iter(self.profiles))]
        self.profiles[trace.publisher] = profile.with_result(
            trace.local_count, trace.counts, self._config.pop_newest_weight
        )
        total_count = trace.local_count + sum(trace.counts.values())
        return Result(trace.upstream, trace.publisher, publication[1], total_count)
