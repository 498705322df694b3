"""Runs every point of a study with several seeds, on all cores, and sums up.

Each run keeps its records in a folder of its own, DIR/VALUE-seed-N, and DIR/summary.json has all that its figures
need: the metrics of each run, and of each point their means and standard deviations over the seeds. The summary is
written anew whenever a run is over, so that a study that was interrupted is not lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import msgspec

from trimtab.lab.studies.parallel_runs import run_in_parallel
from trimtab.lab.studies.summary_files import read_summary, write_summary
from trimtab.protocol.records import Recorder
from trimtab.records.files import MissingParquetError, RecordFiles
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.study import FigurePart, Study, scenario_at
from trimtab.simulation.scenarios.study_metrics import MetricsWatch, RunMetrics


class StudyRun(msgspec.Struct, frozen=True):
    """One run: a point of the grid with a seed."""

    point: int
    seed: int
    metrics: RunMetrics
    cpu_s: float
    violations_count: int


class StudyPoint(msgspec.Struct, frozen=True):
    """A value of the parameter, and what all runs with it showed."""

    value: Any
    runs: list[StudyRun]
    means: dict[str, float | None]
    deviations: dict[str, float | None]


class StudySummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a study showed."""

    study: str
    base: str
    parameter: str
    description: str
    seeds: list[int]
    settings: dict[str, str]
    """What was replaced on the command line."""
    figures: list[FigurePart]
    points: list[StudyPoint]


def run_study(  # noqa: PLR0917 (what a run of a study is made of)
    study: Study,
    seeds: list[int],
    overrides: Mapping[str, str],
    folder: Path | None,
    processes_count: int | None = None,
    on_run: Callable[[StudyRun, int, int], None] | None = None,
    *,
    quick: bool = False,
) -> StudySummary:
    """Run every point with every seed; `on_run` hears of each run, how many are over and how many there are."""
    points = range(len(study.values))
    for point in points:  # mistakes show before anything runs
        scenario_at(study, point, overrides, quick=quick)
    jobs = [(study, point, seed, dict(overrides), folder, quick) for seed in seeds for point in points]
    done: list[StudyRun] = []

    def on_result(run: StudyRun, done_count: int, all_count: int) -> None:
        done.append(run)
        if folder is not None:
            write_summary(summed_up(study, seeds, overrides, done), folder)
        if on_run is not None:
            on_run(run, done_count, all_count)

    if folder is not None:
        write_summary(summed_up(study, seeds, overrides, done), folder)
    run_in_parallel(_run_point, jobs, processes_count, on_result)
    return summed_up(study, seeds, overrides, done)


def _run_point(  # noqa: PLR0917 (what a run is made of)
    study: Study, point: int, seed: int, overrides: dict[str, str], folder: Path | None, quick: bool
) -> StudyRun:
    import time

    scenario = scenario_at(study, point, overrides, quick=quick)
    watch = MetricsWatch(scenario)
    recorder: Recorder | None = None
    with ExitStack() as stack:
        if folder is not None:
            name = f"{label(study.values[point])}-seed-{seed}"
            try:
                files = RecordFiles(folder / name, "sim", run=f"{study.name}-{name}", deliveries_one_in=0, replace=True)
            except MissingParquetError as error:
                sys.stderr.write(f"no records are written, only the summary: {error}\n")
            else:
                recorder = stack.enter_context(files)
        begin_cpu_s = time.process_time()
        summary = ScenarioRun(scenario, seed, recorder, metrics=watch).run()
        cpu_s = time.process_time() - begin_cpu_s
    return StudyRun(point, seed, watch.metrics(summary), cpu_s, len(summary.violations))


def label(value: Any) -> str:
    """A parameter's value as part of a file's name.

    >>> label(0.15), label(3000)
    ('0.15', '3000')
    """
    return "".join(char if char.isalnum() or char in ".-" else "-" for char in str(value))


def summed_up(study: Study, seeds: list[int], overrides: Mapping[str, str], done: list[StudyRun]) -> StudySummary:
    """The runs that are over, by point, with their means."""
    points: list[StudyPoint] = []
    for number, value in enumerate(study.values):
        runs = sorted((each for each in done if each.point == number), key=lambda each: each.seed)
        columns = {name: _numbers(runs, name) for name in RunMetrics.__struct_fields__}
        points.append(
            StudyPoint(
                value,
                runs,
                {name: fmean(values) if values else None for name, values in columns.items()},
                {name: pstdev(values) if values else None for name, values in columns.items()},
            )
        )
    return StudySummary(
        study=study.name,
        base=study.base,
        parameter=study.parameter,
        description=study.description,
        seeds=seeds,
        settings=dict(overrides),
        figures=study.figure,
        points=points,
    )


def _numbers(runs: list[StudyRun], name: str) -> list[float]:
    values = [getattr(each.metrics, name) for each in runs]
    return [float(value) for value in values if value is not None]


def read_study_summary(folder: Path) -> StudySummary | None:
    """The summary of a study in a folder; None if the folder has none, or that of a single run."""
    return read_summary(folder, StudySummary, "study")
