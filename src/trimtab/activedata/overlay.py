"""Connects active data to a broker network: feeds that subscribe there, and results that are published there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.feeds.overlay_feed import OverlayFeed, OverlayPublication
from trimtab.activedata.sinks.publishing import PublishingBroker
from trimtab.language import Filter, LanguageError

if TYPE_CHECKING:
    from trimtab.network.client.durable_subscriber import DurableSession

LOOK_UP_EVERY_S: Final = 0.25
"""How long a feed that is to stop may wait for the next publication."""


class Overlay:
    """Subscribes filters at brokers and hands over what matches; a broker forgets what is stored, and nothing else."""

    def check(self, filter_text: str, broker: str) -> None:
        """Refuse a filter or an address that cannot be understood."""
        try:
            Filter.parse_all(filter_text)
        except LanguageError as error:
            raise ValueMistake(str(error)) from None
        self.check_address(broker)

    def check_address(self, broker: str) -> None:
        """Refuse an address that cannot be understood."""
        from trimtab.network.links.address import Address

        try:
            Address.parse(broker)
        except ValueError as error:
            raise ValueMistake(str(error)) from None

    def follow(self, filter_text: str, broker: str, feed: OverlayFeed, stop: threading.Event) -> None:
        """Give a feed what matches until `stop` is set, going on after what its earlier life has stored."""
        from trimtab.network.client.client import ClientError, ForgottenError

        try:
            asyncio.run(_until(stop, _follow(Filter.parse_all(filter_text), broker, feed)))
        except ForgottenError as error:
            feed.forgotten(str(error))
        except ClientError as error:
            raise ActiveDataError(f"broker {broker}: {error}") from error

    def publish(self, broker: str, source: PublishingBroker, stop: threading.Event) -> None:
        """Publish results until `stop` is set, and tell which were accepted."""
        from trimtab.network.client.client import ClientError

        try:
            asyncio.run(_until(stop, _publish(broker, source)))
        except ClientError as error:
            raise ActiveDataError(f"broker {broker}: {error}") from error


async def _until(stop: threading.Event, work: Coroutine[None, None, None]) -> None:
    """Work until somebody wants it to stop, whatever it waits for."""
    task = asyncio.get_running_loop().create_task(work)
    while not task.done():
        if stop.is_set():
            task.cancel()
        await asyncio.wait([task], timeout=LOOK_UP_EVERY_S)
    if not task.cancelled():
        task.result()


async def _publish(broker: str, source: PublishingBroker) -> None:
    from trimtab.network.client.client import Client

    client = await Client.connect(broker, source.client_name, session=source.session)
    announced: dict[Filter, None] = {}
    try:
        while True:
            batch = await asyncio.to_thread(source.next, LOOK_UP_EVERY_S)
            for each in batch.results:
                if each.announced_by not in announced:
                    await client.advertise(each.announced_by)
                    announced[each.announced_by] = None
                try:
                    await client.publish(each.values, each.sequence)
                except LanguageError as error:
                    source.put_aside(each.sequence, each.values, str(error))
            await client.drain()
            for refused in client.refused:
                source.put_aside(int(refused.about.rpartition(":")[2]), {}, refused.reason)
            client.refused.clear()
            source.published(batch)
    finally:
        await client.close()


async def _follow(filters: Sequence[Filter], broker: str, feed: OverlayFeed) -> None:
    from trimtab.network.client.durable_subscriber import DurableSubscriber

    subscriber = await DurableSubscriber.connect(broker, filters, f"feed-{feed.name}", _earlier(feed))
    try:
        if feed.kept is None:
            feed.keep(_text(subscriber.beginning))
        while True:
            deliveries, kept = await subscriber.take(LOOK_UP_EVERY_S)
            if deliveries:
                taken = [
                    OverlayPublication(each.publisher, each.session, each.sequence, dict(each.publication))
                    for each in deliveries
                ]
                await asyncio.to_thread(feed.take, taken, _text(kept))
                subscriber.stored(kept)
    finally:
        await subscriber.close(leaves=feed.is_over)


def _earlier(feed: OverlayFeed) -> DurableSession | None:
    from trimtab.network.client.durable_subscriber import DurableSession

    kept = feed.kept
    return None if kept is None else msgspec.json.decode(kept, type=DurableSession)


def _text(kept: DurableSession) -> str:
    return msgspec.json.encode(kept).decode()
