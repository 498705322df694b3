"""How much one broker process carries, beside NATS and Mosquitto in the same run.

Each system has one server process on this machine. Subscribers have 2,000 subscriptions on 20 connections, so that
each publication goes to about 20 of them (fan-out 20), or all of them on one connection (fan-out 1). One publisher
keeps 200 publications outstanding, which the server acknowledges. What is compared are deliveries per second of the
server's processor time (all its threads, from /proc) and by the wall clock, from the first publication to the last
delivery.

What the systems do differs. Trimtab matches each publication against 2,000 filters by the thesis's mix and has every
delivery acknowledged; each arrives once for a connection, in publisher order, also after reconnections. NATS and
Mosquitto look up a subject or topic, see `plane_nats` and `plane_mosquitto`; their payload is as long as the stock
publication's attributes and values with a time, in MessagePack. NATS acknowledges no deliveries; Mosquitto is measured
with acknowledged ones (QoS 1, the closest to Trimtab's promise) and, for information, without (QoS 0).

Rounds alternate between the systems; a ratio is the median of the rounds' ratios, because machines are noisy. Delays
are those from the publisher's write to the subscriber's read at 1,000 publications/s and the larger fan-out; what
arrives is kept with its time and decoded after the run. The load clients of all systems share one process, which the
wall clock includes; `load_cpu_s` tells how busy it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from random import Random
from statistics import median
from typing import Final, TypeVar

import msgspec

from trimtab.lab.bench.matching_memory import MeasurementError
from trimtab.lab.bench.plane.client import ClientFigures, measure_client
from trimtab.lab.bench.plane.memory import MemoryFigures, measure_memory
from trimtab.lab.bench.plane.mosquitto import INSTALL as INSTALL_MOSQUITTO
from trimtab.lab.bench.plane.mosquitto import PROGRAM as MOSQUITTO
from trimtab.lab.bench.plane.mosquitto import MosquittoSystem
from trimtab.lab.bench.plane.nats import INSTALL as INSTALL_NATS
from trimtab.lab.bench.plane.nats import PROGRAM as NATS
from trimtab.lab.bench.plane.nats import NatsSystem
from trimtab.lab.bench.plane.secure import INSTALL as INSTALL_SECURE
from trimtab.lab.bench.plane.secure import SecureTrimtabSystem
from trimtab.lab.bench.plane.systems import (
    ANSWER_WITHIN_S,
    LoadPublisher,
    LoadSubscriber,
    MeasuredSystem,
    PlaneLoad,
    cpu_s,
    find_program,
)
from trimtab.lab.bench.plane.trimtab import TrimtabSystem
from trimtab.language import Publication
from trimtab.network.clock import now_s
from trimtab.network.loops import run
from trimtab.simulation.workloads.quotes import generate_quotes
from trimtab.simulation.workloads.stock import StockWorkload

Result = TypeVar("Result")

PEERS: Final = ("nats", "mosquitto", "tls", "permissions")
RATE_PER_S: Final = 1_000
TIME_BYTES: Final = 8
CPU_RESOLUTION_S: Final = 0.01
"""Processor times are told in steps of this."""

UNDELIVERED_MAX_COUNT: Final = 200_000
"""Deliveries that may be under way before the next publications are sent, for systems that acknowledge earlier."""


class PlaneBench(msgspec.Struct, frozen=True):
    """What is measured."""

    against: tuple[str, ...] = ()
    filters_count: int = 2_000
    connections_count: int = 20
    outstanding_count: int = 200
    publications_count: int = 5_000
    """Publications of one block; blocks are published until a run is long enough."""
    run_s: float = 1.5
    rounds_count: int = 3
    rate_for_s: float = 3.0
    stored_filters_count: int = 100_000
    idle_connections_count: int = 5_000
    client_publications_count: int = 50_000
    seed: int = 1


QUICK: Final = PlaneBench(
    publications_count=500,
    run_s=0.1,
    rounds_count=1,
    rate_for_s=0.3,
    stored_filters_count=2_000,
    idle_connections_count=100,
    client_publications_count=1_000,
)
"""Everything, as short as can be; its figures mean little."""


class PlaneRun(msgspec.Struct, frozen=True):
    """What one server carried in one run."""

    system: str
    connections_count: int
    publications_count: int
    deliveries_count: int
    wall_s: float
    server_cpu_s: float
    load_cpu_s: float

    @property
    def deliveries_per_cpu_s(self) -> float:
        """Deliveries per second of the server's processor time."""
        return self.deliveries_count / self.server_cpu_s

    @property
    def deliveries_per_s(self) -> float:
        """Deliveries per second of the wall clock."""
        return self.deliveries_count / self.wall_s


