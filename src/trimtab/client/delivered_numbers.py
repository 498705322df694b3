"""Which publications a subscriber has seen, where the network promises no order.

With a promised order the number of a publisher's last publication says it. While a broker is replaced incrementally, or
an assistant shares its load without re-ordering, publications overtake each other, and the numbers themselves are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REMEMBERED_MAX_COUNT: Final = 10_000
"""So many numbers of each publisher, of all its sessions, are remembered, the latest; more than overtake each other."""


class DeliveredNumbers:
    """The numbers delivered, by publisher and its session; at first all up to the last of each publisher.

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
