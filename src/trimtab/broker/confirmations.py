"""When is an advertisement or a subscription in force everywhere? Its sender is told when every neighbour says so.

A neighbour that was told of a covering one instead is asked about that one. Each waiting id waits for one answer at a
time and is looked at again when it comes, or when what was told to the neighbour changes.
"""

from __future__ import annotations

from collections.abc import Callable

Representatives = list[tuple[str, str]]
"""Pairs of a neighbour and the id that stands for an id there."""


class Confirmations:
    """The ids that wait for neighbours, and what neighbours have confirmed.

    >>> told = {"s1": [("B2", "s1")], "s2": [("B2", "s1")]}
    >>> confirmations = Confirmations(told.__getitem__)
    >>> confirmations.begin("s1"), confirmations.begin("s2")
    (False, False)
    >>> confirmations.confirm("B2", "s1")
    ['s1', 's2']
    """

    def __init__(self, representatives_of: Callable[[str], Representatives]) -> None:
        self._representatives_of = representatives_of
        self._confirmed: dict[str, dict[str, None]] = {}
        self._waiting_for: dict[tuple[str, str], dict[str, None]] = {}
        self._awaited: dict[str, tuple[str, str]] = {}

    def begin(self, id: str) -> bool:
        """Whether the id is in force already; otherwise it waits."""
        for neighbour, representative in self._representatives_of(id):
            if representative not in self._confirmed.get(neighbour, {}):
                self._waiting_for.setdefault((neighbour, representative), {})[id] = None
                self._awaited[id] = (neighbour, representative)
                return False
        return True

    def confirm(self, neighbour: str, id: str) -> list[str]:
        """A neighbour confirms an id; returns the ids that are in force by that."""
        self._confirmed.setdefault(neighbour, {})[id] = None
        return self._look_again((neighbour, id))

    def withdrawn(self, neighbour: str, id: str) -> list[str]:
        """A neighbour was told that an id ends; returns the ids that are in force without it."""
        self._confirmed.get(neighbour, {}).pop(id, None)
        return self._look_again((neighbour, id))

    def forget(self, id: str) -> None:
        """The id ended before it was in force, or after."""
        awaited = self._awaited.pop(id, None)
        if awaited is not None:
            self._waiting_for[awaited].pop(id)

    def forget_neighbour(self, neighbour: str) -> list[str]:
        """A neighbour is gone; returns the ids that are in force without it."""
        self._confirmed.pop(neighbour, None)
        found: list[str] = []
        for awaited in [awaited for awaited in self._waiting_for if awaited[0] == neighbour]:
            found.extend(self._look_again(awaited))
        return found

    def _look_again(self, awaited: tuple[str, str]) -> list[str]:
        waiting = list(self._waiting_for.pop(awaited, {}))
        for id in waiting:
            del self._awaited[id]
        return [id for id in waiting if self.begin(id)]
