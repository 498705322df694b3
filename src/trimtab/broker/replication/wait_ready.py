"""A queue towards a replica from which each publication goes on when a route for it is there.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, section 4.2 and figure 5 (wait-ready queues).

A publication waits under each subscription of the failed broker that it matches. When the replica tells one of them,
its path is there, and what waits under it goes on. Publications overtake each other by that.

Deviations: what is ready goes into the link's own queue at once, in the order in which it became ready, instead of into
queues that are served in turn. Markers, which end what stands before them, wait until the replica is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from trimtab.protocol.frames import Sendable
from trimtab.protocol.messages import Publish

Matching = Callable[[Publish | bytes], list[str]]
"""The subscriptions of the failed broker that a publication matches."""


class WaitReadyQueue:
    """Stands in the place of a link's data queue; what is ready is appended to that.

    >>> ready = deque()
    >>> queue = WaitReadyQueue(ready, lambda message: ["s1", "s2"] if message.sequence == 1 else ["s2"])
    >>> for sequence in (1, 2):
    ...     queue.append(Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0))
    >>> queue.make_ready("s1")
    >>> [message.sequence for message in ready], len(queue)
    ([1], 2)
    >>> queue.make_ready("s2")
    >>> [message.sequence for message in ready], len(queue)
    ([1, 2], 2)
    """

    def __init__(self, ready: deque[Sendable], matching: Matching) -> None:
        self._ready = ready
        self._matching = matching
        self._waiting: dict[int, Sendable] = {}
        self._by_subscription: dict[str, list[int]] = {}
        self._ready_subscriptions: dict[str, None] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._ready)

    def __iter__(self) -> Iterator[Sendable]:
        yield from self._ready
        yield from self._waiting.values()

    def waiting(self) -> list[Sendable]:
        """What is not ready, in its order."""
        return list(self._waiting.values())

    def append(self, message: Sendable) -> None:
        """One more, behind those that are ready or among those that wait."""
        subscriptions = self._matching(message) if isinstance(message, Publish | bytes) else []
        if any(id in self._ready_subscriptions for id in subscriptions):
            self._ready.append(message)
            return
        number = self._next_number
        self._next_number += 1
        self._waiting[number] = message
        for id in subscriptions:
            self._by_subscription.setdefault(id, []).append(number)

    def make_ready(self, subscription: str) -> None:
        """The replica knows a subscription: what waits under it goes on, each once."""
        self._ready_subscriptions[subscription] = None
        for number in self._by_subscription.pop(subscription, ()):
            message = self._waiting.pop(number, None)
            if message is not None:
                self._ready.append(message)

    def end(self) -> None:
        """The replica is complete: the rest goes on in its order."""
        self._ready.extend(self._waiting.values())
        self._waiting.clear()
        self._by_subscription.clear()
