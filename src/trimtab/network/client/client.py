"""A client of a broker network, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from trimtab.client.config import ClientConfig
from trimtab.language import Filter, Publication, Value
from trimtab.network.admin.status import ask_place
from trimtab.network.client.attached_client import CONNECT_WITHIN_S, AttachedClient
from trimtab.network.client.errors import ClientError, ForgottenError, RefusedError, check_size
from trimtab.network.client.reconnecting_connection import REATTACH_AFTER_S
from trimtab.network.client.subscription import Delivery, Subscription
from trimtab.network.clock import now_s
from trimtab.network.links.address import Address
from trimtab.network.links.heartbeat import USUAL_HEARTBEAT, HeartbeatConfig
from trimtab.network.network_file import RETRANSMIT_AFTER_S
from trimtab.network.security.caller import Caller, own_name, present
from trimtab.protocol.events import MoveTo
from trimtab.protocol.frames import PlaceRequest
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import FROM_NOW_ON

PLACED_WITHIN_S: Final = 30.0
"""Brokers report to a coordinator within some seconds after it has begun."""

ASK_AGAIN_AFTER_S: Final = 0.25

__all__ = ["Client", "ClientError", "ForgottenError", "RefusedError"]


class Client(AttachedClient):
    """A publisher, a subscriber, or both, connected to one broker at a time.

        async with await Client.connect("127.0.0.1:7001") as client:
            subscription = await client.subscribe("class = 'STOCK' AND volume > 300000")
            await client.publish({"class": "STOCK", "volume": 412000})

    The connection is made again whenever it breaks, and the client goes on at another broker when its own asks it to;
    nothing is lost or doubled by either.
    """

    @classmethod
    async def connect(
        cls,
        address: str | Address,
        name: str | None = None,
        *,
        session: str | None = None,
        publish_window_count: int = 1_000,
        reattach_after_s: float = REATTACH_AFTER_S,
        silent_after_s: float = USUAL_HEARTBEAT.silent_after_s,
        answer_within_s: float = USUAL_HEARTBEAT.answer_within_s,
        identity: str | Path | None = None,
    ) -> Self:
        """Connect to a broker at HOST:PORT; without a name the client gets one that nobody else has.

        A broker that fails and is replaced is found again wherever it is. One that is away for longer than
        `reattach_after_s` is given up: the client begins again at a neighbour of it, and may miss what was under way.
        A broker of which nothing was heard for `silent_after_s` is asked, and if it does not answer within
        `answer_within_s` the connection is given up and made again. A publisher that numbers its publications itself
        (`publish`) gives the same name and `session` each time it is started. An identity file says who the client is
        where a network asks for that; without it the environment variable TRIMTAB_AS may name one.
        """
        caller = Caller.read(identity) if identity is not None else present()
        config = ClientConfig(
            name=name or own_name(caller),
            session=session or secrets.token_hex(5),
            publish_window_count=publish_window_count,
            link=LinkConfig(4_096, RETRANSMIT_AFTER_S, 4_096),
        )
        heartbeat = HeartbeatConfig(silent_after_s, answer_within_s)
        client = cls(Address.of(address), config, reattach_after_s, heartbeat, caller)
        await client._begin()
        return client

    @classmethod
    async def connect_through(
        cls,
        coordinator: str | Address,
        name: str | None = None,
        *,
        site: tuple[float, float] | None = None,
        publish_window_count: int = 1_000,
        within_s: float = PLACED_WITHIN_S,
    ) -> Self:
        """Ask the coordinator at HOST:PORT where to connect, and connect there; `site` tells where the client is.

        A coordinator that has just begun knows no brokers; it is asked again for so long.
        """
        where = Address.of(coordinator)
        name = name or own_name(present())
        ends_s = now_s() + within_s
        try:
            place = await ask_place(where, PlaceRequest(name, site), CONNECT_WITHIN_S)
            while not place.broker and now_s() < ends_s:
                await asyncio.sleep(ASK_AGAIN_AFTER_S)
                place = await ask_place(where, PlaceRequest(name, site), CONNECT_WITHIN_S)
        except (OSError, TimeoutError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
            raise ClientError(f"no coordinator at {where}: {reason}") from None
        if not place.broker:
            raise ClientError(f"the coordinator at {where} knows no broker: {place.reason}")
        return await cls.connect(place.address, name, publish_window_count=publish_window_count)

    @property
    def name(self) -> str:
        """The client's name, under which it publishes."""
        return self._session.name

    @property
    def broker(self) -> str:
        """The name of the broker that serves the client."""
        return self._session.broker

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._session.link.connected

    async def move(self, broker: str, address: str | Address) -> str:
        """Go on at another broker; returns its name, or says why not. What is published meanwhile waits for the end."""
        self._check()
        where = str(Address.of(address))
        if self._move is not None:
            raise RefusedError("the client is on its way to another broker")
        move: asyncio.Future[str] = self._loop.create_future()
        self._move = move
        self._carry_out(self._session.handle(MoveTo(broker, where), now_s()))
        return await move

    async def advertise(self, filter: str | Filter, *, open: bool = False) -> str:
        """Announce what will be published; returns its id when the whole network knows.

        With `open` publications may have any further attributes. From then on only what the application has announced
        may be published. A text with OR or IN means several filters, which are announced under one id.
        """
        self._check()
        filters = filters_of(filter)
        if open:
            if not self._session.knows_open_advertisements:
                raise RefusedError(f"broker {self.broker} is of an earlier version, without open advertisements")
            filters = [each.opened() for each in filters]
        own, self._own_advertisements = self._own_advertisements, None
        ids = [self._session.advertise(each, now_s()) for each in filters]
        self._advertised[ids[0]] = ids
        try:
            await asyncio.gather(*[self._request(id) for id in ids])
        except BaseException:
            del self._advertised[ids[0]]
            self._own_advertisements = own
            raise
        return ids[0]

    async def unadvertise(self, id: str) -> None:
        """End an advertisement."""
        self._check()
        for each in self._advertised.pop(id, [id]):
            self._session.unadvertise(each, now_s())
        self._schedule()

    async def subscribe(
        self,
        *filters: str | Filter,
        channels: Sequence[tuple[str, Mapping[str, Value]]] = (),
        callback: Callable[[Delivery], None] | None = None,
        within_s: float | None = None,
    ) -> Subscription:
        """Ask for what any of the filters matches, and for the results of channels; returns when all is in force.

        Each publication comes once, however many of the filters match. Deliveries go to the callback, or else wait in
        the subscription, which is an asynchronous iterator. A channel is given with its arguments by name. With
        `within_s` the network strives to deliver what the filters match within that time of its publication; a
        delivery that takes longer comes all the same, says so (`late_for`) and is counted (`late_count`).
        """
        self._check()
        wanted = filters_of(*filters)
        check_callback(callback)
        if within_s is not None and (isinstance(within_s, bool) or not isinstance(within_s, int | float)):
            raise TypeError(f"within_s is a number of seconds, not {type(within_s).__name__}")
        ids = tuple(self._session.subscribe(filter, now_s(), within_s) for filter in wanted)
        ids += tuple(self._subscribe_channel(channel, arguments, FROM_NOW_ON) for channel, arguments in channels)
        subscription = Subscription(self._ends, ids, callback)
        for id in ids:
            self._subscriptions[id] = subscription
        await asyncio.gather(*[self._request(id) for id in ids])
        return subscription

    async def subscribe_channel(
        self,
        channel: str,
        arguments: Mapping[str, Value],
        *,
        after: int | None = None,
        callback: Callable[[Delivery], None] | None = None,
    ) -> Subscription:
        """Ask for a channel's results, from now on or after a position; returns when none will be missed.

        A delivery's sequence is the result's position: who stores the last one can go on after it another day.
        """
        self._check()
        check_callback(callback)
        id = self._subscribe_channel(channel, arguments, FROM_NOW_ON if after is None else after)
        subscription = self._subscriptions[id] = Subscription(self._ends, (id,), callback)
        await self._request(id)
        return subscription

    def _subscribe_channel(self, channel: str, arguments: Mapping[str, Value], after: int) -> str:
        try:
            return self._session.subscribe_channel(channel, arguments, now_s(), after)
        except ValueError as error:
            raise RefusedError(str(error)) from None

    @property
    def late_count(self) -> int:
        """Deliveries that came later than their subscriptions wanted, one for each such subscription."""
        return sum(self._session.late_counts.values())

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        await self._unsubscribe(subscription)

    async def publish(self, values: Mapping[str, object], sequence: int | None = None) -> int:
        """Publish; waits while too many publications are not accepted yet. Returns the sequence number.

        Values inside values get names with dots, and None means absent (`Publication`). A client that has announced
        nothing itself announces what it publishes: the class, and the other attributes with any value of their kind.
        A publisher with growing numbers of its own, the same each time it is started, may give them.
        """
        self._check()
        publication = values if isinstance(values, Publication) else Publication(values)
        if sequence is not None and type(sequence) is not int:
            raise TypeError(f"a sequence number is an integer, not {type(sequence).__name__}")
        check_size(publication.values_by_name)
        own = self._own_advertisements
        if own is not None and not own.announce(publication.values_by_name):
            await self._announce(publication)
        while self._session.window_is_full:
            self._room.clear()
            await self._room.wait()
            self._check()
        number = self._session.publish(publication, now_s(), sequence)
        self._schedule()
        return number

    async def _announce(self, publication: Publication) -> None:
        """Widen the client's own advertisements to what is published; the former ones end behind what is on its way."""
        async with self._announcing:
            own = self._own_advertisements
            if own is None or own.announce(publication.values_by_name):
                return
            wider = own.widened(publication, may_be_open=self._session.knows_open_advertisements)
            id = self._session.advertise(wider.filter, now_s())
            await self._request(id)
            former = own.add(id, wider)
            if former is not None:
                self._session.unadvertise(former, now_s())
            self._schedule()

    @property
    def waiting_count(self) -> int:
        """Publications that the broker has not accepted (or refused) yet; it accepts them in their order."""
        return self._session.waiting_count

    async def drain(self) -> None:
        """Wait until the broker has accepted (or refused) every publication."""
        self._check()
        while self._session.waiting_count:
            self._room.clear()
            await self._room.wait()
            self._check()

    async def close(self) -> None:
        """Leave the network: subscriptions and advertisements end. What was not accepted yet is given up."""
        if not self._is_closing:
            await self._abandon("the client leaves")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        with contextlib.suppress(ClientError):
            if error[0] is None:
                await self.drain()
        await self.close()

    def __repr__(self) -> str:
        state = "connected" if self.is_connected else "closed" if self._is_closing else "not connected"
        return f"<Client {self.name} at {self.broker or 'no broker'} ({self._line.address}), {state}>"


def filters_of(*given: str | Filter) -> list[Filter]:
    """The filters that an application gives, as such or as texts.

    >>> print(*filters_of("volume > 5 OR symbol = 'IBM'", Filter.parse("a = 1")))
    [volume,>,5] [symbol,eq,'IBM'] [a,=,1]
    >>> filters_of(5)
    Traceback (most recent call last):
    ...
    TypeError: a filter is a text such as "volume > 5" or a Filter, not int
    """
    found: list[Filter] = []
    for each in given:
        if isinstance(each, Filter):
            found.append(each)
        elif isinstance(each, str):
            found.extend(Filter.parse_all(each))
        else:
            raise TypeError(f'a filter is a text such as "volume > 5" or a Filter, not {type(each).__name__}')
    return found


def check_callback(callback: object) -> None:
    """Refuse a callback that cannot be called, before anything comes for it."""
    if callback is not None and not callable(callback):
        raise TypeError(f"a callback is a function that takes a delivery, not {type(callback).__name__}")
