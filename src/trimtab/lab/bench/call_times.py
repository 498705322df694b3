"""How long single calls take: each is timed by itself, so that one slow call in thousands is seen."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

T = TypeVar("T")


class CallTimes(msgspec.Struct, frozen=True):
    """The distribution of a call's duration, in the thread's processor time: other processes do not lengthen it."""

    calls_count: int
    median_us: float
    p99_us: float
    max_us: float
    p99_wall_us: float
    """By the wall clock, which includes the times at which the machine did something else."""

    max_wall_us: float


class CallTimer:
    """Times calls one by one.

    >>> timer = CallTimer()
    >>> timer.call(len, "four")
    4
    >>> timer.summary().calls_count
    1
    """

    def __init__(self) -> None:
        self._wall_ns = array("q")
        self._cpu_ns = array("q")
        self._clock_ns = _clock_cost_ns()

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call the function and note how long it took."""
        wall_start = time.perf_counter_ns()
        cpu_start = time.thread_time_ns()
        answer = function(*arguments)
        cpu_end = time.thread_time_ns()
        wall_end = time.perf_counter_ns()
        self._wall_ns.append(wall_end - wall_start)
        self._cpu_ns.append(max(0, cpu_end - cpu_start - self._clock_ns))
        return answer

    @property
    def calls_count(self) -> int:
        """How many calls were timed."""
        return len(self._wall_ns)

    def summary(self, last_count: int | None = None) -> CallTimes:
        """The distribution over all calls, or over the last ones; the longest times are always those of all calls."""
        first = 0 if last_count is None else max(0, self.calls_count - last_count)
        cpu_ns, wall_ns = sorted(self._cpu_ns[first:]), sorted(self._wall_ns[first:])
        return CallTimes(
            calls_count=len(cpu_ns),
            median_us=percentile(cpu_ns, 50) / 1e3,
            p99_us=percentile(cpu_ns, 99) / 1e3,
            max_us=max(self._cpu_ns) / 1e3,
            p99_wall_us=percentile(wall_ns, 99) / 1e3,
            max_wall_us=max(self._wall_ns) / 1e3,
        )


def _clock_cost_ns() -> int:
    """What reading the processor clock adds to each call: asking for it takes about as long as a fast call."""
    readings = [time.thread_time_ns() for _ in range(200)]
    return min(later - earlier for earlier, later in pairwise(readings))


def percentile(ascending: Sequence[int], percent: float) -> int:
    """The smallest value that at least so many percent of the values do not exceed (nearest rank).

    >>> percentile([1, 2, 3, 4], 50), percentile([1, 2, 3, 4], 99)
    (2, 4)
    """
    rank = -(-len(ascending) * percent // 100)
    return ascending[max(0, int(rank) - 1)]
