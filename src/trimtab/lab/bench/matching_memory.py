"""The memory that a matcher takes per filter, measured in a process of its own.

The process is warmed up with a small matcher. Then it makes the keys, notes its resident memory, adds the filters one
by one without keeping them, matches one batch so that nothing is put off, and notes its resident memory again.

    python -m trimtab.lab.bench.matching_memory '{"workload": "ranges", "seed": 1, "filters_count": 100000}'
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import msgspec

from trimtab.lab.bench.workloads import WorkloadName, open_workload
from trimtab.matching import Matcher
from trimtab.matching.engines import Engine
from trimtab.network.server.process_meters import resident_bytes

_WARM_UP_FILTERS_COUNT = 2_000
_BATCH_COUNT = 64


class MemoryQuestion(msgspec.Struct, frozen=True):
    """What to measure."""

    workload: WorkloadName
    seed: int
    filters_count: int
    quotes: str | None = None
    engine: Engine = "auto"


class MemoryAnswer(msgspec.Struct, frozen=True):
    """What was measured."""

    bytes_per_filter: float
    method: str


class MeasurementError(RuntimeError):
    """A measurement that could not be made; the message says why."""


def ask_fresh_process(question: MemoryQuestion) -> MemoryAnswer:
    """Measure in a new process, so that nothing that this one has done counts."""
    command = [sys.executable, "-m", __name__, msgspec.json.encode(question).decode()]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        last_line = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise MeasurementError(f"the process that measures memory failed: {last_line}")
    return msgspec.json.decode(run.stdout, type=MemoryAnswer)


def measure(question: MemoryQuestion) -> MemoryAnswer:
    """Measure in this process."""
    quotes = None if question.quotes is None else Path(question.quotes)
    workload = open_workload(question.workload, question.seed, quotes)
    publications = [dict(publication) for publication in workload.publications(_BATCH_COUNT)]
    warm_up = Matcher(engine=question.engine)
    for key, filter in enumerate(workload.subscriptions(_WARM_UP_FILTERS_COUNT)):
        warm_up.add(key, filter)
    warm_up.match_many(publications)
    del warm_up
    keys = list(range(question.filters_count))
    gc.collect()
    before_bytes, method = resident_bytes()
    matcher = Matcher(engine=question.engine)
    for key, filter in zip(keys, workload.subscriptions(question.filters_count), strict=True):
        matcher.add(key, filter)
    matcher.match_many(publications)
    gc.collect()
    after_bytes, _ = resident_bytes()
    return MemoryAnswer((after_bytes - before_bytes) / len(matcher), method)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure(msgspec.json.decode(sys.argv[1], type=MemoryQuestion))).decode())
