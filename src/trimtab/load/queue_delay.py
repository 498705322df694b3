"""How long messages wait in a queue, without stamping any of them.

Source: J. D. C. Little, a proof for the queuing formula L = lambda W (1961).
"""

from __future__ import annotations

from collections import deque


class QueueDelay:
    """How long messages wait in a queue, from what entered it and how many are in it at steady times.

    The mean number of waiting messages divided by the rate at which they leave is the mean time that each waits
    (Little's law, 1961), so that no message has to be stamped. While none leaves, they have waited since the last one
    left.

    >>> delay = QueueDelay()
    >>> [delay.read(now_s, entered_count=10 * number, queued_count=5) for number, now_s in enumerate((0.0, 1.0, 2.0))]
    [0.0, 0.5, 0.5]
    """

    def __init__(self, samples_count: int = 8) -> None:
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=samples_count + 1)
        self._left_s: float | None = None

    def read(self, now_s: float, *, entered_count: int, queued_count: int) -> float:
        """The mean wait over the last samples, this one included."""
        left_count = entered_count - queued_count
        last = self._samples[-1] if self._samples else None
        if last is None or left_count > last[1] or queued_count == 0:
            self._left_s = now_s
        self._samples.append((now_s, left_count, queued_count))
        begin_s, left_before_count, _ = self._samples[0]
        gone_count, over_s = left_count - left_before_count, now_s - begin_s
        if queued_count == 0 or over_s <= 0:
            return 0.0
        stuck_s = now_s - (self._left_s if self._left_s is not None else begin_s)
        if gone_count <= 0:
            return stuck_s
        queued = [count for _, _, count in self._samples]
        return max(stuck_s, sum(queued) / len(queued) * over_s / gone_count)
