"""Which publications have arrived at all to whom they were handed on.

Of each source publications are done in their order: one that waits for a slow receiver holds back those behind it.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from trimtab.replication.safe_link import SafeLink


class Receiver(Protocol):
    """Who gets publications one after the other: the end of a link, or those who have yet to come back."""

    @property
    def position(self) -> int:
        """The place of the last publication for it among all."""
        ...

    @property
    def reached_count(self) -> int:
        """So many of them have reached it."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for it."""
        ...


class HandedOnOne:
    """A publication of a source: its place and its number there, and where it must arrive."""

    __slots__ = ("index", "outs", "sequence")

    def __init__(self, index: int, sequence: int, outs: list[tuple[Receiver, int]]) -> None:
        self.index = index
        self.sequence = sequence
        self.outs = outs

    def has_arrived(self) -> bool:
        """Whether all who are still there have it."""
        self.outs = [(link, place) for link, place in self.outs if link.reached_count < place and not link.is_gone]
        return not self.outs

    def relink(self, old: SafeLink, new: SafeLink) -> None:
        """What a link kept stands in the queue of another one."""
        self.outs = [(new, place - old.done_count) if link is old else (link, place) for link, place in self.outs]


class HandedOn:
    """What sources have sent and is not everywhere yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[HandedOnOne]] = {}
        self._noted: list[Receiver] = []

    def note(self, receiver: Receiver) -> None:
        """Something was put into the queue of a receiver."""
        self._noted.append(receiver)

    def begin(self) -> None:
        """A publication is about to be routed: what is noted from now on is for it."""
        self._noted.clear()

    def end(self, source: str, index: int, sequence: int) -> None:
        """A publication has been routed."""
        waiting = self._waiting.setdefault(source, deque())
        if self._noted or waiting:
            waiting.append(HandedOnOne(index, sequence, [(each, each.position) for each in self._noted]))
        self._noted.clear()

    def sources(self) -> list[str]:
        """Those of whom something waits."""
        return [source for source, waiting in self._waiting.items() if waiting]

    def first_waiting(self, source: str) -> HandedOnOne | None:
        """The first publication of a source that is not everywhere; all before it are."""
        waiting = self._waiting.get(source)
        while waiting and waiting[0].has_arrived():
            waiting.popleft()
        return waiting[0] if waiting else None

    def forget(self, source: str) -> None:
        """A source is gone, or has begun another life: it is owed no answer."""
        self._waiting.pop(source, None)

    def relink(self, old: SafeLink, new: SafeLink) -> None:
        """What a link kept stands in the queue of another one now, in its old order."""
        for waiting in self._waiting.values():
            for one in waiting:
                one.relink(old, new)
