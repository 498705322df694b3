"""The memory of a broker process per stored filter and per idle connection: growth of its resident memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from trimtab.lab.bench.plane.systems import ANSWER_WITHIN_S, LOOK_AGAIN_AFTER_S, connect, memory_bytes
from trimtab.lab.bench.plane.trimtab import RawSubscriber, TrimtabSystem, open_subscriber
from trimtab.language import Filter
from trimtab.network.loops import run
from trimtab.network.network_file import NetworkOptions
from trimtab.operations.own_process import allow_open_files

FILTERS_PER_CONNECTION_COUNT: Final = 5_000
WARM_UP_FILTERS_COUNT: Final = 500
WARM_UP_CONNECTIONS_COUNT: Final = 100
CONNECTIONS_AT_ONCE_COUNT: Final = 200
OTHER_FILES_COUNT: Final = 200
"""Open files that a process has besides its connections."""

SETTLE_S: Final = 1.0


class MemoryFigures(msgspec.Struct, frozen=True):
    """What a filter and a connection take."""

    filters_count: int
    bytes_per_filter: float
    connections_count: int
    bytes_per_connection: float


def measure_memory(
    filters: Sequence[Filter], connections_count: int, report: Callable[[str], None] = lambda _: None
) -> MemoryFigures:
    """Store the filters, then in another broker open the connections, fewer if the system allows no more."""
    report(f"memory of {len(filters):,} filters")
    bytes_per_filter = _in_new_broker(lambda system: _growth_by_filters(system, filters)) / len(filters)
    count = min(connections_count, _allowed_connections_count())
    report(f"memory of {count:,} idle connections")
    bytes_per_connection = _in_new_broker(lambda system: _growth_by_connections(system, count)) / count
    return MemoryFigures(len(filters), bytes_per_filter, count, bytes_per_connection)


def _in_new_broker(measure: Callable[[TrimtabSystem], float]) -> float:
    system = TrimtabSystem(NetworkOptions(clients_max_count=100_000))
    system.start()
    try:
        return measure(system)
    finally:
        system.stop()


def _growth_by_filters(system: TrimtabSystem, filters: Sequence[Filter]) -> float:
    async def grow() -> float:
        warm_up = await open_subscriber(system.address, "warm-up", filters[:WARM_UP_FILTERS_COUNT])
        before_bytes = memory_bytes(system.pid)
        subscribers = [
            await open_subscriber(
                system.address, f"sink-{start}", filters[start : start + FILTERS_PER_CONNECTION_COUNT]
            )
            for start in range(0, len(filters), FILTERS_PER_CONNECTION_COUNT)
        ]
        await asyncio.sleep(SETTLE_S)
        after_bytes = memory_bytes(system.pid)
        for subscriber in (warm_up, *subscribers):
            subscriber.close()
        return float(after_bytes - before_bytes)

    return run(grow())


def _growth_by_connections(system: TrimtabSystem, count: int) -> float:
    async def grow() -> float:
        opened = await _open_idle(system, "warm-up", WARM_UP_CONNECTIONS_COUNT)
        before_bytes = memory_bytes(system.pid)
        opened += await _open_idle(system, "idle", count)
        await asyncio.sleep(SETTLE_S)
        after_bytes = memory_bytes(system.pid)
        for connection in opened:
            connection.close()
        return float(after_bytes - before_bytes)

    return run(grow())


async def _open_idle(system: TrimtabSystem, name: str, count: int) -> list[RawSubscriber]:
    """Connections that have greeted, were greeted, and say nothing."""
    opened: list[RawSubscriber] = []
    for start in range(0, count, CONNECTIONS_AT_ONCE_COUNT):
        numbers = range(start, min(count, start + CONNECTIONS_AT_ONCE_COUNT))
        opened += await asyncio.gather(*(_open_one(system, f"{name}-{number}") for number in numbers))
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while not all(connection.in_force.is_set() for connection in opened[start:]):
                await asyncio.sleep(LOOK_AGAIN_AFTER_S)
    return opened


async def _open_one(system: TrimtabSystem, name: str) -> RawSubscriber:
    return await connect(lambda: RawSubscriber(name, ()), system.address)


def _allowed_connections_count() -> int:
    """Connections that one process may have here; the limit is raised as far as that is allowed."""
    return max(1, allow_open_files() - OTHER_FILES_COUNT - WARM_UP_CONNECTIONS_COUNT)
