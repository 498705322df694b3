"""Connects feeds of active data to a broker network."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.fields import ValueMistake
from trimtab.activedata.overlay_feed import OverlayFeed, OverlayPublication
from trimtab.language import Filter, LanguageError

if TYPE_CHECKING:
    from trimtab.network.kept_subscriber import KeptSession

LOOK_UP_EVERY_S: Final = 0.25
"""How long a feed that is to stop may wait for the next publication."""


class OverlayFeeds:
    """Subscribes filters at brokers and hands over what matches; a broker forgets what is stored, and nothing else."""

    def check(self, filter_text: str, broker: str) -> None:
        """Refuse a filter or an address that cannot be understood."""
        from trimtab.network.address import Address

        try:
            Filter.parse_all(filter_text)
            Address.parse(broker)
        except (LanguageError, ValueError) as error:
            raise ValueMistake(str(error)) from None

    def follow(self, filter_text: str, broker: str, feed: OverlayFeed, stop: threading.Event) -> None:
        """Give a feed what matches until `stop` is set, going on after what its earlier life has stored."""
        from trimtab.network.client import ClientError, ForgottenError

        try:
            asyncio.run(_follow(Filter.parse_all(filter_text), broker, feed, stop))
        except ForgottenError as error:
            feed.forgotten(str(error))
        except ClientError as error:
            raise ActiveDataError(f"broker {broker}: {error}") from error


async def _follow(filters: Sequence[Filter], broker: str, feed: OverlayFeed, stop: threading.Event) -> None:
    from trimtab.network.kept_subscriber import KeptSubscriber

    subscriber = await KeptSubscriber.connect(broker, filters, f"feed-{feed.name}", _earlier(feed))
    try:
        if feed.kept is None:
            feed.keep(_text(subscriber.beginning))
        while not stop.is_set():
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


def _earlier(feed: OverlayFeed) -> KeptSession | None:
    from trimtab.network.kept_subscriber import KeptSession

    kept = feed.kept
    return None if kept is None else msgspec.json.decode(kept, type=KeptSession)


def _text(kept: KeptSession) -> str:
    return msgspec.json.encode(kept).decode()
