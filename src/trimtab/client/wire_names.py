"""What brokers call a client's filters: each move gives them new names, for the old ones are known from elsewhere."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping


class WireNames:
    """The names of filters that are not their ids.

    >>> names = WireNames()
    >>> planned = names.plan(["alice/s1"])
    >>> planned, names.of("alice/s1"), names.id_of("alice/s1@1")
    ({'alice/s1': 'alice/s1@1'}, 'alice/s1', 'alice/s1')
    >>> names.take_over(planned, ["alice/s1"])
    >>> names.of("alice/s1"), names.of("alice/s2")
    ('alice/s1@1', 'alice/s2')
    """

    def __init__(self) -> None:
        self.moves_count = 0
        self._names: dict[str, str] = {}
        self._ids: dict[str, str] = {}

    def of(self, id: str) -> str:
        """What brokers call a filter."""
        return self._names.get(id, id)

    def id_of(self, name: str) -> str:
        """Which filter brokers call so, under its present name or under one that a move has planned."""
        return self._ids.get(name, name)

    def plan(self, ids: Iterable[str]) -> dict[str, str]:
        """The names that filters will have after the next move."""
        self.moves_count += 1
        planned = {id: f"{id}@{self.moves_count}" for id in ids}
        self._ids.update({name: id for id, name in planned.items()})
        return planned

    def take_over(self, planned: Mapping[str, str], known: Container[str]) -> None:
        """A move has ended: its names count for those filters that are still known."""
        for id, name in self._names.items():
            if id in planned:
                self._ids.pop(name, None)
        self._names.update({id: name for id, name in planned.items() if id in known})

    def rename(self, ids: Iterable[str]) -> None:
        """Give filters new names, because brokers may still know them by the old ones from elsewhere."""
        for id in ids:
            self.revive(id, f"{id}@{self.moves_count}")

    def revive(self, id: str, name: str) -> None:
        """A filter has this name, perhaps again."""
        self._names[id] = name
        self._ids[name] = id

    def expect_nothing_of(self, id: str) -> None:
        """What brokers still say of a filter is about nothing; its end may have to be told under its name."""
        self._ids.pop(self.of(id), None)

    def forget(self, id: str) -> str:
        """A filter has no name any more; returns the one that it had."""
        return self._names.pop(id, id)
