"""Connects feeds of active data to a broker network."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.fields import ValueMistake
from trimtab.language import Filter, LanguageError

if TYPE_CHECKING:
    from trimtab.network.blocking_client import BlockingClient
    from trimtab.network.client import Subscription

BATCH_MAX_COUNT: Final = 5_000
LOOK_UP_EVERY_S: Final = 0.25
"""How long a feed that is to stop may wait for the next publication."""


class OverlayFeeds:
    """Subscribes filters at brokers and hands over what matches.

    Publications are taken from the broker and become durable with the next commit; those that are on their way between
    when this process is killed are lost to the feed.
    """

    def check(self, filter_text: str, broker: str) -> None:
        """Refuse a filter or an address that cannot be understood."""
        from trimtab.network.address import Address

        try:
            Filter.parse_all(filter_text)
            Address.parse(broker)
        except (LanguageError, ValueError) as error:
            raise ValueMistake(str(error)) from None

    def follow(
        self, filter_text: str, broker: str, take: Callable[[list[dict[str, object]]], None], stop: threading.Event
    ) -> None:
        """Hand matching publications over in batches until `stop` is set."""
        from trimtab.network.blocking_client import BlockingClient
        from trimtab.network.client import ClientError

        try:
            with BlockingClient(broker) as client:
                subscription = client.subscribe(*Filter.parse_all(filter_text))
                while not stop.is_set():
                    batch = _next_batch(client, subscription)
                    if batch:
                        take(batch)
        except ClientError as error:
            raise ActiveDataError(f"broker {broker}: {error}") from error


def _next_batch(client: BlockingClient, subscription: Subscription) -> list[dict[str, object]]:
    """What waits, or what comes next within a moment."""
    batch: list[dict[str, object]] = []
    for delivery in client.deliveries(subscription, LOOK_UP_EVERY_S):
        batch.append(dict(delivery.publication))
        if not subscription.waiting_count or len(batch) >= BATCH_MAX_COUNT:
            break
    return batch
