"""Virtual time: one queue of all that is planned; things planned for the same time happen in the order of planning."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Clock:
    """The time, and what is still to happen.

    >>> clock, happened = Clock(), []
    >>> clock.at(2.0, happened.append, "second"), clock.at(1.0, happened.append, "first")
    (None, None)
    >>> clock.run()
    >>> happened, clock.now_s, clock.is_at_rest
    (['first', 'second'], 2.0, True)
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._events_count = 0

    def at(self, time_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time, or at once if that is past."""
        self._events_count += 1
        now_s = self.now_s
        heappush(self._queue, (time_s if time_s > now_s else now_s, self._events_count, action, arguments))

    def run(self, until_s: float = float("inf"), events_max_count: int | None = None) -> None:
        """Let time pass until then, until nothing is left to happen, or until too much has happened."""
        queue = self._queue
        left_count = -1 if events_max_count is None else events_max_count
        while queue and queue[0][0] <= until_s and left_count != 0:
            left_count -= 1
            self.now_s, _, action, arguments = heappop(queue)
            action(*arguments)
        if queue and until_s < queue[0][0]:
            self.now_s = until_s

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is left to happen."""
        return not self._queue
