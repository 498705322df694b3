"""Scenarios of replication on the command line: a line for each point, with the paper's metrics."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from trimtab.cli.input_lines import aligned

if TYPE_CHECKING:
    from trimtab.simulation.replication.run import ReplicationSummary
    from trimtab.simulation.scenarios.summary import GridSummary


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


def replication_lines(grid: GridSummary) -> list[str]:
    """A line for each point, means over the seeds."""
    points: dict[tuple[object, ...], list[ReplicationSummary]] = {}
    shown = [key for key in _POINT if len({getattr(run.details, key) for run in grid.runs}) > 1]
    for run in grid.runs:
        points.setdefault((*(getattr(run.details, key) for key in shown), run.details.variant), []).append(run)
    titles = [*(key.removesuffix("_count").replace("_", " ") for key in shown), "protocol"]
    rows = [[*titles, *(title for title, _, _ in _COLUMNS), "replication s"]]
    for point, runs in points.items():
        cells = [str(value) for value in point]
        cells += [form.format(fmean(getattr(run.details, field) for run in runs)) for _, field, form in _COLUMNS]
        times_s = [run.details.replication_s for run in runs if run.details.replication_s is not None]
        rows.append([*cells, f"{fmean(times_s):.3f}" if times_s else "-"])
    return aligned(rows)