class PlaneFigures(msgspec.Struct, frozen=True):
    """What a system carries at one fan-out: medians of its runs, and Trimtab's share or multiple of it."""

    system: str
    connections_count: int
    fan_out: float
    publications_per_cpu_s: float
    deliveries_per_cpu_s: float
    publications_per_s: float
    deliveries_per_s: float
    load_cpu_ratio: float
    trimtab_times_per_cpu_s: float
    trimtab_times_by_wall: float


class DelayFigures(msgspec.Struct, frozen=True):
    """Delays at a steady rate."""

    system: str
    publications_per_s: int
    connections_count: int
    delay_p50_ms: float
    delay_p99_ms: float


class MissingPeer(msgspec.Struct, frozen=True):
    """A system that is not installed, and how to install it."""

    system: str
    install: str


class PlaneReport(msgspec.Struct, frozen=True):
    """Everything that was measured."""

    filters_count: int
    payload_bytes: int
    planes: tuple[PlaneFigures, ...]
    delays: tuple[DelayFigures, ...]
    memory: MemoryFigures
    client: ClientFigures
    missing: tuple[MissingPeer, ...]


def run_plane_bench(bench: PlaneBench, report: Callable[[str], None] = lambda _: None) -> PlaneReport:
    """Measure Trimtab and the peers that are installed."""
    workload = StockWorkload(generate_quotes(Random(bench.seed)), Random(bench.seed + 1))
    filters = list(workload.subscriptions(bench.filters_count))
    publications = tuple(workload.publications(bench.publications_count))
    payload_bytes = TIME_BYTES + round(median(_size_bytes(publication) for publication in publications))
    loads = [
        PlaneLoad(
            tuple(tuple(filters[number::count]) for number in range(count)),
            publications,
            payload_bytes,
            bench.outstanding_count,
        )
        for count in (bench.connections_count, 1)
    ]
    makers, missing = find_systems(bench.against)
    runs: list[PlaneRun] = []
    for number in range(bench.rounds_count):
        for load in loads:
            for make in makers:
                runs.append(_with_system(make, lambda system: _measure_run(system, load, bench.run_s)))  # noqa: B023
                report(f"round {number + 1} of {bench.rounds_count}: {_told(runs[-1])}")
    delays = []
    for make in makers:
        delays.append(_with_system(make, lambda system: _measure_delays(system, loads[0], bench.rate_for_s)))
        report(f"delays: {delays[-1].system}, median {delays[-1].delay_p50_ms:.2f} ms")
    memory = measure_memory(
        list(workload.subscriptions(bench.stored_filters_count)), bench.idle_connections_count, report
    )
    report("the client library")
    client = measure_client(publications, bench.client_publications_count)
    return PlaneReport(
        filters_count=bench.filters_count,
        payload_bytes=payload_bytes,
        planes=tuple(figures for load in loads for figures in summarise(runs, load.connections_count)),
        delays=tuple(delays),
        memory=memory,
        client=client,
        missing=missing,
    )


def find_systems(against: Sequence[str]) -> tuple[list[Callable[[], MeasuredSystem]], tuple[MissingPeer, ...]]:
    """How to make Trimtab and the wanted peers, and the peers that are not installed.

    >>> makers, missing = find_systems([])
    >>> len(makers), missing
    (1, ())
    """
    makers: list[Callable[[], MeasuredSystem]] = [TrimtabSystem]
    missing: list[MissingPeer] = []
    for name in ("tls", "permissions"):
        if name not in against:
            continue
        if find_spec("cryptography") is None:
            missing.append(MissingPeer(name, INSTALL_SECURE))
        else:
            makers.append(partial(SecureTrimtabSystem, has_permissions=name == "permissions"))
    if "nats" in against:
        if find_program(NATS) is not None:
            makers.append(NatsSystem)
        else:
            missing.append(MissingPeer("nats", INSTALL_NATS))
    if "mosquitto" in against:
        if find_program(MOSQUITTO) is not None:
            makers += [MosquittoSystem, lambda: MosquittoSystem(subscriber_qos=0)]
        else:
            missing.append(MissingPeer("mosquitto", INSTALL_MOSQUITTO))
    return makers, tuple(missing)


def summarise(runs: Sequence[PlaneRun], connections_count: int) -> list[PlaneFigures]:
    """Medians of each system's runs, and of the ratios between Trimtab's and its run of the same round."""
    by_system: dict[str, list[PlaneRun]] = {}
    for each in runs:
        if each.connections_count == connections_count:
            by_system.setdefault(each.system, []).append(each)
    ours = by_system[TrimtabSystem.name]
    return [
        PlaneFigures(
            system=system,
            connections_count=connections_count,
            fan_out=theirs[0].deliveries_count / theirs[0].publications_count,
            publications_per_cpu_s=median(each.publications_count / each.server_cpu_s for each in theirs),
            deliveries_per_cpu_s=median(each.deliveries_per_cpu_s for each in theirs),
            publications_per_s=median(each.publications_count / each.wall_s for each in theirs),
            deliveries_per_s=median(each.deliveries_per_s for each in theirs),
            load_cpu_ratio=median(each.load_cpu_s / each.wall_s for each in theirs),
            trimtab_times_per_cpu_s=median(
                our.deliveries_per_cpu_s / their.deliveries_per_cpu_s for our, their in zip(ours, theirs, strict=True)
            ),
            trimtab_times_by_wall=median(
                our.deliveries_per_s / their.deliveries_per_s for our, their in zip(ours, theirs, strict=True)
            ),
        )
        for system, theirs in by_system.items()
    ]


