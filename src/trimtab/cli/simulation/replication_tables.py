"""Scenarios of replication on the command line: a line for each point, with the paper's metrics."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING

from trimtab.cli.simulation.grid_runs import aligned, run_grid_and_tell

if TYPE_CHECKING:
    from trimtab.lab.studies.replication_runs import ReplicationGrid
    from trimtab.simulation.replication.run import ReplicationSummary


def run_replication_and_tell(  # noqa: PLR0917 (what a run is made of)
    name: str,
    text: str,
    overrides: dict[str, str],
    seeds: list[int] | None,
    out: str | None,
    processes_count: int | None,
    *,
    as_json: bool,
) -> None:
    """Run every point of a scenario and print the table; exit code 1 if some run broke a promise."""
    from trimtab.lab.studies.replication_runs import run_all
    from trimtab.simulation.replication.scenario import parse_replication

    def run(on_run: Callable[[ReplicationSummary, int, int], None] | None) -> ReplicationGrid:
        varied, scenarios = parse_replication(text, name, overrides)
        return run_all(name, varied, scenarios, seeds or [scenarios[0].seed], processes_count, on_run)

    def said(run: ReplicationSummary) -> str:
        return run.variant

    run_grid_and_tell(run, said, replication_lines, out, as_json=as_json)


_POINT = ("subscriptions_count", "pending_count", "neighbours_count", "zipf_degree", "popular", "congestion")
_COLUMNS = (
    ("resumption s", "resumption_delay_s", "{:.4f}"),
    ("order", "ordering_degree_ratio", "{:.3f}"),
    ("last s", "last_processed_s", "{:.3f}"),
    ("missing", "missing_ratio", "{:.3f}"),
    ("per s", "throughput_per_s", "{:.1f}"),
    ("fan-out", "fan_out_mean", "{:.0f}"),
    ("unwanted", "unwanted_count", "{:.0f}"),
)


def replication_lines(grid: ReplicationGrid) -> list[str]:
    """A line for each point, means over the seeds."""
    points: dict[tuple[object, ...], list[ReplicationSummary]] = {}
    shown = [key for key in _POINT if len({getattr(run, key) for run in grid.runs}) > 1]
    for run in grid.runs:
        points.setdefault((*(getattr(run, key) for key in shown), run.variant), []).append(run)
    titles = [*(key.removesuffix("_count").replace("_", " ") for key in shown), "protocol"]
    rows = [[*titles, *(title for title, _, _ in _COLUMNS), "replication s"]]
    for point, runs in points.items():
        cells = [str(value) for value in point]
        cells += [form.format(fmean(getattr(run, field) for run in runs)) for _, field, form in _COLUMNS]
        times_s = [run.replication_s for run in runs if run.replication_s is not None]
        rows.append([*cells, f"{fmean(times_s):.3f}" if times_s else "-"])
    return [
        *aligned(rows),
        *(f"VIOLATION {each.kind}: {each.text}" for run in grid.runs for each in run.violations[:5]),
    ]
