"""The matching benchmark: time per publication, memory per filter, cost of changes, beside a scan and brute force.

Everything is measured in one run on one set of filters. Matching and the scan take turns, and medians over the turns
are reported. All of it runs in one thread and is timed by that thread's processor time, which equals elapsed time on an
idle machine and leaves out what other processes take on a busy one. The scans' answers are compared with the
matcher's, brute force's on a few publications as well; a difference is a failed benchmark.
"""

from __future__ import annotations

import gc
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from trimtab.lab.bench.call_times import CallTimer, CallTimes
from trimtab.lab.bench.matching_memory import MeasurementError, MemoryQuestion, ask_fresh_process
from trimtab.lab.bench.matching_times import (
    SCANNED_COUNT,
    TABLE_SCANNED_COUNT,
    TURNS_COUNT,
    Values,
    in_batches,
    match_us,
    time_matching,
)
from trimtab.lab.bench.workloads import WorkloadName, open_workload
from trimtab.language import Filter
from trimtab.matching import BruteForceMatcher, CoveringSet, Matcher
from trimtab.matching.engines import Engine, choose_engine

if TYPE_CHECKING:
    from trimtab.lab.bench.numpy_scan import NumpyScan, NumpyTableScan

SCALE_FACTOR: Final = 10
"""How many times more filters the scale measurement has."""

_BRUTE_FORCE_COUNT: Final = 3
_CHANGES_COUNT: Final = 5_000
"""Adds and removes whose times are reported, at full size."""

_MATCH_EVERY_CHANGES: Final = 50
"""A match after so many changes shows work that adding has put off."""

_IMPORTS_COUNT: Final = 5

Report: TypeAlias = Callable[[str], None]


class MatchBench(msgspec.Struct, frozen=True):
    """What to run."""

    workloads: tuple[WorkloadName, ...] = (WorkloadName.STOCK, WorkloadName.RANGES)
    filters_count: int = 100_000
    publications_count: int = 1_024
    seed: int = 1
    quotes: Path | None = None
    engine: Engine = "auto"
    scale: bool = False


class ScaleFigures(msgspec.Struct, frozen=True):
    """Time per publication as the number of filters grows."""

    filters_count: int
    match_us_per_publication: float
    larger_filters_count: int
    larger_match_us_per_publication: float
    cost_ratio: float


class WorkloadFigures(msgspec.Struct, frozen=True):
    """What was measured with one workload."""

    workload: WorkloadName
    engine: str
    filters_count: int
    publications_count: int
    verified: bool
    matches_per_publication_mean: float
    match_us_per_publication: float
    match_after_scan_us_per_publication: float
    """The turn right after a scan, which has used the caches for its own."""

    match_and_list_us_per_publication: float
    numpy_scan_us_per_publication: float
    numpy_table_scan_us_per_publication: float
    brute_force_us_per_publication: float
    times_faster_than_numpy_scan: float
    times_faster_than_numpy_scan_with_list: float
    times_faster_than_numpy_table_scan: float
    times_faster_than_brute_force: float
    memory_bytes_per_filter: float
    memory_method: str
    add: CallTimes
    remove: CallTimes
    match_between_changes: CallTimes
    add_and_check: CallTimes
    """To ask the matcher whether a stored filter covers the new one, and to add it."""

    covering_set_count: int
    covering_add: CallTimes
    """The covering set also finds what the new filter covers, and keeps who stands for whom."""

    covering_remove: CallTimes
    scale: ScaleFigures | None


class MatchFigures(msgspec.Struct, frozen=True):
    """What one run of the benchmark has measured."""

    trimtab_import_ms: float
    clock: str
    python_version: str
    seed: int
    quotes: str
    verified: bool
    workloads: list[WorkloadFigures]


class MissingLibraryError(RuntimeError):
    """A library that the benchmark needs is not installed; the message says how to install it."""


def run_match_bench(bench: MatchBench, report: Report = lambda step: None) -> MatchFigures:
    """Run the benchmark; `report` is told each step as it begins."""
    try:
        import trimtab.lab.bench.numpy_scan  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError(f"the benchmark needs NumPy ({error}): pip install 'trimtab[lab]'") from None
    choose_engine(bench.engine)
    report("import time")
    import_ms = import_time_ms()
    workloads = [_measure_workload(name, bench, report) for name in bench.workloads]
    return MatchFigures(
        trimtab_import_ms=import_ms,
        clock="processor time of the thread; wall-clock time for the import and where a name says so",
        python_version=platform.python_version(),
        seed=bench.seed,
        quotes="generated" if bench.quotes is None else bench.quotes.name,
        verified=all(figures.verified for figures in workloads),
        workloads=workloads,
    )


