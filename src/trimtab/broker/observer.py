"""What a broker tells whoever watches it: a checker, a test, a record. It changes nothing in the broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from trimtab.protocol.messages import Publish


class BrokerObserver(Protocol):
    """Is told what becomes of publications and clients, at the moment when the broker decides it.

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
    >>> observer: BrokerObserver = Counting()
    """

    def accepted(self, message: Publish, now_s: float) -> None:
        """A client's publication is new and announced; the broker answers for it from here on."""

    def recovered(self, message: Publish) -> None:
        """A publication that an earlier incarnation accepted is on the disk; the broker answers for it again."""

    def dropped(self, client: str, message: Publish) -> None:
        """A publication that waited for a slow client is given up."""

    def client_queue_full(self, client: str, queued_count: int) -> None:
        """A client's queue has reached its limit; so many messages wait after the broker has dealt with that."""

    def disconnected_as_slow(self, client: str) -> None:
        """A client whose queue is full is disconnected for good."""

    def lease_lapsed(self, client: str, subscriptions: Iterable[str]) -> None:
        """A client was away for too long; these subscriptions end with its stay."""

    def passed_by_stand_in(self, message: Publish) -> None:
        """A replica that does not know all its routes yet, or an assistant, has passed a publication on."""

    def left_unheard(self, client: str, undelivered: Iterable[Publish]) -> None:
        """A client has moved on and was away for too long to hear the end of its stay; this is given up."""
