"""What a broker has handed on and retains until it is done: the end of a link, and the account of what came of what.

An ordinary link forgets data when it has arrived. Here the sender retains it until the other end says that it is
*done*: all that came of it has been received by those it went to (`safe`), or has reached its destinations, end to end
(`durable`). Publications and markers alike are items of one order, and of each source items are done in their order:
one that waits for a slow receiver holds those behind it. Credit is another number, given for what was processed: a
client that is away must not stall everybody behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from trimtab.protocol.frames import BATCH_MAX_COUNT, Ack, Payload, Sendable
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import AnyMessage, Publish

_USUAL_BYTES: Final = 320
"""What a publication takes that has no bytes of its own, as in the simulator."""


class RetainingLink(Link):
    """A link that retains data until it is done.

    >>> here, there = (RetainingLink(LinkConfig(), Retention()) for _ in range(2))
    >>> here.connect(1, 0.0), there.connect(1, 0.0)
    (None, None)
    >>> here.enqueue(Publish(publisher="p", sequence=1, values={}, origin_s=0.0), 0.0)
    >>> there.data_arrived(len(there.receive(here.take(0.0), 0.1)))
    >>> here.receive(there.take(0.1), 0.2)
    []
    >>> here.arrived_count, len(here.undelivered_data())
    (1, 1)
    >>> there.did(), there.tell_done(1)
    (True, True)
    >>> here.receive(there.take(0.3), 0.4), here.undelivered_data()
    ([], [])
    """

    __slots__ = (
        "_item_done_count",
        "_item_done_told_count",
        "_numbers",
        "_peer_item_done_count",
        "_retained",
        "_retained_bytes",
        "_retention",
        "arrived_count",
        "counts_done",
        "is_gone",
        "stepped_count",
    )

    def __init__(self, config: LinkConfig, retention: Retention) -> None:
        super().__init__(config)
        self._retention = retention
        self._retained: deque[Sendable] = deque()
        self._retained_bytes = 0
        self._numbers: deque[int] = deque()
        """The numbers of the data messages that have been sent and have not arrived."""
        self._item_done_count = 0
        self._item_done_told_count = 0
        self._peer_item_done_count = 0
        self.arrived_count = 0
        """Data messages that the peer has received."""
        self.stepped_count = 0
        """Data messages of the peer, of this link epoch, whose turn has come."""
        self.is_gone = False
        """Whether the peer has left for good: nobody waits for it."""
        self.counts_done = False
        """Whether what it has does not count before it is done: an assistant may leave or die at any time."""

    @property
    def position(self) -> int:
        """The place of the last data message, sent or not, among all of this link."""
        return self._data_sent_count + len(self.data)

    @property
    def done_count(self) -> int:
        """Data messages that the peer has reported to be done."""
        return self._peer_item_done_count

    # ---- sending ----

    def has_more_than_ack(self) -> bool:
        """Whether there is something to send that should not wait; data is, while there is room to retain it."""
        if self.connected and not self.control and self._resend_index is None and not self._may_send_data():
            return self._gap_seen or self._asks or (self._answers and self._ack_owed)
        return super().has_more_than_ack()

    def _may_send_data(self) -> bool:
        """Whether there is room to retain what is next; markers take none that counts."""
        return not self._is_full() or (bool(self.data) and not isinstance(self.data[0], Publish | bytes))

    def _is_full(self) -> bool:
        return self._retained_bytes >= self._config.retained_max_bytes

    @property
    def _credit_count(self) -> int:
        if not self._is_full():
            return super()._credit_count
        markers = takewhile(lambda message: not isinstance(message, Publish | bytes), self.data)
        return min(super()._credit_count, sum(1 for _ in markers))

    def take(self, now_s: float, messages_max_count: int = BATCH_MAX_COUNT) -> Payload | Ack | None:
        """The next frame; the data in it is retained."""
        before_count = self._data_sent_count
        frame = super().take(now_s, messages_max_count)
        fresh_count = self._data_sent_count - before_count
        if fresh_count and isinstance(frame, Payload):
            self._numbers.extend(range(self._next_number - fresh_count, self._next_number))
            fresh = frame.messages[-fresh_count:]
            self._retained.extend(fresh)
            self._retained_bytes += sum(map(_size_bytes, fresh))
        return frame

    def take_one(self, now_s: float) -> tuple[Payload | Ack | None, bool]:
        """The next frame with one message at most, and whether there may be more."""
        frame = self.take(now_s, 1)
        return frame, frame is not None and self.has_frame()

    def _payload(self, number: int, messages: list[Sendable]) -> Payload:
        plain = super()._payload(number, messages)
        self._item_done_told_count = self._item_done_count
        return Payload(number, plain.ack, messages, self._item_done_count, self._done_count)

    def _ack(self, gap: bool, asks: bool) -> Ack:
        self._item_done_told_count = self._item_done_count
        return Ack(self._seen_number(), gap, self._item_done_count, asks, self._done_count)

    def undelivered_data(self) -> list[Sendable]:
        """The data that the peer has not reported to be done, sent or not, in its order."""
        return [*self._retained, *self.data]

    # ---- receiving ----

    def receive(self, frame: Payload | Ack, now_s: float) -> list[AnyMessage]:
        """Take in a frame; what is done is retained no more."""
        messages = super().receive(frame, now_s)
        if frame.done > self._peer_item_done_count:
            self._peer_item_done_count = min(frame.done, self._data_sent_count)
            while len(self._retained) > self._data_sent_count - self._peer_item_done_count:
                self._retained_bytes -= _size_bytes(self._retained.popleft())
            if self._retention.is_end_to_end or self.counts_done:
                self._retention.something_reached()
        return messages

    def did(self, count: int = 1) -> bool:
        """The turn of so many has come; they are done when `tell_done` says so."""
        if not self.stale_count:
            self.stepped_count += count
        return super().did(count)

    def tell_done(self, count: int) -> bool:
        """So many of all data messages of the peer are done; whether it should be told before long."""
        if count <= self._item_done_count:
            return False
        self._item_done_count = count
        undone_count = max(0, self._data_received_count - count)
        if count - self._item_done_told_count >= undone_count:  # half, whatever the window
            self._ack_owed = True
            return True
        return False

    def connect(self, peer_expects: int, now_s: float) -> None:
        """A connection stands; the peer is told again what is done."""
        super().connect(peer_expects, now_s)
        self._ack_owed = self._ack_owed or self._item_done_count > 0

    def _acknowledge(self, number: int, now_s: float) -> None:
        super()._acknowledge(number, now_s)
        before_count = self.arrived_count
        while self._numbers and self._numbers[0] < self._oldest_number:
            self._numbers.popleft()
            self.arrived_count += 1
        if self.arrived_count > before_count and self._retention.waits_for_arrivals:
            self._retention.something_reached()


class Item:
    """A data message of a source: its place there, its number if it is a publication, and where it must arrive.

    It is done when what came of it is at its destinations, end to end, or else when the next brokers have it. Markers
    never wait for more than that: theirs go back to where they come from, and two that cross would wait for each other.
    """

    __slots__ = ("index", "is_end_to_end", "is_open", "outs", "sequence")

    def __init__(self, index: int, sequence: int, *, is_end_to_end: bool) -> None:
        self.is_end_to_end = is_end_to_end
        self.index = index
        self.sequence = sequence
        self.outs: list[tuple[RetainingLink, int]] = []
        self.is_open = True
        """Whether it is not known yet what comes of it."""

    def has_arrived(self) -> bool:
        """Whether all who are still there have what came of it."""
        if self.is_open:
            return False
        self.outs = [each for each in self.outs if not self._has_reached(*each)]
        return not self.outs

    def _has_reached(self, link: RetainingLink, place: int) -> bool:
        counts_done = self.is_end_to_end or link.counts_done
        return link.is_gone or (link.done_count if counts_done else link.arrived_count) >= place


class Retention:
    """What sources have sent and is not everywhere yet.

    >>> retention = Retention()
    >>> one = retention.begin("B1", 1, 7)
    >>> retention.end(one)
    >>> retention.first_waiting("B1") is None
    True
    """

    def __init__(self, *, is_end_to_end: bool = False) -> None:
        self.is_end_to_end = is_end_to_end
        """Whether an item is done when it has reached its destinations, and not when the next have it."""
        self.has_news = False
        """Whether something has arrived somewhere since that was last looked at."""
        self._waiting: dict[str, deque[Item]] = {}
        self._markers_count = 0
        """Markers that wait, where publications wait for their ends."""
        self._noted: list[RetainingLink] = []

    def note(self, link: Link) -> None:
        """Something was put into the queue of a link; an agent inside the broker has none that could lose it."""
        if isinstance(link, RetainingLink):
            self._noted.append(link)

    @property
    def waits_for_arrivals(self) -> bool:
        """Whether anything is done by what the next brokers have."""
        return not self.is_end_to_end or self._markers_count > 0

    def something_reached(self) -> None:
        """A peer has received something, or says that it is done."""
        self.has_news = True

    def begin(self, source: str, index: int, sequence: int, *, is_marker: bool = False) -> Item:
        """The turn of an item has come: what is noted from now on comes of it."""
        self._noted.clear()
        item = Item(index, sequence, is_end_to_end=self.is_end_to_end and not is_marker)
        self._markers_count += self.is_end_to_end and is_marker
        self._waiting.setdefault(source, deque()).append(item)
        return item

    def clear(self) -> None:
        """What is noted from now on comes of something that nobody waits for, or of an item that was held."""
        self._noted.clear()

    def end(self, item: Item) -> None:
        """An item has been processed."""
        item.outs = [(each, each.position) for each in self._noted]
        item.is_open = False
        self._noted.clear()

    def sources(self) -> list[str]:
        """Those of whom something waits."""
        return [source for source, waiting in self._waiting.items() if waiting]

    def first_waiting(self, source: str) -> Item | None:
        """The first item of a source that is not everywhere; all before it are."""
        waiting = self._waiting.get(source)
        while waiting and waiting[0].has_arrived():
            self._removed(waiting.popleft())
        return waiting[0] if waiting else None

    def forget(self, source: str) -> None:
        """A source is gone, or a new link epoch has begun with it: it is owed no answer."""
        for item in self._waiting.pop(source, ()):
            self._removed(item)

    def _removed(self, item: Item) -> None:
        self._markers_count -= self.is_end_to_end and not item.is_end_to_end

    def rename(self, source: str, other: str) -> None:
        """What waits of a source is somebody else's from now on."""
        waiting = self._waiting.pop(source, None)
        if waiting:
            self._waiting.setdefault(other, deque()).extend(waiting)

    def relink(self, old: RetainingLink, new: RetainingLink) -> None:
        """What a link retained stands in the queue of the next epoch's now, in its old order."""
        self._move(old, new, lambda count: count)

    def give_back(self, old: RetainingLink, new: RetainingLink) -> None:
        """The publications that a link retained are about to go behind all that waits on another one."""
        base_count, counts = new.position, [0]
        for message in old.undelivered_data():
            counts.append(counts[-1] + isinstance(message, Publish | bytes))
        self._move(old, new, lambda count: base_count + counts[count])

    def _move(self, old: RetainingLink, new: RetainingLink, place_of: Callable[[int], int]) -> None:
        """What a link retained, counted from the first, has these places on another one."""
        for waiting in self._waiting.values():
            for item in waiting:
                item.outs = [
                    (new, place_of(max(0, place - old.done_count))) if link is old else (link, place)
                    for link, place in item.outs
                ]


def _size_bytes(message: Sendable) -> int:
    if isinstance(message, bytes):
        return len(message)
    return _USUAL_BYTES if isinstance(message, Publish) else 0