def _size_bytes(publication: Publication) -> int:
    return len(msgspec.msgpack.encode(dict(publication)))


def _told(run: PlaneRun) -> str:
    rate = f"{run.deliveries_per_cpu_s:,.0f} deliveries per processor second"
    return f"{run.system}, {run.connections_count} connection(s), {rate}"


def _with_system(make: Callable[[], MeasuredSystem], measure: Callable[[MeasuredSystem], Result]) -> Result:
    system = make()
    try:
        system.start()
        return measure(system)
    finally:
        system.stop()


def _measure_run(system: MeasuredSystem, load: PlaneLoad, run_s: float) -> PlaneRun:
    return run(_carry(system, load, run_s))


async def _carry(system: MeasuredSystem, load: PlaneLoad, run_s: float) -> PlaneRun:
    """Publish blocks until the run is long enough; everything must have arrived at its end."""
    publisher, subscribers = await system.open(load)
    block_count, block_deliveries_count = len(load.publications), system.deliveries_count(load)
    await publisher.publish(block_count)
    await _all_arrived(system, subscribers, block_deliveries_count)
    blocks_count = 0
    server_cpu_s, load_cpu_s, started_s = cpu_s(system.pid), time.process_time(), now_s()
    while now_s() - started_s < run_s:
        await publisher.publish(block_count)
        blocks_count += 1
        await _all_arrived(system, subscribers, (1 + blocks_count) * block_deliveries_count, UNDELIVERED_MAX_COUNT)
    await _all_arrived(system, subscribers, (1 + blocks_count) * block_deliveries_count)
    wall_s = now_s() - started_s
    result = PlaneRun(
        system=system.name,
        connections_count=load.connections_count,
        publications_count=blocks_count * block_count,
        deliveries_count=blocks_count * block_deliveries_count,
        wall_s=wall_s,
        server_cpu_s=max(CPU_RESOLUTION_S, cpu_s(system.pid) - server_cpu_s),
        load_cpu_s=time.process_time() - load_cpu_s,
    )
    _close(publisher, subscribers)
    return result


async def _all_arrived(
    system: MeasuredSystem, subscribers: Sequence[LoadSubscriber], expected_count: int, except_count: int = 0
) -> None:
    """Wait until as many deliveries have arrived as there must be, or all but some."""
    ends_s = now_s() + ANSWER_WITHIN_S
    while (count := sum(subscriber.count for subscriber in subscribers)) < expected_count - except_count:
        if now_s() > ends_s:
            raise MeasurementError(f"{system.name}: {count:,} of {expected_count:,} deliveries have arrived")
        await asyncio.sleep(0.001)
    if count > expected_count:
        raise MeasurementError(f"{system.name}: {count:,} deliveries instead of {expected_count:,}")


def _measure_delays(system: MeasuredSystem, load: PlaneLoad, rate_for_s: float) -> DelayFigures:
    delays_s = sorted(run(_delays_at_rate(system, load, rate_for_s)))
    return DelayFigures(
        system=system.name,
        publications_per_s=RATE_PER_S,
        connections_count=load.connections_count,
        delay_p50_ms=1_000 * delays_s[len(delays_s) // 2],
        delay_p99_ms=1_000 * delays_s[len(delays_s) * 99 // 100],
    )


async def _delays_at_rate(system: MeasuredSystem, load: PlaneLoad, rate_for_s: float) -> list[float]:
    publisher, subscribers = await system.open(load)
    block_deliveries_count = system.deliveries_count(load)
    await publisher.publish(len(load.publications))
    await _all_arrived(system, subscribers, block_deliveries_count)
    for subscriber in subscribers:
        subscriber.keep_arrivals()
    started_s = now_s()
    for number in range(int(RATE_PER_S * rate_for_s)):
        wait_s = started_s + number / RATE_PER_S - now_s()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        publisher.publish_one(now_s())
    await publisher.settled()
    await asyncio.sleep(0.2)
    _close(publisher, subscribers)
    return [delay_s for subscriber in subscribers for delay_s in subscriber.delays_s()]


def _close(publisher: LoadPublisher, subscribers: Sequence[LoadSubscriber]) -> None:
    publisher.close()
    for subscriber in subscribers:
        subscriber.close()
