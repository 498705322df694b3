"""`trimtab sim replication-table`: which replication protocol keeps which property when a broker fails."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer


def replication_table(
    runs: Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="Runs of each protocol.")] = 20,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of the first run; the next has the next.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Table 1 of the replication paper by running; exit code 1 if a tick does not hold or a cross is not seen.

    \b
    Example:
      trimtab sim replication-table --runs 100
    """
    import msgspec

    from trimtab.lab.studies.replication_runs import run_table

    def on_some(done_count: int, all_count: int) -> None:
        typer.echo(f"\r{done_count:,} of {all_count:,} runs", err=True, nl=done_count == all_count)

    table = run_table(seed, runs, on_some if sys.stderr.isatty() and not as_json else None)
    if as_json:
        typer.echo(json.dumps({**msgspec.to_builtins(table), "is_reproduced": table.is_reproduced}, indent=2))
    else:
        for cell in table.cells:
            promise = "promised" if cell.is_promised else "not promised"
            seen = f"violated in {cell.violated_count:,} of {table.runs_count:,} runs"
            first = "" if cell.first_seed is None else f", first by seed {cell.first_seed}"
            typer.echo(f"{cell.protocol:<22} {cell.property_name:<15} {promise:<13} {seen}{first}")
        for protocol, degree in table.ordering_degree_ratios.items():
            typer.echo(f"{protocol:<22} ordering degree {degree:.3f}")
        for mistake in table.mistakes[:20]:
            typer.echo(f"MISTAKE {mistake}")
    if not table.is_reproduced:
        raise typer.Exit(1)