def import_time_ms() -> float:
    """The median time of `import trimtab` in new processes, without the interpreter's own start."""
    script = "import time; start = time.perf_counter(); import trimtab; print(time.perf_counter() - start)"
    times_s: list[float] = []
    for _ in range(_IMPORTS_COUNT):
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise MeasurementError("a new process could not import trimtab")
        times_s.append(float(run.stdout))
    return statistics.median(times_s) * 1e3


def _measure_workload(name: WorkloadName, bench: MatchBench, report: Report) -> WorkloadFigures:
    from trimtab.lab.bench.numpy_scan import NumpyScan

    report(f"{name}: making {bench.filters_count:,} filters")
    workload = open_workload(name, bench.seed, bench.quotes)
    publications: list[Values] = [dict(publication) for publication in workload.publications(bench.publications_count)]
    filters = list(workload.subscriptions(bench.filters_count))
    changes_count = min(_CHANGES_COUNT, len(filters))
    scan = NumpyScan(filters)
    gc.collect()
    gc.freeze()  # the benchmark's own filters are not to lengthen the collector's passes during single calls
    try:
        report(f"{name}: adding")
        matcher = Matcher(engine=bench.engine)
        add, between = _fill(matcher, filters, publications, changes_count)
        report(f"{name}: matching")
        table_scan = scan.as_table()
        times = time_matching(matcher, scan, table_scan, publications)
        report(f"{name}: comparing with the scans and with brute force")
        matches_mean, brute_force_us, verified = _verify(matcher, scan, filters, publications)
        verified = verified and _same_scans(scan, table_scan, publications[:TABLE_SCANNED_COUNT])
        del table_scan
        report(f"{name}: removing")
        order = Random(bench.seed).sample(range(len(filters)), changes_count)
        remove = _time_removes(matcher.remove, order)
        verified = verified and _agree(matcher, scan, publications[:SCANNED_COUNT], removed=frozenset(order))
        del matcher
        report(f"{name}: adding with covering checks")
        add_and_check = _time_checked_adds(bench.engine, filters, changes_count)
        report(f"{name}: covering set")
        covering_count, covering_add, covering_remove = _measure_covering(bench.engine, filters, order)
    finally:
        gc.unfreeze()
    del scan, filters
    report(f"{name}: memory")
    quotes = None if bench.quotes is None else str(bench.quotes)
    memory = ask_fresh_process(MemoryQuestion(name, bench.seed, bench.filters_count, quotes, bench.engine))
    scale = _measure_scale(name, bench, report) if bench.scale else None
    return WorkloadFigures(
        workload=name,
        engine=choose_engine(bench.engine),
        filters_count=bench.filters_count,
        publications_count=bench.publications_count,
        verified=verified,
        matches_per_publication_mean=matches_mean,
        match_us_per_publication=times.match_us,
        match_after_scan_us_per_publication=times.match_after_scan_us,
        match_and_list_us_per_publication=times.match_and_list_us,
        numpy_scan_us_per_publication=times.scan_us,
        numpy_table_scan_us_per_publication=times.table_scan_us,
        brute_force_us_per_publication=brute_force_us,
        times_faster_than_numpy_scan=times.scan_us / times.match_us,
        times_faster_than_numpy_scan_with_list=times.scan_us / times.match_and_list_us,
        times_faster_than_numpy_table_scan=times.table_scan_us / times.match_us,
        times_faster_than_brute_force=brute_force_us / times.match_us,
        memory_bytes_per_filter=memory.bytes_per_filter,
        memory_method=f"{memory.method} of a new process that adds the filters, keys made before",
        add=add,
        remove=remove,
        match_between_changes=between,
        add_and_check=add_and_check,
        covering_set_count=covering_count,
        covering_add=covering_add,
        covering_remove=covering_remove,
        scale=scale,
    )


def _fill(
    matcher: Matcher, filters: Sequence[Filter], publications: Sequence[Values], changes_count: int
) -> tuple[CallTimes, CallTimes]:
    """Add all filters, each under its position, with a match now and then among the last ones."""
    adds, matches = CallTimer(), CallTimer()
    first_reported = len(filters) - changes_count
    for position, filter in enumerate(filters):
        adds.call(matcher.add, position, filter)
        if position >= first_reported and position % _MATCH_EVERY_CHANGES == 0:
            matches.call(matcher.match, publications[position % len(publications)])
    if not matches.calls_count:
        matches.call(matcher.match, publications[0])
    return adds.summary(changes_count), matches.summary()


