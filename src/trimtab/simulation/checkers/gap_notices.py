"""Whether everybody was told of what is lost, and nobody of what is not: silence and false alarms are violations.

Kept apart from the checker of deliveries, which says what may be lost: what was under way in a broker that died at a
level that does not survive it, what was given up for a client, and what waited for one that was away for too long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from trimtab.protocol.effects import GapNotice

if TYPE_CHECKING:
    from trimtab.simulation.checkers.deliveries import Subscription

Key: TypeAlias = tuple[str, int]
"""A publisher and the number of a publication."""


class Told(msgspec.Struct):
    """A notice that a client was given."""

    notice: GapNotice
    last: int | None
    """Its last number; of an open one that before the next delivery, once there is one."""
    accepted_count: int
    """So many publications had been accepted when it was given."""


class GapChecker:
    """What may be lost, and the notices of each client."""

    def __init__(self, violate: Callable[[str, str], None]) -> None:
        self._violate = violate
        self._may_be_lost: dict[Key, dict[str, int]] = {}
        """By publication: the subscriptions that need not get it, and how many had been accepted by then."""
        self._told: dict[str, list[Told]] = {}
        self._accepted_count = 0
        self._all_may_miss = False
        """Whether a broker has died at a level that does not survive it."""
        self._may_miss: dict[str, None] = {}
        """Clients that may miss something for reasons of their own."""
        self.demands_notices = True
        """Whether silence is a violation; what is lost with an assistant is not told."""
        self.has_any = False
        """Whether deliveries must be told."""
        self.notices_count = 0
        self.named_count = 0
        """Notices, and those that name a publisher."""

    def may_lose(self) -> None:
        """Something has happened that the level of acknowledgement does not survive."""
        self._all_may_miss = True

    def may_miss(self, client: str) -> None:
        """Something is given up for a client."""
        self._may_miss[client] = None

    def may_be_lost(self, key: Key, subscriptions: Iterable[str]) -> None:
        """These subscriptions need not get a publication, but must be told if they do not."""
        for id in subscriptions:
            self._may_be_lost.setdefault(key, {})[id] = self._accepted_count
            self.has_any = True

    def accepted(self, key: Key) -> None:
        """A publication is accepted, perhaps again: it is owed to whom it is due then."""
        self._accepted_count += 1
        if self.has_any:
            self._may_be_lost.pop(key, None)

    def delivered(self, client: str, key: Key, subscriptions: Iterable[str]) -> None:
        """A client has got a publication."""
        waiting = self._may_be_lost.get(key)
        if waiting is not None:
            for id in subscriptions:
                waiting.pop(id, None)
        for told in self._told.get(client, ()):
            if told.last is None and told.notice.publisher == key[0]:
                told.last = key[1] - 1

    def told(self, client: str, notice: GapNotice, now_s: float) -> None:
        """A client was given a notice."""
        self.has_any = True
        self.notices_count += 1
        self.named_count += bool(notice.publisher)
        self._told.setdefault(client, []).append(Told(notice, notice.last, self._accepted_count))
        if not self._all_may_miss and client not in self._may_miss:
            self._violate("false alarm", f"{client} at {now_s:.6f} s: {notice}")
        if notice.publisher and (notice.first is None or (notice.last is not None and notice.last < notice.first)):
            self._violate("empty notice", f"{client} at {now_s:.6f} s: {notice}")

    def notices_of(self, client: str) -> list[GapNotice]:
        """The notices that a client was given."""
        return [each.notice for each in self._told.get(client, ())]

    def check_at_rest(self, subscriptions: Mapping[str, Subscription], publishers: Collection[str]) -> None:
        """Nothing is under way any more: whatever is missing stands in a notice."""
        if not self.demands_notices:
            return
        for (publisher, sequence), ids in self._may_be_lost.items():
            for id, accepted_count in ids.items():
                subscription = subscriptions[id]
                if subscription.ended or subscription.has_lapsed:
                    continue
                told = self._told.get(subscription.client, ())
                if not any(self._covers(each, publisher, sequence, accepted_count, publishers) for each in told):
                    self._violate("silent loss", f"{publisher}:{sequence} to {id}, which was told {_short(told)}")

    @staticmethod
    def _covers(told: Told, publisher: str, sequence: int, accepted_count: int, publishers: Collection[str]) -> bool:
        """Whether a notice is about a publication; of publishers that are gone it need not tell numbers."""
        notice = told.notice
        if not notice.publisher:
            return publisher not in publishers and told.accepted_count >= accepted_count
        if notice.publisher != publisher or notice.first is None:
            return False
        return notice.first <= sequence and (told.last is None or sequence <= told.last)


def _short(told: Iterable[Told]) -> str:
    return "; ".join(f"{each.notice.publisher or '-'} {each.notice.first}..{each.last}" for each in told) or "nothing"
