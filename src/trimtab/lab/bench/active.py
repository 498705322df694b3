"""What active data costs: executions with few and many subscriptions, delay, results per second, and rest."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.lab.bench.active_bursts import BurstFigures, measure_burst
from trimtab.lab.bench.active_delays import broker_delays, fetched_delays
from trimtab.operations.emergency.city import SIDE_M, EmergencyCity, statements
from trimtab.simulation.workloads.emergency import EVENTS

if TYPE_CHECKING:
    from trimtab.activedata import ActiveData
    from trimtab.activedata.definitions.fields import Scalar

Report = Callable[[str], None]
Wishes = list[tuple[str, dict[str, str]]]

SUBSCRIPTIONS_COUNT: Final = 610
"""Back-end subscriptions of the paper's prototype."""

RECORDS_COUNT: Final = 1_000
LATENCY_RATE_PER_S: Final = 10.0

BARE_QUERY: Final = (
    "SELECT r.*, distance(r.x, r.y, u.x, u.y) AS away_m FROM bare_new r, Users u "
    "WHERE r.event = :event AND u.userId = :user AND distance(r.x, r.y, u.x, u.y) <= 1000"
)


class ActiveBench(msgspec.Struct, frozen=True):
    """How much is measured."""

    seed: int = 1
    many_count: int = 1_000_000
    latency_s: float = 30.0
    idle_s: float = 15.0
    repeats_count: int = 7
    burst_records_count: int = 200_000


class Execution(msgspec.Struct, frozen=True):
    """The median time of an execution with so many subscriptions and 1,000 new records, and what it found."""

    channel: str
    subscriptions_count: int
    execution_s: float
    results_count: int


class ActiveFigures(msgspec.Struct, frozen=True):
    """Everything that was measured in one run."""

    one_query_each_s: float
    together_s: float
    executions: list[Execution]
    bare_query_s: float
    delays_count: int
    delay_median_s: float
    delay_p99_s: float
    """From a record's acknowledgement to a client of a broker process."""
    fetched_median_s: float
    fetched_p99_s: float
    """The same to a fetch within the process."""
    results_per_s: float
    idle_cores: float
    burst: BurstFigures


def run_active_bench(bench: ActiveBench, report: Report) -> ActiveFigures:
    """Measure everything in one run, on a Spark of its own."""
    report("starting Spark")
    with _city(bench) as (active, city, wanted):
        report(f"one query for each of {SUBSCRIPTIONS_COUNT} subscriptions")
        each_s, together_s = _each_and_together(active, city, bench)
        report("continuous channels at rest and with 10 records a second")
        idle_cores = _idle_cores(bench.idle_s)
        fetched = fetched_delays(active, city, bench.latency_s, LATENCY_RATE_PER_S)
        report("the same at a client of a broker")
        delays = broker_delays(active, city, wanted, bench.latency_s, LATENCY_RATE_PER_S)
        bare_s = _bare_query_s(active, city, bench)
    executions = []
    for count in (SUBSCRIPTIONS_COUNT, 10_000, bench.many_count):
        report(f"executions with {count:,} subscriptions")
        executions += _executions(bench, count)
    report("results per second")
    results_per_s = _results_per_s(bench)
    report("a burst")
    burst = measure_burst(bench.burst_records_count, bench.seed)
    return ActiveFigures(
        one_query_each_s=each_s,
        together_s=together_s,
        executions=executions,
        bare_query_s=bare_s,
        delays_count=len(delays),
        delay_median_s=statistics.median(delays),
        delay_p99_s=_p99(delays),
        fetched_median_s=statistics.median(fetched),
        fetched_p99_s=_p99(fetched),
        results_per_s=results_per_s,
        idle_cores=idle_cores,
        burst=burst,
    )


def _p99(ordered: list[float]) -> float:
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


@contextmanager
def _opened() -> Iterator[ActiveData]:
    from trimtab.activedata import ActiveData, SparkSettings

    with tempfile.TemporaryDirectory() as directory, ActiveData(directory, SparkSettings(memory_mb=3_072)) as active:
        yield active


@contextmanager
def _city(bench: ActiveBench) -> Iterator[tuple[ActiveData, EmergencyCity, Wishes]]:
    """The seven channels, continuous, with 610 subscriptions, 400 users and 200 shelters."""
    city = EmergencyCity(bench.seed)
    with _opened() as active:
        active.run(statements(continuous=True))
        active.run("CREATE BROKER B1 AT 'bench'")
        active.feed("locations", city.users)
        active.feed("shelters", city.shelters)
        wanted = city.subscriptions(SUBSCRIPTIONS_COUNT)
        for channel, arguments in wanted:
            active.subscribe(channel, "B1", **arguments)
        yield active, city, wanted


def _timed(work: Callable[[], Any], times_count: int) -> float:
    """The median time of something, warm: the first two times do not count."""
    for _ in range(2):
        work()
    times = []
    for _ in range(times_count):
        begun_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun_s)
    return statistics.median(times)


