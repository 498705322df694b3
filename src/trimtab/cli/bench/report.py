"""The command `trimtab bench report`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from trimtab.cli.input_lines import refuse


def bench_report(
    rows: Annotated[
        int, typer.Option(min=1, max=1_000_000_000, metavar="N", help="Rows of records that are reported on.")
    ] = 10_000_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Report on very many records with Spark; exit code 1 if it takes longer than a minute.

    \b
    Example:
      trimtab bench report --rows 1000000
    """
    import msgspec

    from trimtab.activedata.errors import ActiveDataError
    from trimtab.protocol.records import RecordsError

    try:
        from trimtab.lab.bench.report import measure_report

        figures = measure_report(rows)
    except ModuleNotFoundError as error:
        refuse(f"this benchmark needs {error.name}: pip install 'trimtab[active,lab]'")
    except (ActiveDataError, RecordsError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(figures), indent=2))
    else:
        typer.echo(
            f"records     {figures.rows_count:,} rows of {figures.runs_count} runs, made in {figures.prepared_s:.0f} s"
        )
        typer.echo(f"report      {figures.elapsed_s:.1f} s (at most {figures.seconds_max:.0f} s)")
    if not figures.is_within:
        raise typer.Exit(1)
