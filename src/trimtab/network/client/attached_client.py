"""What a client and its brokers do behind the application's back: connections, the session, requests, moves.

`client.py` is what the application sees of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from trimtab.client.config import ClientConfig
from trimtab.client.gaps import ANSWERS_WITHIN_S
from trimtab.client.moves import MoveLog
from trimtab.client.own_advertisements import OwnAdvertisements
from trimtab.client.session import ClientSession
from trimtab.network.client.errors import ClientError, ForgottenError, RefusedError
from trimtab.network.client.reconnecting_connection import REATTACH_AFTER_S, ReconnectingConnection
from trimtab.network.client.subscription import Subscription
from trimtab.network.clock import now_s
from trimtab.network.links.address import Address
from trimtab.network.links.connection import PLACE_TAKEN, Connection
from trimtab.network.links.heartbeat import USUAL_HEARTBEAT, Heartbeat, HeartbeatConfig
from trimtab.network.links.round_trips import measure_round_trips
from trimtab.network.security.caller import Caller, present, with_credential
from trimtab.protocol.effects import (
    Close,
    Deliver,
    Effect,
    GapNotice,
    InForce,
    MeasureRoundTrips,
    Moved,
    NotMoved,
    Open,
    Rejected,
    Shut,
    Taken,
    Throttled,
)
from trimtab.protocol.events import Connected, Disconnected, RoundTripsMeasured, Wake
from trimtab.protocol.frames import Ack, Frame, Goodbye, Hello, Payload, version_problem
from trimtab.protocol.records import MoveRecord

CONNECT_WITHIN_S: Final = 5.0
"""The first connection and its greeting may take so long."""

LOOK_AFTER_MOVE_S: Final = 1.0
"""How often a move is looked after; its times are much longer."""

GAPS_KEPT_COUNT: Final = 1_000
"""Gap notices that a client keeps; each is told when it comes."""


class AttachedClient:
    """A client without the methods for its application: what keeps it attached to a broker."""

    def __init__(
        self,
        address: Address,
        config: ClientConfig,
        reattach_after_s: float = REATTACH_AFTER_S,
        heartbeat: HeartbeatConfig = USUAL_HEARTBEAT,
        caller: Caller | None = None,
    ) -> None:
        self._ends = _Ends(self)
        self._caller = caller or present()
        self._line = ReconnectingConnection(self._ends, address, reattach_after_s=reattach_after_s, caller=self._caller)
        self._next_line: ReconnectingConnection | None = None
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
        self._advertised: dict[str, list[str]] = {}
        """What the application has announced: the id that it knows, and those of all filters that its text meant."""
        self._own_advertisements: OwnAdvertisements | None = OwnAdvertisements()
        """What is announced by itself, as long as the application announces nothing."""
        self._announcing = asyncio.Lock()
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

    async def _begin(self) -> None:
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

    # ---- connections ----

    def _connection_opened(self, connection: Connection) -> None:
        """The broker answers: greet it, and expect its greeting."""
        try:
            greeting = with_credential(self._session.greeting(connection.dialled), self._caller)
        except OSError as error:
            connection.close()
            self._fail(ClientError(f"no credential: {error.strerror}"))
            return
        connection.send(greeting)
        connection.greeting_timer = self._loop.call_later(CONNECT_WITHIN_S, connection.close)

    def _frame_received(self, connection: Connection, frame: Frame) -> None:
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
                    connection.close(f"broker {connection.dialled} was expected here")
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
                connection.close("the broker does not keep to the protocol")

    def _bytes_handled(self) -> None:
        """Acknowledge what arrived, and what the application's callbacks have dealt with."""
        self._session.consumed(self._waiting_count)
        self._schedule()
        self._room.set()

    def _connection_closed(self, connection: Connection) -> None:
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

    def _line_of(self, connection: Connection) -> ReconnectingConnection | None:
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
        self._next_line = ReconnectingConnection(self._ends, Address.parse(address), broker, caller=self._caller)
        self._next_line.keep()
        self._loop.call_later(LOOK_AFTER_MOVE_S, self._look_after_move, self._next_line)

    def _look_after_move(self, line: ReconnectingConnection) -> None:
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

    # ---- loop iterations ----

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
                case Throttled(reason=reason):
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

    def _check(self) -> None:
        """Raise the error that ended the client, if one did."""
        if self._error is not None:
            raise self._error

    def _delivery_waits(self) -> None:
        self._waiting_count += 1

    def _deliveries_taken(self, count: int) -> None:
        """The application has taken deliveries: tell the broker once they are many, so that it sends more."""
        self._waiting_count -= count
        if self._session.consumed(self._waiting_count):
            self._schedule()

    async def _unsubscribe(self, subscription: Subscription) -> None:
        self._check()
        for id in subscription.ids:
            if self._subscriptions.pop(id, None) is not None:
                self._session.unsubscribe(id, now_s())
        self._deliveries_taken(subscription.waiting_count)  # nobody is made to wait for them any more
        subscription.end()
        self._schedule()


class _Ends:
    """What connections and subscriptions tell the client, which has no public methods for it."""

    def __init__(self, client: AttachedClient) -> None:
        self._client = client

    @property
    def name(self) -> str:
        """The client's name."""
        return self._client._session.name

    def connection_opened(self, connection: Connection) -> None:
        self._client._connection_opened(connection)

    def frame_received(self, connection: Connection, frame: Frame) -> None:
        self._client._frame_received(connection, frame)

    def bytes_handled(self, connection: Connection) -> None:
        self._client._bytes_handled()

    def connection_broken(self, connection: Connection, reason: str) -> None:
        connection.close(reason)

    def connection_writable(self, connection: Connection) -> None:
        self._client._schedule()

    def connection_closed(self, connection: Connection) -> None:
        self._client._connection_closed(connection)

    def delivery_waits(self) -> None:
        self._client._delivery_waits()

    def deliveries_taken(self, count: int) -> None:
        self._client._deliveries_taken(count)

    async def unsubscribe(self, subscription: Subscription) -> None:
        await self._client._unsubscribe(subscription)
