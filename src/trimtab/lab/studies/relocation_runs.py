"""Runs scenarios of publisher relocation: every point of a grid with several seeds, and policy none for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from trimtab.lab.studies.parallel_runs import run_in_parallel
from trimtab.lab.studies.summary_files import read_summary
from trimtab.protocol.records import Recorder
from trimtab.simulation.relocation.run import RelocationRun
from trimtab.simulation.relocation.scenario import BASELINE, RelocationScenario
from trimtab.simulation.relocation.summary import RelocationSummary, reductions


class RelocationGrid(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a grid showed; those without relocation stand first for each of the others' settings."""

    relocation: str
    """The scenario's name; tells such a summary from others."""

    varied: list[str]
    """The keys that differ between runs."""

    runs: list[RelocationSummary]


def run_one(scenario: RelocationScenario, seed: int, recorder: Recorder | None = None) -> RelocationSummary:
    """One run, with the time that it took."""
    import time

    begin_s = time.process_time()
    summary = RelocationRun(scenario, seed, recorder).run()
    return msgspec.structs.replace(summary, cpu_s=time.process_time() - begin_s)


def without_relocation(scenario: RelocationScenario) -> RelocationScenario:
    """The same workload with publishers that stay; how they would be traced does not matter to it."""
    default = RelocationScenario()
    return msgspec.structs.replace(
        scenario, policy=BASELINE, threshold=default.threshold, relocation=default.relocation
    )


def run_all(  # noqa: PLR0917 (what runs are made of)
    name: str,
    varied: Sequence[str],
    scenarios: Sequence[RelocationScenario],
    seeds: Sequence[int],
    processes_count: int | None = None,
    on_run: Callable[[RelocationSummary, int, int], None] | None = None,
) -> RelocationGrid:
    """Every scenario with every seed, compared with none; `on_run` hears of each run, how many are over and to come."""
    wanted = [each for each in scenarios if each.policy != BASELINE]
    bases: list[RelocationScenario] = []
    for each in scenarios:
        if (base := without_relocation(each)) not in bases:
            bases.append(base)
    jobs = [(scenario, seed) for scenario in (*bases, *wanted) for seed in seeds]
    results = run_in_parallel(run_one, jobs, processes_count, on_run)
    runs: list[RelocationSummary] = []
    for place, (scenario, seed) in enumerate(jobs):
        still = results[jobs.index((without_relocation(scenario), seed))]
        run = results[place]
        runs.append(run if run is still else msgspec.structs.replace(run, reductions=reductions(run, still)))
    return RelocationGrid(relocation=name, varied=list(varied), runs=runs)


def read_relocation_grid(folder: Path) -> RelocationGrid | None:
    """The summary of a grid in a folder; None if the folder has none, or that of something else."""
    return read_summary(folder, RelocationGrid, "relocation")
