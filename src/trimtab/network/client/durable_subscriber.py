"""A subscriber that stores what it is told and goes on, after its process was killed, where it had stored last.

The broker keeps what is not stored, for as long as it keeps a session that is not connected (`client_lease_s`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from trimtab.client.config import ClientConfig, FormerIncarnation
from trimtab.language import Filter
from trimtab.network.client.client import Client
from trimtab.network.client.subscription import Delivery, Subscription
from trimtab.network.links.address import Address
from trimtab.network.network_file import RETRANSMIT_AFTER_S
from trimtab.protocol.durable_link import LinkPosition
from trimtab.protocol.link import LinkConfig

WINDOW_COUNT: Final = 4_096
"""Messages that the broker sends before the first of them is stored."""


class DurableSession(msgspec.Struct, frozen=True):
    """What is to be stored together with what was taken, so that another life can go on after it."""

    name: str
    session: str
    broker_session: str
    place: LinkPosition


class _StoringClient(Client):
    """A client whose application says what it has stored."""

    async def begin(self, callback: Callable[[Delivery], None], *, goes_on: bool) -> None:
        """Connect; what comes for the subscriptions of an earlier life goes to the callback."""
        if goes_on:
            ids = self._session.subscription_ids
            self._subscriptions.update(dict.fromkeys(ids, Subscription(self._ends, ids, callback)))
        await self._begin()

    def check(self) -> None:
        """Raise the error that ended the client, if one did."""
        self._check()

    def arrived(self) -> tuple[str, LinkPosition]:
        """The broker's session, and how much of it has arrived and been handed over."""
        return self._session.broker_session, self._session.arrived()

    def stored(self, place: LinkPosition) -> None:
        """What had arrived at a place is stored: the broker may forget it."""
        self._session.stored(place)
        self._schedule()

    async def disconnect(self) -> None:
        """Only break the connection: the broker keeps the session for a while."""
        if not self._is_closing:
            await self._abandon()


class DurableSubscriber:
    """The deliveries of some filters, in batches; each is sent again until it is said to be stored.

    subscriber = await DurableSubscriber.connect("127.0.0.1:7001", [Filter.parse("a > 1")], "reader")
    deliveries, kept = await subscriber.take(1.0)
    ...  # store both, durably
    subscriber.stored(kept)
    """

    def __init__(self, client: _StoringClient, config: ClientConfig) -> None:
        self._client = client
        self._config = config
        self._waiting: list[Delivery] = []
        self._news = asyncio.Event()

    @classmethod
    async def connect(
        cls, address: str | Address, filters: Sequence[Filter], name: str, earlier: DurableSession | None = None
    ) -> DurableSubscriber:
        """Subscribe, or go on after an earlier life; a `ForgottenError` says that the broker knows nothing of it."""
        where = Address.of(address)
        config = ClientConfig(
            name=earlier.name if earlier else f"{name}-{secrets.token_hex(4)}",
            session=earlier.session if earlier else secrets.token_hex(5),
            link=LinkConfig(WINDOW_COUNT, RETRANSMIT_AFTER_S, WINDOW_COUNT),
            stores=True,
            earlier=FormerIncarnation(earlier.broker_session, earlier.place, tuple(filters)) if earlier else None,
        )
        client = _StoringClient(where, config)
        subscriber = cls(client, config)
        await client.begin(subscriber._hand_over, goes_on=earlier is not None)
        try:
            client.check()
            if earlier is None:
                await client.subscribe(*filters, callback=subscriber._hand_over)
        except BaseException:
            await client.close()
            raise
        return subscriber

    def _hand_over(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        self._news.set()

    async def take(self, within_s: float) -> tuple[list[Delivery], DurableSession]:
        """All that has come, or what comes next within a time, and what to store with it."""
        if not self._waiting:
            self._client.check()
            self._news.clear()
            try:
                async with asyncio.timeout(within_s):
                    await self._news.wait()
            except TimeoutError:
                pass
        taken, self._waiting = self._waiting, []
        broker_session, place = self._client.arrived()
        return taken, DurableSession(self._config.name, self._config.session, broker_session, place)

    @property
    def beginning(self) -> DurableSession:
        """What to store of a new subscriber before it takes anything."""
        return DurableSession(self._config.name, self._config.session, self._client.arrived()[0], LinkPosition())

    def stored(self, kept: DurableSession) -> None:
        """What was taken with it is stored: the broker may forget that."""
        self._client.stored(kept.place)

    async def close(self, *, leaves: bool) -> None:
        """End the subscriptions, or only this life."""
        await (self._client.close() if leaves else self._client.disconnect())
