"""Policies on the same scenario with the same seeds: a table of what each reached, and their curves over each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Final

import msgspec

from trimtab.lab.figures.style import COLOURS, pyplot, save
from trimtab.lab.studies.studies import Job
from trimtab.lab.studies.sweep import SUMMARIES, records_folder
from trimtab.protocol.records import RecordsError
from trimtab.records.runs import read_run

_COLUMNS: Final = {
    "details.balance.converged_at_s": "level at [s]",
    "details.balance.reconverged_at_s": "level again at [s]",
    "details.balance.input_ratio_std_at_rest": "deviation of input ratios",
    "details.balance.output_ratio_std_at_rest": "deviation of output ratios",
    "details.balance.overhead_ratio_at_rest": "overhead at rest",
    "details.balance.overloaded_broker_seconds": "overloaded [broker s]",
    "details.crisis.late_deliveries": "late deliveries",
    "details.max_load": "largest load",
    "details.cov": "cov",
    "details.ratio": "of the lower bound",
    "details.message_rate_mean_per_s": "messages/s",
    "details.input_ratio_mean": "input ratio",
    "details.delivery_delay_mean_s": "delivery delay [s]",
    "details.delay_mean_s": "delivery delay [s]",
    "moves": "moves",
    "details.late": "late",
    "lost": "lost",
}
"""What is told of each policy, where its scenario has it."""


class Compared(msgspec.Struct, frozen=True):
    """What a policy reached: the means over the seeds, None where some seed never reached it."""

    policy: str
    seeds: list[int]
    means: dict[str, float | None]


def compare(jobs: Sequence[Job], folder: Path) -> list[Compared]:
    """One entry for each policy, in the order of the jobs."""
    summaries: dict[str, list[tuple[Job, dict[str, Any]]]] = {}
    for job in jobs:
        path = folder / SUMMARIES / f"{job.key}.json"
        try:
            summaries.setdefault(job.policy, []).append((job, msgspec.json.decode(path.read_bytes())))
        except OSError as error:
            raise RecordsError(f"{path}: cannot be read: {error.strerror or error}") from None
    compared = []
    for policy, found in summaries.items():
        means: dict[str, float | None] = {}
        for field, label in _COLUMNS.items():
            values = [_at(summary, field) for _, summary in found]
            if label not in means and any(known for known, _ in values):
                numbers = [value for _, value in values if isinstance(value, int | float)]
                means[label] = fmean(numbers) if len(numbers) == len(values) else None
        compared.append(Compared(policy, [job.seed for job, _ in found], means))
    return compared


def _at(summary: dict[str, Any], path: str) -> tuple[bool, Any]:
    """Whether a summary has a field, and its value.

    >>> _at({"balance": {"moves": None}}, "balance.moves"), _at({"balance": None}, "balance.moves")
    ((True, None), (False, None))
    """
    value: Any = summary
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return False, None
        value = value[name]
    return True, value


def draw_comparison(jobs: Sequence[Job], folder: Path, to: Path) -> Path | None:
    """The curves of the first seed of each policy over each other; None if the scenario keeps no records of load."""
    plt = pyplot()
    first = {job.policy: job for job in reversed(jobs)}
    runs = {}
    for policy in dict.fromkeys(job.policy for job in jobs):
        if not records_folder(folder, first[policy]).exists():
            return None
        runs[policy] = read_run(records_folder(folder, first[policy]))
    panels = {
        "input_utilization_ratio": "deviation of input ratios",
        "output_utilization_ratio": "deviation of output ratios",
        "matching_delay_s": "deviation of matching delays [s]",
    }
    figure, all_axes = plt.subplots(len(panels), 1, sharex=True, figsize=(7.2, 7.5), layout="constrained")
    for axes, (column, label) in zip(all_axes, panels.items(), strict=True):
        for number, (policy, run) in enumerate(runs.items()):
            times = sorted(run.everyone)
            values = [
                pstdev([row[column] for row in run.everyone[time_s] if row["broker"] in run.loads] or [0.0])
                for time_s in times
            ]
            axes.plot(times, values, color=COLOURS[number % len(COLOURS)], label=policy)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    all_axes[0].legend(ncols=min(4, len(runs)))
    all_axes[-1].set_xlabel("time [s]")
    path = save(figure, to, "comparison")
    plt.close(figure)
    return path
