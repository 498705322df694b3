"""Runs scenarios of replication: every point of a grid with several seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from trimtab.lab.parallel_runs import run_in_parallel
from trimtab.simulation.replication.run import ReplicationRun, ReplicationSummary
from trimtab.simulation.replication.scenario import ReplicationScenario


class ReplicationGrid(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a grid showed."""

    replication: str
    """The scenario's name; tells such a summary from others."""

    varied: list[str]
    """The keys that differ between runs."""

    runs: list[ReplicationSummary]


def run_one(scenario: ReplicationScenario, seed: int) -> ReplicationSummary:
    """One run, with the time that it took."""
    import time

    begin_s = time.process_time()
    summary = ReplicationRun(scenario, seed).run()
    return msgspec.structs.replace(summary, cpu_s=time.process_time() - begin_s)


def run_all(  # noqa: PLR0917 (what runs are made of)
    name: str,
    varied: Sequence[str],
    scenarios: Sequence[ReplicationScenario],
    seeds: Sequence[int],
    processes_count: int | None = None,
    on_run: Callable[[ReplicationSummary, int, int], None] | None = None,
) -> ReplicationGrid:
    """Every scenario with every seed; `on_run` hears of each run, how many are over and how many there are."""
    jobs = [(scenario, seed) for scenario in scenarios for seed in seeds]
    return ReplicationGrid(
        replication=name, varied=list(varied), runs=run_in_parallel(run_one, jobs, processes_count, on_run)
    )
