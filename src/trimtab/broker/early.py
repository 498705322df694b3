"""Advertisements that came before the end of an earlier one with the same id, and wait for it.

The end of an advertisement keeps its place among the publications that need its routes, an advertisement overtakes
them. When a link is taken away and comes back, an advertisement is therefore told again before its end has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.protocol.messages import Advertise


class EarlyAdvertisements:
    """By id, with the neighbour that told of each.

    >>> from trimtab.language import Filter
    >>> early = EarlyAdvertisements()
    >>> early.wait("B2", Advertise(id="p/a1", filter=Filter.parse("a > 0")))
    >>> [(neighbour, message.id) for neighbour, message in early.take(["p/a1", "p/a2"])]
    [('B2', 'p/a1')]
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, Advertise]] = {}

    def wait(self, neighbour: str, message: Advertise) -> None:
        """An advertisement waits until the one with its id has ended."""
        self._waiting[message.id] = (neighbour, message)

    def withdraw(self, neighbour: str, id: str) -> None:
        """A neighbour ends an advertisement that waits."""
        if id in self._waiting and self._waiting[id][0] == neighbour:
            del self._waiting[id]

    def forget(self, neighbour: str) -> None:
        """A neighbour is gone."""
        self._waiting = {id: each for id, each in self._waiting.items() if each[0] != neighbour}

    def take(self, ended_ids: Iterable[str]) -> list[tuple[str, Advertise]]:
        """Those that have waited for these ids."""
        return [self._waiting.pop(id) for id in ended_ids if id in self._waiting] if self._waiting else []
