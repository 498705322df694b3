"""What a client delivers to its application: each publication once, with the subscriptions that it is for.

Of each publisher only the last sequence number delivered is kept: every stream is in order, so what is not above it has
been delivered before. Where a broker's greeting promises no order, the numbers delivered are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trimtab.client.channels import OwnChannels
from trimtab.client.filters import OwnFilters
from trimtab.client.gaps import Gaps
from trimtab.client.requirements import Requirements
from trimtab.language import Publication
from trimtab.protocol.channels import STREAM_MARK
from trimtab.protocol.effects import Deliver, Effect
from trimtab.protocol.messages import Gap, Publish


class Deliveries:
    """The deliveries of one client."""

    def __init__(self, channels: OwnChannels, *, any_order: bool, is_owed: bool) -> None:
        self._channels = channels
        self.filters = OwnFilters()
        self.requirements = Requirements()
        self._last_delivered: dict[str, tuple[str, int]] = {}
        """By publisher: its session, and the number of the publication that was delivered last."""
        self.is_owed = is_owed
        """Whether a subscription has been in force, so that publications may be missing."""
        self.gaps = Gaps(self._last_delivered)
        self._delivered: DeliveredNumbers | None = None
        """All numbers that were delivered, from when no order is promised; there is no way back from that."""
        if any_order:
            self.expect_any_order()

    def expect_any_order(self) -> None:
        """The network promises no order from here on."""
        if self._delivered is None:
            self._delivered = DeliveredNumbers(self._last_delivered)
            self.gaps.any_order = True

    def deliver(self, message: Publish, now_s: float) -> Deliver | None:
        publisher, sequence = message.publisher, message.sequence
        if publisher[:1] == STREAM_MARK:
            return self._deliver_result(message, now_s)
        values, session = message.values, message.session
        last = self._last_delivered.get(publisher)
        delivered = self._delivered
        if delivered is not None:
            if delivered.has(publisher, session, sequence):
                return None
        elif last is not None and sequence <= last[1] and last[0] == session:
            return None  # a publisher that was started again counts from 1, in another session
        wanted = self.filters.single or self.filters.matching(values)
        if not wanted:
            return None  # unsubscribed meanwhile; it may come again for a later subscription
        self._last_delivered[publisher] = (session, sequence)
        if delivered is not None:
            delivered.add(publisher, session, sequence)
        if self.gaps.is_open:
            self.gaps.delivered(publisher, session, sequence)
        delay_s = now_s - message.origin_s
        late_for = self.requirements.missed(wanted, delay_s) if self.requirements.within_s else ()
        publication = Publication.trusted(values)
        return Deliver(wanted, publication, publisher, sequence, delay_s, message.hops, session, late_for)

    def _deliver_result(self, message: Publish, now_s: float) -> Deliver | None:
        """A result of a channel: its position says whether it is the next one."""
        id = self._channels.accept(message.publisher, message.sequence)
        if id is None:
            return None
        publication = Publication.trusted(message.values)
        return Deliver((id,), publication, message.publisher, message.sequence, now_s - message.origin_s, message.hops)

    def deliver_all(self, messages: Sequence[Publish | Gap], now_s: float) -> list[Effect]:
        """Deliver what was kept during a move; what may be missing lies between what was delivered before and after."""
        gaps = [message for message in messages if isinstance(message, Gap)]
        before = dict(self._last_delivered) if gaps else {}
        delivers = (self.deliver(message, now_s) for message in messages if isinstance(message, Publish))
        effects: list[Effect] = [deliver for deliver in delivers if deliver is not None]
        for gap in gaps if self.is_owed else ():
            effects += self.gaps.heard(gap, now_s, before)
        return effects


REMEMBERED_MAX_COUNT: Final = 10_000
"""So many numbers of each publisher, of all its sessions, are remembered, the latest; more than overtake each other."""


class DeliveredNumbers:
    """The numbers delivered, by publisher and its session; at first all up to the last of each publisher.

    With a promised order the number of a publisher's last publication says it. While a broker is replaced
    incrementally, or an assistant shares its load without re-ordering, publications overtake each other.

    >>> numbers = DeliveredNumbers({"alice": ("1", 7)})
    >>> numbers.has("alice", "1", 7), numbers.has("alice", "1", 8), numbers.has("alice", "2", 1)
    (True, False, False)
    >>> numbers.add("alice", "1", 9)
    >>> numbers.has("alice", "1", 9), numbers.has("alice", "1", 8)
    (True, False)
    """

    def __init__(self, last_delivered: Mapping[str, tuple[str, int]]) -> None:
        self._until = dict(last_delivered)
        self._numbers: dict[str, dict[tuple[str, int], None]] = {}
        """By publisher: sessions and numbers, in the order in which they were delivered."""

    def has(self, publisher: str, session: str, number: int) -> bool:
        """Whether a publication was delivered."""
        if (session, number) in self._numbers.get(publisher, ()):
            return True
        until = self._until.get(publisher)
        return until is not None and number <= until[1] and session == until[0]

    def add(self, publisher: str, session: str, number: int) -> None:
        """A publication is delivered."""
        numbers = self._numbers.setdefault(publisher, {})
        numbers[session, number] = None
        if len(numbers) > REMEMBERED_MAX_COUNT:
            del numbers[next(iter(numbers))]
