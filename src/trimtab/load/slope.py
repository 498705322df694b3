"""What one subscription costs a broker: how much longer it makes matching, and what memory it takes.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), sections 4.1.2
and 4.1.5, and section 3.4.1, where a broker tells its "matching delay slope" to the one that plans.

A slope is taken between two moments whose numbers of subscriptions differ by S at least. A broker's matching delay is a
mean over a window, during which subscriptions come and go, and belongs to the mean number of subscriptions of the same
window. A broker that matches nothing at the moment goes by what it measured last, and one that never has by what is
known of its machine, if anything is.

Deviations:
- Until two such moments have been seen the delay is proportional to the number of subscriptions (equation 4.7).
- Where the cost of one subscription is known beforehand, because matching is modelled or its time enforced, the delay
  is proportional to it, and nothing is measured: a mean over publications and one over time differ when clients leave,
  since nothing comes to a broker without clients.
- A slope of the matching delay is no larger than the delay divided by the number of subscriptions, which it would
  exceed only if matching against no subscription took less than no time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from trimtab.load.estimation import BrokerResources, slope_per_subscription

SLOPE_SUBSCRIPTION_COUNT: Final = 20
"""S where nothing else is configured: a change of delay that stands out from noise."""


class SlopeMeter:
    """The cost of one subscription, from delays that are means over a window and numbers of subscriptions that change
    meanwhile.

    >>> meter = SlopeMeter(window_s=10.0)
    >>> meter.saw(100, now_s=0.0)
    >>> meter.saw(200, now_s=15.0)
    >>> meter.mean_count(now_s=20.0)
    150.0
    """

    def __init__(
        self, window_s: float, known_s: float | None = None, least_change_count: int = SLOPE_SUBSCRIPTION_COUNT
    ) -> None:
        self._window_s = window_s
        self._is_known = known_s is not None
        self._least_change_count = least_change_count
        self._cost_s = known_s
        """The matching delay divided by the number of subscriptions, as it was last."""
        self._slope_s: float | None = None
        """What one more subscription added, between two moments."""
        self._delay_moment: tuple[int, float] | None = None
        self._memory_slope_bytes: float | None = None
        self._memory_moment: tuple[int, float] | None = None
        self._counts: deque[tuple[float, int]] = deque()

    def saw(self, count: int, now_s: float) -> None:
        """The number of subscriptions from now on."""
        if self._counts and self._counts[-1][1] == count:
            return
        self._counts.append((now_s, count))
        while len(self._counts) > 1 and self._counts[1][0] <= now_s - self._window_s:
            self._counts.popleft()

    def mean_count(self, now_s: float) -> float:
        """The mean number of subscriptions during the window."""
        if not self._counts:
            return 0.0
        begin_s = max(now_s - self._window_s, self._counts[0][0])
        if now_s <= begin_s:
            return float(self._counts[-1][1])
        total = 0.0
        ends_s = [time_s for time_s, _ in list(self._counts)[1:]] + [now_s]
        for (time_s, count), end_s in zip(self._counts, ends_s, strict=True):
            total += count * max(end_s - max(time_s, begin_s), 0.0)
        return total / (now_s - begin_s)

    def with_slope(self, measured: BrokerResources, now_s: float) -> BrokerResources:
        """The load, with the matching delay that the present number of subscriptions means, and the slopes; as it was
        measured if nothing is known of the cost of one."""
        mean_count = self.mean_count(now_s)
        count = measured.subscription_count
        self._take_memory_slope(count, measured.matching_memory_bytes)
        known = msgspec.structs.replace(measured, matching_memory_slope_bytes=self._memory_slope_bytes)
        is_matching = measured.input_rate_per_s > 0 and measured.matching_delay_s > 0 and mean_count > 0
        if is_matching and not self._is_known:
            self._cost_s = measured.matching_delay_s / mean_count
            self._take_delay_slope(mean_count, measured.matching_delay_s)
        if self._cost_s is None:
            return known
        if self._slope_s is not None and is_matching:
            slope_s = min(self._slope_s, self._cost_s)
            delay_s = measured.matching_delay_s + slope_s * (count - mean_count)
        else:
            slope_s = self._cost_s
            delay_s = slope_s * count
        return msgspec.structs.replace(known, matching_delay_s=max(delay_s, 0.0), matching_delay_slope_s=slope_s)

    def _take_delay_slope(self, mean_count: float, delay_s: float) -> None:
        moment = (round(mean_count), delay_s)
        before = self._delay_moment
        if before is None:
            self._delay_moment = moment
        elif abs(moment[0] - before[0]) >= self._least_change_count:
            slope_s = slope_per_subscription(before, moment, self._least_change_count)
            self._slope_s = self._slope_s if slope_s is None else slope_s
            self._delay_moment = moment

    def _take_memory_slope(self, count: int, memory_bytes: float) -> None:
        before = self._memory_moment
        if before is None:
            self._memory_moment = (count, memory_bytes)
        elif abs(count - before[0]) >= self._least_change_count:
            slope_bytes = slope_per_subscription(before, (count, memory_bytes), self._least_change_count)
            self._memory_slope_bytes = self._memory_slope_bytes if slope_bytes is None else slope_bytes
            self._memory_moment = (count, memory_bytes)
