"""Runs one job of a study, whatever kind of scenario it is, and says what it showed in one shape for all kinds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import msgspec

from trimtab.lab.studies.studies import Job

DELIVERIES_ONE_IN: Final = 100


class RunResult(msgspec.Struct, frozen=True):
    """What a run showed: all its numbers by name, and its whole summary as JSON; or why it failed."""

    job: Job
    metrics: dict[str, float]
    violations_count: int
    cpu_s: float
    summary_json: str
    error: str = ""


def run_job(job: Job, records: str = "", deliveries_one_in: int = DELIVERIES_ONE_IN) -> RunResult:
    """Run a job, with records in a folder if one is named; a run that fails says why instead of ending all others."""
    begin_s = time.process_time()
    try:
        summary, violations_count = _run(job, records, deliveries_one_in)
    except Exception as error:
        return RunResult(job, {}, 0, time.process_time() - begin_s, "", f"{type(error).__name__}: {error}")
    data = msgspec.to_builtins(summary)
    text = msgspec.json.encode(data).decode()
    return RunResult(job, dict(numbers_of(data)), violations_count, time.process_time() - begin_s, text)


def _run(job: Job, records: str, deliveries_one_in: int) -> tuple[msgspec.Struct, int]:
    from trimtab.records.files import RecordFiles
    from trimtab.simulation.scenarios.kinds import KINDS, load_one, run_scenario
    from trimtab.simulation.scenarios.run import ScenarioRun
    from trimtab.simulation.scenarios.study import find_study, scenario_at
    from trimtab.simulation.scenarios.study_metrics import MetricsWatch

    study = find_study(job.scenario)
    if study is not None:
        of_point = scenario_at(study, job.point or 0, job.settings)
        watch = MetricsWatch(of_point)
        run = ScenarioRun(of_point, job.seed, metrics=watch).run()
        return watch.metrics(run), len(run.violations)
    scenario = load_one(job.scenario, job.settings)
    with ExitStack() as stack:
        recorder = None
        if records and KINDS[scenario.kind].with_records:
            files = RecordFiles(records, "sim", run=job.key, deliveries_one_in=deliveries_one_in, replace=True)
            recorder = stack.enter_context(files)
        summary = run_scenario(scenario, job.seed, recorder)
    return summary, len(summary.violations)


def numbers_of(data: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a summary by their path; lists, which are histories, are left out.

    >>> dict(numbers_of({"moves": 3, "delay": {"mean": 0.5}, "level": True, "series": [1, 2], "name": "x"}))
    {'moves': 3.0, 'delay.mean': 0.5, 'level': 1.0}
    """
    if isinstance(data, dict):
        for key, value in data.items():
            yield from numbers_of(value, f"{name}.{key}" if name else str(key))
    elif isinstance(data, int | float):
        yield name, float(data)
