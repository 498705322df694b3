"""What a replica keeps of the publications that it passed on, for those who come late.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, algorithm 5 (sentTo and matches).

A subscription that a neighbour tells after a publication has passed gets it yet, once for each neighbour, and so does a
client of the failed broker that has found its way to the replica.

Deviations: late subscriptions are found by their filters and not by their ids, because with covering whoever forwards a
publication does not know of all subscriptions that it matches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from trimtab.language import Filter
from trimtab.protocol.messages import Publish


class StoredPublication:
    """One publication, where it came from, and to whom it went."""

    __slots__ = ("message", "sent_to", "source")

    def __init__(self, message: Publish, source: str, sent_to: Sequence[str]) -> None:
        self.message = message
        self.source = source
        self.sent_to: dict[str, None] = dict.fromkeys(sent_to)


class PublicationStore:
    """The latest publications in their order.

    >>> kept = PublicationStore(max_count=10)
    >>> kept.add(Publish(publisher="p", sequence=1, values={"a": 6}, origin_s=0.0), "B1", ["B3"])
    >>> late = Filter.parse("a > 5")
    >>> [len(kept.for_neighbour(name, late)) for name in ("B4", "B4", "B3", "B1")]
    [1, 0, 0, 0]
    >>> len(kept.for_client([late, Filter.parse("a > 4")]))
    1
    """

    def __init__(self, max_count: int) -> None:
        self._kept: deque[StoredPublication] = deque()
        self._max_count = max_count
        self.forgotten_count = 0
        """Publications that were given up because there were too many."""

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, message: Publish, source: str, sent_to: Sequence[str]) -> None:
        """One more has passed."""
        self._kept.append(StoredPublication(message, source, sent_to))
        if len(self._kept) > self._max_count:
            self._kept.popleft()
            self.forgotten_count += 1

    def all(self) -> list[Publish]:
        """All of them."""
        return [kept.message for kept in self._kept]

    def for_neighbour(self, name: str, filter: Filter) -> list[Publish]:
        """What a neighbour's late subscription wants and has not got; it counts as sent."""
        found: list[Publish] = []
        for kept in self._kept:
            if kept.source != name and name not in kept.sent_to and filter.matches(kept.message.values):
                kept.sent_to[name] = None
                found.append(kept.message)
        return found

    def for_neighbour_all(self, name: str) -> list[Publish]:
        """All that a neighbour has not got; it counts as sent."""
        found = [kept for kept in self._kept if kept.source != name and name not in kept.sent_to]
        for kept in found:
            kept.sent_to[name] = None
        return [kept.message for kept in found]

    def for_client(self, filters: Sequence[Filter]) -> list[Publish]:
        """What a client wants that has come back, with all its subscriptions; it drops what it has delivered."""
        return [kept.message for kept in self._kept if any(filter.matches(kept.message.values) for filter in filters)]
