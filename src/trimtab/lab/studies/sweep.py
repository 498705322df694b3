"""Runs the jobs of studies as tasks of Spark, several at a time; what is finished is kept and never run again.

Every job is a small Spark job of its own, so that its result comes as soon as it is there, whether the workers are
cores of this machine or machines of a cluster. DIR/runs/KEY.parquet has a row for each number of a run;
DIR/summaries/KEY.json has the whole summary. A file is there whole or not at all: a sweep that was interrupted goes on
where it stopped.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.lab.studies.any_run import RunResult, run_job
from trimtab.lab.studies.studies import Job
from trimtab.protocol.records import RecordsError

if TYPE_CHECKING:
    from pyspark import SparkContext

RUNS: Final = "runs"
SUMMARIES: Final = "summaries"
RECORDS: Final = "records"
LOCAL: Final = "local[*]"


class SweepReport(msgspec.Struct, frozen=True):
    """What became of the jobs."""

    done_before_count: int
    results: list[RunResult]
    """Of this time."""

    @property
    def failures(self) -> list[RunResult]:
        """Runs that ended with an error."""
        return [each for each in self.results if each.error]

    @property
    def violations_count(self) -> int:
        """Promises that were broken in the runs of this time."""
        return sum(each.violations_count for each in self.results)


def run_sweep(
    jobs: Sequence[Job],
    folder: Path,
    master: str = LOCAL,
    on_result: Callable[[RunResult], None] | None = None,
    *,
    with_records: bool = False,
) -> SweepReport:
    """Run all jobs that have no results in the folder yet; `on_result` hears of each when it is stored.

    Records, if wanted, are written by the workers to DIR/records/KEY: on a cluster the folder must be shared.
    """
    left = [
        job
        for job in jobs
        if not result_file(folder, job).exists() or (with_records and not records_folder(folder, job).exists())
    ]
    if not left:
        return SweepReport(len(jobs), [])
    for name in (RUNS, SUMMARIES):
        _made(folder / name)
    results: list[RunResult] = []
    with _context(master) as context:
        for result in _results(context, left, folder if with_records else None):
            if not result.error:
                _store(folder, result)
            results.append(result)
            if on_result is not None:
                on_result(result)
    return SweepReport(len(jobs) - len(left), results)


def result_file(folder: Path, job: Job) -> Path:
    """Where the numbers of a run are."""
    return folder / RUNS / f"{job.key}.parquet"


def records_folder(folder: Path, job: Job) -> Path:
    """Where the records of a run are, if they were wanted."""
    return folder / RECORDS / job.key


def _results(context: SparkContext, jobs: Sequence[Job], folder: Path | None) -> Iterator[RunResult]:
    """The results as they come, with as many jobs under way as there are places for them."""

    def one(job: Job) -> RunResult:
        records = "" if folder is None else str(records_folder(folder, job).absolute())
        encoded = msgspec.json.encode((job, records))
        (answer,) = context.parallelize([encoded], 1).map(run_encoded).collect()
        return msgspec.json.decode(answer, type=RunResult)

    with ThreadPoolExecutor(max(1, context.defaultParallelism)) as threads:
        under_way: set[Future[RunResult]] = set()
        try:
            for job in jobs:
                under_way.add(threads.submit(one, job))
                if len(under_way) >= context.defaultParallelism:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from (each.result() for each in done)
            while under_way:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        except BaseException:
            context.cancelAllJobs()
            raise


def run_encoded(job: bytes) -> bytes:
    """What a worker does: one job, in and out as JSON."""
    wanted, records = msgspec.json.decode(job, type=tuple[Job, str])
    return msgspec.json.encode(run_job(wanted, records))


@contextmanager
def _context(master: str) -> Iterator[SparkContext]:
    from trimtab.activedata.spark.session import SparkSettings, start_spark, stop_spark

    with tempfile.TemporaryDirectory() as work_dir:
        places_count = str(os.cpu_count() or 1)
        extra = {"spark.default.parallelism": places_count} if master == LOCAL else {}
        session = start_spark(SparkSettings(master=master, memory_mb=512, extra=extra), Path(work_dir))
        try:
            yield session.sparkContext
        finally:
            stop_spark(session)


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordsError(f"{folder}: cannot be written: {error.strerror or error}") from None


def _store(folder: Path, result: RunResult) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    job = result.job
    count = len(result.metrics)
    table = pa.table(
        {
            "study": [job.study] * count,
            "run": [job.key] * count,
            "scenario": [job.scenario] * count,
            "point": pa.array([job.point] * count, pa.int64()),
            "settings": [msgspec.json.encode(job.settings, order="sorted").decode()] * count,
            "policy": [job.policy] * count,
            "seed": pa.array([job.seed] * count, pa.int64()),
            "violations_count": pa.array([result.violations_count] * count, pa.int64()),
            "cpu_s": [result.cpu_s] * count,
            "metric": list(result.metrics),
            "value": pa.array(list(result.metrics.values()), pa.float64()),
        }
    )
    try:
        summary = folder / SUMMARIES / f"{job.key}.json"
        summary.write_text(result.summary_json, encoding="utf-8")
        path = result_file(folder, job)
        unfinished = path.with_name(f".{path.name}.unfinished")
        pq.write_table(table, unfinished)
        unfinished.replace(path)
    except OSError as error:
        raise RecordsError(f"{folder}: cannot be written: {error.strerror or error}") from None
