"""Who sends next where a broker's peers share its bandwidth: earliest deadline first, and fair when that cannot be.

Beyond the paper (R. Tao, S. Poslad, J. Bigham, 2013), which moves subscribers but sends first in, first out.

A message for a subscriber with a latency requirement is due that long after it was queued. Among those that are not
late yet, the one that is due first goes first, which misses no deadline that any order could keep. With more to send
than fits, that order alone would make everybody late, one after the other. So whoever is late already has lost what an
early turn could give: it goes on in turn with all others that are late or have no requirement, and these together get
one frame in four for certain. Nobody starves, and those whose deadlines can be kept keep them.

Only a broker's own clock is used. What it does not know, how long a message took until it was queued and will take
from here, shifts all deadlines alike.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final

PATIENT_EVERY_COUNT: Final = 4
"""Of so many frames one is sent to a peer that is late or has no requirement, if one waits."""


class FairScheduler:
    """Peers with something to send, each with the times at which that was queued.

    >>> turns = FairScheduler()
    >>> turns.waits("relaxed", 1, 30.0, now_s=0.0)
    >>> turns.waits("urgent", 1, 1.0, now_s=0.5)
    >>> turns.take(now_s=0.6), turns.take(now_s=0.6), turns.take(now_s=0.6)
    ('urgent', 'relaxed', '')
    """

    def __init__(self) -> None:
        self._queued_s: dict[str, deque[float]] = {}
        """When each message that waits for a peer was queued, the oldest first."""
        self._within_s: dict[str, float | None] = {}
        self._due: list[tuple[float, int, str]] = []
        """Peers by when their first message is due; of each peer the last entry counts."""
        self._entries: dict[str, int] = {}
        self._entries_count = 0
        self._patient: dict[str, None] = {}
        """Peers that are late or have no requirement, the one whose turn it is first."""
        self._since_patient_count = 0

    def __len__(self) -> int:
        return len(self._entries) + len(self._patient)

    def __contains__(self, peer: str) -> bool:
        return peer in self._entries or peer in self._patient

    def peers(self) -> list[str]:
        """All that have something to send."""
        return [*self._entries, *self._patient]

    def waits(self, peer: str, count: int, within_s: float | None, now_s: float) -> None:
        """So many messages wait for a peer, which wants them within a time; those that are new were queued now."""
        self._within_s[peer] = within_s
        times_s = self._queued_s.setdefault(peer, deque())
        while len(times_s) > max(1, count):
            times_s.popleft()
        times_s.extend([now_s] * (max(1, count) - len(times_s)))
        if peer not in self:
            self._enter(peer, times_s[0])

    def _enter(self, peer: str, queued_s: float) -> None:
        within_s = self._within_s[peer]
        if within_s is None:
            self._patient[peer] = None
            return
        self._entries_count += 1
        self._entries[peer] = self._entries_count
        heapq.heappush(self._due, (queued_s + within_s, self._entries_count, peer))

    def take(self, now_s: float) -> str:
        """The peer whose turn it is to send one message, empty if nobody waits; one with more must be told anew."""
        self._demote_late(now_s)
        if self._patient and (self._since_patient_count + 1 >= PATIENT_EVERY_COUNT or not self._entries):
            self._since_patient_count = 0
            return self.take_this(next(iter(self._patient)))
        if self._entries:
            self._since_patient_count += 1
            return self.take_this(self._due[0][2])
        return ""

    def take_this(self, peer: str) -> str:
        """Let a peer send one message, whoever's turn it is."""
        self._entries.pop(peer, None)
        self._patient.pop(peer, None)
        times_s = self._queued_s[peer]
        times_s.popleft()
        if not times_s:
            del self._queued_s[peer], self._within_s[peer]
        return peer

    def _demote_late(self, now_s: float) -> None:
        """Whoever cannot be in time any more waits with those that have no requirement."""
        due = self._due
        while due and (self._entries.get(due[0][2]) != due[0][1] or due[0][0] < now_s):
            _, number, peer = heapq.heappop(due)
            if self._entries.get(peer) == number:
                del self._entries[peer]
                self._patient[peer] = None
