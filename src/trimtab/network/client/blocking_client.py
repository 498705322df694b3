"""A client of a broker network for programs without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from trimtab.language import Filter, Value
from trimtab.network.client.client import PLACED_WITHIN_S, Client
from trimtab.network.client.errors import ClientError
from trimtab.network.client.reconnecting_connection import REATTACH_AFTER_S
from trimtab.network.client.subscription import Delivery, Subscription
from trimtab.network.links.address import Address
from trimtab.network.links.heartbeat import USUAL_HEARTBEAT
from trimtab.protocol.effects import GapNotice, Rejected
from trimtab.protocol.records import MoveRecord

Result = TypeVar("Result")


class BlockingClient:
    """The same client for programs without an event loop; it runs one in a thread of its own.

        with BlockingClient("127.0.0.1:7001") as client:
            for delivery in client.subscribe("class = 'STOCK' AND volume > 300000"):
                print(delivery.publication["symbol"])

    Its methods wait where those of `Client` are awaited. Callbacks run in the client's thread, and must not call the
    client.
    """

    def __init__(
        self,
        address: str | Address,
        name: str | None = None,
        *,
        session: str | None = None,
        publish_window_count: int = 1_000,
        reattach_after_s: float = REATTACH_AFTER_S,
        silent_after_s: float = USUAL_HEARTBEAT.silent_after_s,
        answer_within_s: float = USUAL_HEARTBEAT.answer_within_s,
    ) -> None:
        self._begin(
            Client.connect(
                address,
                name,
                session=session,
                publish_window_count=publish_window_count,
                reattach_after_s=reattach_after_s,
                silent_after_s=silent_after_s,
                answer_within_s=answer_within_s,
            )
        )

    def _begin(self, connecting: Coroutine[Any, Any, Client]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="trimtab-client", daemon=True)
        self._thread.start()
        try:
            self._client = self._await(connecting)
        except BaseException:
            self._stop()
            raise

    @classmethod
    def connect(cls, address: str | Address, name: str | None = None, **options: Any) -> Self:
        """Connect to a broker at HOST:PORT, with the options of `Client.connect`; the same as making an object."""
        return cls(address, name, **options)

    @classmethod
    def connect_through(
        cls,
        coordinator: str | Address,
        name: str | None = None,
        *,
        site: tuple[float, float] | None = None,
        publish_window_count: int = 1_000,
        within_s: float = PLACED_WITHIN_S,
    ) -> Self:
        """Ask the coordinator at HOST:PORT where to connect, and connect there; `site` tells where the client is."""
        client = cls.__new__(cls)
        client._begin(
            Client.connect_through(
                coordinator, name, site=site, publish_window_count=publish_window_count, within_s=within_s
            )
        )
        return client

    # ---- what it is, and what has happened ----

    @property
    def name(self) -> str:
        """The client's name, under which it publishes."""
        return self._client.name

    @property
    def broker(self) -> str:
        """The name of the broker that serves the client."""
        return self._client.broker

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._client.is_connected

    @property
    def waiting_count(self) -> int:
        """Publications that the broker has not accepted (or refused) yet; it accepts them in their order."""
        return self._client.waiting_count

    @property
    def late_count(self) -> int:
        """Deliveries that came later than their subscriptions wanted, one for each such subscription."""
        return self._client.late_count

    @property
    def moves_count(self) -> int:
        """How often the client has gone on at another broker."""
        return self._client.moves_count

    @property
    def refused(self) -> list[Rejected]:
        """Publications that the broker refused, as publisher:sequence with the reason."""
        return self._client.refused

    @property
    def held_back_because(self) -> str:
        """What the broker last said of a limit beyond which what the client sends waits, if it did."""
        return self._client.held_back_because

    @property
    def gaps_count(self) -> int:
        """Notices that something which was wanted may be lost."""
        return self._client.gaps_count

    @property
    def gaps(self) -> list[GapNotice]:
        """The latest of them."""
        return self._await(self._latest_gaps())

    async def _latest_gaps(self) -> list[GapNotice]:
        return list(self._client.gaps)

    @property
    def on_gap(self) -> Callable[[GapNotice], None] | None:
        """Told of each, as it comes."""
        return self._client.on_gap

    @on_gap.setter
    def on_gap(self, callback: Callable[[GapNotice], None] | None) -> None:
        self._client.on_gap = callback

    @property
    def on_move(self) -> Callable[[MoveRecord], None] | None:
        """Told of each move, once it is done, undone or refused."""
        return self._client.on_move

    @on_move.setter
    def on_move(self, callback: Callable[[MoveRecord], None] | None) -> None:
        self._client.on_move = callback

    @property
    def on_held_back(self) -> Callable[[str], None] | None:
        """Told whenever the broker says that what the client sends waits."""
        return self._client.on_held_back

    @on_held_back.setter
    def on_held_back(self, callback: Callable[[str], None] | None) -> None:
        self._client.on_held_back = callback

    # ---- what it does ----

    def move(self, broker: str, address: str | Address) -> str:
        """Go on at another broker; returns its name, or says why not."""
        return self._await(self._client.move(broker, address))

    def advertise(self, filter: str | Filter, *, open: bool = False) -> str:
        """Announce what will be published, with any further attributes if `open`; returns its id when all know."""
        return self._await(self._client.advertise(filter, open=open))

    def unadvertise(self, id: str) -> None:
        """End an advertisement."""
        self._await(self._client.unadvertise(id))

    def subscribe(
        self,
        *filters: str | Filter,
        channels: Sequence[tuple[str, Mapping[str, Value]]] = (),
        callback: Callable[[Delivery], None] | None = None,
        within_s: float | None = None,
    ) -> BlockingSubscription:
        """Ask for what any of the filters matches, perhaps within a time, and for the results of channels."""
        subscribing = self._client.subscribe(*filters, channels=channels, callback=callback, within_s=within_s)
        return BlockingSubscription(self, self._await(subscribing))

    def subscribe_channel(
        self,
        channel: str,
        arguments: Mapping[str, Value],
        *,
        after: int | None = None,
        callback: Callable[[Delivery], None] | None = None,
    ) -> BlockingSubscription:
        """Ask for a channel's results, from now on or after a position; returns when none will be missed."""
        subscribing = self._client.subscribe_channel(channel, arguments, after=after, callback=callback)
        return BlockingSubscription(self, self._await(subscribing))

    def unsubscribe(self, subscription: BlockingSubscription) -> None:
        """End a subscription."""
        self._await(self._client.unsubscribe(subscription.subscription))

    def deliveries(self, subscription: BlockingSubscription, timeout_s: float | None = None) -> Iterator[Delivery]:
        """The deliveries of a subscription; ends when it ends or when none has come for `timeout_s`."""
        while True:
            try:
                yield self._await(asyncio.wait_for(anext(subscription.subscription), timeout_s))
            except (TimeoutError, StopAsyncIteration):
                return

    def publish(self, values: Mapping[str, object], sequence: int | None = None) -> int:
        """Publish; waits while too many publications are not accepted yet. Returns the sequence number."""
        return self._await(self._client.publish(values, sequence))

    def drain(self) -> None:
        """Wait until the broker has accepted (or refused) every publication."""
        self._await(self._client.drain())

    def close(self) -> None:
        """Leave the network."""
        if not self._loop.is_closed():
            self._await(self._client.close())
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(ClientError):
            if error[0] is None:
                self.drain()
        self.close()

    def __repr__(self) -> str:
        return repr(self._client).replace("<Client", "<BlockingClient", 1)

    def _await(self, awaitable: Coroutine[Any, Any, Result]) -> Result:
        if self._loop.is_closed():
            awaitable.close()
            raise ClientError("the client is closed")
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingSubscription:
    """The deliveries of one subscription, as an iterator that waits for the next; it ends with the subscription."""

    def __init__(self, client: BlockingClient, subscription: Subscription) -> None:
        self._client = client
        self.subscription = subscription
        """The same for programs with an event loop."""

    @property
    def ids(self) -> tuple[str, ...]:
        """What it is called in the network."""
        return self.subscription.ids

    @property
    def waiting_count(self) -> int:
        """Deliveries that the application has not taken yet."""
        return self.subscription.waiting_count

    def __iter__(self) -> Iterator[Delivery]:
        return self._client.deliveries(self)

    def close(self) -> None:
        """Unsubscribe."""
        self._client.unsubscribe(self)

    def __repr__(self) -> str:
        return repr(self.subscription).replace("<Subscription", "<BlockingSubscription", 1)
