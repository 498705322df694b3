"""Runs scenarios of replication: every point of a grid with several seeds; and table 1 with many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from trimtab.lab.studies.parallel_runs import run_in_parallel
from trimtab.simulation.replication.run import ReplicationRun, ReplicationSummary
from trimtab.simulation.replication.scenario import ReplicationScenario
from trimtab.simulation.replication.table_one import ROWS, Table, TableRun, run_some, table_of

_TOGETHER_COUNT: Final = 20
"""Runs of a table that a process makes at a time."""


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


def run_table(first_seed: int, runs_count: int, on_some: Callable[[int, int], None] | None = None) -> Table:
    """Each protocol of table 1 with consecutive seeds; `on_some` hears how many of all runs are over."""
    end_seed = first_seed + runs_count
    jobs = [
        (row, seed, min(_TOGETHER_COUNT, end_seed - seed))
        for row in ROWS
        for seed in range(first_seed, end_seed, _TOGETHER_COUNT)
    ]
    done_count = 0

    def on_runs(runs: list[TableRun], _over_count: int, _all_count: int) -> None:
        nonlocal done_count
        done_count += len(runs)
        if on_some is not None:
            on_some(done_count, runs_count * len(ROWS))

    return table_of(run for runs in run_in_parallel(run_some, jobs, on_result=on_runs) for run in runs)
