"""When is an advertisement or a subscription in force everywhere? Its sender is told when every neighbour says so.

A neighbour that was told of a covering one instead is asked about that one. Each filter of each sender (a key) waits
for one answer at a time and is looked at again when it comes, or when what was told to the neighbour changes.
"""

from __future__ import annotations

from collections.abc import Callable

Key = tuple[str, str]
"""The id of a filter, and who sent it."""

Representatives = list[tuple[str, str]]
"""Pairs of a neighbour and the id that stands for a key there."""


class Confirmations:
    """The keys that wait for neighbours, and what neighbours have confirmed.

    >>> told = {("s1", "ann"): [("B2", "s1")], ("s2", "bob"): [("B2", "s1")]}
    >>> confirmations = Confirmations(told.__getitem__)
    >>> confirmations.told("B2", "s1", 7)
    >>> confirmations.begin(("s1", "ann")), confirmations.begin(("s2", "bob"))
    (False, False)
    >>> confirmations.confirm("B2", "s1", 7)
    [('s1', 'ann'), ('s2', 'bob')]
    """

    def __init__(self, representatives_of: Callable[[Key], Representatives]) -> None:
        self._representatives_of = representatives_of
        self._told: dict[str, dict[str, int]] = {}
        """What each neighbour was told, and under which number the last time: answers to earlier tellings are void."""
        self._confirmed: dict[str, dict[str, None]] = {}
        self._waiting_for: dict[tuple[str, str], dict[Key, None]] = {}
        self._awaited: dict[Key, tuple[str, str]] = {}

    def told(self, neighbour: str, id: str, number: int) -> None:
        """A neighbour was told of an id, under a number."""
        self._told.setdefault(neighbour, {})[id] = number

    def begin(self, key: Key) -> bool:
        """Whether a key is in force already; otherwise it waits."""
        self.forget(key)
        for neighbour, representative in self._representatives_of(key):
            if representative not in self._confirmed.get(neighbour, {}):
                self._waiting_for.setdefault((neighbour, representative), {})[key] = None
                self._awaited[key] = (neighbour, representative)
                return False
        return True

    def confirm(self, neighbour: str, id: str, number: int) -> list[Key]:
        """A neighbour confirms an id that it was told under a number; returns the keys that are in force by that."""
        if self._told.get(neighbour, {}).get(id) != number:
            return []
        self._confirmed.setdefault(neighbour, {})[id] = None
        return self._look_again((neighbour, id))

    def withdrawn(self, neighbour: str, id: str) -> list[Key]:
        """A neighbour was told that an id ends; returns the keys that are in force without it."""
        self._told.get(neighbour, {}).pop(id, None)
        self._confirmed.get(neighbour, {}).pop(id, None)
        return self._look_again((neighbour, id))

    def awaits(self, key: Key) -> bool:
        """Whether a key waits for somebody's answer."""
        return key in self._awaited

    def forget(self, key: Key) -> None:
        """A key ended before it was in force, or after."""
        awaited = self._awaited.pop(key, None)
        if awaited is not None:
            self._waiting_for[awaited].pop(key)

    def begin_epoch(self, neighbour: str) -> None:
        """All that a neighbour was told is void: it is told again, or the neighbour is gone."""
        self._told.pop(neighbour, None)

    def forget_neighbour(self, neighbour: str) -> list[Key]:
        """What a neighbour has confirmed is void; returns the keys that are in force all the same."""
        self._confirmed.pop(neighbour, None)
        found: list[Key] = []
        for awaited in [awaited for awaited in self._waiting_for if awaited[0] == neighbour]:
            found.extend(self._look_again(awaited))
        return found

    def _look_again(self, awaited: tuple[str, str]) -> list[Key]:
        waiting = list(self._waiting_for.pop(awaited, {}))
        for key in waiting:
            del self._awaited[key]
        return [key for key in waiting if self.begin(key)]
