"""Random runs with fresh seeds until somebody stops them; what they find is shrunk and kept.

Each worker is a process that draws seeds from the operating system, executes runs, shrinks what fails, and tells the
one that started it. Ctrl-C reaches only that one, which ends the workers; a worker whose starter is gone ends itself.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import SystemRandom
from typing import Final

from trimtab.simulation.fuzz.bugs.core_bugs import Bug
from trimtab.simulation.fuzz.findings import Finding, decode_finding, encode_finding, write_finding
from trimtab.simulation.fuzz.fuzz import Draw, run_with_bug
from trimtab.simulation.fuzz.plans import FuzzPlan
from trimtab.simulation.fuzz.run import RunReport
from trimtab.simulation.fuzz.shrink import shrink, signature

SEED_MAX: Final = 10**9
PROGRESS_EVERY_S: Final = 10.0
SHRUNK_OF_A_KIND_MAX_COUNT: Final = 3
"""Each worker shrinks so many violations of a kind: shrinking takes as long as hundreds of runs."""
KEPT_OF_A_KIND_MAX_COUNT: Final = 20
"""So many files are kept for violations of a kind; others are counted."""


def finding_of(plan: FuzzPlan, report: RunReport, drawn_with: str, bug: Bug | None, *, shrinks: bool) -> Finding:
    """What is kept of a failed run."""
    small, violations = plan, report.violations
    if shrinks:
        shrunk = shrink(plan, report, lambda smaller: run_with_bug(smaller, bug))
        small, violations = shrunk.plan, shrunk.report.violations
    return Finding(
        seed=report.seed,
        drawn_with=drawn_with,
        bug="" if bug is None else bug.name,
        violations=violations,
        violations_as_drawn=report.violations[:5],
        plan=small,
    )


class Endless:
    """Runs until it is stopped, and counts."""

    def __init__(
        self, draw: Draw, drawn_with: str, bug: Bug | None, *, shrinks: bool, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._worker_arguments = (draw, drawn_with, bug, shrinks)
        self._folder = folder
        self._say = say
        self._kinds: Counter[str] = Counter()
        self.runs_count = 0

    @property
    def failures_count(self) -> int:
        """Runs with violations."""
        return self._kinds.total()

    def run(self, jobs_count: int, for_s: float = float("inf")) -> None:
        """Go on until Ctrl-C, or for so long."""
        context = get_context("spawn")
        began_s = time.monotonic()
        said_s = began_s
        workers, connections = [], []
        try:
            for _ in range(jobs_count):
                ours, theirs = context.Pipe(duplex=False)
                worker = context.Process(target=_work, args=(theirs, *self._worker_arguments), daemon=True)
                worker.start()
                theirs.close()
                workers.append(worker)
                connections.append(ours)
            while connections and time.monotonic() - began_s < for_s:
                for ready in wait(connections, timeout=1.0):
                    assert isinstance(ready, Connection)
                    self._hear(ready, connections)
                if time.monotonic() - said_s >= PROGRESS_EVERY_S:
                    said_s = time.monotonic()
                    self._say(self._progress(said_s - began_s))
        except KeyboardInterrupt:
            pass
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.join()
        self._say(f"stopped: {self._progress(time.monotonic() - began_s)}")

    def _hear(self, connection: Connection, connections: list[Connection]) -> None:
        try:
            data = connection.recv_bytes()
        except EOFError:
            connections.remove(connection)
            self._say("a worker has ended by itself")
            return
        self.runs_count += 1
        if data:
            self._found(decode_finding(data))

    def _found(self, finding: Finding) -> None:
        first = finding.violations_as_drawn[0]
        kind = signature(first)
        self._kinds[kind] += 1
        if self._kinds[kind] <= KEPT_OF_A_KIND_MAX_COUNT:
            path = write_finding(finding, self._folder)
            self._say(f"seed {finding.seed}: {first.kind}: {first.text}; trimtab sim fuzz --plan {path}")

    def _progress(self, passed_s: float) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self._kinds.items()))
        rate_per_s = self.runs_count / max(passed_s, 1e-9)
        violations = f"{self.failures_count:,} with violations" + (f" ({kinds})" if kinds else "")
        return f"{self.runs_count:,} runs, {rate_per_s:.1f} per s, {violations}"


def _work(connection: Connection, draw: Draw, drawn_with: str, bug: Bug | None, shrinks: bool) -> None:
    """Tell of each run: nothing, or what was found."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seeds = SystemRandom()
    kinds: Counter[str] = Counter()
    while True:
        seed = seeds.randrange(1, SEED_MAX)
        plan = draw(seed)
        report = run_with_bug(plan, bug)
        data = b""
        if report.violations:
            kind = signature(report.violations[0])
            kinds[kind] += 1
            may_shrink = shrinks and kinds[kind] <= SHRUNK_OF_A_KIND_MAX_COUNT
            data = encode_finding(finding_of(plan, report, drawn_with, bug, shrinks=may_shrink))
        try:
            connection.send_bytes(data)
        except OSError:
            return
