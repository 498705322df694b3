"""`trimtab figures`: pictures of a run or a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.input_lines import printable, refuse


def figures(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What `sim run --out DIR` wrote, of a run or a study.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="Where the PNG files go; DIR/figures if not said.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files as a JSON array, for programs.")] = False,
) -> None:
    """Draw the figures of the 2006 thesis from the records of a run, or the curves of a study or grid, as PNG files.

    Of a run with topics and latency requirements (ews-burst) uplinks and the worst queue are drawn.

    \b
    Example:
      trimtab sim run padres-local --out results --deliveries-one-in 20
      trimtab figures results
    """
    from trimtab.lab.figures.coordination_figures import draw_grid
    from trimtab.lab.figures.crisis_figures import draw_crisis
    from trimtab.lab.figures.padres_figures import draw_run
    from trimtab.lab.figures.relocation_figures import draw_relocation
    from trimtab.lab.figures.study_figures import draw_study
    from trimtab.lab.studies.study_runs import read_study_summary
    from trimtab.lab.studies.summary_files import read_runs
    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.scenarios.summary import GridSummary, Summary, grid_of

    source = Path(folder)
    if not source.is_dir():
        refuse(f"{folder}: {'not a folder' if source.exists() else 'there is no such folder'}")
    target = source / "figures" if to is None else Path(to)
    grids = {"relocation": draw_relocation, "coordination": draw_grid}
    try:
        found, study = read_runs(source), read_study_summary(source)
        if study is not None:
            written = draw_study(study, target)
        elif found is not None and found.kind in grids:
            written = grids[found.kind](found if isinstance(found, GridSummary) else grid_of(found), target)
        elif isinstance(found, Summary) and found.kind == "messages" and found.details.crisis is not None:
            written = draw_crisis(found, target)
        else:
            written = draw_run(source, target)
    except RecordsError as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps([str(path) for path in written], indent=2))
        return
    for path in written:
        typer.echo(printable(str(path)))
