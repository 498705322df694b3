"""A study on the command line: how far it is, and what it showed, as a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.lab.studies.study_runs import StudyRun, StudySummary
    from trimtab.simulation.scenarios.study import Study


def run_study_and_tell(
    study: Study,
    seeds: list[int],
    overrides: dict[str, str],
    out: str | None,
    processes_count: int | None,
    *,
    quick: bool,
    as_json: bool,
) -> None:
    """Run a study and print its table; exit code 1 if some run broke a promise."""
    import msgspec

    from trimtab.lab.studies.study_runs import run_study
    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.scenarios.documents import ScenarioError
    from trimtab.simulation.workloads.quotes import QuotesError

    def on_run(run: StudyRun, done_count: int, all_count: int) -> None:
        value = study.values[run.point]
        text = f"{done_count} of {all_count}: {study.parameter} {value}, seed {run.seed} ({run.cpu_s:.0f} s of CPU)"
        typer.echo(printable(text), err=True)

    show_progress = not as_json or sys.stderr.isatty()
    folder = None if out is None else Path(out)
    try:
        summary = run_study(
            study, seeds, overrides, folder, processes_count, on_run if show_progress else None, quick=quick
        )
    except (ScenarioError, QuotesError, RecordsError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(summary), indent=2))
    else:
        typer.echo(printable("\n".join(table_lines(summary))))
    if any(run.violations_count for point in summary.points for run in point.runs):
        raise typer.Exit(1)


def table_lines(summary: StudySummary) -> list[str]:
    """The means over the seeds, one line for each point, with a legend of the columns."""
    from trimtab.simulation.scenarios.study_metrics import METRICS

    names = list(dict.fromkeys(metric for figure in summary.figures for metric in figure.metrics))
    figures = {name: ", ".join(figure.number for figure in summary.figures if name in figure.metrics) for name in names}
    rows = [[summary.parameter, *(f"({letter})" for letter in _letters(len(names)))]]
    for point in summary.points:
        is_alone = len(point.runs) == 1
        cells = [_shown(point.means[name], None if is_alone else point.deviations[name]) for name in names]
        rows.append([str(point.value), *cells])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [f"{summary.study}: {summary.description}", f"means over seeds {', '.join(map(str, summary.seeds))}", ""]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    runs = [run.metrics for point in summary.points for run in point.runs]
    lost, twice, late = (sum(getattr(each, name) or 0 for each in runs) for name in ("lost", "duplicated", "reordered"))
    lines += ["", f"lost {lost:,}, delivered twice {twice:,}, out of order {late:,} in {len(runs):,} runs", ""]
    lines += [
        f"({letter}) {name}: {METRICS[name]}; figure {figures[name]}"
        for letter, name in zip(_letters(len(names)), names, strict=True)
    ]
    return lines


def _letters(count: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[:count]


def _shown(mean: float | None, deviation: float | None) -> str:
    """A mean, with its deviation if there is one, as precise as it makes sense.

    >>> _shown(1510.0, 12.0), _shown(0.01234, 0.001), _shown(7.0, None), _shown(None, None)
    ('1,510 ±12', '0.0123 ±0.001', '7', '-')
    """
    if mean is None:
        return "-"
    if abs(mean) >= 100:
        return f"{mean:,.0f}" + ("" if deviation is None else f" ±{deviation:,.0f}")
    return f"{mean:.3g}" + ("" if deviation is None else f" ±{deviation:.1g}")
