"""What a broker tells whoever watches it: a checker, a test, a record. It changes nothing in the broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from trimtab.protocol.messages import Publish


class BrokerObserver(Protocol):
    """Is told what becomes of publications and clients, at the moment when the broker decides it.

    Whoever inherits from it hears only what it has a method for.

    >>> class Counting:
    ...     accepted_count = 0
    ...     def accepted(self, message: Publish, now_s: float) -> None:
    ...         self.accepted_count += 1
    ...     def recovered(self, message: Publish) -> None: ...
    ...     def dropped(self, client: str, message: Publish) -> None: ...
    ...     def client_queue_full(self, client: str, queued_count: int) -> None: ...
    ...     def disconnected_as_slow(self, client: str) -> None: ...
    ...     def lease_lapsed(self, client: str, subscriptions: Iterable[str]) -> None: ...
    ...     def passed_by_stand_in(self, message: Publish) -> None: ...
    ...     def left_unheard(self, client: str, undelivered: Iterable[Publish]) -> None: ...
    ...     def came(self, client: str, old_broker: str, cause: str, now_s: float) -> None: ...
    >>> observer: BrokerObserver = Counting()
    """

    def accepted(self, message: Publish, now_s: float) -> None:
        """A client's publication is new and announced; the broker answers for it from here on."""
        return

    def recovered(self, message: Publish) -> None:
        """A publication that an earlier incarnation accepted is on the disk; the broker answers for it again."""
        return

    def dropped(self, client: str, message: Publish) -> None:
        """A publication that waited for a slow client is given up."""
        return

    def client_queue_full(self, client: str, queued_count: int) -> None:
        """A client's queue has reached its limit; so many messages wait after the broker has dealt with that."""
        return

    def disconnected_as_slow(self, client: str) -> None:
        """A client whose queue is full is disconnected for good."""
        return

    def lease_lapsed(self, client: str, subscriptions: Iterable[str]) -> None:
        """A client was away for too long; these subscriptions end with its stay."""
        return

    def passed_by_stand_in(self, message: Publish) -> None:
        """A replica that does not know all its routes yet, or an assistant, has passed a publication on."""
        return

    def left_unheard(self, client: str, undelivered: Iterable[Publish]) -> None:
        """A client has moved on and was away for too long to hear the end of its stay; this is given up."""
        return

    def came(self, client: str, old_broker: str, cause: str, now_s: float) -> None:
        """The old broker of a client that has come here has ended its stay there."""
        return
