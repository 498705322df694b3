"""A client of a broker network, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from trimtab.client.config import ClientConfig
from trimtab.client.gaps import ANSWERS_WITHIN_S
from trimtab.client.moves import MoveLog
from trimtab.client.session import ClientSession
from trimtab.language import Filter, LimitError, Publication, Value
from trimtab.network.admin.status import ask_place
from trimtab.network.client.reconnecting_connection import REATTACH_AFTER_S, Line
from trimtab.network.client.subscription import Delivery, Subscription
from trimtab.network.clock import now_s
from trimtab.network.links.address import Address
from trimtab.network.links.connection import PLACE_TAKEN, Connection
from trimtab.network.links.heartbeat import USUAL_HEARTBEAT, Heartbeat, HeartbeatConfig
from trimtab.network.links.round_trips import measure_round_trips
from trimtab.network.network_file import RETRANSMIT_AFTER_S
from trimtab.protocol.codec import CLIENT_FRAME_MAX_BYTES
from trimtab.protocol.effects import (
    Close,
    Deliver,
    Effect,
    GapNotice,
    HeldBack,
    InForce,
    MeasureRoundTrips,
    Moved,
    NotMoved,
    Open,
    Rejected,
    Shut,
    Taken,
)
from trimtab.protocol.events import Connected, Disconnected, MoveTo, RoundTripsMeasured, Wake
from trimtab.protocol.frames import Ack, Frame, Goodbye, Hello, Payload, PlaceRequest, version_problem
from trimtab.protocol.kept_link import Place
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import FROM_NOW_ON
from trimtab.protocol.records import MoveRecord

CONNECT_WITHIN_S: Final = 5.0
"""The first connection and its greeting may take so long."""

LOOK_AFTER_MOVE_S: Final = 1.0
"""How often a move is looked after; its times are much longer."""

GAPS_KEPT_COUNT: Final = 1_000
"""Gap notices that a client keeps; each is told when it comes."""

LONG_TEXT_CHARS: Final = 1_000
FEW_ATTRIBUTES_COUNT: Final = 64
ROOM_FOR_THE_REST_BYTES: Final = 2_048
"""A few attributes without long texts always fit a frame; otherwise what surrounds the values needs so much."""


class ClientError(Exception):
    """A client cannot go on: no connection, or the broker refused it; the message says why."""


class ForgottenError(ClientError):
    """A broker has forgotten a client that stores what it is told: something may be missing."""


class RefusedError(ClientError):
    """The broker refused a request; the message says which and why."""


def _check_size(values: Mapping[str, Value]) -> None:
    """Refuse a publication that no frame can hold; only long texts or very many attributes make one."""
    for value in values.values():
        if type(value) is str and len(value) > LONG_TEXT_CHARS:
            break
    else:
        if len(values) <= FEW_ATTRIBUTES_COUNT:
            return
    size_bytes = len(msgspec.msgpack.encode(dict(values))) + ROOM_FOR_THE_REST_BYTES
    if size_bytes > CLIENT_FRAME_MAX_BYTES:
        raise LimitError(f"a publication of {size_bytes:,} bytes; at most {CLIENT_FRAME_MAX_BYTES:,} are allowed")


class Client:
    """A publisher, a subscriber, or both, connected to one broker at a time.

        async with await Client.connect("127.0.0.1:7001") as client:
            await client.advertise(Filter.parse("class = 'STOCK'"))
            await client.publish(Publication({"class": "STOCK"}))

    The connection is made again whenever it breaks, and the client goes on at another broker when its own asks it to;
    nothing is lost or doubled by either.
    """

    def __init__(
        self,
        address: Address,
        config: ClientConfig,
        reattach_after_s: float = REATTACH_AFTER_S,
        heartbeat: HeartbeatConfig = USUAL_HEARTBEAT,
    ) -> None:
        self._line = Line(self, address, reattach_after_s=reattach_after_s)
        self._next_line: Line | None = None
        """The line to the broker that the client is moving to."""
        self._closing_lines: dict[asyncio.Task[None], None] = {}
        self._move: asyncio.Future[str] | None = None
        self._session = ClientSession(config)
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._heartbeat = Heartbeat(heartbeat, self._connections, self._ask, Connection.give_up)
        self._flush_is_due = False
        self._requests: dict[str, asyncio.Future[None]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._room = asyncio.Event()
        self._waiting_count = 0
        """Deliveries that the application has not taken yet, of all subscriptions."""
        self._error: ClientError | None = None
        self._is_closing = False
        self.on_move: Callable[[MoveRecord], None] | None = None
        """Told of each move, once it is done, undone or refused."""
        self._move_log = MoveLog(self._session)
        self.moves_count = 0
        """How often the client has gone on at another broker."""
        self.gaps_count = 0
        """Notices that something which was wanted may be lost."""
        self.gaps: deque[GapNotice] = deque(maxlen=GAPS_KEPT_COUNT)
        """The latest of them."""
        self.on_gap: Callable[[GapNotice], None] | None = None
        """Told of each, as it comes."""
        self.refused: list[Rejected] = []
        """Publications that the broker refused, as publisher:sequence with the reason."""
        self.held_back_because = ""
        """What the broker last said of a limit beyond which what the client sends waits, if it did."""
        self.on_held_back: Callable[[str], None] | None = None
        """Told whenever the broker says so."""

    @classmethod
    async def connect(
        cls,
        address: str | Address,
        name: str | None = None,
        *,
        publish_window_count: int = 1_000,
        reattach_after_s: float = REATTACH_AFTER_S,
        silent_after_s: float = USUAL_HEARTBEAT.silent_after_s,
        answer_within_s: float = USUAL_HEARTBEAT.answer_within_s,
    ) -> Client:
        """Connect to a broker at HOST:PORT; without a name the client gets one that nobody else has.

        A broker that fails and is replaced is found again wherever it is. One that is away for longer than
        `reattach_after_s` is given up: the client begins again at a neighbour of it, and may miss what was under way.
        A broker of which nothing was heard for `silent_after_s` is asked, and if it does not answer within
        `answer_within_s` the connection is given up and made again.
        """
        where = Address.parse(address) if isinstance(address, str) else address
        config = ClientConfig(
            name=name or f"client-{secrets.token_hex(6)}",
            session=secrets.token_hex(5),
            publish_window_count=publish_window_count,
            link=LinkConfig(4_096, RETRANSMIT_AFTER_S, 4_096),
        )
        client = cls(where, config, reattach_after_s, HeartbeatConfig(silent_after_s, answer_within_s))
        await client.begin()
        return client

    async def begin(self) -> None:
        """Make the first connection, and see to it that there is one from then on."""
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                await self._line.dial()
                await self._greeted
        except (OSError, TimeoutError) as error:
            await self._abandon()
            reason = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
            raise ClientError(f"no broker at {self._line.address}: {reason}") from None
        except ClientError:
            await self._abandon()
            raise
        self._line.keep()
        self._heartbeat.begin()

    @classmethod
    async def connect_through(
        cls,
        coordinator: str | Address,
        name: str | None = None,
        *,
        site: tuple[float, float] | None = None,
        publish_window_count: int = 1_000,
    ) -> Client:
        """Ask the coordinator at HOST:PORT where to connect, and connect there; `site` tells where the client is."""
        where = Address.parse(coordinator) if isinstance(coordinator, str) else coordinator
        name = name or f"client-{secrets.token_hex(6)}"
        try:
            place = await ask_place(where, PlaceRequest(name, site), CONNECT_WITHIN_S)
        except (OSError, TimeoutError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
            raise ClientError(f"no coordinator at {where}: {reason}") from None
        if not place.broker:
            raise ClientError(f"the coordinator at {where} knows no broker: {place.reason}")
        return await cls.connect(place.address, name, publish_window_count=publish_window_count)

    # ---- the application's side ----

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

    async def move(self, broker: str, address: str) -> str:
        """Go on at another broker; returns its name, or says why not. What is published meanwhile waits for the end."""
        self.check()
        Address.parse(address)
        if self._move is not None:
            raise RefusedError("the client is on its way to another broker")
        move: asyncio.Future[str] = self._loop.create_future()
        self._move = move
        self._carry_out(self._session.handle(MoveTo(broker, address), now_s()))
        return await move

    async def advertise(self, filter: Filter) -> str:
        """Announce what will be published; returns its id when the whole network knows."""
        self.check()
        id = self._session.advertise(filter, now_s())
        await self._request(id)
        return id

    async def unadvertise(self, id: str) -> None:
        """End an advertisement."""
        self.check()
        self._session.unadvertise(id, now_s())
        self._schedule()

    async def subscribe(
        self,
        *filters: Filter,
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
        self.check()
        ids = tuple(self._session.subscribe(filter, now_s(), within_s) for filter in filters)
        ids += tuple(self._subscribe_channel(channel, arguments, FROM_NOW_ON) for channel, arguments in channels)
        subscription = Subscription(self, ids, callback)
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
        self.check()
        id = self._subscribe_channel(channel, arguments, FROM_NOW_ON if after is None else after)
        subscription = self._subscriptions[id] = Subscription(self, (id,), callback)
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
        self.check()
        for id in subscription.ids:
            if self._subscriptions.pop(id, None) is not None:
                self._session.unsubscribe(id, now_s())
        self.deliveries_taken(subscription.waiting_count)  # nobody is made to wait for them any more
        subscription.end()
        self._schedule()

    async def publish(self, values: Mapping[str, Value], sequence: int | None = None) -> int:
        """Publish; waits while too many publications are not accepted yet. Returns the sequence number.

        A publisher with growing numbers of its own, the same in each of its lives, may give them.
        """
        self.check()
        while self._session.window_is_full:
            self._room.clear()
            await self._room.wait()
            self.check()
        _check_size(values.values_by_name if isinstance(values, Publication) else values)
        number = self._session.publish(values, now_s(), sequence)
        self._schedule()
        return number

    @property
    def waiting_count(self) -> int:
        """Publications that the broker has not accepted (or refused) yet; it accepts them in their order."""
        return self._session.waiting_count

    async def drain(self) -> None:
        """Wait until the broker has accepted (or refused) every publication."""
        self.check()
        while self._session.waiting_count:
            self._room.clear()
            await self._room.wait()
            self.check()

    async def close(self, *, leaves: bool = True) -> None:
        """Leave the network: subscriptions and advertisements end. What was not accepted yet is given up.

        One that does not leave only breaks the connection: the broker keeps its session for a while.
        """
        if not self._is_closing:
            await self._abandon("the client leaves" if leaves else "")

    # ---- for an application that stores what it is told ----

    def take_up(self, callback: Callable[[Delivery], None]) -> None:
        """Hand what comes for the subscriptions of an earlier life to a callback."""
        ids = self._session.subscription_ids
        self._subscriptions.update(dict.fromkeys(ids, Subscription(self, ids, callback)))

    def arrived(self) -> tuple[str, Place]:
        """The broker's session, and how much of it has arrived and been handed over."""
        return self._session.broker_session, self._session.arrived()

    def stored(self, place: Place) -> None:
        """What had arrived at a place is stored: the broker may forget it."""
        self._session.stored(place)
        self._schedule()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        with contextlib.suppress(ClientError):
            if error[0] is None:
                await self.drain()
        await self.close()

    # ---- connections ----

    def connection_opened(self, connection: Connection) -> None:
        """The broker answers: greet it, and expect its greeting."""
        connection.send(self._session.greeting(connection.dialled))
        connection.greeting_timer = self._loop.call_later(CONNECT_WITHIN_S, connection.close)

    def frame_received(self, connection: Connection, frame: Frame) -> None:
        """A frame of the broker."""
        match frame:
            case Payload() | Ack() if connection.peer:
                self._carry_out(self._session.receive(connection.peer, frame, now_s()))
            case Hello() if not connection.peer and (problem := version_problem(frame)):
                self._said_goodbye(connection, Goodbye(problem))
            case Hello() if not connection.peer:
                connection.peer = frame.name
                if connection.greeting_timer is not None:
                    connection.greeting_timer.cancel()
                if connection.dialled not in ("", frame.name):
                    self.connection_broken(connection, f"broker {connection.dialled} was expected here")
                    return
                line = self._line_of(connection)
                if line is not None:
                    line.greeted(frame.name, frame.elsewhere)
                self._carry_out(self._session.handle(Connected(frame.name, frame), now_s()))
                self._schedule()
                if not self._greeted.done():
                    self._greeted.set_result(None)
            case Goodbye():
                self._said_goodbye(connection, frame)
            case _:
                self.connection_broken(connection, "the broker does not keep to the protocol")

    def bytes_handled(self, connection: Connection) -> None:
        """Acknowledge what arrived, and what the application's callbacks have dealt with."""
        self._session.consumed(self._waiting_count)
        self._schedule()
        self._room.set()

    def connection_broken(self, connection: Connection, reason: str) -> None:
        """The broker sent what is not a frame."""
        connection.close(reason)

    def connection_writable(self, connection: Connection) -> None:
        """There is room for more frames."""
        self._schedule()

    def connection_closed(self, connection: Connection) -> None:
        """The connection is gone; the keeper makes another one."""
        line = self._line_of(connection)
        if line is not None:
            line.closed(connection)
            self._session.handle(Disconnected(connection.peer), now_s())

    def _connections(self) -> list[Connection]:
        """The connections to brokers that have greeted."""
        lines = [line for line in (self._line, self._next_line) if line is not None]
        found = [line.connection for line in lines if line.connection is not None]
        return [connection for connection in found if connection.peer and connection.is_open()]

    def _ask(self, connection: Connection) -> None:
        """The broker is silent."""
        frame = self._session.heartbeat(connection.peer)
        if frame is not None:
            connection.send(frame)

    def _line_of(self, connection: Connection) -> Line | None:
        lines = (self._line, self._next_line)
        return next((line for line in lines if line is not None and line.connection is connection), None)

    def _said_goodbye(self, connection: Connection, goodbye: Goodbye) -> None:
        """Before the first greeting this is a refusal; later a broker that leaves or returns may be called again."""
        is_ours = connection is self._line.connection
        connection.close()
        if goodbye.reason == PLACE_TAKEN and is_ours and self._line.took_own_place():
            return
        if not self._greeted.done():
            self._greeted.set_exception(ClientError(f"the broker at {self._line.address} refused: {goodbye.reason}"))
        elif not (goodbye.leaves or goodbye.returns) and is_ours and not self._is_closing:
            self._fail(ClientError(f"the broker at {self._line.address} closed the connection: {goodbye.reason}"))

    def _fail(self, error: ClientError) -> None:
        self._error = error
        self._room.set()
        for request in self._requests.values():
            if not request.done():
                request.set_exception(error)
        for subscription in self._subscriptions.values():
            subscription.end()

    async def _abandon(self, reason: str = "") -> None:
        self._is_closing = True
        self._heartbeat.end()
        self._flush()
        for line in (self._next_line, self._line):
            if line is not None:
                await line.close(reason)
        await asyncio.gather(*self._closing_lines, return_exceptions=True)
        if self._error is None:
            self._fail(ClientError("the client is closed"))

    # ---- moving ----

    def _open(self, broker: str, address: str) -> None:
        self._next_line = Line(self, Address.parse(address), broker)
        self._next_line.keep()
        self._loop.call_later(LOOK_AFTER_MOVE_S, self._look_after_move, self._next_line)

    def _look_after_move(self, line: Line) -> None:
        """From time to time, as long as a move lasts: one of its times may be over."""
        if self._next_line is line:
            self._wake()
            self._loop.call_later(LOOK_AFTER_MOVE_S, self._look_after_move, line)

    def _shut(self, broker: str) -> None:
        """One of two lines is no longer needed: the old one after a move, the new one if there was none."""
        line = self._line
        if self._next_line is not None:
            line, self._line = (self._line, self._next_line) if self._line.broker == broker else (self._next_line, line)
            self._next_line = None
        closing = self._loop.create_task(line.close("the client has moved"))
        self._closing_lines[closing] = None
        closing.add_done_callback(lambda done: self._closing_lines.pop(done, None))

    async def _measure(self, wanted: MeasureRoundTrips) -> None:
        measured = RoundTripsMeasured(wanted.question, await measure_round_trips(wanted.addresses))
        if not self._is_closing:
            self._carry_out(self._session.handle(measured, now_s()))
            self._schedule()

    def _wake(self) -> None:
        if not self._is_closing:
            self._carry_out(self._session.handle(Wake(), now_s()))
            self._schedule()

    def _move_ended(self, broker: str, problem: str = "") -> None:
        move, self._move = self._move, None
        if move is None or move.done():
            return
        if problem:
            move.set_exception(RefusedError(f"the client did not move to {broker}: {problem}"))
        else:
            move.set_result(broker)

    # ---- turns ----

    def _schedule(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        for line in (self._line, self._next_line):
            connection = line.connection if line is not None else None
            if connection is None or not connection.peer or not connection.writable:
                continue
            time_s = now_s()
            while (frame := self._session.take_frame(time_s, connection.peer)) is not None:
                connection.send(frame)

    def _log_move(self, effect: Open | Moved | NotMoved) -> None:
        record = self._move_log.note(effect, now_s())
        if record is not None and self.on_move is not None:
            self.on_move(record)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver(subscriptions=(id,)):
                    if id in self._subscriptions:
                        self._subscriptions[id].hand_over(effect)
                case Deliver(subscriptions=ids):
                    wanted = dict.fromkeys(self._subscriptions[id] for id in ids if id in self._subscriptions)
                    for subscription in wanted:
                        subscription.hand_over(effect)
                case Taken():
                    self._room.set()
                case InForce(id=id):
                    request = self._requests.pop(id, None)
                    if request is not None and not request.done():
                        request.set_result(None)
                case Rejected(about=about, reason=reason):
                    request = self._requests.pop(about, None)
                    if request is None:
                        self.refused.append(effect)
                    elif not request.done():
                        request.set_exception(RefusedError(f"{about}: {reason}"))
                case GapNotice():
                    self._note_gap(effect)
                case HeldBack(reason=reason):
                    self.held_back_because = reason
                    if self.on_held_back is not None:
                        self.on_held_back(reason)
                case Close(reason=reason):
                    self._fail(ForgottenError(reason))
                case Open(broker=broker, address=address):
                    self._log_move(effect)
                    self._open(broker, address)
                case Shut(broker=broker):
                    self._shut(broker)
                case MeasureRoundTrips():
                    measuring = self._loop.create_task(self._measure(effect))
                    self._closing_lines[measuring] = None
                    measuring.add_done_callback(lambda done: self._closing_lines.pop(done, None))
                case Moved(broker=broker):
                    self.moves_count += 1
                    self._log_move(effect)
                    self._schedule()
                    self._move_ended(broker)
                case NotMoved(broker=broker, reason=reason):
                    self._log_move(effect)
                    self._move_ended(broker, reason)

    def _note_gap(self, notice: GapNotice) -> None:
        self.gaps_count += 1
        self.gaps.append(notice)
        if not notice.publisher:  # what is known later of each publisher is told then
            self._loop.call_later(ANSWERS_WITHIN_S + 0.5, self._wake)
        if self.on_gap is not None:
            self.on_gap(notice)

    def _request(self, id: str) -> asyncio.Future[None]:
        """What the broker will answer; noted at once, because the answer may come before the caller waits."""
        request: asyncio.Future[None] = self._loop.create_future()
        self._requests[id] = request
        self._schedule()
        return request

    def check(self) -> None:
        """Raise the error that ended the client, if one did."""
        if self._error is not None:
            raise self._error

    def delivery_waits(self) -> None:
        """A delivery waits for the application."""
        self._waiting_count += 1

    def deliveries_taken(self, count: int) -> None:
        """The application has taken deliveries: tell the broker once they are many, so that it sends more."""
        self._waiting_count -= count
        if self._session.consumed(self._waiting_count):
            self._schedule()
