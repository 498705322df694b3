"""`trimtab bench restart`: a rolling restart of seven brokers under load."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from trimtab.cli.input_lines import printable


def bench_restart(
    rate: Annotated[
        float, typer.Option(min=10, max=1_000_000, metavar="N", help="Publications per second of all publishers.")
    ] = 1_000.0,
    acknowledges: Annotated[
        Literal["received", "safe", "durable"], typer.Option(help="What an acknowledgement means.")
    ] = "safe",
    by: Annotated[
        Literal["command", "signal"],
        typer.Option(help="command: trimtab restart; signal: SIGTERM and a new process, as for a new program."),
    ] = "command",
    rest: Annotated[float, typer.Option(min=0, max=600, metavar="S", help="Seconds between two restarts.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Let seven broker processes begin again one after the other while publications flow.

    Three publishers, and a subscriber at each broker. The delay of a delivery counts from the moment at which its
    publication was due. Exit code 1 if something was lost, doubled or reordered. Takes about half a minute.

    \b
    Example:
      trimtab bench restart --rate 1000 --acknowledges durable
    """
    import msgspec

    from trimtab.lab.bench.restart import RestartBench, run_restart_bench
    from trimtab.network.admin.rolling_restart import RestartProblem

    try:
        figures = run_restart_bench(RestartBench(rate, acknowledges, by, rest), lambda step: None)
    except (TimeoutError, RestartProblem) as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps({**msgspec.to_builtins(figures), "is_right": figures.is_right}, indent=2))
    else:
        for restart in figures.restarts:
            typer.echo(
                f"{restart.broker} was healthy again after {restart.took_s:.2f} s; "
                f"longest delay of a delivery {restart.delay_max_s:.2f} s"
            )
        typer.echo(
            f"{figures.publications_count:,} published ({figures.publications_per_s:,.0f} per second), "
            f"{figures.deliveries_count:,} delivered; lost {figures.lost_count:,}, doubled or reordered "
            f"{figures.doubled_count:,}; delay of deliveries: median {figures.delay_median_s * 1000:.1f} ms, "
            f"longest {figures.delay_max_s:.2f} s"
        )
    if not figures.is_right:
        raise typer.Exit(1)
