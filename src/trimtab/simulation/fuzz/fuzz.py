"""Random small networks under random churn and faults, each run to rest and checked.

A run is drawn as declared data from its seed (`plans.py`, `full_plans.py`), then executed (`run.py`);
the seed replays it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from typing import Any

import msgspec

from trimtab.simulation.fuzz.bugs.core_bugs import Bug
from trimtab.simulation.fuzz.plans import FuzzPlan, draw_plan
from trimtab.simulation.fuzz.run import RunReport, run_plan
from trimtab.simulation.scenarios.summary import Summary
from trimtab.simulation.world.trace import Trace

Draw = Callable[[int], FuzzPlan]
"""Draws a plan from a seed."""


class FuzzReport(msgspec.Struct, frozen=True):
    """What many runs showed."""

    first_seed: int
    runs_count: int
    simulated_s: float
    publications_count: int
    deliveries_count: int
    moves_count: int
    dropped_count: int
    disconnected_count: int
    results_count: int
    """Results of channels that were delivered."""
    faults_count: dict[str, int]
    failures: list[RunReport]
    trace_hash: str
    """The traces of all runs as one hash."""


class FuzzDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What many random runs showed of their own."""

    runs: int
    dropped: int
    """Publications that slow clients did not get, as their brokers may."""
    disconnected: int
    """Slow clients that were disconnected."""
    results: int
    """Results of channels that were delivered."""
    faults: dict[str, int]
    failures: list[dict[str, Any]]
    """Runs with violations: the seed, the command that runs it again, the violations, and the file of the plan."""


def summary_of(report: FuzzReport, failures: list[dict[str, Any]]) -> Summary[FuzzDetails]:
    """The report in the shape of all summaries; each run draws its policy."""
    violations = [violation for failure in report.failures for violation in failure.violations]
    kinds = [violation.kind for violation in violations]
    return Summary(
        scenario="fuzz",
        kind="fuzz",
        seed=report.first_seed,
        policy="drawn",
        simulated_s=report.simulated_s,
        publications=report.publications_count,
        deliveries=report.deliveries_count,
        lost=kinds.count("missing"),
        duplicated=kinds.count("delivered twice"),
        reordered=kinds.count("out of order"),
        moves=report.moves_count,
        violations=violations,
        trace_hash=report.trace_hash,
        details=FuzzDetails(
            runs=report.runs_count,
            dropped=report.dropped_count,
            disconnected=report.disconnected_count,
            results=report.results_count,
            faults=report.faults_count,
            failures=failures,
        ),
    )


def run_seed(seed: int, draw: Draw = draw_plan, bug: Bug | None = None) -> RunReport:
    """Draw a plan and execute it, with a deliberate bug if one is given."""
    return run_with_bug(draw(seed), bug)


def run_with_bug(plan: FuzzPlan, bug: Bug | None) -> RunReport:
    """Execute a plan, with a deliberate bug if one is given."""
    with nullcontext() if bug is None else bug.active():
        return run_plan(plan)


def fuzz(
    first_seed: int,
    runs_count: int,
    on_run: Callable[[RunReport], None] = lambda _: None,
    bug: Bug | None = None,
    draw: Draw = draw_plan,
    *,
    jobs_count: int = 1,
) -> FuzzReport:
    """Execute runs with consecutive seeds, with a deliberate bug if one is given.

    Several jobs are processes, for which `draw` must be a function of a module. What they show is the same.
    """
    simulated_s, totals = 0.0, Counter[str]()
    faults: Counter[str] = Counter()
    failures: list[RunReport] = []
    trace = Trace()
    for report in _run_all(range(first_seed, first_seed + runs_count), draw, bug, jobs_count):
        on_run(report)
        trace.add((report.seed, report.trace_hash))
        simulated_s += report.simulated_s
        totals.update(
            publications=report.publications_count,
            deliveries=report.deliveries_count,
            moves=report.moves_count,
            dropped=report.dropped_count,
            disconnected=report.disconnected_count,
            results=report.results_count,
        )
        faults.update(report.faults_count)
        if report.violations:
            failures.append(report)
    return FuzzReport(
        first_seed=first_seed,
        runs_count=runs_count,
        simulated_s=simulated_s,
        publications_count=totals["publications"],
        deliveries_count=totals["deliveries"],
        moves_count=totals["moves"],
        dropped_count=totals["dropped"],
        disconnected_count=totals["disconnected"],
        results_count=totals["results"],
        faults_count=dict(sorted(faults.items())),
        failures=failures,
        trace_hash=trace.hexdigest(),
    )


def _run_all(seeds: range, draw: Draw, bug: Bug | None, jobs_count: int) -> Iterator[RunReport]:
    """The reports of all seeds in their order."""
    run = partial(run_seed, draw=draw, bug=bug)
    if jobs_count == 1 or len(seeds) == 1:
        yield from map(run, seeds)
        return
    with get_context("spawn").Pool(min(jobs_count, len(seeds))) as pool:
        yield from pool.imap(run, seeds, chunksize=max(1, min(20, len(seeds) // (4 * jobs_count))))


class BugReport(msgspec.Struct, frozen=True):
    """Whether the fuzzer found a deliberate bug."""

    bug: str
    text: str
    runs_count: int
    """Runs executed: all that were allowed, or up to the one that found it."""

    found_after_runs_count: int | None
    first_violation: str


def fuzz_bug(bug: Bug, first_seed: int, runs_max_count: int, draw: Draw = draw_plan) -> BugReport:
    """Execute runs with a deliberate bug until one finds it, which the same run without the bug does not."""
    for number in range(runs_max_count):
        plan = draw(first_seed + number)
        violations = run_with_bug(plan, bug).violations
        if violations and not run_plan(plan).violations:
            found = f"{violations[0].kind}: {violations[0].text}"
            return BugReport(bug.name, bug.text, number + 1, number + 1, found)
    return BugReport(bug.name, bug.text, runs_max_count, None, "")
