"""Scenarios with a grid on the command line: how far they are, what they showed, and whether a promise was broken."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import typer

from trimtab.cli.input_lines import printable, refuse

Grid = TypeVar("Grid", bound=msgspec.Struct)


def run_grid_and_tell(
    run: Callable[[Callable[[Any, int, int], None] | None], Grid],
    said: Callable[[Any], str],
    lines: Callable[[Grid], Sequence[str]],
    out: str | None,
    *,
    as_json: bool,
) -> None:
    """Run a grid, which tells of each run that is over, and print its table; exit code 1 if a run broke a promise."""
    from trimtab.lab.studies.summary_files import write_summary
    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.scenarios.scenario import ScenarioError

    def on_run(each: Any, done_count: int, all_count: int) -> None:
        typer.echo(f"{done_count} of {all_count}: {said(each)}, seed {each.seed} ({each.cpu_s:.1f} s of CPU)", err=True)

    try:
        grid: Any = run(on_run if not as_json or sys.stderr.isatty() else None)
        if out is not None:
            write_summary(grid, Path(out))
    except (ScenarioError, RecordsError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(grid), indent=1))
    else:
        typer.echo(printable("\n".join(lines(grid))))
    if any(each.violations for each in grid.runs):
        raise typer.Exit(1)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, the columns to the right.

    >>> aligned([["a", "bb"], ["ccc", "d"]])
    ['  a  bb', 'ccc   d']
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
