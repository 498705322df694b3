"""Scenarios of publisher relocation on the command line: every run beside the same one without relocation."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from trimtab.cli.input_lines import aligned

if TYPE_CHECKING:
    from trimtab.simulation.relocation.summary import RelocationSummary
    from trimtab.simulation.scenarios.summary import GridSummary


_COLUMNS = (
    ("messages/s", "message_rate_mean_per_s", "{:.2f}"),
    ("input", "input_ratio_mean", "{:.4f}"),
    ("output", "output_ratio_mean", "{:.5f}"),
    ("delay ms", "delivery_delay_mean_s", "{:.1f}"),
    ("hops", "hops_mean", "{:.2f}"),
    ("memory MB", "memory_bytes_mean", "{:.2f}"),
)
_SCALES = {"delivery_delay_mean_s": 1e3, "memory_bytes_mean": 1e-6}


def relocation_lines(grid: GridSummary) -> list[str]:
    """A line for each point, means over the seeds; behind each figure its reduction against policy none in percent."""
    points: dict[tuple[str, int, int], list[RelocationSummary]] = {}
    for run in grid.runs:
        points.setdefault((run.policy, run.details.spread, run.details.threshold), []).append(run)
    rows = [["policy", "spread", "traces", *(title for title, _, _ in _COLUMNS), "overhead", "selection s", "moves"]]
    for (policy, spread, threshold), runs in points.items():
        cells = [policy, str(spread), str(threshold)]
        for _, field, form in _COLUMNS:
            cell = form.format(fmean(getattr(run.details, field) for run in runs) * _SCALES.get(field, 1.0))
            shares = [run.details.reductions[field] for run in runs if field in run.details.reductions]
            cells.append(f"{cell} ({-fmean(shares):+.0f}%)" if shares else cell)
        times_s = [run.details.selection_time_s for run in runs if run.details.selection_time_s is not None]
        cells += [
            f"{100 * fmean(run.details.overhead_ratio for run in runs):.1f}%",
            f"{fmean(times_s):.2f}" if times_s else "-",
            f"{fmean(run.moves for run in runs):.0f}",
        ]
        rows.append(cells)
    seeds = ", ".join(dict.fromkeys(str(run.seed) for run in grid.runs))
    lines = [f"{grid.scenario}: means over seeds {seeds}; in brackets, compared with policy none", ""]
    lines += aligned(rows)
    waits: dict[int, list[float]] = {}
    for run in grid.runs:
        for hops, wait_s in run.details.publisher_wait_s.items():
            waits.setdefault(int(hops), []).append(wait_s)
    if waits:
        told = ", ".join(f"{hops}: {1e3 * fmean(times):.0f} ms" for hops, times in sorted(waits.items()))
        lines += ["", f"a publisher waits, by the links that its move went over: {told}"]
    lost, twice, late = (sum(getattr(run, name) for run in grid.runs) for name in ("lost", "duplicated", "reordered"))
    lines += ["", f"lost {lost:,}, delivered twice {twice:,}, out of order {late:,} in {len(grid.runs):,} runs"]
    return lines
