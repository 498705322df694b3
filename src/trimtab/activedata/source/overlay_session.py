"""A subscriber of the overlay for code without an event loop, that goes on where an earlier process had committed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from trimtab.language import Filter

if TYPE_CHECKING:
    from trimtab.network.client.durable_subscriber import DurableSession, DurableSubscriber
    from trimtab.network.client.subscription import Delivery

Answer = TypeVar("Answer")


class OverlaySession:
    """A subscriber with an event loop in a thread of its own; what it keeps is a text that may be stored."""

    def __init__(self, broker: str, filters: Sequence[Filter], name: str, kept: str | None) -> None:
        from trimtab.network.client.durable_subscriber import DurableSession, DurableSubscriber

        earlier = None if kept is None else msgspec.json.decode(kept, type=DurableSession)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="trimtab-source", daemon=True)
        self._thread.start()
        self._subscriber: DurableSubscriber | None = None
        try:
            self._subscriber = self._await(DurableSubscriber.connect(broker, filters, name, earlier))
        except BaseException:
            self.close()
            raise
        self.kept = kept or _text(self._subscriber.beginning)

    def take(self, within_s: float) -> tuple[list[Delivery], str]:
        """What has come, and what to keep with it."""
        assert self._subscriber is not None
        deliveries, kept = self._await(self._subscriber.take(within_s))
        return deliveries, _text(kept)

    def stored(self, kept: str) -> None:
        """The broker may forget what was kept with this."""
        from trimtab.network.client.durable_subscriber import DurableSession

        subscriber = self._subscriber
        assert subscriber is not None
        self._loop.call_soon_threadsafe(subscriber.stored, msgspec.json.decode(kept, type=DurableSession))

    def close(self, *, leaves: bool = False) -> None:
        """End the connection; the broker keeps what is not stored unless the subscriber leaves."""
        if self._subscriber is not None:
            self._await(self._subscriber.close(leaves=leaves))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _await(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _text(kept: DurableSession) -> str:
    return msgspec.json.encode(kept).decode()