def _each_and_together(active: ActiveData, city: EmergencyCity, bench: ActiveBench) -> tuple[float, float]:
    """One execution for 610 subscriptions of one channel, and 610 times the time of the query of one of them."""
    import pyarrow as pa

    channel = "EmergencyOfTypeNearMe"
    pairs = [(event, str(user["userId"])) for user in city.users for event in EVENTS][:SUBSCRIPTIONS_COUNT]
    wanted: list[dict[str, Scalar]] = [{"event": event, "user": user} for event, user in pairs]
    active.subscribe_many(channel, wanted, "B1")
    running = active.engine.channels[channel.lower()]
    rows = [active.datasets["reports"].check(city.report()) for _ in range(RECORDS_COUNT)]
    records = active.datasets["reports"]._arrow(rows, range(1 << 40, (1 << 40) + RECORDS_COUNT))
    together_s = _timed(lambda: active.engine.executions.ask([running], records).rows, bench.repeats_count)
    active.views.show_arrow("bare_new", pa.table(records), None)
    numbers = iter(range(len(pairs)))

    def one() -> object:
        event, user = pairs[next(numbers) * 7 % len(pairs)]
        return active.views.session.sql(BARE_QUERY, args={"event": event, "user": user}).toArrow()

    return _timed(one, 5 * bench.repeats_count) * SUBSCRIPTIONS_COUNT, together_s


def _bare_query_s(active: ActiveData, city: EmergencyCity, bench: ActiveBench) -> float:
    """The time of one bare query over one new record."""
    rows = [active.datasets["reports"].check(city.report())]
    active.views.show_arrow("bare_new", active.datasets["reports"]._arrow(rows, range(1, 2)), None)
    pairs = [(event, str(user["userId"])) for user in city.users for event in EVENTS]
    numbers = iter(range(len(pairs)))

    def one() -> object:
        event, user = pairs[next(numbers)]
        return active.views.session.sql(BARE_QUERY, args={"event": event, "user": user}).toArrow()

    return _timed(one, 5 * bench.repeats_count)


def _idle_cores(seconds: float) -> float:
    """Processor time of this process and its Java per second, while nothing arrives."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    time.sleep(2.0)
    begun_s = time.process_time() + _cpu_s(gateway.proc.pid)
    time.sleep(seconds)
    return (time.process_time() + _cpu_s(gateway.proc.pid) - begun_s) / seconds


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _executions(bench: ActiveBench, count: int) -> list[Execution]:
    """Executions with 1,000 new records, each of which concerns one subscription at a place and a few near it.

    The city grows with its people, so that a record concerns as many of them.
    """
    places_count = max(1, count // len(EVENTS))
    side_m = SIDE_M * math.sqrt(places_count * len(EVENTS) / SUBSCRIPTIONS_COUNT)
    city = EmergencyCity(bench.seed, users_count=places_count, shelters_count=1, side_m=side_m)
    pairs = [(n, event) for n in range(places_count + 1) for event in EVENTS][:count]
    wanted: dict[str, list[dict[str, Scalar]]] = {
        "EmergencyOfTypeAtLocation": [{"event": event, "district": f"d{n}"} for n, event in pairs],
        "EmergencyOfTypeNearMe": [{"event": event, "user": f"u{n}"} for n, event in pairs],
    }
    found = []
    with _opened() as active:
        active.run(statements(continuous=True))
        active.run("CREATE BROKER B1 AT 'bench'")
        active.feed("locations", city.users)
        reports = []
        for n in range(RECORDS_COUNT):
            user = city.users[n * 7919 % places_count]
            reports.append({**city.report(), "district": f"d{n % places_count}", "x": user["x"], "y": user["y"]})
        dataset = active.datasets["reports"]
        rows = [dataset.check(each) for each in reports]
        records = dataset._arrow(rows, range(1 << 40, (1 << 40) + RECORDS_COUNT))
        for channel, arguments in wanted.items():
            active.subscribe_many(channel, arguments, "B1")
            running = active.engine.channels[channel.lower()]
            answers: list[int] = []
            ask = partial(active.engine.executions.ask, [running], records)
            taken_s = _timed(lambda: answers.append(ask().rows.num_rows), bench.repeats_count)  # noqa: B023
            found.append(Execution(channel, len(arguments), taken_s, answers[-1]))
    return found


def _results_per_s(bench: ActiveBench) -> float:
    """Notifications per second from new records to the committed table of results."""
    city = EmergencyCity(bench.seed)
    with _opened() as active:
        active.run(statements(continuous=True))
        active.run(
            "CREATE BROKER B1 AT 'bench'; CREATE CONTINUOUS CHANNEL Many(event STRING, copy INT) AS "
            "SELECT r.* FROM Reports r WHERE r.event = :event AND :copy >= 0"
        )
        wanted: list[dict[str, Scalar]] = [{"event": event, "copy": copy} for event in EVENTS for copy in range(50)]
        active.subscribe_many("Many", wanted, "B1")
        rates = []
        for _ in range(4):
            meters = active.engine.channels["many"].meters
            before = meters.results_count
            active.feed("reports", [city.report() for _ in range(10_000)])
            active.settle(300.0)
            rates.append((meters.results_count - before) / (meters.last_latency_s or 1.0))
    return max(rates[1:])