def _time_checked_adds(engine: Engine, filters: Sequence[Filter], checked_count: int) -> CallTimes:
    """Fill a matcher; the last filters are added only after asking whether one that is there covers them."""
    matcher = Matcher(engine=engine)
    first_checked = len(filters) - checked_count
    for position, filter in enumerate(filters[:first_checked]):
        matcher.add(position, filter)

    def add_and_check(position: int, filter: Filter) -> None:
        matcher.find_covering(filter)
        matcher.add(position, filter)

    adds = CallTimer()
    for position, filter in enumerate(filters[first_checked:], first_checked):
        adds.call(add_and_check, position, filter)
    return adds.summary()


def _time_removes(remove: Callable[[int], object], order: Sequence[int]) -> CallTimes:
    removes = CallTimer()
    for position in order:
        removes.call(remove, position)
    return removes.summary()


def _measure_covering(
    engine: Engine, filters: Sequence[Filter], order: Sequence[int]
) -> tuple[int, CallTimes, CallTimes]:
    covering = CoveringSet(engine=engine)
    adds = CallTimer()
    for position, filter in enumerate(filters):
        adds.call(covering.add, position, filter)
    covering_count = len(covering.covering())
    return covering_count, adds.summary(len(order)), _time_removes(covering.remove, order)


def _verify(
    matcher: Matcher, scan: NumpyScan, filters: Sequence[Filter], publications: Sequence[Values]
) -> tuple[float, float, bool]:
    """The mean number of matches, brute force's time per publication, and whether they agree with the scan."""
    brute_force = BruteForceMatcher()
    for position, filter in enumerate(filters):
        brute_force.add(position, filter)
    agree = _agree(matcher, scan, publications[:SCANNED_COUNT])
    times_us: list[float] = []
    for publication in publications[:_BRUTE_FORCE_COUNT]:
        start = time.thread_time()
        expected = list(brute_force.match(publication))
        times_us.append((time.thread_time() - start) * 1e6)
        agree = agree and set(matcher.match(publication)) == set(expected)
    matches_count = sum(len(matches) for batch in in_batches(publications) for matches in matcher.match_many(batch))
    return matches_count / len(publications), statistics.median(times_us), agree


def _agree(
    matcher: Matcher, scan: NumpyScan, publications: Sequence[Values], removed: frozenset[int] = frozenset()
) -> bool:
    """Whether the matcher finds what the scan finds, apart from filters that were removed."""
    for publication, matches in zip(publications, matcher.match_many(list(publications)), strict=True):
        expected = [position for position in scan.match(publication).tolist() if position not in removed]
        found = list(matches)
        if len(found) != len(expected) or set(found) != set(expected):
            return False
        if len(matches) != len(expected) or bool(matches) != bool(expected):
            return False
    return True


def _same_scans(scan: NumpyScan, table_scan: NumpyTableScan, publications: Sequence[Values]) -> bool:
    return all(scan.match(each).tolist() == table_scan.match(each).tolist() for each in publications)


def _measure_scale(name: WorkloadName, bench: MatchBench, report: Report) -> ScaleFigures:
    """Fill one matcher to the number of filters and another to ten times as many, and time them in turns."""
    larger_count = bench.filters_count * SCALE_FACTOR
    report(f"{name}: scale, {larger_count:,} filters")
    workload = open_workload(name, bench.seed, bench.quotes)
    batches = in_batches([dict(publication) for publication in workload.publications(bench.publications_count)])
    matcher, larger_matcher = Matcher(engine=bench.engine), Matcher(engine=bench.engine)
    for position, filter in enumerate(workload.subscriptions(larger_count)):
        larger_matcher.add(position, filter)
        if position < bench.filters_count:
            matcher.add(position, filter)
    costs_us: list[float] = []
    larger_costs_us: list[float] = []
    for _ in range(TURNS_COUNT):
        for each, costs in ((matcher, costs_us), (larger_matcher, larger_costs_us)):
            match_us(each, batches)
            costs.append(match_us(each, batches))
    cost_us, larger_cost_us = statistics.median(costs_us), statistics.median(larger_costs_us)
    return ScaleFigures(
        filters_count=bench.filters_count,
        match_us_per_publication=cost_us,
        larger_filters_count=larger_count,
        larger_match_us_per_publication=larger_cost_us,
        cost_ratio=larger_cost_us / cost_us,
    )
