"""Runs all points of a scenario, of whatever kind, with several seeds, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trimtab.lab.studies.parallel_runs import run_in_parallel
from trimtab.simulation.scenarios.kinds import KINDS, Loaded, Point, run_scenario
from trimtab.simulation.scenarios.summary import GridSummary, Summary

OnRun = Callable[[Summary[Any], int, int], None]


def run_grid(
    loaded: Loaded, seeds: Sequence[int], processes_count: int | None = None, on_run: OnRun | None = None
) -> GridSummary:
    """Every point with every seed; `on_run` hears of each run, how many are over and how many there are.

    Where a kind compares with a baseline, its runs stand first.
    """
    kind = KINDS[loaded.kind]
    points = loaded.points
    if kind.baseline is not None:
        bases: dict[str, Point] = {}
        for each in points:
            base = kind.baseline(each.scenario)
            bases.setdefault(repr(base), Point({**each.values, **_policy(each)}, base))
        moving = [each for each in points if each.scenario.policy != kind.baseline(each.scenario).policy]
        points = [*bases.values(), *moving]
    jobs = [(point.scenario, seed) for point in points for seed in seeds]
    runs = [run_scenario(*jobs[0])] if len(jobs) == 1 else run_in_parallel(run_scenario, jobs, processes_count, on_run)
    if kind.baseline is not None and kind.compared is not None:
        by_job = {(repr(scenario), seed): run for (scenario, seed), run in zip(jobs, runs, strict=True)}
        still = [by_job[repr(kind.baseline(scenario)), seed] for scenario, seed in jobs]
        runs = [run if run is base else kind.compared(run, base) for run, base in zip(runs, still, strict=True)]
    return GridSummary(
        scenario=loaded.name,
        kind=loaded.kind,
        varied=loaded.varied,
        points=[point.values for point in points for _ in seeds],
        runs=runs,
    )


def _policy(point: Point) -> dict[str, str]:
    """The baseline's policy, where policies vary."""
    return {"policy": "none"} if "policy" in point.values else {}


def only_run(grid: GridSummary, loaded: Loaded, seeds: Sequence[int]) -> Summary[Any] | None:
    """The run of a scenario without a grid, if there is one seed; it stands behind its baseline."""
    return grid.runs[-1] if len(loaded.points) == len(seeds) == 1 else None
