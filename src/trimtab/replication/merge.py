"""Publications that take two ways, put in order again where the ways meet.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, section 4.3, message re-ordering.

Each way keeps the order of a publisher. A publication goes on when the other way has brought a later one of the same
publisher, or when a marker (`Progress`) that its origin sends over both ways has come over both.

Deviations: those who pass markers on add the publishers that they are about, so that nobody waits for publishers of
others. As long as an assistant does not know all routes its way is not in order: then markers alone decide, and it
keeps them back until it does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Literal, TypeAlias

from trimtab.protocol.messages import Progress, Publish

Way: TypeAlias = Literal["usual", "assistant"]


class _Stream:
    """One publisher's publications."""

    __slots__ = ("held", "last", "numbers", "until")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.held: dict[int, tuple[str, Publish]] = {}
        self.last: dict[Way, int] = {"usual": 0, "assistant": 0}
        self.until = 0
        """Up to here nothing is missing."""


class OrderedMerge:
    """Two ways that meet; what is in order goes on, with the neighbour that it came from.

    >>> def publication(sequence): return Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0)
    >>> out = []
    >>> merge = OrderedMerge(lambda source, message: out.append(message.sequence))
    >>> merge.is_assistant_in_order = True
    >>> merge.came("usual", "F", publication(2)), merge.came("assistant", "R", publication(1)), out
    (None, None, [1])
    >>> merge.came("assistant", "R", publication(3)), out
    (None, [1, 2])
    """

    def __init__(self, go_on: Callable[[str, Publish], None]) -> None:
        self._go_on = go_on
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._markers: dict[tuple[str, int], tuple[Way, Progress]] = {}
        self.is_assistant_in_order = False

    def __len__(self) -> int:
        """Publications that wait."""
        return sum(len(stream.held) for stream in self._streams.values())

    def held(self) -> list[Publish]:
        """What waits."""
        return [message for stream in self._streams.values() for _, message in stream.held.values()]

    def came(self, way: Way, source: str, message: Publish) -> None:
        """A publication came over one of the ways."""
        stream = self._stream(message.publisher, message.session)
        stream.last[way] = max(stream.last[way], message.sequence)
        if message.sequence not in stream.held:
            heapq.heappush(stream.numbers, message.sequence)
            stream.held[message.sequence] = (source, message)
        if self.is_assistant_in_order:
            stream.until = max(stream.until, min(stream.last.values()))
        self._take(stream)

    def progress(self, way: Way, marker: Progress) -> None:
        """A marker came over one of the ways; what it is about goes on when it has come over both.

        The assistant has kept its markers back as long as it did not know all routes: from the first one on its way is
        in order. That it knows them is said by control as well, which overtakes what came late.
        """
        self.is_assistant_in_order = self.is_assistant_in_order or way == "assistant"
        key = (marker.origin, marker.number)
        before = self._markers.setdefault(key, (way, marker))
        if before[0] != way:
            del self._markers[key]
            self.complete(before[1])
            self.complete(marker)

    def complete(self, marker: Progress) -> None:
        """Nothing that a marker is about is missing."""
        for sent in marker.sent:
            stream = self._stream(sent.publisher, sent.session)
            stream.until = max(stream.until, sent.sequence)
            self._take(stream)

    def has_later_than(self, message: Publish) -> bool:
        """Whether a later publication of the same publisher has come."""
        stream = self._streams.get((message.publisher, message.session))
        return stream is not None and message.sequence < max(stream.last.values())

    def end(self) -> list[tuple[str, int, int]]:
        """There is one way only from now on: all that waits goes on.

        Returns which numbers of which publishers, from the first to the last of a gap, had not come before.
        """
        streams, self._streams = self._streams, {}
        gaps: list[tuple[str, int, int]] = []
        for (publisher, _), stream in streams.items():
            before = stream.until
            for number in sorted(stream.held):
                if number > before + 1:
                    gaps.append((publisher, before + 1, number - 1))
                before = number
                self._go_on(*stream.held[number])
        return gaps

    def _stream(self, publisher: str, session: str) -> _Stream:
        key = (publisher, session)
        if key not in self._streams:
            self._streams[key] = _Stream()
        return self._streams[key]

    def _take(self, stream: _Stream) -> None:
        while stream.numbers and stream.numbers[0] <= stream.until:
            self._go_on(*stream.held.pop(heapq.heappop(stream.numbers)))
