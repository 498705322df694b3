"""NATS as a message plane: subjects instead of filters.

NATS does not look into what it carries. Each subscriber has as many subscriptions as Trimtab's, each to one subject,
all have the same subjects, and each publication goes to one subject: one delivery per connection. A publisher's batch
ends with a PING, whose PONG says that the server has processed the batch; deliveries are not acknowledged. All
messages of a run are equally long, so that a subscriber counts them by their bytes.

The protocol: docs.nats.io, "NATS Protocol" (CONNECT, SUB, PUB, MSG, PING, PONG).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Final, cast

from trimtab.lab.bench.plane.systems import (
    ANSWER_WITHIN_S,
    EqualMessages,
    LoadPublisher,
    LoadSubscriber,
    OtherServer,
    Outstanding,
    PlaneLoad,
    connect,
)

PROGRAM: Final = "nats-server"
INSTALL: Final = "apt-get install nats-server"
BATCH_COUNT: Final = 50
"""Publications before each PING; several batches are outstanding."""

_TIME: Final = struct.Struct(">d")
_CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"echo":true,"lang":"python","version":"1"}\r\n'
_PENDING_MAX_MB: Final = 512
"""What may wait for a slow subscriber: more than a run can fill, so that nobody is disconnected."""


class NatsSystem(OtherServer):
    """A NATS server of this machine."""

    name = "nats"

    def __init__(self) -> None:
        super().__init__(
            PROGRAM, lambda address: f"listen: {address}\nmax_pending: {_PENDING_MAX_MB}MB\nwrite_deadline: 60s\n"
        )

    async def open(self, load: PlaneLoad) -> tuple[LoadPublisher, Sequence[LoadSubscriber]]:
        """Connect a publisher and the subscribers, whose subscriptions are then in force."""
        subjects = [f"stock.{number:05d}" for number in range(load.subscriptions_per_connection_count)]
        subscribers = []
        for _ in range(load.connections_count):
            subscriber = await connect(lambda: _Subscriber(subjects, load.payload_bytes), self._address)
            subscribers.append(subscriber)
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await subscriber.in_force.wait()
        return await connect(lambda: _Publisher(subjects, load), self._address), subscribers


class _Publisher(asyncio.Protocol):
    def __init__(self, subjects: Sequence[str], load: PlaneLoad) -> None:
        self._load = load
        self._subjects = subjects
        self._window = Outstanding(load.outstanding_count)
        self._batches: list[int] = []
        self._number = 0
        self._tail = b""
        self._transport: asyncio.Transport
        payload = bytes(load.payload_bytes)
        self._messages = [self._message(number, payload) for number in range(len(subjects))]

    def _message(self, number: int, payload: bytes) -> bytes:
        return f"PUB {self._subjects[number]} {len(payload)}\r\n".encode() + payload + b"\r\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_CONNECT)

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        whole, _, self._tail = data.rpartition(b"\r\n")
        for line in whole.split(b"\r\n"):
            if line == b"PONG":
                self._window.accepted(self._batches.pop(0))
            elif line == b"PING":
                self._transport.write(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise ConnectionError(f"the NATS server says {line.decode(errors='replace')}")

    def _send(self, messages: Sequence[bytes]) -> None:
        self._window.sent(len(messages))
        self._batches.append(len(messages))
        self._transport.write(b"".join([*messages, b"PING\r\n"]))

    async def publish(self, count: int) -> None:
        size, messages = min(BATCH_COUNT, self._load.outstanding_count), self._messages
        for start in range(0, count, size):
            batch = min(size, count - start)
            await self._window.wait_for_room(batch)
            self._send([messages[(self._number + offset) % len(messages)] for offset in range(batch)])
            self._number += batch
        await self._window.wait_until_none()

    def publish_one(self, time_s: float) -> None:
        self._number += 1
        payload = _TIME.pack(time_s).ljust(self._load.payload_bytes, b"\0")
        self._send([self._message(self._number % len(self._subjects), payload)])

    async def settled(self) -> None:
        await self._window.wait_until_none()

    def close(self) -> None:
        self._transport.close()


class _Subscriber(EqualMessages):
    def __init__(self, subjects: Sequence[str], payload_bytes: int) -> None:
        self._subjects = subjects
        head = f"MSG {subjects[0]} 00000 {payload_bytes}\r\n"
        super().__init__(len(head) + payload_bytes + 2, len(head))
        self.in_force = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        wanted = (f"SUB {subject} {10_000 + number}\r\n" for number, subject in enumerate(self._subjects))
        self._transport.write(_CONNECT + "".join(wanted).encode() + b"PING\r\n")

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        if not self.in_force.is_set():
            before, pong, data = data.partition(b"PONG\r\n")
            if not pong:
                self._buffer = before
                return
            self.in_force.set()
        if b"PING\r\n" in data:
            data = data.replace(b"PING\r\n", b"")
            self._transport.write(b"PONG\r\n")
        self.take_whole(data)
