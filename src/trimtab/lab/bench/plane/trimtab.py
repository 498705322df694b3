"""Trimtab as a message plane, for load clients that do no more than they must.

The publisher is a link without a session around it; it numbers, frames and encodes each publication. A subscriber
counts and acknowledges messages without decoding them. What the wire looks like is known to `PayloadCounter` and to
`_Publisher` only.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, cast

from trimtab.broker.config import Acknowledges
from trimtab.lab.bench.plane.systems import (
    ANSWER_WITHIN_S,
    LoadPublisher,
    LoadSubscriber,
    Outstanding,
    PlaneLoad,
    connect,
)
from trimtab.language import Filter, Op, Predicate, Value
from trimtab.matching import Matcher
from trimtab.network.admin.local_network import Network
from trimtab.network.clock import now_s
from trimtab.network.links.address import Address
from trimtab.network.network_file import NetworkOptions
from trimtab.network.security.caller import Caller
from trimtab.protocol.codec import FrameReader, encode_frame
from trimtab.protocol.frames import Ack, Frame, Goodbye, Hello, Payload
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import VERSION, Accepted, Advertise, AnyMessage, Confirmed, Publish, Refused, Subscribe

_PAYLOAD_FIRST_BYTE: Final = 0x95
"""The first byte of a payload frame: an array of five; other frames are maps."""

_LENGTH: Final = struct.Struct(">I")
_COUNT_AT: Final = 42
"""Where the broker writes how many messages a payload holds, behind its length and four integers."""


class TrimtabSystem:
    """One broker process of this machine."""

    name = "trimtab"

    def __init__(self, options: NetworkOptions | None = None) -> None:
        self._network = Network.of(["B1"], options=options)

    @property
    def pid(self) -> int:
        """The broker's process."""
        return self._network.pid("B1")

    @property
    def address(self) -> Address:
        """Where the broker listens."""
        return self._network.plan.broker("B1").listen

    def start(self) -> None:
        """Start the broker and wait until it listens."""
        self._network.start()

    def stop(self) -> None:
        """End the broker."""
        self._network.stop()

    def deliveries_count(self, load: PlaneLoad) -> int:
        """One delivery for each connection with a filter that matches."""
        matcher = Matcher()
        for connection, filters in enumerate(load.filters):
            for number, filter in enumerate(filters):
                matcher.add((connection, number), filter, connection)
        return sum(len(matcher.match_groups(publication)) for publication in load.publications)

    async def open(self, load: PlaneLoad) -> tuple[LoadPublisher, Sequence[LoadSubscriber]]:
        """Connect a publisher and the subscribers, whose subscriptions are then in force."""
        subscribers = [
            await open_subscriber(self.address, f"sink-{number}", filters)
            for number, filters in enumerate(load.filters)
        ]
        publisher = await connect(lambda: _Publisher(load), self.address)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            await publisher.in_force.wait()
        return publisher, subscribers


class TrimtabLevels:
    """Brokers of this machine in a row, the publisher at the first and the subscribers at the last."""

    def __init__(self, acknowledges: Acknowledges, folder: str, *, brokers_count: int) -> None:
        self.name: str = acknowledges
        self._names = names = [f"B{number}" for number in range(1, brokers_count + 1)]
        options = NetworkOptions(acknowledges=acknowledges, disk=folder if acknowledges == "durable" else "")
        self._network = Network.of(names, list(pairwise(names)), options)

    @property
    def pids(self) -> tuple[int, ...]:
        """The brokers' processes."""
        return tuple(self._network.pid(name) for name in self._names)

    def start(self) -> None:
        """Start the brokers and wait until they listen."""
        self._network.start()

    def stop(self) -> None:
        """End the brokers."""
        self._network.stop()

    async def open(self, load: PlaneLoad) -> tuple[LoadPublisher, Sequence[LoadSubscriber]]:
        """Connect a publisher and the subscribers, whose subscriptions are then in force."""
        first, last = self._names[0], self._names[-1]
        publisher = await connect(lambda: _Publisher(load), self._network.plan.broker(first).listen)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            await publisher.in_force.wait()
        subscribers = [
            await open_subscriber(self._network.plan.broker(last).listen, f"sink-{number}", filters)
            for number, filters in enumerate(load.filters)
        ]
        return publisher, subscribers


async def open_publisher(address: Address, load: PlaneLoad, caller: Caller | None = None) -> LoadPublisher:
    """A publisher whose advertisement is in force."""
    publisher = await connect(lambda: _Publisher(load), address, caller)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await publisher.in_force.wait()
    return publisher


async def open_subscriber(
    address: Address, name: str, filters: Sequence[Filter], caller: Caller | None = None
) -> RawSubscriber:
    """A subscriber whose subscriptions are in force."""
    subscriber = await connect(lambda: RawSubscriber(name, filters), address, caller)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await subscriber.in_force.wait()
    return subscriber


def announcement_of(values: Mapping[str, Value]) -> Filter:
    """An advertisement of publications with these attributes, whatever their values.

    >>> print(announcement_of({"symbol": "YHOO", "volume": 5}))
    [symbol,isPresent,''],[volume,isPresent,0]
    """
    kinds = {name: "" if isinstance(value, str) else 0 for name, value in values.items()}
    return Filter([Predicate(name, Op.PRESENT, kind) for name, kind in kinds.items()])


