"""Looks before anything runs whether Spark's workers can do what active data needs of them, and says what they cannot.

Tasks read the tables and write results in the storage directory, so each worker must see it under the same path. The
probe runs a few tasks at once, so that every worker that is there gets one.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.spark.errors import spark_reason
from trimtab.activedata.storage.durable_files import make_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE_COUNT: Final = 2
ATTEMPTS_COUNT: Final = 2
WITHIN_S: Final = 60.0
"""A cluster may have to start its executors first."""

_EXECUTOR: Final = re.compile(r"\(TID \d+\) \(([^ )]+)")


def probe_workers(session: SparkSession, directory: Path, within_s: float = WITHIN_S) -> None:
    """Raise an error of one line if a worker cannot read or write in a directory, or if none does anything."""
    directory = directory.absolute()
    probed = directory / "probe"
    make_folder(probed)
    name = uuid.uuid4().hex
    tasks_count = max(2, session.sparkContext.defaultParallelism * TASKS_PER_CORE_COUNT)
    source = probed / f"{name}.txt"
    made = probed / f"{name}.made"
    source.write_text("readable\n", encoding="utf-8")
    try:
        with _limited(session, within_s) as is_late:
            _try("read", directory, lambda: _read(session, source, tasks_count), is_late)
            _try("write in", directory, lambda: _write(session, made, tasks_count), is_late)
        _check_written(made, directory, tasks_count)
    finally:
        source.unlink(missing_ok=True)
        _remove(made)


@contextmanager
def _limited(session: SparkSession, within_s: float) -> Iterator[threading.Event]:
    """Cancel what takes too long, and say so."""
    context = session.sparkContext
    tag = f"probe-{uuid.uuid4()}"
    is_late = threading.Event()

    def cancel() -> None:
        is_late.set()
        context.cancelJobsWithTag(tag)

    timer = threading.Timer(within_s, cancel)
    timer.daemon = True
    context.addJobTag(tag)
    timer.start()
    try:
        yield is_late
    except ActiveDataError:
        if not is_late.is_set():
            raise
        raise ActiveDataError(
            f"no worker took a task within {within_s:g} s: are there any at {context.master}, and have they the memory "
            "that is asked for (--conf spark.executor.memory=...)?"
        ) from None
    finally:
        timer.cancel()
        context.removeJobTag(tag)


def _read(session: SparkSession, source: Path, tasks_count: int) -> None:
    """Each task opens the file by itself: one that is not there fails there, not at the driver."""
    session.read.text([source.as_uri()] * tasks_count).count()


def _write(session: SparkSession, made: Path, tasks_count: int) -> None:
    session.range(0, tasks_count, 1, tasks_count).write.mode("overwrite").parquet(made.as_uri())


def _check_written(made: Path, directory: Path, tasks_count: int) -> None:
    """What tasks wrote is seen here: a folder of the same name on another machine is not this one."""
    count = len(list(made.glob("part-*.parquet")))
    if count != tasks_count:
        raise ActiveDataError(
            f"Spark's workers write in a {directory} that is not this one ({count} of {tasks_count} files are here): "
            "they must share it"
        )


def _try(what: str, directory: Path, work: Callable[[], None], is_late: threading.Event) -> None:
    """Do something on the workers, once more if it fails: one may be lost while it starts."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for attempt in range(ATTEMPTS_COUNT):
        try:
            work()
            return
        except (PySparkException, Py4JError) as error:
            if attempt + 1 < ATTEMPTS_COUNT and not is_late.is_set():
                continue
            said = _full(error)
            found = _EXECUTOR.search(said)
            where = f"the worker at {found[1]}" if found else "a worker"
            raise ActiveDataError(
                f"{where} cannot {what} {directory}, which all workers must share with this process: "
                f"{spark_reason(error) if isinstance(error, PySparkException) else said.partition(chr(10))[0]}"
            ) from None


def _full(error: Exception) -> str:
    """All that is said of an error, in Java too."""
    from py4j.protocol import Py4JJavaError

    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString())
    return str(error)


def _remove(folder: Path) -> None:
    for each in sorted(folder.rglob("*"), reverse=True):
        each.rmdir() if each.is_dir() else each.unlink()
    if folder.exists():
        folder.rmdir()
