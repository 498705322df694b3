"""Scenarios of replication on the command line: a line for each point, with the paper's metrics."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.lab.replication_runs import ReplicationGrid
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
    import msgspec

    from trimtab.lab.replication_runs import run_all
    from trimtab.lab.summary_files import write_summary
    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.replication.scenario import parse_replication
    from trimtab.simulation.scenario import ScenarioError

    def on_run(run: ReplicationSummary, done_count: int, all_count: int) -> None:
        typer.echo(f"{done_count} of {all_count}: {run.variant}, seed {run.seed} ({run.cpu_s:.1f} s of CPU)", err=True)

    show_progress = not as_json or sys.stderr.isatty()
    try:
        varied, scenarios = parse_replication(text, name, overrides)
        wanted_seeds = seeds or [scenarios[0].seed]
        grid = run_all(name, varied, scenarios, wanted_seeds, processes_count, on_run if show_progress else None)
        if out is not None:
            write_summary(grid, Path(out))
    except (ScenarioError, RecordsError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(grid), indent=1))
    else:
        typer.echo(printable("\n".join(replication_lines(grid))))
    if any(run.violations for run in grid.runs):
        raise typer.Exit(1)


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
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [*lines, *(f"VIOLATION {each.kind}: {each.text}" for run in grid.runs for each in run.violations[:5])]
