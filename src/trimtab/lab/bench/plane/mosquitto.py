"""Mosquitto as a message plane: MQTT 3.1.1, topics instead of filters.

Each subscriber has as many subscriptions as Trimtab's, each to one topic, all have the same topics, and each
publication goes to one topic: one delivery per connection. Publications have QoS 1: the server acknowledges each. With
QoS 1 for subscribers each delivery is acknowledged too, as Trimtab's are; with QoS 0 it is not. All messages of a run
are equally long, so that a subscriber finds packet identifiers without parsing.

The protocol: OASIS, MQTT version 3.1.1 (CONNECT, SUBSCRIBE, PUBLISH, PUBACK).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Final, Literal, cast

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

PROGRAM: Final = "mosquitto"
INSTALL: Final = "apt-get install mosquitto"

_TIME: Final = struct.Struct(">d")
_SHORT: Final = struct.Struct(">H")
_PUBACK_BYTES: Final = 4
_CONNACK_BYTES: Final = 4
_IDS_COUNT: Final = 65_535
_SUBSCRIPTIONS_AT_ONCE_COUNT: Final = 100
_CONFIG: Final = """
listener {port} {host}
allow_anonymous true
persistence false
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
log_type none
"""
"""Without limits of messages in flight or in queues, so that none is dropped, and without files."""


class MosquittoSystem(OtherServer):
    """A Mosquitto server of this machine."""

    def __init__(self, subscriber_qos: Literal[0, 1] = 1) -> None:
        super().__init__(PROGRAM, lambda address: _CONFIG.format(port=address.port, host=address.host))
        self.name = "mosquitto" if subscriber_qos else "mosquitto-qos0"
        self._subscriber_qos = subscriber_qos

    async def open(self, load: PlaneLoad) -> tuple[LoadPublisher, Sequence[LoadSubscriber]]:
        """Connect a publisher and the subscribers, whose subscriptions are then in force."""
        topics = [f"stock/{number:05d}" for number in range(load.subscriptions_per_connection_count)]
        subscribers = []
        for number in range(load.connections_count):
            subscriber = await connect(
                lambda number=number: _Subscriber(f"sink{number}", topics, load.payload_bytes, self._subscriber_qos),  # type: ignore[misc]
                self._address,
            )
            subscribers.append(subscriber)
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await subscriber.in_force.wait()
        publisher = await connect(lambda: _Publisher(topics, load), self._address)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            await publisher.connected.wait()
        return publisher, subscribers


def packet(first: int, body: bytes) -> bytes:
    """A packet: its first byte, the length of the rest in groups of seven bits, the rest.

    >>> packet(0x30, bytes(200))[:3].hex(" ")
    '30 c8 01'
    """
    length, groups = len(body), bytearray()
    while True:
        length, group = divmod(length, 128)
        groups.append(group | (0x80 if length else 0))
        if not length:
            return bytes([first]) + bytes(groups) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _connect(client: str) -> bytes:
    clean_session, keep_alive_s = 0x02, 0
    return packet(0x10, _text("MQTT") + bytes([4, clean_session]) + _SHORT.pack(keep_alive_s) + _text(client))


class _Publisher(asyncio.Protocol):
    def __init__(self, topics: Sequence[str], load: PlaneLoad) -> None:
        self._load = load
        self._window = Outstanding(load.outstanding_count)
        self._number = 0
        self._id = 0
        self._left_bytes = 0
        """Of the acknowledgements: all are equally long, and only their number counts."""
        self._transport: asyncio.Transport
        self._payload = bytes(load.payload_bytes)
        self._heads = [packet(0x32, _text(topic) + bytes(2) + self._payload) for topic in topics]
        self._heads = [head[: -2 - load.payload_bytes] for head in self._heads]
        self.connected = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_connect("publisher"))

    def data_received(self, data: bytes) -> None:
        size = self._left_bytes + len(data)
        if not self.connected.is_set():
            self.connected.set()
            size -= _CONNACK_BYTES
        count, self._left_bytes = divmod(size, _PUBACK_BYTES)
        if count:
            self._window.accepted(count)

    def _next(self, payload: bytes) -> tuple[bytes, bytes, bytes]:
        self._id = self._id % _IDS_COUNT + 1
        self._number += 1
        return self._heads[self._number % len(self._heads)], _SHORT.pack(self._id), payload

    async def publish(self, count: int) -> None:
        left = count
        while left:
            await self._window.wait_for_room(1)
            batch = min(left, self._window.room)
            left -= batch
            self._window.sent(batch)
            self._transport.write(b"".join([piece for _ in range(batch) for piece in self._next(self._payload)]))
        await self._window.wait_until_none()

    def publish_one(self, time_s: float) -> None:
        self._window.sent(1)
        self._transport.write(b"".join(self._next(_TIME.pack(time_s).ljust(self._load.payload_bytes, b"\0"))))

    async def settled(self) -> None:
        await self._window.wait_until_none()

    def close(self) -> None:
        self._transport.close()


class _Subscriber(EqualMessages):
    def __init__(self, name: str, topics: Sequence[str], payload_bytes: int, qos: int) -> None:
        self._name = name
        self._topics = topics
        self._qos = qos
        head = packet(0x32, _text(topics[0]) + bytes(2 * qos) + bytes(payload_bytes))
        super().__init__(len(head), len(head) - payload_bytes)
        starts = range(0, len(topics), _SUBSCRIPTIONS_AT_ONCE_COUNT)
        self._answers_bytes = _CONNACK_BYTES + sum(
            len(packet(0x90, bytes(2 + len(topics[start : start + _SUBSCRIPTIONS_AT_ONCE_COUNT])))) for start in starts
        )
        self._requests = b"".join(
            packet(
                0x82,
                _SHORT.pack(number)
                + b"".join(
                    _text(topic) + bytes([qos]) for topic in topics[start : start + _SUBSCRIPTIONS_AT_ONCE_COUNT]
                ),
            )
            for number, start in enumerate(starts, 1)
        )
        self.in_force = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_connect(self._name) + self._requests)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        if not self.in_force.is_set():
            if len(data) < self._answers_bytes:
                self._buffer = data
                return
            data = data[self._answers_bytes :]
            self.in_force.set()
        size, whole = self.message_bytes, self.take_whole(data)
        if self._qos and (count := len(whole) // size):
            answer = bytearray(b"\x40\x02\0\0" * count)
            answer[2::4] = whole[self.time_at - 2 :: size]
            answer[3::4] = whole[self.time_at - 1 :: size]
            self._transport.write(answer)
