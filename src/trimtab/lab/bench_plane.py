"""How much one broker process carries: publications and deliveries per second, and per second of its processor time.

2,000 stock filters by the thesis's mix on 20 connections (each publication goes to nearly all of them), then on one
connection. The publisher keeps 200 publications outstanding; all are acknowledged and filtered. The subscribers only
count and acknowledge frames, so that they cost little beside the broker. Delays are measured at 1,000 publications/s.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, cast

import msgspec

from trimtab.language import Filter, Publication
from trimtab.network.address import Address
from trimtab.network.client import Client
from trimtab.network.clock import now_s
from trimtab.network.local_network import Network
from trimtab.network.loops import run
from trimtab.network.status import ask_status
from trimtab.protocol.codec import decode_frame, encode_frame
from trimtab.protocol.frames import Ack, BrokerStatus, Hello, Payload
from trimtab.protocol.messages import VERSION, Confirmed, Publish, Subscribe
from trimtab.simulation.workloads.quotes import generate_quotes
from trimtab.simulation.workloads.stock import StockWorkload

RATE_PER_S: Final = 1_000
RATE_FOR_S: Final = 3.0
_PAYLOAD_KEYS_COUNT: Final = 0x84
"""The first byte of a payload frame: a map with four keys; an acknowledgement has fewer."""

_LENGTH: Final = struct.Struct(">I")


class PlaneBench(msgspec.Struct, frozen=True):
    """What is measured."""

    filters_count: int = 2_000
    connections_count: int = 20
    outstanding_count: int = 200
    publications_count: int = 20_000
    seed: int = 1


class PlaneFigures(msgspec.Struct, frozen=True):
    """What one broker carried."""

    connections_count: int
    filters_count: int
    publications_count: int
    deliveries_count: int
    fan_out: float
    wall_s: float
    broker_cpu_s: float
    publications_per_s: float
    deliveries_per_s: float
    publications_per_broker_cpu_s: float
    deliveries_per_broker_cpu_s: float
    delay_p50_ms: float
    delay_p99_ms: float


def run_plane_bench(bench: PlaneBench, report: Callable[[str], None] = lambda _: None) -> list[PlaneFigures]:
    """Measure with many connections and with one."""
    workload = StockWorkload(generate_quotes(Random(bench.seed)), Random(bench.seed + 1))
    filters = list(workload.subscriptions(bench.filters_count))
    publications = list(workload.publications(bench.publications_count))
    figures: list[PlaneFigures] = []
    for connections_count in (bench.connections_count, 1):
        report(f"{bench.filters_count:,} filters on {connections_count} connection(s)")
        with Network.of(["B1"]) as network:
            address = network.plan.broker("B1").listen
            figures.append(run(_measure(address, bench, connections_count, filters, publications)))
    return figures


async def _measure(
    address: Address,
    bench: PlaneBench,
    connections_count: int,
    filters: Sequence[Filter],
    publications: Sequence[Publication],
) -> PlaneFigures:
    loop = asyncio.get_running_loop()
    sinks: list[_Sink] = []
    for number in range(connections_count):
        wanted = filters[number::connections_count]
        _, sink = await loop.create_connection(
            lambda number=number, wanted=wanted: _Sink(f"sink-{number}", wanted),  # type: ignore[misc]
            address.host,
            address.port,
        )
        sinks.append(sink)
        await sink.in_force.wait()
    publisher = await Client.connect(address, "publisher", publish_window_count=bench.outstanding_count)
    await publisher.advertise(_announced(publications[0]))
    for publication in publications[: len(publications) // 10]:
        await publisher.publish(publication)
    before = await _at_rest(address, publisher)
    counted = sum(sink.count for sink in sinks)
    started_s = now_s()
    for publication in publications:
        await publisher.publish(publication)
    await publisher.drain()
    wall_s = now_s() - started_s
    after = await _at_rest(address, publisher)
    deliveries_count = sum(sink.count for sink in sinks) - counted
    delays = await _delays(publisher, sinks, publications)
    await publisher.close()
    for sink in sinks:
        sink.close()
    cpu_s = after.cpu_s - before.cpu_s
    return PlaneFigures(
        connections_count=connections_count,
        filters_count=len(filters),
        publications_count=len(publications),
        deliveries_count=deliveries_count,
        fan_out=deliveries_count / len(publications),
        wall_s=wall_s,
        broker_cpu_s=cpu_s,
        publications_per_s=len(publications) / wall_s,
        deliveries_per_s=deliveries_count / wall_s,
        publications_per_broker_cpu_s=len(publications) / cpu_s,
        deliveries_per_broker_cpu_s=deliveries_count / cpu_s,
        delay_p50_ms=1_000 * delays[len(delays) // 2],
        delay_p99_ms=1_000 * delays[len(delays) * 99 // 100],
    )


async def _at_rest(address: Address, publisher: Client) -> BrokerStatus:
    """How the broker is when all deliveries have left and are acknowledged."""
    await publisher.drain()
    while True:
        status = await ask_status(address)
        if not status.input_count and not any(peer.queued_count + peer.unacknowledged_count for peer in status.peers):
            return status
        await asyncio.sleep(0.02)


async def _delays(publisher: Client, sinks: Sequence[_Sink], publications: Sequence[Publication]) -> list[float]:
    """Delays from publisher to subscriber at a steady rate, in ascending order."""
    for sink in sinks:
        sink.delays = []
    started_s = now_s()
    for number in range(int(RATE_PER_S * RATE_FOR_S)):
        wait_s = started_s + number / RATE_PER_S - now_s()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await publisher.publish(publications[number % len(publications)])
    await publisher.drain()
    await asyncio.sleep(0.2)
    return sorted(delay_s for sink in sinks for delay_s in sink.delays or ())


def _announced(publication: Publication) -> Filter:
    texts = ("class", "symbol", "date")
    return Filter.parse(",".join(f"[{name},isPresent,{repr('') if name in texts else 0}]" for name in publication))


class _Sink(asyncio.Protocol):
    """A subscriber that counts and acknowledges payloads without looking into them, unless delays are wanted."""

    def __init__(self, name: str, filters: Sequence[Filter]) -> None:
        self._name = name
        self._filters = filters
        self._buffer = b""
        self._seen = 0
        self._transport: asyncio.Transport
        self._confirmed = 0
        self.in_force = asyncio.Event()
        self.delays: list[float] | None = None

    @property
    def count(self) -> int:
        """Publications that have arrived."""
        return self._seen - len(self._filters)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        frames = [encode_frame(Hello(VERSION, "client", self._name, "1", 1))]
        for number, filter in enumerate(self._filters, 1):
            frames.append(encode_frame(Payload(number, 0, Subscribe(id=f"{self._name}/{number}", filter=filter))))
        self._transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data
        position, size = 0, len(buffer)
        seen_before = self._seen
        looks = self.delays is not None or not self.in_force.is_set()
        while size - position >= 4:
            end = position + 4 + _LENGTH.unpack_from(buffer, position)[0]
            if end > size:
                break
            if buffer[position + 4] == _PAYLOAD_KEYS_COUNT:
                self._seen += 1
                if looks:
                    self._look(buffer[position + 4 : end])
            position = end
        self._buffer = buffer[position:]
        if self._seen > seen_before:
            self._transport.write(encode_frame(Ack(self._seen)))

    def _look(self, body: bytes) -> None:
        frame = decode_frame(body)
        message = frame.message if isinstance(frame, Payload) else None
        if isinstance(message, Publish) and self.delays is not None:
            self.delays.append(now_s() - message.origin_s)
        elif isinstance(message, Confirmed):
            self._confirmed += 1
            if self._confirmed == len(self._filters):
                self.in_force.set()

    def close(self) -> None:
        self._transport.close()
