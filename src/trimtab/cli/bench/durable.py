"""The command `trimtab bench durable`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.lab.bench.durable import DurableReport

_FILE_WIDTH: Final = 140


def bench_durable(
    folder: Annotated[
        str, typer.Option("--disk", metavar="DIR", help="Where disks are; a temporary folder if not given.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Measure everything so many times.")] = 3,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of the publications.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds; the figures mean little.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Measure what `durable` costs beside `received`, `safe` and NATS JetStream with file storage, in one run.

    Publications per second with 200 outstanding, processor time of all servers, and delays at 100 publications per
    second. JetStream is measured with its default, which syncs every two minutes, and with sync always. A NATS server
    that is not installed is left out. Takes about three minutes.

    \b
    Example:
      trimtab bench durable --disk /var/tmp
    """
    import msgspec

    from trimtab.lab.bench.durable import QUICK, DurableBench, run_durable_bench
    from trimtab.lab.bench.matching_memory import MeasurementError

    if folder and not Path(folder).is_dir():
        refuse(f"--disk: {folder} is no folder")
    bench = QUICK if quick else DurableBench(rounds_count=rounds)
    bench = msgspec.structs.replace(bench, folder=folder, seed=seed)
    try:
        figures = run_durable_bench(bench, _tell)
    except (MeasurementError, ConnectionError, TimeoutError) as error:
        typer.echo(printable(f"the measurement failed: {str(error) or 'no answer'}"), err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps({**msgspec.to_builtins(figures), "quick": quick}, indent=2))
        return
    _print_table(figures)
    for install in figures.missing:
        typer.echo(f"nats is not installed and was left out. To install it: {install}")


def _tell(step: str) -> None:
    if sys.stderr.isatty():
        typer.echo(step, err=True)


def _print_table(report: DurableReport) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)
    table = Table(
        title=f"{report.outstanding_count} outstanding, payload {report.payload_bytes} bytes, one subscriber; "
        f"delays at {report.rate_per_s:g}/s; one fsync takes {report.fsync_p50_ms:.2f} ms",
        title_justify="left",
    )
    table.add_column("acknowledged when")
    for heading in (
        "servers",
        "publications per s",
        "CPU ms per 1,000",
        "acknowledged p50 / p99 (ms)",
        "delivered p50 / p99 (ms)",
        "durable: publications",
        "durable: CPU",
    ):
        table.add_column(heading, justify="right")
    for each in report.levels:
        table.add_row(
            each.system,
            str(each.brokers_count),
            f"{each.publications_per_s:,.0f}",
            f"{each.cpu_ms_per_1000:,.0f}",
            f"{each.acknowledged_p50_ms:.2f} / {each.acknowledged_p99_ms:.2f}",
            f"{each.delivered_p50_ms:.2f} / {each.delivered_p99_ms:.2f}",
            f"{each.durable_times_publications:.2f} x",
            f"{each.durable_times_cpu:.2f} x",
        )
    console.print(table)
