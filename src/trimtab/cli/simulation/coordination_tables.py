"""Scenarios of coordination on the command line: one run in words, or a grid as a table."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from trimtab.cli.input_lines import aligned

if TYPE_CHECKING:
    from trimtab.simulation.coordination.world import CoordinationSummary
    from trimtab.simulation.scenarios.summary import GridSummary


def summary_lines(run: CoordinationSummary) -> list[str]:
    """One run in words and figures."""
    found = run.details
    return [
        f"{label:<16} {value}"
        for label, value in (
            ("scenario", f"{run.scenario} (seed {run.seed}), placement {found.placement}, policy {run.policy}"),
            ("simulated", f"{run.simulated_s:,.0f} s, {found.rounds_count} rounds"),
            ("subscribers", f"{found.connected_count:,} connected to {run.brokers:,} brokers"),
            ("subscriptions", f"{found.front_end_count:,} front-end, {found.back_end_count:,} back-end"),
            (
                "largest load",
                f"{found.max_load:,.0f} bytes/s, {found.ratio:.3f} of the lower bound {found.lower_bound:,.0f}",
            ),
            (
                "total load",
                f"{found.total_load:,.0f} bytes/s, of which {found.incoming_load:,.0f} are fetched",
            ),
            ("cov", f"{found.cov:.4f}"),
            ("moves", f"{run.moves:,}, {found.moves_refused:,} refused"),
            ("trace", run.trace_hash),
        )
    ]


def grid_lines(grid: GridSummary) -> list[str]:
    """A line for each point, means over its seeds, and the largest load in relation to policy none if that is there."""
    groups: dict[tuple[str, ...], list[CoordinationSummary]] = {}
    for point, run in zip(grid.points, grid.runs, strict=True):
        groups.setdefault(tuple(map(str, point.values())), []).append(run)
    unbalanced = {
        tuple(value for key, value in zip(grid.varied, values, strict=True) if key != "policy"): fmean(
            run.details.max_load for run in runs
        )
        for values, runs in groups.items()
        if runs[0].policy == "none"
    }
    rows = [[*grid.varied, "max_load", "of none", "cov", "moves", "total_load", "lower_bound", "ratio"]]
    for values, runs in groups.items():
        others = tuple(value for key, value in zip(grid.varied, values, strict=True) if key != "policy")
        largest = fmean(run.details.max_load for run in runs)
        rows.append(
            [
                *values,
                f"{largest:,.0f}",
                f"{largest / unbalanced[others]:.3f}" if others in unbalanced else "-",
                f"{fmean(run.details.cov for run in runs):.4f}",
                f"{fmean(run.moves for run in runs):,.0f}",
                f"{fmean(run.details.total_load for run in runs):,.0f}",
                f"{fmean(run.details.lower_bound for run in runs):,.0f}",
                f"{fmean(run.details.ratio for run in runs):.4f}",
            ]
        )
    seeds = ", ".join(dict.fromkeys(str(run.seed) for run in grid.runs))
    title = f"{grid.scenario}: means over seeds {seeds}; loads in bytes/s, means over the last five minutes"
    return [title, "", *aligned(rows)]
