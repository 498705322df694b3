"""One end of a link: numbered frames, cumulative acknowledgement, a bounded window, and everything again after a break.

A link is first in, first out and loses nothing while both ends live, whatever happens to the connections below it: what
has not been acknowledged is kept and sent again when the connection comes back, when the peer reports a gap, or when no
acknowledgement has come for a while. Control messages overtake data before they get their number, never after.
"""

from __future__ import annotations

from collections import deque

import msgspec

from trimtab.protocol.frames import Ack, Payload
from trimtab.protocol.messages import AnyMessage, Publish, is_control


class LinkConfig(msgspec.Struct, frozen=True):
    """Limits of one link."""

    window_frames_count: int = 1024
    """Unacknowledged frames kept; a full window holds the sender back. A few round trips of a busy link."""

    retransmit_after_s: float = 1.0
    """Without an acknowledgement for so long everything unacknowledged is sent again; above any sane round trip."""

    def __post_init__(self) -> None:
        if self.window_frames_count < 1 or self.retransmit_after_s <= 0:
            raise ValueError("a link needs a window of at least one frame and a positive time to retransmission")


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

    def __init__(self, config: LinkConfig) -> None:
        self._config = config
        self._control: deque[AnyMessage] = deque()
        self._data: deque[AnyMessage] = deque()
        self._unacknowledged: deque[tuple[int, AnyMessage]] = deque()
        self._next_number = 1
        self._resend_index: int | None = None
        self._expected = 1
        self._ack_owed = False
        self._gap_seen = False
        self._progress_s = 0.0
        self.connected = False

    @property
    def expects(self) -> int:
        """The number of the next frame that has not been seen, for the greeting."""
        return self._expected

    @property
    def queued_count(self) -> int:
        """Messages that have not been sent yet."""
        return len(self._control) + len(self._data)

    @property
    def queued_data_count(self) -> int:
        """Publications that have not been sent yet."""
        return len(self._data)

    @property
    def unacknowledged_count(self) -> int:
        """Messages sent but not acknowledged."""
        return len(self._unacknowledged)

    @property
    def idle(self) -> bool:
        """Whether everything that was said has been acknowledged."""
        return not (self._control or self._data or self._unacknowledged)

    def fits(self, peer_expects: int) -> bool:
        """Whether the peer's greeting can come from the other end of this link, and not of one that was forgotten."""
        return self._next_number - len(self._unacknowledged) <= peer_expects <= self._next_number

    def connect(self, peer_expects: int, now_s: float) -> None:
        """A connection stands; the peer has seen everything before `peer_expects`."""
        self.connected = True
        self._acknowledge(peer_expects - 1, now_s)
        self._resend_index = 0 if self._unacknowledged else None
        self._ack_owed = False
        self._progress_s = now_s

    def disconnect(self) -> None:
        """The connection is gone; nothing else changes."""
        self.connected = False

    def enqueue(self, message: AnyMessage, now_s: float) -> None:
        """Put a message into its class of the output queue."""
        (self._control if is_control(message) else self._data).append(message)

    def drop_oldest_data(self) -> AnyMessage | None:
        """Give up the publication that has waited longest, for queues that may lose; markers stay."""
        for place, message in enumerate(self._data):
            if isinstance(message, Publish):
                del self._data[place]
                return message
        return None

    def has_frame(self) -> bool:
        """Whether `take` would return a frame."""
        if not self.connected:
            return False
        if self._resend_index is not None or self._ack_owed:
            return True
        return bool(self._control or self._data) and len(self._unacknowledged) < self._config.window_frames_count

    def has_more_than_ack(self) -> bool:
        """Whether `take` would return something that should not wait: a message, or the report of a gap."""
        if not self.connected:
            return False
        if self._resend_index is not None or self._gap_seen:
            return True
        return bool(self._control or self._data) and len(self._unacknowledged) < self._config.window_frames_count

    def take(self, now_s: float) -> Payload | Ack | None:
        """The next frame to send, None if there is nothing to send or no room in the window."""
        if not self.connected:
            return None
        if self._resend_index is not None:
            number, message = self._unacknowledged[self._resend_index]
            self._resend_index += 1
            if self._resend_index == len(self._unacknowledged):
                self._resend_index = None
            return self._payload(number, message)
        if (self._control or self._data) and len(self._unacknowledged) < self._config.window_frames_count:
            message = (self._control or self._data).popleft()
            if not self._unacknowledged:
                self._progress_s = now_s
            number = self._next_number
            self._unacknowledged.append((number, message))
            self._next_number = number + 1
            self._ack_owed = self._gap_seen
            return Payload(number, self._expected - 1, message)
        if self._ack_owed:
            gap, self._ack_owed, self._gap_seen = self._gap_seen, False, False
            return Ack(self._expected - 1, gap)
        return None

    def take_all(self, now_s: float) -> list[Payload | Ack]:
        """All frames that can be sent now."""
        frames: list[Payload | Ack] = []
        if self._resend_index is not None or self._ack_owed or self._control or self._data:
            while (frame := self.take(now_s)) is not None:
                frames.append(frame)
        return frames

    def take_new(self, count: int, now_s: float) -> tuple[int, int, list[AnyMessage]]:
        """Up to `count` new messages at once: the number of the first, the acknowledgement of all, and the messages.

        The same as so many calls of `take`, for worlds that write many frames at once. Nothing is given while something
        has to be sent again.
        """
        control, data = self._control, self._data
        room = self._config.window_frames_count - len(self._unacknowledged)
        if not self.connected or self._resend_index is not None or room <= 0 or not (control or data):
            return self._next_number, self._expected - 1, []
        count = min(count, room)
        messages = [control.popleft() for _ in range(min(count, len(control)))]
        messages += [data.popleft() for _ in range(min(count - len(messages), len(data)))]
        if not self._unacknowledged:
            self._progress_s = now_s
        first = self._next_number
        self._next_number += len(messages)
        self._unacknowledged.extend(zip(range(first, self._next_number), messages, strict=True))
        self._ack_owed = self._gap_seen
        return first, self._expected - 1, messages

    def _payload(self, number: int, message: AnyMessage) -> Payload:
        self._ack_owed = self._gap_seen
        return Payload(number, self._expected - 1, message)

    def receive(self, frame: Payload | Ack, now_s: float) -> list[AnyMessage]:
        """Take in a frame; returns the message if it is the next one, nothing if it is repeated or came too early."""
        if self._unacknowledged:
            self._acknowledge(frame.ack, now_s)
        if isinstance(frame, Ack):
            if frame.gap and self._unacknowledged and self._resend_index is None:
                self._resend_index = 0
                self._progress_s = now_s
            return []
        self._ack_owed = True
        if frame.number == self._expected:
            self._expected += 1
            return [frame.message]
        if frame.number > self._expected:
            self._gap_seen = True
        return []

    def _acknowledge(self, number: int, now_s: float) -> None:
        removed = 0
        while self._unacknowledged and self._unacknowledged[0][0] <= number:
            self._unacknowledged.popleft()
            removed += 1
        if removed == 0:
            return
        self._progress_s = now_s
        if self._resend_index is not None:
            self._resend_index = max(0, self._resend_index - removed)
            if self._resend_index >= len(self._unacknowledged):
                self._resend_index = None

    def wake(self, now_s: float) -> None:
        """Send everything unacknowledged again if nothing was acknowledged for too long."""
        due_s = self.wake_at_s()
        if due_s is not None and now_s >= due_s:
            self._resend_index = 0
            self._progress_s = now_s

    def wake_at_s(self) -> float | None:
        """When `wake` should be called next, None if nothing waits for an acknowledgement."""
        if not self.connected or not self._unacknowledged:
            return None
        return self._progress_s + self._config.retransmit_after_s
