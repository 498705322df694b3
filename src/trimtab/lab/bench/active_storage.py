"""What it costs to load, check and change the records of datasets: bulk loads, duplicate checks, upserts of one row.

    python -m trimtab.lab.bench.active_storage [RECORDS]

A bulk load is compared with what Spark does alone with the same files, in the same run and the same session.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.lab.bench.plane.goals import PlaneGoal, at_least, at_most

if TYPE_CHECKING:
    from trimtab.activedata import ActiveData

Report = Callable[[str], None]

FIELDS: Final = "(id STRING, event STRING, x DOUBLE, y DOUBLE, text STRING, at TIMESTAMP)"
EVENTS: Final = ("flood", "fire", "shooting", "storm")
FILES_COUNT: Final = 8
BATCH_COUNT: Final = 1_000
FEED_BATCHES_COUNT: Final = 30

_FEED_TIMES_MIN: Final = 5.0
_WITHOUT_KEY_MIN: Final = 0.7
_WITH_KEY_MIN: Final = 0.4
_BATCH_TIMES_MAX: Final = 1.5
_GROWTH_TIMES_MAX: Final = 3.0


class StorageBench(msgspec.Struct, frozen=True):
    """How much is measured."""

    seed: int = 1
    copy_count: int = 10_000_000
    few_keys_count: int = 1_000_000
    many_keys_count: int = 20_000_000
    base_count: int = 500_000
    upserts_count: int = 1_000
    batches_count: int = 31


QUICK_STORAGE: Final = StorageBench(
    copy_count=100_000,
    few_keys_count=10_000,
    many_keys_count=100_000,
    base_count=20_000,
    upserts_count=50,
    batches_count=5,
)


class StorageFigures(msgspec.Struct, frozen=True):
    """Everything that was measured in one run."""

    copy_count: int
    spark_alone_s: float
    """`spark.read.json(...).write.parquet(...)` of the same files: the faster of two, one before and one after."""
    copy_without_key_s: float
    copy_with_key_s: float
    copy_active_s: float
    copy_memory_mb: float
    """How much the driver's Python grew to at most during all loads."""
    feed_per_s: float
    batch_few_keys_s: float
    batch_many_keys_s: float
    keys_few_count: int
    keys_many_count: int
    key_bytes: float
    """On the disk, for each key."""
    base_bytes: int
    upserted_bytes: int
    upsert_s: float


def run_storage_bench(bench: StorageBench, report: Report) -> StorageFigures:
    """Measure everything in one run, on a Spark of its own."""
    from trimtab.activedata import ActiveData, SparkSettings

    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        report(f"{bench.copy_count:,} records in files")
        write_records(directory / "in", bench)
        with ActiveData(directory / "data", SparkSettings(memory_mb=2_048)) as active:
            report("bulk loads, and Spark alone")
            copied = _copies(active, directory, bench, report)
            report("the same records by a feed")
            feed_per_s = _feed_per_s(active, bench)
            report("batches with few and many keys")
            batches = _batches(active, bench)
            report("upserts of one row")
            upserts = _upserts(active, bench)
    measured = {"copy_count": bench.copy_count, "feed_per_s": feed_per_s, **copied, **batches, **upserts}
    return msgspec.convert(measured, StorageFigures)


