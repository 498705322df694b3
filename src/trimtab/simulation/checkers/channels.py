"""What subscribers to channels must get: every result after their position, once, in order.

Kept apart from the checker of publications because the demand is stronger: positions tell of every hole at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable


class _Wanted:
    """One client's subscription to a stream."""

    def __init__(self, client: str, stream: str) -> None:
        self.client = client
        self.stream = stream
        self.last: int | None = None
        """The last position delivered, or that from which on it is in force."""


class ChannelChecker:
    """Told what the back end makes and what clients are given."""

    def __init__(self, violate: Callable[[str, str], None]) -> None:
        self._violate = violate
        self._made: dict[str, list[int]] = {}
        self._wanted: dict[str, _Wanted] = {}
        self.results_count = 0
        self.delivered_count = 0

    def subscribed(self, id: str, client: str, stream: str) -> None:
        """A client has asked for a stream."""
        self._wanted[id] = _Wanted(client, stream)

    def in_force(self, id: str, position: int) -> None:
        """A client was told that all results after a position will come."""
        wanted = self._wanted.get(id)
        if wanted is not None and wanted.last is None:
            wanted.last = position

    def ended(self, id: str) -> None:
        """A client has ended a subscription; nothing more is demanded."""
        self._wanted.pop(id, None)

    def left(self, client: str) -> None:
        """A client has gone."""
        for id in [id for id, wanted in self._wanted.items() if wanted.client == client]:
            del self._wanted[id]

    def made(self, stream: str, position: int) -> None:
        """The back end has made a result."""
        self._made.setdefault(stream, []).append(position)
        self.results_count += 1

    def lost(self, stream: str, now_s: float) -> None:
        """Something happened in a stream that no broker had open."""
        for id, wanted in self._wanted.items():
            if wanted.stream == stream and wanted.last is not None:
                self._violate("missing", f"{stream} was closed at {now_s:.6f} s, but {id} is in force")

    def delivered(self, id: str, position: int, now_s: float) -> None:
        """A client was given a result."""
        self.delivered_count += 1
        wanted = self._wanted.get(id)
        if wanted is None or wanted.last is None:
            self._violate("not asked for", f"result {position} to {id} at {now_s:.6f} s")
            return
        made = self._made.get(wanted.stream, [])
        place = bisect_right(made, wanted.last)
        if place == len(made) or made[place] != position:
            expected = made[place] if place < len(made) else "none"
            self._violate("results", f"{id} got {position} after {wanted.last}, next is {expected} ({now_s:.6f} s)")
        wanted.last = max(wanted.last, position)

    def check_at_rest(self) -> None:
        """Nothing is under way any more: what has not been delivered is missing."""
        for id, wanted in self._wanted.items():
            made = self._made.get(wanted.stream, [])
            if wanted.last is None:
                self._violate("never in force", id)
            elif made and made[-1] > wanted.last:
                missing_count = len(made) - bisect_right(made, wanted.last)
                self._violate("missing", f"{missing_count} results of {wanted.stream} to {id}")
