"""Runs scenarios of coordination: one, or every point of a grid with several seeds, on all cores."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import msgspec

from trimtab.protocol.records import RecordsError
from trimtab.simulation.coordination.scenario import CoordinationScenario
from trimtab.simulation.coordination.world import CoordinationSummary, CoordinationWorld

SUMMARY_FILE: Final = "summary.json"


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
    results: dict[int, CoordinationSummary] = {}
    workers_count = min(len(jobs), processes_count or os.cpu_count() or 1)
    with ProcessPoolExecutor(workers_count, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_one, *job): place for place, job in enumerate(jobs)}
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                if on_run is not None:
                    on_run(future.result(), len(results), len(jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[place] for place in range(len(jobs))]


def write_summary(summary: CoordinationSummary | GridSummary, folder: Path) -> None:
    """Write DIR/summary.json, whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{SUMMARY_FILE}.unfinished"
        unfinished.write_text(json.dumps(msgspec.to_builtins(summary), indent=2) + "\n", encoding="utf-8")
        unfinished.replace(folder / SUMMARY_FILE)
    except OSError as error:
        raise RecordsError(f"{folder}: cannot be written: {error.strerror or error}") from None


def read_grid_summary(folder: Path) -> GridSummary | None:
    """The summary of a grid in a folder; None if the folder has none, or that of something else."""
    path = folder / SUMMARY_FILE
    try:
        data: Any = msgspec.json.decode(path.read_bytes())
        return msgspec.convert(data, GridSummary) if isinstance(data, dict) and "varied" in data else None
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise RecordsError(f"{path}: {error}") from None
