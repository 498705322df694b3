"""A client of a broker network for programs without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from trimtab.language import Filter, Value
from trimtab.network.client.client import Client, ClientError
from trimtab.network.client.subscription import Delivery, Subscription
from trimtab.network.links.address import Address
from trimtab.network.links.heartbeat import USUAL_HEARTBEAT
from trimtab.protocol.effects import GapNotice

Result = TypeVar("Result")


class BlockingClient:
    """The same client for programs without an event loop; it runs one in a thread of its own.

    with BlockingClient("127.0.0.1:7001") as client:
        client.advertise(Filter.parse("class = 'STOCK'"))
        client.publish(Publication({"class": "STOCK"}))
    """

    def __init__(
        self,
        address: str | Address,
        name: str | None = None,
        *,
        silent_after_s: float = USUAL_HEARTBEAT.silent_after_s,
        answer_within_s: float = USUAL_HEARTBEAT.answer_within_s,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="trimtab-client", daemon=True)
        self._thread.start()
        try:
            self._client = self._await(
                Client.connect(address, name, silent_after_s=silent_after_s, answer_within_s=answer_within_s)
            )
        except BaseException:
            self._stop()
            raise

    @property
    def name(self) -> str:
        """The client's name, under which it publishes."""
        return self._client.name

    def advertise(self, filter: Filter) -> str:
        """Announce what will be published; returns its id when the whole network knows."""
        return self._await(self._client.advertise(filter))

    def subscribe(
        self,
        *filters: Filter,
        callback: Callable[[Delivery], None] | None = None,
        within_s: float | None = None,
    ) -> Subscription:
        """Ask for what any of the filters matches, perhaps within a time; callbacks run in the client's thread."""
        return self._await(self._client.subscribe(*filters, callback=callback, within_s=within_s))

    def deliveries(self, subscription: Subscription, timeout_s: float | None = None) -> Iterator[Delivery]:
        """The deliveries of a subscription; ends when it ends or when none has come for `timeout_s`."""
        while True:
            try:
                yield self._await(asyncio.wait_for(anext(subscription), timeout_s))
            except (TimeoutError, StopAsyncIteration):
                return

    @property
    def gaps_count(self) -> int:
        """Notices that something which was wanted may be lost."""
        return self._client.gaps_count

    def gaps(self) -> list[GapNotice]:
        """The latest of them."""
        return self._await(self._latest_gaps())

    async def _latest_gaps(self) -> list[GapNotice]:
        return list(self._client.gaps)

    def on_gap(self, callback: Callable[[GapNotice], None] | None) -> None:
        """Have a callback told of each; it runs in the client's thread."""
        self._client.on_gap = callback

    def publish(self, values: Mapping[str, Value]) -> int:
        """Publish; waits while too many publications are not accepted yet. Returns the sequence number."""
        return self._await(self._client.publish(values))

    def drain(self) -> None:
        """Wait until the broker has accepted every publication."""
        self._await(self._client.drain())

    def close(self) -> None:
        """Leave the network."""
        if not self._loop.is_closed():
            self._await(self._client.close())
            self._stop()

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(ClientError):
            if error[0] is None:
                self.drain()
        self.close()

    def _await(self, awaitable: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
