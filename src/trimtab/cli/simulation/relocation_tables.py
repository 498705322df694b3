"""Scenarios of publisher relocation on the command line: every run beside the same one without relocation."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING

from trimtab.cli.simulation.grid_runs import aligned, run_grid_and_tell

if TYPE_CHECKING:
    from trimtab.lab.studies.relocation_runs import RelocationGrid
    from trimtab.simulation.relocation.summary import RelocationSummary


def run_relocation_and_tell(  # noqa: PLR0917 (what a run is made of)
    name: str,
    text: str,
    overrides: dict[str, str],
    seeds: list[int] | None,
    out: str | None,
    processes_count: int | None,
    *,
    as_json: bool,
) -> None:
    """Run a scenario and policy none, print the table; exit code 1 if some run broke a promise."""
    from trimtab.lab.studies.relocation_runs import run_all
    from trimtab.simulation.relocation.scenario import parse_relocation

    def run(on_run: Callable[[RelocationSummary, int, int], None] | None) -> RelocationGrid:
        varied, scenarios = parse_relocation(text, name, overrides)
        return run_all(name, varied, scenarios, seeds or [scenarios[0].seed], processes_count, on_run)

    def said(run: RelocationSummary) -> str:
        return f"{run.policy}, spread {run.spread}, threshold {run.threshold}"

    run_grid_and_tell(run, said, relocation_lines, out, as_json=as_json)


_COLUMNS = (
    ("messages/s", "message_rate_mean_per_s", "{:.2f}"),
    ("input", "input_ratio_mean", "{:.4f}"),
    ("output", "output_ratio_mean", "{:.5f}"),
    ("delay ms", "delivery_delay_mean_s", "{:.1f}"),
    ("hops", "hops_mean", "{:.2f}"),
    ("memory MB", "memory_bytes_mean", "{:.2f}"),
)
_SCALES = {"delivery_delay_mean_s": 1e3, "memory_bytes_mean": 1e-6}


def relocation_lines(grid: RelocationGrid) -> list[str]:
    """A line for each point, means over the seeds; behind each figure its reduction against policy none in percent."""
    points: dict[tuple[str, int, int], list[RelocationSummary]] = {}
    for run in grid.runs:
        points.setdefault((run.policy, run.spread, run.threshold), []).append(run)
    rows = [["policy", "spread", "traces", *(title for title, _, _ in _COLUMNS), "overhead", "selection s", "moves"]]
    for (policy, spread, threshold), runs in points.items():
        cells = [policy, str(spread), str(threshold)]
        for _, field, form in _COLUMNS:
            cell = form.format(fmean(getattr(run, field) for run in runs) * _SCALES.get(field, 1.0))
            shares = [run.reductions[field] for run in runs if field in run.reductions]
            cells.append(f"{cell} ({-fmean(shares):+.0f}%)" if shares else cell)
        times_s = [run.selection_time_s for run in runs if run.selection_time_s is not None]
        cells += [
            f"{100 * fmean(run.overhead_ratio for run in runs):.1f}%",
            f"{fmean(times_s):.2f}" if times_s else "-",
            f"{fmean(run.moves for run in runs):.0f}",
        ]
        rows.append(cells)
    seeds = ", ".join(dict.fromkeys(str(run.seed) for run in grid.runs))
    lines = [f"{grid.relocation}: means over seeds {seeds}; in brackets, compared with policy none", ""]
    lines += aligned(rows)
    waits: dict[int, list[float]] = {}
    for run in grid.runs:
        for hops, wait_s in run.publisher_wait_s.items():
            waits.setdefault(int(hops), []).append(wait_s)
    if waits:
        told = ", ".join(f"{hops}: {1e3 * fmean(times):.0f} ms" for hops, times in sorted(waits.items()))
        lines += ["", f"a publisher waits, by the links that its move went over: {told}"]
    lost, twice, late = (sum(getattr(run, name) for run in grid.runs) for name in ("lost", "duplicated", "reordered"))
    lines += ["", f"lost {lost:,}, delivered twice {twice:,}, out of order {late:,} in {len(grid.runs):,} runs"]
    return lines
