"""Runs scenarios of publisher relocation: every point of a grid with several seeds, and policy none for comparison."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import msgspec

from trimtab.protocol.records import Recorder, RecordsError
from trimtab.simulation.relocation.run import RelocationRun
from trimtab.simulation.relocation.scenario import BASELINE, RelocationScenario
from trimtab.simulation.relocation.summary import RelocationSummary, reductions

SUMMARY_FILE: Final = "summary.json"


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
    results: dict[int, RelocationSummary] = {}
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
    runs: list[RelocationSummary] = []
    for place, (scenario, seed) in enumerate(jobs):
        still = results[jobs.index((without_relocation(scenario), seed))]
        run = results[place]
        runs.append(run if run is still else msgspec.structs.replace(run, reductions=reductions(run, still)))
    return RelocationGrid(relocation=name, varied=list(varied), runs=runs)


def write_grid(grid: RelocationGrid, folder: Path) -> None:
    """Write DIR/summary.json, whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{SUMMARY_FILE}.unfinished"
        unfinished.write_text(json.dumps(msgspec.to_builtins(grid), indent=1) + "\n", encoding="utf-8")
        unfinished.replace(folder / SUMMARY_FILE)
    except OSError as error:
        raise RecordsError(f"{folder}: cannot be written: {error.strerror or error}") from None


def read_relocation_grid(folder: Path) -> RelocationGrid | None:
    """The summary of a grid in a folder; None if the folder has none, or that of something else."""
    path = folder / SUMMARY_FILE
    try:
        data: Any = msgspec.json.decode(path.read_bytes())
        return msgspec.convert(data, RelocationGrid) if isinstance(data, dict) and "relocation" in data else None
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise RecordsError(f"{path}: {error}") from None
