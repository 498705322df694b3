"""Runs scenarios of coordination: one, or every point of a grid with several seeds, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from trimtab.lab.studies.parallel_runs import run_in_parallel
from trimtab.lab.studies.summary_files import read_summary
from trimtab.simulation.coordination.scenario import CoordinationScenario
from trimtab.simulation.coordination.world import CoordinationSummary, CoordinationWorld


class GridSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a grid showed, in the order of the grid, the seeds of a point together."""

    scenario: str
    varied: list[str]
    """The keys that differ between points, with commas on the command line."""

    points: list[dict[str, str]]
    """The values of these keys at each run."""

    runs: list[CoordinationSummary]


def run_one(scenario: CoordinationScenario, seed: int) -> CoordinationSummary:
    """One run."""
    return CoordinationWorld(scenario, seed).run()


def run_all(
    scenarios: Sequence[CoordinationScenario],
    seeds: Sequence[int],
    processes_count: int | None = None,
    on_run: Callable[[CoordinationSummary, int, int], None] | None = None,
) -> list[CoordinationSummary]:
    """Every scenario with every seed; `on_run` hears of each, how many are over and how many there are."""
    jobs = [(scenario, seed) for scenario in scenarios for seed in seeds]
    if len(jobs) == 1:
        return [run_one(*jobs[0])]
    return run_in_parallel(run_one, jobs, processes_count, on_run)


def read_grid_summary(folder: Path) -> GridSummary | None:
    """The summary of a grid in a folder; None if the folder has none, or that of something else."""
    return read_summary(folder, GridSummary, "varied")
