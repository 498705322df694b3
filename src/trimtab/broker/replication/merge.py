"""Publications that take two ways, put in order again where the ways meet.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, section 4.3, message re-ordering.

Each way keeps the order of a publisher. A publication goes on when the other way has brought a later one of the same
publisher, or when a marker (`Progress`) that its origin sends over both ways has come over both.

Deviations: those who pass markers on add the publishers that they are about, so that nobody waits for publishers of
others. As long as an assistant does not know all routes its way is not in order: then markers alone decide, and it
keeps them back until it does. What comes twice, because its sender could not know that it had arrived, goes on twice.
"""

from __future__ import annotations

import heapq
from typing import Literal, TypeAlias

from trimtab.broker.replication.retention import Item
from trimtab.protocol.messages import Progress, Publish

Way: TypeAlias = Literal["usual", "assistant"]

Waiting: TypeAlias = tuple[str, Publish, Item | None]
"""A publication, where it came from, and its item where it is retained."""


class _Stream:
    """One publisher's publications."""

    __slots__ = ("held", "last", "until")

    def __init__(self) -> None:
        self.held: list[tuple[int, int, Waiting]] = []
        """A heap, by their numbers and then by their places of arrival."""
        self.last: dict[Way, int] = {"usual": 0, "assistant": 0}
        self.until = 0
        """Up to here nothing is missing."""


class OrderedMerge:
    """Two ways that meet; what is in order can be taken.

    >>> def publication(sequence): return Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0)
    >>> def taken(): return [message.sequence for _, message, _ in merge.take()]
    >>> merge = OrderedMerge()
    >>> merge.is_assistant_in_order = True
    >>> merge.came("usual", ("F", publication(2), None)), merge.came("assistant", ("R", publication(1), None)), taken()
    (None, None, [1])
    >>> merge.came("assistant", ("R", publication(3), None)), taken()
    (None, [2])
    >>> merge.end(), taken()
    (None, [3])
    """

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._markers: dict[tuple[str, int], tuple[Way, Progress]] = {}
        self._places: dict[int, None] = {}
        """When each of those that wait arrived, counted from the first that came."""
        self._released: list[Waiting] = []
        self.arrived_count = 0
        self.is_assistant_in_order = False

    def __len__(self) -> int:
        """Publications that wait."""
        return len(self._places)

    def held(self) -> list[Waiting]:
        """What waits."""
        return [each for stream in self._streams.values() for _, _, each in sorted(stream.held, key=lambda e: e[:2])]

    def holds_until(self, arrived_count: int) -> bool:
        """Whether any of the first so many that arrived waits."""
        return next(iter(self._places), arrived_count) < arrived_count

    def take(self) -> list[Waiting]:
        """What need not wait any more, each publisher's in order."""
        released, self._released = self._released, []
        return released

    def came(self, way: Way, waiting: Waiting) -> None:
        """A publication came over one of the ways."""
        message = waiting[1]
        stream = self._stream(message.publisher, message.session)
        stream.last[way] = max(stream.last[way], message.sequence)
        heapq.heappush(stream.held, (message.sequence, self.arrived_count, waiting))
        self._places[self.arrived_count] = None
        self.arrived_count += 1
        if self.is_assistant_in_order:
            stream.until = max(stream.until, min(stream.last.values()))
        self._release(stream)

    def progress(self, way: Way, marker: Progress) -> Progress | None:
        """A marker came over one of the ways; what it is about goes on when it has come over both.

        Then it is returned as it came the usual way. The assistant has kept its markers back as long as it did not know
        all routes: from the first one on its way is in order. That it knows them is said by control as well, which
        overtakes what came late.
        """
        self.is_assistant_in_order = self.is_assistant_in_order or way == "assistant"
        key = (marker.origin, marker.number)
        before = self._markers.setdefault(key, (way, marker))
        if before[0] == way:
            return None
        del self._markers[key]
        self.complete(before[1])
        self.complete(marker)
        return marker if way == "usual" else before[1]

    def complete(self, marker: Progress) -> None:
        """Nothing that a marker is about is missing."""
        for sent in marker.sent:
            stream = self._stream(sent.publisher, sent.session)
            stream.until = max(stream.until, sent.sequence)
            self._release(stream)

    def end(self) -> None:
        """There is one way only from now on: all that waits goes on."""
        for stream in self._streams.values():
            stream.until = max(stream.last.values())
            self._release(stream)

    def _stream(self, publisher: str, session: str) -> _Stream:
        key = (publisher, session)
        if key not in self._streams:
            self._streams[key] = _Stream()
        return self._streams[key]

    def _release(self, stream: _Stream) -> None:
        while stream.held and stream.held[0][0] <= stream.until:
            _, place, waiting = heapq.heappop(stream.held)
            del self._places[place]
            self._released.append(waiting)
