"""The end of a link whose data is kept until the other end has handed it on, so that no single broker holds it alone.

An ordinary link forgets data when it has arrived, and tells that data is done when it has been processed. Here data is
done when all to whom it was handed on have it, and the sender keeps it until then. The window for data that is not done
bounds what is kept. Nothing more is said on the wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from trimtab.protocol.frames import BATCH_MAX_COUNT, Ack, Payload, Sendable
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import AnyMessage


class NotedQueue(deque[Sendable]):
    """The queue of a link, which tells of each message put into it; it can be copied with its link."""

    def __init__(self, note: Callable[[SafeLink], None], link: SafeLink) -> None:
        super().__init__()
        self._note = note
        self._link = link

    def append(self, message: Sendable, /) -> None:
        """One more, told of."""
        super().append(message)
        self._note(self._link)

    def __reduce__(self) -> tuple[Any, ...]:
        return NotedQueue, (self._note, self._link), None, iter(self)


class SafeLink(Link):
    """A link that keeps data until it is done, and counts what has arrived.

    >>> from trimtab.protocol.messages import Publish
    >>> here, there = (SafeLink(LinkConfig(), lambda link: None, lambda: None) for _ in range(2))
    >>> here.connect(1, 0.0), there.connect(1, 0.0)
    (None, None)
    >>> here.enqueue(Publish(publisher="p", sequence=1, values={}, origin_s=0.0), 0.0)
    >>> there.data_arrived(len(there.receive(here.take(0.0), 0.1)))
    >>> here.receive(there.take(0.1), 0.2)
    []
    >>> here.arrived_count, len(here.undelivered_data())
    (1, 1)
    >>> there.did(), there.tell_done(1)
    (False, True)
    >>> here.receive(there.take(0.3), 0.4), here.undelivered_data()
    ([], [])
    """

    __slots__ = ("_is_end_to_end", "_kept", "_numbers", "_on_arrival", "arrived_count", "is_gone", "stepped_count")

    def __init__(
        self,
        config: LinkConfig,
        note: Callable[[SafeLink], None],
        on_arrival: Callable[[], None],
        *,
        is_end_to_end: bool = False,
    ) -> None:
        super().__init__(config)
        self._is_end_to_end = is_end_to_end
        self.data = NotedQueue(note, self)
        self._kept: deque[Sendable] = deque()
        self._numbers: deque[int] = deque()
        """The numbers of the data messages that have been sent and have not arrived."""
        self._on_arrival = on_arrival
        self.arrived_count = 0
        """Data messages that the peer has received."""
        self.stepped_count = 0
        """Data messages of the peer whose turn has come."""
        self.is_gone = False
        """Whether the peer has left for good: nobody waits for it."""

    @property
    def position(self) -> int:
        """The place of the last data message, sent or not, among all of this link."""
        return self._data_sent_count + len(self.data)

    @property
    def reached_count(self) -> int:
        """Data messages that are where they need to be for those before this broker: there, or at their ends."""
        return self._peer_done_count if self._is_end_to_end else self.arrived_count

    @property
    def done_count(self) -> int:
        """Data messages that the peer has handed on."""
        return self._peer_done_count

    def take(self, now_s: float, messages_max_count: int = BATCH_MAX_COUNT) -> Payload | Ack | None:
        """The next frame; the data in it is kept."""
        before_count = self._data_sent_count
        frame = super().take(now_s, messages_max_count)
        fresh_count = self._data_sent_count - before_count
        if fresh_count and isinstance(frame, Payload):
            self._numbers.extend(range(self._next_number - fresh_count, self._next_number))
            self._kept.extend(frame.messages[-fresh_count:])
        return frame

    def take_one(self, now_s: float) -> tuple[Payload | Ack | None, bool]:
        """The next frame with one message at most, and whether there may be more."""
        frame = self.take(now_s, 1)
        return frame, frame is not None and self.has_frame()

    def receive(self, frame: Payload | Ack, now_s: float) -> list[AnyMessage]:
        """Take in a frame; what the peer has handed on is forgotten."""
        done_count = self._peer_done_count
        messages = super().receive(frame, now_s)
        if self._is_end_to_end and self._peer_done_count > done_count:
            self._on_arrival()
        while len(self._kept) > self._data_sent_count - self._peer_done_count:
            self._kept.popleft()
        return messages

    def undelivered_data(self) -> list[Sendable]:
        """The data that the peer has not handed on, sent or not, in its order."""
        return [*self._kept, *self.data]

    def did(self, count: int = 1) -> bool:
        """The turn of so many has come; they are done when `tell_done` says so."""
        self.stepped_count += count
        return False

    def tell_done(self, count: int) -> bool:
        """So many of all data messages of the peer have been handed on; whether it should be told before long."""
        return count > 0 and self.did_all_but(max(0, self._data_received_count - count))

    def _acknowledge(self, number: int, now_s: float) -> None:
        super()._acknowledge(number, now_s)
        before_count = self.arrived_count
        while self._numbers and self._numbers[0] < self._oldest_number:
            self._numbers.popleft()
            self.arrived_count += 1
        if self.arrived_count > before_count and not self._is_end_to_end:
            self._on_arrival()
