"""Advertisements that have ended here, and whose end a neighbour may not have processed.

An advertisement's end keeps its place among the publications (`Unadvertise`, or `Complete` in a publisher's move), and
a link retains both for the neighbour's replica. The publications need the routes of the advertisement, so the replica
is told it once more before them; it ends there when its end is processed. The link knows which ends it retains; here
their filters are remembered. Ends that a link retains are the last ones that were sent, so what is older is forgotten
whenever the memory has doubled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from trimtab.language import Filter
from trimtab.protocol.frames import Sendable
from trimtab.protocol.messages import Complete, KnownFilter, Unadvertise

_FORGETS_FROM_COUNT: Final = 64
"""Fewer are not worth looking through what a link retains."""


class Withdrawals:
    """The ended advertisements of one neighbour, in the order of their ends; `retained` tells what its link retains.

    >>> link = [Unadvertise(id="p/a1"), Unadvertise(id="p/a2")]
    >>> withdrawals = Withdrawals(lambda: link)
    >>> for name in ("p/a1", "p/a2"):
    ...     withdrawals.add(name, Filter.parse("a > 0"))
    >>> [known.id for known in withdrawals.unprocessed()]
    ['p/a1', 'p/a2']
    >>> del link[0]
    >>> [known.id for known in withdrawals.unprocessed()]
    ['p/a2']
    """

    def __init__(self, retained: Callable[[], Iterable[Sendable]]) -> None:
        self._retained = retained
        self._ended: list[KnownFilter] = []
        self._forgets_at_count = _FORGETS_FROM_COUNT

    def __len__(self) -> int:
        """Advertisements that are remembered."""
        return len(self._ended)

    def add(self, id: str, filter: Filter) -> None:
        """The end of an advertisement has been put into the link's queue."""
        self._ended.append(KnownFilter(id, filter))
        if len(self._ended) >= self._forgets_at_count:
            self.unprocessed()
            self._forgets_at_count = max(_FORGETS_FROM_COUNT, 2 * len(self._ended))

    def unprocessed(self) -> list[KnownFilter]:
        """Those whose end the link retains; the others are forgotten."""
        ends = Counter(id for message in self._retained() for id in _ended_by(message))
        kept: list[KnownFilter] = []
        for known in reversed(self._ended):
            if ends[known.id]:
                ends[known.id] -= 1
                kept.append(known)
        self._ended = kept[::-1]
        return list(self._ended)


def _ended_by(message: Sendable) -> tuple[str, ...]:
    match message:
        case Unadvertise(id=id):
            return (id,)
        case Complete(advertisements=ids):
            return ids
        case _:
            return ()
