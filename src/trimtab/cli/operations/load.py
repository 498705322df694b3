"""The command `load`: publishers and subscribers for a running network, and an account of what they got."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.input_lines import refuse
from trimtab.cli.network.commands import JsonOption, NetworkArgument, RecordsOption, plan_of, record_files, run_client

if TYPE_CHECKING:
    from trimtab.network.network_file import NetworkPlan
    from trimtab.operations.load.load_report import LoadReport, LoadSecond


def load(  # noqa: PLR0917 (each one is an option)
    network: NetworkArgument,
    subscribers: Annotated[int, typer.Option("--subscribers", min=1, metavar="N", help="How many subscribers.")] = 200,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="NAME", help="Where they join; the weakest broker at the edge if missing."),
    ] = None,
    publishers: Annotated[int, typer.Option("--publishers", min=1, metavar="N", help="How many publishers.")] = 10,
    publish_at: Annotated[
        str | None,
        typer.Option("--publish-at", metavar="NAME", help="Where they publish; the broker with most links if missing."),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", metavar="PER_S", help="Publications per second, of all.")] = 20.0,
    join_rate: Annotated[float, typer.Option("--join-rate", metavar="PER_S", help="Subscribers that join.")] = 10.0,
    for_s: Annotated[float, typer.Option("--for", metavar="SECONDS", help="How long they publish.")] = 120.0,
    seed: Annotated[int, typer.Option("--seed", help="Which quotes and filters.")] = 1,
    records: RecordsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Load a running network with stock quotes and count what arrives.

    All subscribers join one broker; where they go from there is up to the network's policy. Each second a line tells
    what was published and delivered, how many moved, and how many subscribers each broker serves. At the end it tells
    what was lost, duplicated or reordered, computed from the filters and the acknowledged publications; the exit code
    is 0 only if that is nothing.

    \b
    Example:
      trimtab load examples/hotspot.toml --subscribers 200 --broker B1 --for 120
    """
    from trimtab.operations.load.live_load import LoadRun
    from trimtab.operations.load.load_report import LoadOptions

    plan = plan_of(network)
    names = [entry.name for entry in plan.brokers]
    for option, name in (("--broker", broker), ("--publish-at", publish_at)):
        if name is not None and name not in names:
            refuse(f"{option}: no broker is named {name}; there are {', '.join(names)}")
    for option, value in (("--rate", rate), ("--join-rate", join_rate), ("--for", for_s)):
        if not 0 < value < float("inf"):
            refuse(f"{option}: expected a number above 0")
    options = LoadOptions(
        subscribers_count=subscribers,
        subscribe_at=broker or weakest_edge(plan),
        publishers_count=publishers,
        publish_at=publish_at or most_linked(plan),
        rate_per_s=rate,
        join_per_s=join_rate,
        for_s=for_s,
        seed=seed,
        name=f"load{os.getpid()}",
    )
    with record_files(records, options.name, network) as recorder:

        async def work() -> int:
            report = await LoadRun(plan, options, recorder, None if as_json else _tell_second).run()
            _tell(report, as_json=as_json)
            return 0 if report.is_faultless else 1

        run_client(work())


def most_linked(plan: NetworkPlan) -> str:
    """The broker with most links, the first of several."""
    return max(plan.brokers, key=lambda entry: len(plan.neighbours_of(entry.name))).name


def weakest_edge(plan: NetworkPlan) -> str:
    """The broker with the slowest processor among those with the fewest links."""
    return min(
        plan.brokers, key=lambda entry: (len(plan.neighbours_of(entry.name)), entry.cpu_mhz or float("inf"))
    ).name


def _tell_second(second: LoadSecond) -> None:
    clients = "  ".join(f"{name} {count}" for name, count in second.clients.items())
    typer.echo(
        f"{second.time_s:5.0f} s  published {second.published_count:4}/s  delivered {second.delivered_count:6}/s  "
        f"moved {second.moves_count:3}   clients: {clients}"
    )


def _tell(report: LoadReport, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(report).decode())
        return
    level = "not level" if report.level_after_s is None else f"level after {report.level_after_s:.0f} s"
    last = "" if report.last_move_s is None else f", the last after {report.last_move_s:.0f} s"
    typer.echo(
        f"published {report.published_count:,}, must be delivered {report.expected_count:,}, "
        f"delivered {report.delivered_count:,}\n"
        f"lost {report.lost_count:,}, duplicated {report.duplicated_count:,}, reordered {report.reordered_count:,}\n"
        f"{report.moves_count:,} moves{last}; {report.stayed_count:,} refused or undone; {level}\n"
        f"delay: median {report.delay_median_s * 1000:.1f} ms, 99 % within {report.delay_p99_s * 1000:.1f} ms"
    )
    for violation in report.other_violations[:10]:
        typer.echo(f"wrong: {violation}", err=True)
