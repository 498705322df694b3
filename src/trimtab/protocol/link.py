"""One end of a link: numbered messages, cumulative acknowledgement, credit for data, and all again after a break.

A link is first in, first out and loses nothing while both ends live, whatever happens to the connections below it: what
has not been acknowledged is kept and sent again when the connection comes back, when the peer reports a gap, or when no
acknowledgement has come for a while. Control messages overtake data before they get their number, never after.

An acknowledgement says that a message has arrived. **Credit** says that it has been processed: each end tells how
many data messages it has processed, and the other sends at most a window of data messages that are not. So whoever
does not keep up is never sent more than that; the rest waits in the sender's queue, where limits act. Control needs
no credit. What is processed is *done* here; a link that retains data until the peer has handed it on says both
(`trimtab.broker.replication.retention`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, islice

import msgspec

from trimtab.protocol.channels import is_stream
from trimtab.protocol.frames import BATCH_MAX_COUNT, Ack, Payload, Sendable
from trimtab.protocol.messages import AnyMessage, Publish, is_control


class LinkConfig(msgspec.Struct, frozen=True):
    """Limits of one link."""

    window_frames_count: int = 1024
    """Unacknowledged messages kept; a full window holds the sender back. A few round trips of a busy link."""

    retransmit_after_s: float = 1.0
    """Without an acknowledgement for so long everything unacknowledged is sent again; above any sane round trip."""

    data_window_count: int = 1024
    """Data messages sent that the peer has not dealt with; beyond it data waits. As many as unacknowledged ones."""

    retained_max_bytes: int = 64 * 1024 * 1024
    """Data retained until it is handed on, where it is; beyond it data waits. A minute of a busy link whose last client
    is away."""

    def __post_init__(self) -> None:
        if self.window_frames_count < 1 or self.data_window_count < 1 or self.retransmit_after_s <= 0:
            raise ValueError("a link needs windows of at least one message and a positive time to retransmission")


class Link:
    """Messages in order to and from one peer.

    >>> here, there = Link(LinkConfig()), Link(LinkConfig())
    >>> here.connect(1, 0.0), there.connect(1, 0.0)
    (None, None)
    >>> from trimtab.protocol.messages import Unsubscribe
    >>> here.enqueue(Unsubscribe(id="s1"), 0.0)
    >>> frame = here.take(0.0)
    >>> there.receive(frame, 0.1)
    [Unsubscribe(id='s1', cause='')]
    >>> there.receive(frame, 0.2)
    []
    """

    __slots__ = (
        "_ack_owed",
        "_answers",
        "_asks",
        "_config",
        "_data_received_count",
        "_data_sent_count",
        "_data_window_count",
        "_done_count",
        "_done_told_count",
        "_expected",
        "_gap_seen",
        "_next_number",
        "_oldest_number",
        "_peer_done_count",
        "_progress_s",
        "_resend_index",
        "_unacknowledged",
        "_window_count",
        "acks_count",
        "connected",
        "control",
        "data",
        "stale_count",
    )

    def __init__(self, config: LinkConfig) -> None:
        self._config = config
        self.control: deque[Sendable] = deque()
        """The control class of the output queue."""
        self.data: deque[Sendable] = deque()
        """The data class of the output queue."""
        self._unacknowledged: deque[list[Sendable]] = deque()
        """What was sent, as it was taken; the first message of all has the oldest number."""
        self._oldest_number = 1
        self._next_number = 1
        self._resend_index: int | None = None
        self._expected = 1
        self._ack_owed = False
        self._gap_seen = False
        self._asks = False
        self._progress_s = 0.0
        self._data_sent_count = 0
        self._peer_done_count = 0
        self._data_received_count = 0
        self._done_count = 0
        self._done_told_count = 0
        self.stale_count = 0
        """Data messages of the peer that wait for their turn and were said in earlier link epochs."""
        self._window_count = config.window_frames_count
        self._data_window_count = config.data_window_count
        self._answers = False
        self.acks_count = 0
        """Acknowledgements that came by themselves; with `expects` it tells whether the peer says anything."""
        self.connected = False

    @property
    def expects(self) -> int:
        """The number of the next message that has not been seen, for the greeting."""
        return self._expected

    @property
    def queued_count(self) -> int:
        """Messages that have not been sent yet."""
        return len(self.control) + len(self.data)

    @property
    def queued_data_count(self) -> int:
        """Publications that have not been sent yet."""
        return len(self.data)

    @property
    def data_sent_count(self) -> int:
        """Data messages that were ever sent."""
        return self._data_sent_count

    @property
    def waiting_data_count(self) -> int:
        """Data messages that the peer has not dealt with, sent or not."""
        return len(self.data) + self._data_sent_count - self._peer_done_count

    @property
    def unacknowledged_count(self) -> int:
        """Messages sent but not acknowledged."""
        return self._next_number - self._oldest_number

    @property
    def undone_count(self) -> int:
        """Data messages that came from the peer and are not dealt with."""
        return self._data_received_count - self._done_count

    @property
    def idle(self) -> bool:
        """Whether everything that was said has been acknowledged."""
        return not (self.control or self.data) and self._next_number == self._oldest_number

    def fits(self, peer_expects: int) -> bool:
        """Whether the peer's greeting can come from the other end of this link, and not of one that was forgotten."""
        return self._oldest_number <= peer_expects <= self._next_number

    def connect(self, peer_expects: int, now_s: float) -> None:
        """A connection stands; the peer has seen everything before `peer_expects`, but perhaps not what was done."""
        self.connected = True
        self._acknowledge(peer_expects - 1, now_s)
        self._resend_index = 0 if self._next_number > self._oldest_number else None
        self._ack_owed = self._done_count > 0
        self._progress_s = now_s

    def disconnect(self) -> None:
        """The connection is gone; nothing else changes."""
        self.connected = False

    # ---- sending ----

    def enqueue(self, message: Sendable, now_s: float) -> None:
        """Put a message into its class of the output queue."""
        (self.control if is_control(message) else self.data).append(message)

    def drop_oldest_data(self) -> Sendable | None:
        """Give up the publication that has waited longest, for queues that may lose; markers and results stay."""
        for place, message in enumerate(self.data):
            if isinstance(message, bytes) or (isinstance(message, Publish) and not is_stream(message.publisher)):
                del self.data[place]
                return message
        return None

    def has_frame(self) -> bool:
        """Whether `take` would return a frame."""
        return (self._ack_owed and self.connected) or self.has_more_than_ack()

    def has_more_than_ack(self) -> bool:
        """Whether `take` would return something that should not wait: a message, a question, the report of a gap."""
        if not self.connected:
            return False
        if self._resend_index is not None or self._gap_seen or self._asks or (self._answers and self._ack_owed):
            return True
        if not (self.control or self.data):
            return False
        return self._next_number - self._oldest_number < self._window_count and (
            bool(self.control) or self._data_sent_count - self._peer_done_count < self._data_window_count
        )

    @property
    def _credit_count(self) -> int:
        """Data messages that the peer has room for."""
        return max(0, self._data_window_count - self._data_sent_count + self._peer_done_count)

    def hold_data(self) -> None:
        """Send no data from here on; control goes on."""
        self._data_window_count = 0

    def ask(self) -> None:
        """Have the peer say something, if only that it has nothing to say."""
        self._asks = True

    def heartbeat(self, *, asks: bool) -> Ack | None:
        """An acknowledgement to be sent at once, before anything that waits; None without a connection.

        It shows that this end lives, and may ask the other one for the same.
        """
        if not self.connected:
            return None
        self._done_told_count = self._done_count
        return self._ack(gap=False, asks=asks)

    def begin_behind(self, stale_count: int) -> None:
        """So many data messages of earlier link epochs wait for their turn; they need no credit of this one."""
        self.stale_count = stale_count

    def undelivered_data(self) -> list[Sendable]:
        """The data that the peer has not acknowledged, sent or not, in its order."""
        sent = [message for message in chain.from_iterable(self._unacknowledged) if not is_control(message)]
        return [*sent, *self.data]

    def take(self, now_s: float, messages_max_count: int = BATCH_MAX_COUNT) -> Payload | Ack | None:
        """The next frame to send, with up to so many messages; None if nothing is to be said or windows are full."""
        if not self.connected:
            return None
        if self._resend_index is not None:
            return self._take_again(self._resend_index, messages_max_count)
        control, data = self.control, self.data
        if control or data:
            room = min(self._window_count - self._next_number + self._oldest_number, messages_max_count)
            messages = _take_from(control, room) if control else []
            if data:
                fresh = _take_from(data, min(room - len(messages), self._credit_count))
                self._data_sent_count += len(fresh)
                messages = messages + fresh if messages else fresh
            if messages:
                number = self._next_number
                if number == self._oldest_number:
                    self._progress_s = now_s
                self._unacknowledged.append(messages)
                self._next_number = number + len(messages)
                return self._payload(number, messages)
        if self._ack_owed or self._asks:
            gap, asks = self._gap_seen, self._asks
            self._ack_owed = self._gap_seen = self._asks = self._answers = False
            self._done_told_count = self._done_count
            return self._ack(gap, asks)
        return None

    def take_one(self, now_s: float) -> tuple[Payload | Ack | None, bool]:
        """`take` with one message at most, and whether there may be more behind it.

        It is soon done where that is a publication and nothing else is to be said.
        """
        data, number = self.data, self._next_number
        if (
            not data
            or self.control
            or self._resend_index is not None
            or not self.connected
            or number - self._oldest_number >= self._window_count
            or self._data_sent_count - self._peer_done_count >= self._data_window_count
        ):
            frame = self.take(now_s, 1)
            return frame, frame is not None and self.has_frame()
        if number == self._oldest_number:
            self._progress_s = now_s
        messages = [data.popleft()]
        self._unacknowledged.append(messages)
        self._data_sent_count += 1
        self._next_number = number + 1
        self._ack_owed = self._gap_seen
        done_count = self._done_told_count = self._done_count
        return Payload(number, self._expected - 1, messages, done_count), bool(data) or self._gap_seen

    def _take_again(self, index: int, messages_max_count: int) -> Payload:
        sent = chain.from_iterable(self._unacknowledged)
        messages = list(islice(sent, index, index + messages_max_count))
        more = index + len(messages)
        self._resend_index = more if more < self._next_number - self._oldest_number else None
        return self._payload(self._oldest_number + index, messages)

    def take_all(self, now_s: float) -> list[Payload | Ack]:
        """All frames that can be sent now."""
        frames: list[Payload | Ack] = []
        if self._resend_index is not None or self._ack_owed or self.control or self.data or self._asks:
            while (frame := self.take(now_s)) is not None:
                frames.append(frame)
        return frames

    def _payload(self, number: int, messages: list[Sendable]) -> Payload:
        self._ack_owed = self._gap_seen
        self._done_told_count = self._done_count
        return Payload(number, self._seen_number(), messages, self._done_count)

    def _ack(self, gap: bool, asks: bool) -> Ack:
        return Ack(self._seen_number(), gap, self._done_count, asks)

    def _seen_number(self) -> int:
        """The number of the last message that the peer need not send again."""
        return self._expected - 1

    # ---- receiving ----

    def receive(self, frame: Payload | Ack, now_s: float) -> list[AnyMessage]:
        """Take in a frame; returns its new messages, nothing if all are repeated or came too early."""
        if frame.ack >= self._oldest_number:
            self._acknowledge(frame.ack, now_s)
        processed_count = frame.done if frame.done > frame.credit else frame.credit
        if processed_count > self._peer_done_count:
            self._peer_done_count = min(processed_count, self._data_sent_count)
            self._progress_s = now_s
        if isinstance(frame, Ack):
            self.acks_count += 1
            if frame.asks:
                self._ack_owed = self._answers = True
            if frame.gap and self._next_number > self._oldest_number and self._resend_index is None:
                self._resend_index = 0
                self._progress_s = now_s
            return []
        self._ack_owed = True
        messages: list[AnyMessage] = frame.messages  # type: ignore[assignment]  # what arrives is decoded
        repeated_count = self._expected - frame.number
        if repeated_count < 0:
            self._gap_seen = True
            return []
        new = messages[repeated_count:] if repeated_count else messages
        self._expected += len(new)
        return new

    def receive_run(self, arrivals: Sequence[tuple[float, Payload]]) -> bool:
        """Take in frames with one data message each, which came one after the other; False if they do not fit on.

        The same as `receive` and `data_arrived` for each of them, for worlds with very many.
        """
        count = len(arrivals)
        now_s, last = arrivals[-1]
        if arrivals[0][1].number != self._expected or last.number != self._expected + count - 1:
            return False
        if last.ack >= self._oldest_number:
            self._acknowledge(last.ack, now_s)
        if last.done > self._peer_done_count:
            self._peer_done_count = min(last.done, self._data_sent_count)
            self._progress_s = now_s
        self._ack_owed = True
        self._expected += count
        self._data_received_count += count
        return True

    def data_arrived(self, count: int) -> None:
        """So many of the messages that `receive` gave are data; `did` tells when they are dealt with."""
        self._data_received_count += count

    @property
    def processed_count(self) -> int:
        """Data messages of this link epoch that are dealt with."""
        return self._done_count

    def did(self, count: int = 1) -> bool:
        """So many more data messages are dealt with; whether the peer should be told before long."""
        if self.stale_count:
            self.stale_count -= 1
            return False
        return self.did_all_but(max(0, self._data_received_count - self._done_count - count))

    def did_all_but(self, undone_count: int) -> bool:
        """All data that arrived is dealt with, except for so many; whether the peer should be told before long."""
        done_count = self._data_received_count - undone_count
        if done_count <= self._done_count:
            return False
        self._done_count = done_count
        if done_count - self._done_told_count >= undone_count:  # half, whatever the window
            self._ack_owed = True
            return True
        return False

    def _acknowledge(self, number: int, now_s: float) -> None:
        removed_count = min(number, self._next_number - 1) - self._oldest_number + 1
        if removed_count <= 0:
            return
        self._oldest_number += removed_count
        left_count = removed_count
        if self._oldest_number == self._next_number:
            self._unacknowledged.clear()
            left_count = 0
        while left_count:
            first = self._unacknowledged[0]
            if len(first) <= left_count:
                self._unacknowledged.popleft()
                left_count -= len(first)
            else:
                self._unacknowledged[0] = first[left_count:]
                left_count = 0
        self._progress_s = now_s
        if self._resend_index is not None:
            self._resend_index = max(0, self._resend_index - removed_count)
            if self._resend_index >= self._next_number - self._oldest_number:
                self._resend_index = None

    # ---- time ----

    def wake(self, now_s: float) -> None:
        """After too long without progress: send everything unacknowledged again, or ask whether there is credit."""
        due_s = self.wake_at_s()
        if due_s is not None and now_s >= due_s:
            if self._next_number > self._oldest_number:
                self._resend_index = 0
            else:
                self._asks = True
            self._progress_s = now_s

    def wake_at_s(self) -> float | None:
        """When `wake` should be called next, None if nothing waits for the peer."""
        if not self.connected:
            return None
        if self._next_number > self._oldest_number or (
            self.data and not self._credit_count and self._data_window_count
        ):
            return self._progress_s + self._config.retransmit_after_s
        return None


def _take_from(queue: deque[Sendable], count: int) -> list[Sendable]:
    if count >= len(queue):
        messages = list(queue)
        queue.clear()
        return messages
    return [queue.popleft() for _ in range(count)]
