"""Publications that must not overtake those of an earlier stay of their publisher.

A publisher publishes at its new broker when the end of its old stream (`Complete`) has passed every broker of the path.
If one of them dies then, its neighbours send what it had not done to its successor, each in order, but between two
links there is no order: the new stream may come first. So whoever has the end of an old stream in what it is about to
send says so before (`Passing`), and publications of that stay, or of a later one, are held until it has come. Ends of
advertisements and handovers from the same source are held behind them: they end routes that these publications still
need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trimtab.broker.replication.retention import Item
from trimtab.protocol.messages import AnyMessage, Complete, Gap, Handover, Passing, Publish, Unadvertise

Held = tuple[str, AnyMessage, Item | None]
"""A publication or marker that waits, where it came from, and its item where it is retained."""


HeldEnd = tuple[str, Unadvertise | Handover | Gap, Item | None, int]
"""A marker that waits behind publications, where it came from, its item, and the link epoch in which it was said."""


class Streams:
    """The streams that are held, by publisher and session.

    >>> streams = Streams()
    >>> streams.passing("B1", Passing(client="p", session="1", stay=2))
    >>> old, new = (Publish(publisher="p", session="1", sequence=n, values={}, origin_s=0.0, stay=n) for n in (1, 2))
    >>> streams.must_hold(old), streams.must_hold(new)
    (False, True)
    >>> streams.hold("B3", new, None)
    >>> end = Complete(client="p", session="1", stay=2, new_broker="B3")
    >>> [message.sequence for _, message, _ in streams.passed(end)]
    [2]
    """

    def __init__(self) -> None:
        self.awaited: dict[tuple[str, str], dict[tuple[str, int], bool]] = {}
        """The ends of streams that have yet to come: from which neighbour, of which stay, and whether for all."""
        self._held: dict[tuple[str, str], deque[tuple[str, Publish, Item | None]]] = {}
        self._behind: list[HeldEnd] = []
        self._told_before: set[tuple[tuple[str, str], str, int]] = set()
        """Ends that were announced in an earlier epoch of a link, and count until the neighbour has told all anew."""
        self.released_max_count = 0
        """The most publications that went on at once."""

    def __bool__(self) -> bool:
        """Whether anything may have to be held."""
        return bool(self.awaited)

    @property
    def held_count(self) -> int:
        """Publications that are held."""
        return sum(map(len, self._held.values())) + len(self._behind)

    def holds_from(self, source: str) -> bool:
        """Whether anything of a source is held."""
        return any(each[0] == source for held in self._held.values() for each in held)

    def hold_behind(self, end: HeldEnd) -> None:
        """A marker waits for the publications of its source that are held."""
        self._behind.append(end)

    def released_ends(self) -> list[HeldEnd]:
        """Markers that need not wait any more."""
        released = [each for each in self._behind if not self.holds_from(each[0])]
        self._behind = [each for each in self._behind if self.holds_from(each[0])]
        return released

    def held(self) -> list[Held]:
        """All that is held."""
        return [each for held in self._held.values() for each in held]

    def passing(self, neighbour: str, message: Passing) -> None:
        """A neighbour will send the end of a stream."""
        self._told_before.discard(((message.client, message.session), neighbour, message.stay))
        self.awaited.setdefault((message.client, message.session), {})[neighbour, message.stay] = message.is_for_all

    def awaited_for_all(self) -> list[tuple[str, Passing]]:
        """The ends that go everywhere, and from which neighbour each comes."""
        return [
            (neighbour, Passing(client=client, session=session, stay=stay, is_for_all=True))
            for (client, session), ends in self.awaited.items()
            for (neighbour, stay), is_for_all in ends.items()
            if is_for_all
        ]

    def must_hold(self, message: Publish) -> bool:
        """Whether a publication must wait for the end of an earlier stream of its publisher."""
        awaited = self.awaited.get((message.publisher, message.session))
        return awaited is not None and any(stay <= message.stay for _, stay in awaited)

    def hold(self, source: str, message: Publish, item: Item | None) -> None:
        """A publication waits."""
        self._held.setdefault((message.publisher, message.session), deque()).append((source, message, item))

    def passed(self, message: Complete) -> list[Held]:
        """The end of a stream has come; returns what need not wait any more."""
        return self._ended((message.client, message.session), lambda neighbour, stay: stay <= message.stay)

    def epoch_began(self, neighbour: str) -> None:
        """A neighbour says anew what it will send; until it has, what it has said before counts."""
        for key, ends in self.awaited.items():
            self._told_before.update((key, name, stay) for name, stay in ends if name == neighbour)

    def told_no_more_by(self, neighbour: str) -> list[Passing]:
        """A neighbour has told all anew: the ends for all that it has not announced again."""
        return [
            each
            for name, each in self.awaited_for_all()
            if name == neighbour and ((each.client, each.session), name, each.stay) in self._told_before
        ]

    def told_all(self, neighbour: str) -> list[Held]:
        """A neighbour has told all anew; returns what need not wait any more."""
        before = {each for each in self._told_before if each[1] == neighbour}
        self._told_before -= before
        released: list[Held] = []
        for key in list(self.awaited):
            released += self._ended(key, lambda name, stay: (key, name, stay) in before)  # noqa: B023
        return released

    def gone(self, neighbour: str) -> list[Held]:
        """A neighbour is gone for good; returns what need not wait any more."""
        self.epoch_began(neighbour)
        return self.told_all(neighbour)

    def _ended(self, key: tuple[str, str], is_over: Callable[[str, int], bool]) -> list[Held]:
        awaited = self.awaited.get(key)
        if awaited is None:
            return []
        for name, stay in list(awaited):
            if is_over(name, stay):
                del awaited[name, stay]
        if not awaited:
            del self.awaited[key]
        held = self._held.pop(key, deque())
        released: list[Held] = [each for each in held if not self.must_hold(each[1])]
        kept = deque(each for each in held if self.must_hold(each[1]))
        if kept:
            self._held[key] = kept
        self.released_max_count = max(self.released_max_count, len(released))
        return released