def write_records(folder: Path, bench: StorageBench) -> None:
    """Write records of about 140 bytes as JSON lines."""
    folder.mkdir()
    draw = random.Random(bench.seed)
    number = 0
    for part in range(FILES_COUNT):
        with (folder / f"part{part}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(bench.copy_count // FILES_COUNT):
                file.write(_line(number, draw))
                number += 1


def _line(number: int, draw: random.Random) -> str:
    return (
        f'{{"id": "r{number:09}", "event": "{draw.choice(EVENTS)}", "x": {draw.random() * 1e4:.3f}, '
        f'"y": {draw.random() * 1e4:.3f}, "text": "report number {number % 1_000} of the day", '
        f'"at": "2026-05-01T10:{number // 60 % 60:02}:{number % 60:02}Z"}}\n'
    )


def _copies(active: ActiveData, directory: Path, bench: StorageBench, report: Report) -> dict[str, float]:
    source = directory / "in"
    session = active.views.session
    session.range(1_000).count()

    def alone() -> None:
        target = directory / "alone"
        session.read.json(source.as_uri()).write.parquet(target.as_uri())
        shutil.rmtree(target)

    times = [_timed(alone)]
    before_mb = _memory_mb()
    found: dict[str, float] = {}
    kinds = {
        "copy_without_key_s": f"DATASET Plain {FIELDS}",
        "copy_with_key_s": f"DATASET Keyed {FIELDS} KEY id",
        "copy_active_s": f"ACTIVE DATASET Active {FIELDS} KEY id",
    }
    for name, definition in kinds.items():
        dataset = definition.split("DATASET ")[1].split()[0]
        active.run(f"CREATE {definition}")
        said: list[Any] = []
        copy = f"COPY INTO {dataset} FROM '{source}' FORMAT JSON"
        found[name] = _timed(lambda: said.append(active.run(copy)[0].rows[0]))  # noqa: B023
        expected = bench.copy_count // FILES_COUNT * FILES_COUNT
        report(f"{dataset}: {found[name]:.1f} s; Spark alone: {times[0]:.1f} s")
        if said[0]["accepted"] != expected:
            raise AssertionError(f"{dataset} took {said[0]['accepted']:,} of {expected:,} records")
        if name != "copy_active_s":
            active.run(f"DROP DATASET {dataset}")
    found["copy_memory_mb"] = _memory_mb() - before_mb
    times.append(_timed(alone))
    return {"spark_alone_s": min(times), **found}


def _timed(work: Callable[[], Any]) -> float:
    begun_s = time.perf_counter()
    work()
    return time.perf_counter() - begun_s


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def _feed_per_s(active: ActiveData, bench: StorageBench) -> float:
    """Records per second that a feed accepts in batches, as the service gives them to it."""
    active.run("CREATE FEED records INTO Active FROM HTTP; START FEED records")
    draw = random.Random(bench.seed)
    times = []
    for batch in range(FEED_BATCHES_COUNT):
        first = bench.copy_count + batch * BATCH_COUNT
        lines = "".join(_line(number, draw) for number in range(first, first + BATCH_COUNT)).encode()
        times.append(_timed(lambda: active.feed("records", lines)))  # noqa: B023
    active.run("STOP FEED records; DROP FEED records; DROP DATASET Active")
    return BATCH_COUNT / statistics.median(times)


def _batches(active: ActiveData, bench: StorageBench) -> dict[str, float]:
    """The median time of a batch of which half is there already, into few and into many keys."""
    active.run("CREATE ACTIVE DATASET Keys (id STRING, n BIGINT) KEY id")
    dataset = active.datasets["keys"]
    index = dataset.keys.index if dataset.keys is not None else None
    assert index is not None
    found: dict[str, float] = {}
    known = 0
    for name, count in (("few", bench.few_keys_count), ("many", bench.many_keys_count)):
        active.run(f"INSERT INTO Keys SELECT concat('k', id), id FROM range({known}, {count})")
        while index.merge():
            pass
        draw = random.Random(bench.seed)
        times = []
        for batch in range(bench.batches_count + 3):
            numbers = [draw.randrange(known or count) for _ in range(BATCH_COUNT // 2)]
            rows = [(f"k{number}", number) for number in numbers]
            rows += [(f"{name}{batch}-{number}", number) for number in range(BATCH_COUNT // 2)]
            times.append(_timed(lambda: dataset.take(rows)))  # type: ignore[arg-type]  # noqa: B023
        found[f"batch_{name}_keys_s"] = statistics.median(times[3:])
        found[f"keys_{name}_count"] = index.count
        known = count
    found["key_bytes"] = index.size_bytes / index.count
    active.run("DROP DATASET Keys")
    return found


def _upserts(active: ActiveData, bench: StorageBench) -> dict[str, float]:
    """How much the folder of a dataset grows with upserts of one row each, before anything is put together."""
    active.maintenance.stop()
    active.run(f"CREATE DATASET Base {FIELDS} KEY id")
    active.run(
        "INSERT INTO Base SELECT concat('r', id), 'flood', rand(1), rand(2), concat('report ', id), now() "
        f"FROM range({bench.base_count})"
    )
    dataset = active.datasets["base"]
    base_bytes = _size_bytes(dataset.directory)
    draw = random.Random(bench.seed)
    times = []
    for _ in range(bench.upserts_count):
        row = (f"r{draw.randrange(bench.base_count)}", "fire", 1.0, 2.0, "changed", "2026-05-01T10:00:00Z")
        times.append(_timed(lambda: dataset.take([row])))  # noqa: B023
    return {
        "base_bytes": base_bytes,
        "upserted_bytes": _size_bytes(dataset.directory),
        "upsert_s": statistics.median(times),
    }


def _size_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def judge_storage(figures: StorageFigures) -> list[PlaneGoal]:
    """Each goal with what was measured."""
    alone_s = figures.spark_alone_s
    plain_s = figures.copy_without_key_s
    slowest_s = max(figures.copy_with_key_s, figures.copy_active_s)
    copied_per_s = figures.copy_count / slowest_s
    batch_times = figures.batch_many_keys_s / figures.batch_few_keys_s
    growth_times = figures.upserted_bytes / figures.base_bytes
    many = f"{figures.keys_many_count:,} keys"
    return [
        at_least("COPY, speed against a feed", copied_per_s / figures.feed_per_s, _FEED_TIMES_MIN, "x"),
        at_least("COPY without a key, speed against Spark", alone_s / plain_s, _WITHOUT_KEY_MIN, "x"),
        at_least("COPY with a key, speed against Spark", alone_s / slowest_s, _WITH_KEY_MIN, "x"),
        at_most(f"a batch of 1,000 records with {many}, times that with few", batch_times, _BATCH_TIMES_MAX, "x"),
        at_most("size after upserts of one row, times that before", growth_times, _GROWTH_TIMES_MAX, "x"),
    ]


def _tell(said: str) -> None:
    sys.stderr.write(f"{time.strftime('%X')} {said}\n")


def main() -> int:
    """Run once and print figures and goals as JSON; 0 if all goals are met."""
    bench = StorageBench(copy_count=int(sys.argv[1])) if len(sys.argv) > 1 else StorageBench()
    figures = run_storage_bench(bench, _tell)
    goals = judge_storage(figures)
    shown = {"figures": msgspec.to_builtins(figures), "goals": msgspec.to_builtins(goals)}
    sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    return int(not all(goal.met for goal in goals))


if __name__ == "__main__":
    sys.exit(main())