class PayloadCounter:
    """Counts the messages in a stream of bytes without decoding them.

    >>> counter = PayloadCounter()
    >>> data = encode_frame(Payload(1, 0, [Confirmed(id="s1")])) + encode_frame(Ack(7))
    >>> counter.feed(data[:9]), counter.feed(data[9:])
    (0, 1)
    """

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> int:
        """How many messages are complete with these bytes."""
        buffer = self._buffer + data if self._buffer else data
        count, position, size = 0, 0, len(buffer)
        unpack_from = _LENGTH.unpack_from
        while size - position >= 4:
            end = position + 4 + unpack_from(buffer, position)[0]
            if end > size:
                break
            if buffer[position + 4] == _PAYLOAD_FIRST_BYTE:
                count += unpack_from(buffer, position + _COUNT_AT)[0]
            position = end
        self._buffer = buffer[position:]
        return count


class RawSubscriber(asyncio.Protocol):
    """A connection that subscribes, counts and acknowledges."""

    def __init__(self, name: str, filters: Sequence[Filter]) -> None:
        self._name = name
        self._filters = filters
        self._reader = FrameReader()
        self._counter = PayloadCounter()
        self._seen = 0
        self._confirmed = 0
        self._arrivals: list[tuple[float, bytes]] | None = None
        self._transport: asyncio.Transport
        self.in_force = asyncio.Event()

    @property
    def count(self) -> int:
        """Deliveries so far."""
        return self._seen - self._confirmed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet and subscribe at once."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(encode_frame(Hello(VERSION, "client", self._name, "1", 1)))
        link = _connected_link(len(self._filters) + 1)
        for number, filter in enumerate(self._filters, 1):
            link.enqueue(Subscribe(id=f"{self._name}/{number}", filter=filter), 0.0)
        self._transport.write(_encoded(link))

    def data_received(self, data: bytes) -> None:
        """Count and acknowledge, or answer a question."""
        if self.in_force.is_set():
            self._seen += self._counter.feed(data)
            if self._arrivals is not None:
                self._arrivals.append((now_s(), data))
        else:
            for frame in self._reader.feed(data):
                for message in _messages(frame):
                    self._seen += 1
                    self._confirmed += isinstance(message, Confirmed)
            if self._confirmed == len(self._filters):
                self.in_force.set()
        self._transport.write(encode_frame(Ack(self._seen, done=self.count)))

    def keep_arrivals(self) -> None:
        """From here on keep what arrives with its time."""
        self._arrivals = []

    def delays_s(self) -> list[float]:
        """The delays of the deliveries that were kept."""
        reader = FrameReader()
        return [
            arrived_s - message.origin_s
            for arrived_s, data in self._arrivals or []
            for frame in reader.feed(data)
            for message in _messages(frame)
            if isinstance(message, Publish)
        ]

    def close(self) -> None:
        """End the connection."""
        self._transport.close()


class _Publisher(asyncio.Protocol):
    """Keeps a link, so that the broker's acknowledgements are used; frames of one turn leave with one write."""

    def __init__(self, load: PlaneLoad) -> None:
        self._values = [dict(publication) for publication in load.publications]
        self._window = Outstanding(load.outstanding_count)
        self._link = _connected_link(4 * load.outstanding_count)
        self._reader = FrameReader()
        self._sequence = 0
        self._accepted = 0
        self._transport: asyncio.Transport
        self.in_force = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(encode_frame(Hello(VERSION, "client", "publisher", "1", 1)))
        self._link.enqueue(Advertise(id="publisher/a1", filter=announcement_of(self._values[0])), 0.0)
        self._flush()

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if isinstance(frame, Payload | Ack):
                for message in self._link.receive(frame, 0.0):
                    self._take(message)
            elif isinstance(frame, Goodbye):
                raise ConnectionError(f"the broker says goodbye: {frame.reason}")
        self._flush()

    def _take(self, message: AnyMessage) -> None:
        match message:
            case Accepted(sequence=sequence):
                self._window.accepted(sequence - self._accepted)
                self._accepted = sequence
            case Confirmed():
                self.in_force.set()
            case Refused(about=about, reason=reason):
                raise ConnectionError(f"the broker refuses {about}: {reason}")
            case _:
                pass

    def _publish(self, count: int, time_s: float) -> None:
        values, enqueue = self._values, self._link.enqueue
        first = self._sequence
        self._sequence += count
        for sequence in range(first, first + count):
            message = Publish(
                publisher="publisher",
                sequence=sequence + 1,
                values=values[sequence % len(values)],
                origin_s=time_s,
                session="1",
            )
            enqueue(message, 0.0)
        self._window.sent(count)
        self._flush()

    def _flush(self) -> None:
        data = _encoded(self._link)
        if data:
            self._transport.write(data)

    async def publish(self, count: int) -> None:
        left = count
        while left:
            await self._window.wait_for_room(1)
            batch = min(left, self._window.room)
            left -= batch
            self._publish(batch, now_s())
        await self._window.wait_until_none()

    def publish_one(self, time_s: float) -> None:
        self._publish(1, time_s)

    async def settled(self) -> None:
        await self._window.wait_until_none()

    def close(self) -> None:
        self._transport.close()


def _connected_link(window_frames_count: int) -> Link:
    link = Link(LinkConfig(window_frames_count=window_frames_count, data_window_count=window_frames_count))
    link.connect(1, 0.0)
    return link


def _encoded(link: Link) -> bytes:
    """All frames that the link has to send."""
    return b"".join([encode_frame(frame) for frame in link.take_all(0.0)])


def _messages(frame: Frame) -> Iterator[AnyMessage]:
    """The messages of a frame, each of which has its own number."""
    if isinstance(frame, Payload):
        yield from cast(list[AnyMessage], frame.messages)
