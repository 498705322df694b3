"""How fast the client library is: what one processor second of the client's thread publishes and receives."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from trimtab.lab.bench.plane.systems import ANSWER_WITHIN_S, PlaneLoad
from trimtab.lab.bench.plane.trimtab import TrimtabSystem, announcement_of
from trimtab.language import Filter, Publication
from trimtab.network.client.client import Client
from trimtab.network.loops import run

OUTSTANDING_COUNT: Final = 1_000
"""Publications that the client may have outstanding: its own default."""


class ClientFigures(msgspec.Struct, frozen=True):
    """Rates of `trimtab.Client`, per second of its own processor time and by the wall clock."""

    publications_count: int
    published_per_cpu_s: float
    published_per_s: float
    received_per_cpu_s: float
    received_per_s: float


def measure_client(publications: Sequence[Publication], count: int) -> ClientFigures:
    """Publish to a broker that has no subscriber, then receive, with a callback, what another thread publishes."""
    system = TrimtabSystem()
    system.start()
    try:
        published = run(_publish(system, publications, count))
        received = _receive(system, publications, count)
    finally:
        system.stop()
    return ClientFigures(count, *published, *received)


async def _publish(system: TrimtabSystem, publications: Sequence[Publication], count: int) -> tuple[float, float]:
    async with await Client.connect(system.address, publish_window_count=OUTSTANDING_COUNT) as client:
        await client.advertise(announcement_of(publications[0]))
        for publication in publications[:OUTSTANDING_COUNT]:
            await client.publish(publication)
        await client.drain()
        cpu_s, wall_s = time.thread_time(), time.monotonic()
        for number in range(count):
            await client.publish(publications[number % len(publications)])
        await client.drain()
        return count / (time.thread_time() - cpu_s), count / (time.monotonic() - wall_s)


def _receive(system: TrimtabSystem, publications: Sequence[Publication], count: int) -> tuple[float, float]:
    """The subscriber has a thread and an event loop of its own, whose processor time is its alone."""
    ready = threading.Event()
    figures: list[tuple[float, float]] = []

    async def subscribe() -> None:
        done = asyncio.Event()
        received = 0

        def take(_: object) -> None:
            nonlocal received
            received += 1
            if received == count:
                done.set()

        async with await Client.connect(system.address, "subscriber") as client:
            await client.subscribe(Filter.parse("[class,eq,'STOCK']"), callback=take)
            cpu_s, wall_s = time.thread_time(), time.monotonic()
            ready.set()
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await done.wait()
            figures.append((count / (time.thread_time() - cpu_s), count / (time.monotonic() - wall_s)))

    thread = threading.Thread(target=lambda: run(subscribe()))
    thread.start()
    if ready.wait(ANSWER_WITHIN_S):
        load = PlaneLoad((), tuple(publications), 0, OUTSTANDING_COUNT)
        run(_feed(system, load, count))
    thread.join()
    if not figures:
        raise RuntimeError("the client did not receive everything that was published")
    return figures[0]


async def _feed(system: TrimtabSystem, load: PlaneLoad, count: int) -> None:
    publisher, _ = await system.open(load)
    await publisher.publish(count)
    publisher.close()
