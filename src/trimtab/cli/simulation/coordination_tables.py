"""Scenarios of coordination on the command line: one run, or a grid as a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.lab.studies.coordination_runs import GridSummary
    from trimtab.simulation.coordination.world import CoordinationSummary


def run_coordination_and_tell(  # noqa: PLR0917 (what a run is made of)
    name: str,
    text: str,
    overrides: dict[str, str],
    seeds: list[int] | None,
    out: str | None,
    processes_count: int | None,
    *,
    as_json: bool,
) -> None:
    """Run a scenario; values with commas make a grid, several seeds too."""
    import msgspec

    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.coordination.scenario import grid_of, parse_coordination
    from trimtab.simulation.scenarios.scenario import ScenarioError

    try:
        from trimtab.lab.studies.coordination_runs import GridSummary, run_all
        from trimtab.lab.studies.summary_files import write_summary
    except ModuleNotFoundError as error:
        refuse(f"this scenario needs {error.name}: pip install 'trimtab[lab]'")

    def on_run(run: CoordinationSummary, done_count: int, all_count: int) -> None:
        typer.echo(f"{done_count} of {all_count}: {run.placement} {run.policy}, seed {run.seed}", err=True)

    show_progress = not as_json or sys.stderr.isatty()
    points = grid_of(overrides)
    try:
        scenarios = [parse_coordination(text, name, point) for point in points]
        wanted_seeds = seeds or [scenarios[0].seed]
        runs = run_all(scenarios, wanted_seeds, processes_count, on_run if show_progress else None)
        varied = [key for key in overrides if len({point[key] for point in points}) > 1]
        summary: CoordinationSummary | GridSummary = runs[0]
        if len(runs) > 1:
            summary = GridSummary(
                scenario=name,
                varied=varied,
                points=[{key: point[key] for key in varied} for point in points for _ in wanted_seeds],
                runs=runs,
            )
        if out is not None:
            write_summary(summary, Path(out))
    except (ScenarioError, RecordsError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(summary), indent=2))
    elif isinstance(summary, GridSummary):
        typer.echo(printable("\n".join(grid_lines(summary))))
    else:
        typer.echo(printable("\n".join(summary_lines(summary))))


def summary_lines(run: CoordinationSummary) -> list[str]:
    """One run in words and figures."""
    return [
        f"{label:<16} {value}"
        for label, value in (
            ("scenario", f"{run.scenario} (seed {run.seed}), placement {run.placement}, policy {run.policy}"),
            ("simulated", f"{run.simulated_s:,.0f} s, {run.rounds_count} rounds"),
            ("subscribers", f"{run.connected_count:,} connected to {run.brokers_count:,} brokers"),
            ("subscriptions", f"{run.front_end_count:,} front-end, {run.back_end_count:,} back-end"),
            ("largest load", f"{run.max_load:,.0f} bytes/s, {run.ratio:.3f} of the lower bound {run.lower_bound:,.0f}"),
            ("total load", f"{run.total_load:,.0f} bytes/s, of which {run.incoming_load:,.0f} are fetched"),
            ("cov", f"{run.cov:.4f}"),
            ("moves", f"{run.moves:,}, {run.moves_refused:,} refused"),
            ("trace", run.trace_hash),
        )
    ]


def grid_lines(grid: GridSummary) -> list[str]:
    """A line for each point, means over its seeds, and the largest load in relation to policy none if that is there."""
    groups: dict[tuple[str, ...], list[CoordinationSummary]] = {}
    for point, run in zip(grid.points, grid.runs, strict=True):
        groups.setdefault(tuple(point.values()), []).append(run)
    unbalanced = {
        tuple(value for key, value in zip(grid.varied, values, strict=True) if key != "policy"): fmean(
            run.max_load for run in runs
        )
        for values, runs in groups.items()
        if runs[0].policy == "none"
    }
    rows = [[*grid.varied, "max_load", "of none", "cov", "moves", "total_load", "lower_bound", "ratio"]]
    for values, runs in groups.items():
        others = tuple(value for key, value in zip(grid.varied, values, strict=True) if key != "policy")
        largest = fmean(run.max_load for run in runs)
        rows.append(
            [
                *values,
                f"{largest:,.0f}",
                f"{largest / unbalanced[others]:.3f}" if others in unbalanced else "-",
                f"{fmean(run.cov for run in runs):.4f}",
                f"{fmean(run.moves for run in runs):,.0f}",
                f"{fmean(run.total_load for run in runs):,.0f}",
                f"{fmean(run.lower_bound for run in runs):,.0f}",
                f"{fmean(run.ratio for run in runs):.4f}",
            ]
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    seeds = ", ".join(dict.fromkeys(str(run.seed) for run in grid.runs))
    return [
        f"{grid.scenario}: means over seeds {seeds}; loads in bytes/s, means over the last five minutes",
        "",
        *("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows),
    ]
