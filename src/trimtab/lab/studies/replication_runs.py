"""Table 1 of the replication paper, by many runs of each protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trimtab.lab.studies.parallel_runs import run_in_parallel
from trimtab.simulation.replication.table_one import ROWS, Table, TableRun, run_some, table_of

_TOGETHER_COUNT: Final = 20
"""Runs of a table that a process makes at a time."""


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
