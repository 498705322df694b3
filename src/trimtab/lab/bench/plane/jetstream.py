"""NATS JetStream with file storage: publications that are stored before they are acknowledged.

One stream takes all subjects. Each publication has a reply subject, to which the server sends an acknowledgement when
it is stored; with `sync_interval: always` after an fsync, by default after a write that the operating system may still
lose (an fsync every two minutes). Each subscriber is a durable push consumer of the stream, and acknowledges the last
of what it has read and so all before it, as Trimtab's do.

The protocol: docs.nats.io, "JetStream wire API reference" and "NATS Protocol".
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from trimtab.lab.bench.matching_memory import MeasurementError
from trimtab.lab.bench.plane.nats import PROGRAM
from trimtab.lab.bench.plane.systems import (
    ANSWER_WITHIN_S,
    LoadPublisher,
    LoadSubscriber,
    OtherServer,
    Outstanding,
    PlaneLoad,
    connect,
)
from trimtab.network.clock import now_s

_TIME: Final = struct.Struct(">d")
_CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"echo":true,"lang":"python","version":"1"}\r\n'
_STREAM: Final = "S"
_SUBJECT: Final = "stock.1"
_INBOX: Final = "_INBOX.load"
_CONFIG: Final = """
listen: "{address}"
write_deadline: 60s
jetstream {{ store_dir: "{folder}", max_mem: 64MB, max_file: 8GB{sync} }}
"""


class JetStreamSystem(OtherServer):
    """A NATS server of this machine with a stream in files."""

    def __init__(self, folder: str, *, syncs_always: bool) -> None:
        sync = ", sync_interval: always" if syncs_always else ""
        super().__init__(PROGRAM, lambda address: _CONFIG.format(address=address, folder=folder, sync=sync))
        self.name = "jetstream, sync always" if syncs_always else "jetstream"

    @property
    def pids(self) -> tuple[int, ...]:
        """The server's process."""
        return (self.pid,)

    async def open(self, load: PlaneLoad) -> tuple[LoadPublisher, Sequence[LoadSubscriber]]:
        """Make the stream, its consumers and a publisher."""
        publisher = await connect(lambda: _Publisher(load), self._address)
        await publisher.ask(f"STREAM.CREATE.{_STREAM}", {"name": _STREAM, "subjects": ["stock.>"], "storage": "file"})
        subscribers = []
        for number in range(load.connections_count):
            name = f"c{number}"
            subscriber = await connect(lambda: _Subscriber(f"deliver.{name}"), self._address)  # noqa: B023
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await subscriber.in_force.wait()
            config = {"durable_name": name, "deliver_subject": f"deliver.{name}", "ack_policy": "all"}
            wanted = {"stream_name": _STREAM, "config": {**config, "max_ack_pending": -1}}
            await publisher.ask(f"CONSUMER.DURABLE.CREATE.{_STREAM}.{name}", wanted)
            subscribers.append(subscriber)
        return publisher, subscribers


class _Messages:
    """Cuts what a NATS server sends into messages: the words of each one's first line, and its payload.

    >>> messages = _Messages()
    >>> list(messages.feed(b"PING\\r\\nMSG s 1 reply 2\\r\\nab"))
    [([b'PING'], b'')]
    >>> list(messages.feed(b"\\r\\n"))
    [([b'MSG', b's', b'1', b'reply', b'2'], b'ab')]
    """

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[tuple[list[bytes], bytes]]:
        """The messages that are whole with these bytes."""
        buffer = self._buffer + data
        found: list[tuple[list[bytes], bytes]] = []
        place = 0
        while (end := buffer.find(b"\r\n", place)) >= 0:
            words = buffer[place:end].split()
            payload = b""
            after = end + 2
            if words and words[0] == b"MSG":
                after += int(words[-1]) + 2
                if after > len(buffer):
                    break
                payload = buffer[end + 2 : after - 2]
            elif words and words[0] == b"-ERR":
                raise ConnectionError(f"the NATS server says {buffer[place:end].decode(errors='replace')}")
            found.append((words, payload))
            place = after
        self._buffer = buffer[place:]
        return found


class _Publisher(asyncio.Protocol):
    def __init__(self, load: PlaneLoad) -> None:
        self._payload_bytes = load.payload_bytes
        self._window = Outstanding(load.outstanding_count)
        self._messages = _Messages()
        self._answers: list[asyncio.Future[dict[str, Any]]] = []
        self._transport: asyncio.Transport
        self._head = f"PUB {_SUBJECT} {_INBOX}.ack {load.payload_bytes}\r\n".encode()
        self._message = self._head + bytes(load.payload_bytes) + b"\r\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_CONNECT + f"SUB {_INBOX}.* 1\r\n".encode())

    def data_received(self, data: bytes) -> None:
        accepted = 0
        for words, payload in self._messages.feed(data):
            if words[0] == b"PING":
                self._transport.write(b"PONG\r\n")
            elif words[0] == b"MSG" and words[1].endswith(b".ack"):
                if b'"error"' in payload:
                    raise ConnectionError(f"JetStream refuses: {payload.decode(errors='replace')}")
                accepted += 1
            elif words[0] == b"MSG":
                self._answers.pop(0).set_result(msgspec.json.decode(payload))
        if accepted:
            self._window.accepted(accepted)

    async def ask(self, subject: str, wanted: object) -> None:
        """Ask JetStream for something and wait until it is there."""
        body = msgspec.json.encode(wanted)
        self._answers.append(asyncio.get_running_loop().create_future())
        head = f"PUB $JS.API.{subject} {_INBOX}.api {len(body)}\r\n".encode()
        answer = self._answers[-1]
        self._transport.write(head + body + b"\r\n")
        async with asyncio.timeout(ANSWER_WITHIN_S):
            said = await answer
        if "error" in said:
            raise MeasurementError(f"JetStream refuses {subject}: {said['error']}")

    async def publish(self, count: int) -> None:
        left = count
        while left:
            await self._window.wait_for_room(1)
            batch = min(left, self._window.room)
            left -= batch
            self._window.sent(batch)
            self._transport.write(self._message * batch)
        await self._window.wait_until_none()

    def publish_one(self, time_s: float) -> None:
        self._window.sent(1)
        self._transport.write(self._head + _TIME.pack(time_s).ljust(self._payload_bytes, b"\0") + b"\r\n")

    async def settled(self) -> None:
        await self._window.wait_until_none()

    def close(self) -> None:
        self._transport.close()


class _Subscriber(asyncio.Protocol):
    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._messages = _Messages()
        self._transport: asyncio.Transport
        self._delays_s: list[float] | None = None
        self.count = 0
        self.in_force = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_CONNECT + f"SUB {self._subject} 1\r\nPING\r\n".encode())

    def data_received(self, data: bytes) -> None:
        arrived_s = now_s()
        answers = b""
        last = b""
        for words, payload in self._messages.feed(data):
            if words[0] == b"MSG":
                self.count += 1
                last = words[3]
                if self._delays_s is not None:
                    self._delays_s.append(arrived_s - cast(float, _TIME.unpack_from(payload)[0]))
            elif words[0] == b"PING":
                answers += b"PONG\r\n"
            elif words[0] == b"PONG":
                self.in_force.set()
        if last:
            answers += b"PUB " + last + b" 4\r\n+ACK\r\n"
        if answers:
            self._transport.write(answers)

    def keep_arrivals(self) -> None:
        self._delays_s = []

    def delays_s(self) -> list[float]:
        return self._delays_s or []

    def close(self) -> None:
        self._transport.close()
