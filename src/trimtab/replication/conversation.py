"""Who owes whom what while a replica learns the routing state of the broker that it replaces.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, algorithms 1, 2 and 4.

A replica's greeting asks its neighbours for their advertisements. When all have told theirs, the replica has passed all
of them on, and asks each for the subscriptions that they pull. When all have told those, it has the state.

Deviations: the end of subscriptions is told once for each neighbour, behind all that the replica's advertisements pull,
and not once for each advertisement. A neighbour that is a replica itself, because two adjacent brokers have failed,
answers when all its other neighbours have answered; in a tree nobody waits for himself by that. A broker that replaces
nobody is owed nothing and answers at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.protocol.messages import AdvertisementsTold, SubscriptionsTold, SubscriptionsWanted

Reply = tuple[str, AdvertisementsTold | SubscriptionsTold | SubscriptionsWanted]
"""A neighbour and what to tell it."""


class Conversation:
    """What neighbours owe this broker, and what it owes those of them that are replicas.

    >>> replica, neighbour = Conversation(["B1", "B3"]), Conversation([])
    >>> neighbour.asked_by("B2")
    [('B2', AdvertisementsTold(cause=''))]
    >>> replica.advertisements_told("B1"), replica.advertisements_told("B3")
    ([], [('B1', SubscriptionsWanted(cause='')), ('B3', SubscriptionsWanted(cause=''))])
    >>> replica.subscriptions_told("B3"), replica.is_complete
    ([], False)
    >>> replica.subscriptions_told("B1"), replica.is_complete
    ([], True)
    """

    def __init__(self, neighbours: Iterable[str]) -> None:
        self._advertisements_due: dict[str, None] = dict.fromkeys(neighbours)
        self._subscriptions_due: dict[str, None] = dict(self._advertisements_due)
        self._wanted_from: dict[str, None] = {}
        self._advertisements_owed: dict[str, None] = {}
        self._subscriptions_owed: dict[str, None] = {}

    @property
    def is_complete(self) -> bool:
        """Whether neighbours owe nothing more."""
        return not self._advertisements_due and not self._subscriptions_due

    def asked_by(self, neighbour: str) -> list[Reply]:
        """A neighbour that is a replica greets; what its earlier life owed, it owes."""
        self._advertisements_owed[neighbour] = None
        if not self.is_complete:
            self._advertisements_due[neighbour] = self._subscriptions_due[neighbour] = None
            self._wanted_from.pop(neighbour, None)
        return self._go_on()

    def gone(self, neighbour: str) -> list[Reply]:
        """A neighbour was taken away for good: nothing is owed to it or by it."""
        for owed in (
            self._advertisements_due,
            self._subscriptions_due,
            self._wanted_from,
            self._advertisements_owed,
            self._subscriptions_owed,
        ):
            owed.pop(neighbour, None)
        return self._go_on()

    def advertisements_told(self, neighbour: str) -> list[Reply]:
        """A neighbour has told all its advertisements."""
        self._advertisements_due.pop(neighbour, None)
        return self._go_on()

    def subscriptions_wanted_by(self, neighbour: str) -> list[Reply]:
        """A replica has passed on all advertisements."""
        self._subscriptions_owed[neighbour] = None
        return self._go_on()

    def subscriptions_told(self, neighbour: str) -> list[Reply]:
        """A neighbour has told all subscriptions that this broker's advertisements pull."""
        self._subscriptions_due.pop(neighbour, None)
        return self._go_on()

    def _go_on(self) -> list[Reply]:
        replies: list[Reply] = []
        for neighbour in list(self._advertisements_owed):
            if not _besides(neighbour, self._advertisements_due):
                del self._advertisements_owed[neighbour]
                replies.append((neighbour, AdvertisementsTold()))
        if not self._advertisements_due:
            for neighbour in self._subscriptions_due:
                if neighbour not in self._wanted_from:
                    self._wanted_from[neighbour] = None
                    replies.append((neighbour, SubscriptionsWanted()))
        for neighbour in list(self._subscriptions_owed):
            if not _besides(neighbour, self._advertisements_due) and not _besides(neighbour, self._subscriptions_due):
                del self._subscriptions_owed[neighbour]
                replies.append((neighbour, SubscriptionsTold()))
        return replies


def _besides(neighbour: str, owing: dict[str, None]) -> bool:
    return any(name != neighbour for name in owing)
