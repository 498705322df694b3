"""What an application reads: the deliveries of one subscription."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeAlias

from trimtab.protocol.effects import Deliver

Delivery: TypeAlias = Deliver
"""A publication that was delivered: publication, publisher, sequence, delay_s, hops, and whose subscriptions."""


class Taker(Protocol):
    """The client of a subscription, which tells its broker how much the application has taken."""

    @property
    def name(self) -> str:
        """The client's name."""
        ...

    def delivery_waits(self) -> None:
        """A delivery waits for the application."""
        ...

    def deliveries_taken(self, count: int) -> None:
        """The application has taken deliveries that waited."""
        ...

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        ...


class Subscription:
    """The deliveries of one subscription, as an asynchronous iterator.

    It ends when the subscription or the client is closed.
    """

    def __init__(self, client: Taker, ids: tuple[str, ...], callback: Callable[[Delivery], None] | None) -> None:
        self._client = client
        self._callback = callback
        self._waiting: deque[Delivery] = deque()
        self._news = asyncio.Event()
        self._is_closed = False
        self.ids = ids

    def hand_over(self, delivery: Delivery) -> None:
        """Take in a delivery; the client calls this."""
        if self._callback is not None:
            self._callback(delivery)
            return
        self._waiting.append(delivery)
        self._client.delivery_waits()
        self._news.set()

    @property
    def waiting_count(self) -> int:
        """Deliveries that the application has not taken yet."""
        return len(self._waiting)

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        while not self._waiting:
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        delivery = self._waiting.popleft()
        if not self._is_closed:
            self._client.deliveries_taken(1)
        return delivery

    def end(self) -> None:
        """Nothing more will come; the client calls this."""
        self._is_closed = True
        self._news.set()

    async def close(self) -> None:
        """Unsubscribe."""
        await self._client.unsubscribe(self)

    def __repr__(self) -> str:
        state = "ended" if self._is_closed else f"{self.waiting_count:,} waiting"
        return f"<Subscription {' '.join(self.ids)} of {self._client.name}, {state}>"
