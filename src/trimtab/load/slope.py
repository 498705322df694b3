"""How long one subscription makes the matching of a publication at a broker, as far as the broker knows.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 4.1.2,
and section 3.4.1, where a broker tells its "matching delay slope" to the one that plans.

A broker's matching delay is a mean over a window, during which subscriptions come and go; divided by the mean number
of subscriptions of the same window it is what each of them costs. A broker that matches nothing at the moment goes by
what it measured last, and one that never has by what is known of its machine, if anything is.

Deviations: the thesis takes the slope between two moments with different numbers of subscriptions. Where delay is
proportional to that number, as equation 4.7 has it, both are the same, and this one needs no such moments.
"""

from __future__ import annotations

from collections import deque

import msgspec

from trimtab.load.estimation import BrokerResources


class SlopeMeter:
    """The cost of one subscription, from delays that are means over a window and numbers of subscriptions that change
    meanwhile.

    >>> meter = SlopeMeter(window_s=10.0)
    >>> meter.saw(100, now_s=0.0)
    >>> meter.saw(200, now_s=15.0)
    >>> meter.mean_count(now_s=20.0)
    150.0
    """

    def __init__(self, window_s: float, known_s: float | None = None) -> None:
        self._window_s = window_s
        self._slope_s = known_s
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
        """The load, with the matching delay that the present number of subscriptions means; as it was measured if
        nothing is known of the cost of one."""
        mean_count = self.mean_count(now_s)
        if measured.input_rate_per_s > 0 and measured.matching_delay_s > 0 and mean_count > 0:
            self._slope_s = measured.matching_delay_s / mean_count
        if self._slope_s is None:
            return measured
        delay_s = self._slope_s * measured.subscription_count
        return msgspec.structs.replace(measured, matching_delay_s=delay_s, matching_delay_slope_s=self._slope_s)
