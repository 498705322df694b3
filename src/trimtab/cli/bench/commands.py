"""The benchmark commands."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from trimtab.cli.bench.attacks import bench_attacks
from trimtab.cli.bench.durable import bench_durable
from trimtab.cli.bench.nemesis import bench_nemesis
from trimtab.cli.bench.report import bench_report
from trimtab.cli.bench.restart import bench_restart
from trimtab.cli.input_lines import printable, refuse
from trimtab.cli.plain_help import PlainTyper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.lab.bench.match import MatchFigures, Report, WorkloadFigures
    from trimtab.lab.bench.match_goals import Goal

_FILE_WIDTH: Final = 120
"""Columns of the tables where there is no terminal to ask."""

app = PlainTyper(help="Measure how fast things are on this machine.")


app.command("attacks")(bench_attacks)
app.command("durable")(bench_durable)
app.command("nemesis")(bench_nemesis)
app.command("report")(bench_report)
app.command("restart")(bench_restart)


@app.callback()
def _group() -> None:
    pass


@app.command("match")
def bench_match(  # noqa: PLR0917 (each one is an option)
    workload: Annotated[
        Literal["stock", "ranges"] | None,
        typer.Option(help="stock: quotes and six templates; ranges: 20 numeric attributes. Both if not given."),
    ] = None,
    filters: Annotated[int, typer.Option(min=1, max=10_000_000, metavar="N", help="Number of filters.")] = 100_000,
    publications: Annotated[
        int, typer.Option(min=1, max=1_000_000, metavar="N", help="Number of publications.")
    ] = 1_024,
    quotes: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Quotes as CSV or CSV.gz: symbol,date,open,high,low,close,volume."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of all random choices.")] = 1,
    engine: Annotated[
        Literal["auto", "kernel", "python"], typer.Option(help="Force the compiled kernel or pure Python.")
    ] = "auto",
    scale: Annotated[bool, typer.Option("--scale", help="Also measure with ten times as many filters.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Measure matching: time per publication, memory per filter, cost of changes.

    The same run measures plain NumPy scans and brute force, and checks that all find the same matches; exit code 1 if
    not. Needs NumPy: pip install 'trimtab[lab]'.

    \b
    Example:
      trimtab bench match --workload ranges --filters 10000
    """
    from trimtab.lab.bench.match import MatchBench, MissingLibraryError, run_match_bench
    from trimtab.lab.bench.match_goals import judge
    from trimtab.lab.bench.matching_memory import MeasurementError
    from trimtab.lab.bench.workloads import WorkloadName
    from trimtab.simulation.workloads.quotes import QuotesError

    bench = MatchBench(
        workloads=tuple(WorkloadName) if workload is None else (WorkloadName(workload),),
        filters_count=filters,
        publications_count=publications,
        seed=seed,
        quotes=None if quotes is None else Path(quotes),
        engine=engine,
        scale=scale,
    )
    try:
        with _progress() as report:
            figures = run_match_bench(bench, report)
    except QuotesError as error:
        refuse(str(error))
    except (MissingLibraryError, MeasurementError) as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(1) from None
    goals = judge(figures)
    if as_json:
        _print_json(figures, goals)
    else:
        _print_tables(figures, goals)
    if not figures.verified:
        typer.echo("the matcher, the NumPy scans and brute force do not find the same matches", err=True)
        raise typer.Exit(1)


@app.command("sim")
def bench_sim(
    duration_s: Annotated[
        float | None, typer.Option("--duration", min=10.0, metavar="S", help="Simulated seconds instead of its own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Checked deliveries per second of CPU in the simulation; exit code 1 if a promise was broken.

    \b
    Example:
      trimtab bench sim
      trimtab bench sim --duration 5000 --json
    """
    import msgspec

    from trimtab.lab.bench.sim import measure

    measured = []
    for figures in measure(duration_s):
        measured.append(figures)
        if not as_json:
            typer.echo(
                f"{figures.scenario:<17} {figures.deliveries_per_cpu_s:>9,.0f} checked deliveries per second of CPU "
                f"({figures.deliveries_count:,} in {figures.cpu_s:.2f} s, {figures.simulated_s:,.0f} s simulated, "
                f"{figures.violations_count:,} violations)"
            )
    if as_json:
        typer.echo(json.dumps({"scenarios": msgspec.to_builtins(measured)}, indent=2))
    if any(figures.violations_count for figures in measured):
        raise typer.Exit(1)


@app.command("active")
def bench_active(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller and shorter; the figures mean little.")] = False,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of all random choices.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Measure active data on a local Spark: executions, delays, results per second, and rest.

    Takes about ten minutes and 4 GB. Needs Spark: pip install 'trimtab[active]'.

    \b
    Example:
      trimtab bench active --json
    """
    import msgspec

    from trimtab.activedata.errors import ActiveDataError
    from trimtab.lab.bench.active import ActiveBench, run_active_bench
    from trimtab.lab.bench.active_goals import judge
    from trimtab.lab.bench.active_storage import QUICK_STORAGE, StorageBench, judge_storage, run_storage_bench

    bench = (
        ActiveBench(seed=seed, many_count=20_000, latency_s=5.0, idle_s=3.0, burst_records_count=20_000)
        if quick
        else ActiveBench(seed=seed)
    )
    storage_bench = QUICK_STORAGE if quick else StorageBench(seed=seed)
    try:
        with _progress() as report:
            figures = run_active_bench(bench, report)
            storage = run_storage_bench(storage_bench, report)
    except (ActiveDataError, ImportError) as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(1) from None
    goals = [*judge(figures), *judge_storage(storage)]
    measured = {**msgspec.to_builtins(figures), "storage": msgspec.to_builtins(storage)}
    if as_json:
        typer.echo(json.dumps({"figures": measured, "goals": msgspec.to_builtins(goals)}, indent=2))
        return
    burst = {f"burst {name}": value for name, value in msgspec.to_builtins(figures.burst).items()}
    for name, value in {**measured, **measured["storage"], **burst}.items():
        if isinstance(value, (int, float)):
            typer.echo(f"{name:<27} {value:>14,.3f}")
    for each in figures.executions:
        typer.echo(f"{each.channel}: {each.subscriptions_count:,} subscriptions: {each.execution_s:.3f} s")
    for goal in goals:
        said = "met" if goal.met else "NOT MET"
        typer.echo(f"{goal.name}: {goal.measured:,.3f} {goal.unit} (wanted {goal.bound} {goal.limit:,g}): {said}")


@app.command("plane")
def bench_plane(
    against: Annotated[
        str, typer.Option(metavar="PEERS", help="What to measure beside it: any of nats, mosquitto, tls, permissions.")
    ] = "",
    filters: Annotated[int, typer.Option(min=20, max=100_000, metavar="N", help="Number of filters.")] = 2_000,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of all random choices.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds; the figures mean little.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Measure one broker process, and NATS and Mosquitto beside it in the same run.

    Deliveries per second and per second of the server's processor time, with publications that go to 20 connections
    and to one; 200 publications outstanding, all acknowledged. Delays at 1,000 publications per second; memory per
    stored filter and idle connection; rates of the client library. A peer that is not installed is left out, with the
    command that installs it. Takes about two minutes with both peers.

    \b
    Example:
      trimtab bench plane --against nats,mosquitto
      trimtab bench plane --against tls,permissions
    """
    import msgspec

    from trimtab.cli.bench.plane_tables import print_plane_tables
    from trimtab.lab.bench.matching_memory import MeasurementError
    from trimtab.lab.bench.plane.goals import judge
    from trimtab.lab.bench.plane.plane import PEERS, QUICK, PlaneBench, run_plane_bench

    peers = tuple(name.strip() for name in against.split(",") if name.strip())
    for name in peers:
        if name not in PEERS:
            refuse(f"--against: {name!r} is not known; expected {' or '.join(PEERS)}")
    bench = msgspec.structs.replace(QUICK if quick else PlaneBench(), against=peers, filters_count=filters, seed=seed)
    try:
        with _progress() as report:
            figures = run_plane_bench(bench, report)
    except (MeasurementError, ConnectionError, TimeoutError) as error:
        typer.echo(printable(f"the measurement failed: {str(error) or 'no answer'}"), err=True)
        raise typer.Exit(1) from None
    goals = judge(figures)
    if as_json:
        found = {**msgspec.to_builtins(figures), "quick": quick, "goals": msgspec.to_builtins(goals)}
        typer.echo(json.dumps(found, indent=2))
        return
    print_plane_tables(figures, goals, width=None if sys.stdout.isatty() else _FILE_WIDTH)
    for missing in figures.missing:
        typer.echo(f"{missing.system} is not installed and was left out. To install it: {missing.install}")


@app.command("failover")
def bench_failover(  # noqa: PLR0917 (each one is an option)
    kills: Annotated[
        int, typer.Option(min=0, max=1_000, metavar="N", help="Brokers killed, one after the other.")
    ] = 20,
    publications: Annotated[
        int, typer.Option(min=100, max=10_000_000, metavar="N", help="Publications around each kill.")
    ] = 100_000,
    rate: Annotated[
        float, typer.Option(min=10, max=1_000_000, metavar="N", help="Publications per second of all publishers.")
    ] = 3_000.0,
    provisioner: Annotated[
        Literal["standby", "process"], typer.Option(help="Who becomes the replica: one that waits, or a new process.")
    ] = "standby",
    acknowledges: Annotated[
        Literal["safe", "durable", "received"],
        typer.Option(help="What an acknowledgement means; received may lose."),
    ] = "safe",
    moves_every: Annotated[
        float,
        typer.Option(min=0, max=3_600, metavar="S", help="Seconds between moves of clients to other brokers; 0: none."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of which brokers are killed and when.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Kill broker processes of seven while publications flow, and see whether anything is lost, doubled or reordered.

    Three publishers and four subscribers at six of the brokers; each kill is a kill -9 of any of the seven at a random
    moment, and the next comes when all is well again. With --moves-every clients move about meanwhile, publishers, too.
    Exit code 1 if something was lost, doubled or reordered. Takes about twelve minutes.

    \b
    Example:
      trimtab bench failover --kills 3 --publications 10000
    """
    import msgspec

    from trimtab.lab.bench.failover import FailoverBench, run_failover_bench

    bench = FailoverBench(
        kills, publications, rate, seed, acknowledges, provisioner=provisioner, moves_every_s=moves_every
    )
    try:
        with _progress() as report:
            figures = run_failover_bench(bench, report)
    except TimeoutError as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(1) from None
    if as_json:
        found = {
            **msgspec.to_builtins(figures),
            "is_right": figures.is_right,
            "resumed_max_s": figures.resumed_max_s,
            "confirmed_max_s": figures.confirmed_max_s,
        }
        typer.echo(json.dumps(found, indent=2))
    else:
        for kill in figures.kills:
            replaced = "" if kill.replaced_s is None else f"replaced {kill.replaced_s:.2f} s later, "
            typer.echo(
                f"{kill.broker} ({kill.clients_count} clients) killed after {kill.after_count:,}: noticed after "
                f"{kill.noticed_s:.2f} s, {replaced}service resumed {kill.resumed_s:.2f} s later"
            )
        typer.echo(
            f"{figures.publications_count:,} published ({figures.publications_per_s:,.0f} per second), "
            f"{figures.deliveries_count:,} delivered; lost {figures.lost_count:,}, doubled or reordered "
            f"{figures.doubled_count:,}; service resumed at the latest {figures.resumed_max_s:.2f} s after detection, "
            f"and new subscriptions were confirmed {figures.confirmed_max_s:.2f} s after a replica knew all routes"
        )
        if moves_every:
            typer.echo(f"{figures.moved_count:,} moves of clients, {figures.stayed_count:,} that were undone")
    if not figures.is_right:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Report]:
    """Show the current step on a terminal's standard error, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting", spinner="line") as status:
        yield status.update


def _print_json(figures: MatchFigures, goals: list[Goal]) -> None:
    import msgspec

    typer.echo(json.dumps({**msgspec.to_builtins(figures), "goals": msgspec.to_builtins(goals)}, indent=2))


def _print_tables(figures: MatchFigures, goals: list[Goal]) -> None:
    from rich.console import Console
    from rich.table import Table

    from trimtab.lab.bench.match_goals import FILTERS_COUNT

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    first = figures.workloads[0]
    measured = Table(
        title=f"Matching with {first.filters_count:,} filters ({first.engine} engine, Python {figures.python_version}, "
        f"{figures.quotes} quotes, seed {figures.seed})",
        title_justify="left",
    )
    measured.add_column("")
    for workload in figures.workloads:
        measured.add_column(workload.workload.value, justify="right")
    for label, *cells in zip(*(_cells(workload) for workload in figures.workloads), strict=True):
        measured.add_row(label[0], *(cell[1] for cell in (label, *cells)))
    console.print(measured)
    note = "" if first.filters_count == FILTERS_COUNT else f", set for {FILTERS_COUNT:,} filters"
    wanted = Table(title=f"Goals{note}", title_justify="left")
    for heading, justify in (
        ("workload", "left"),
        ("goal", "left"),
        ("wanted", "right"),
        ("measured", "right"),
        ("met", "left"),
    ):
        wanted.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for goal in goals:
        wanted.add_row(
            goal.workload.value if goal.workload is not None else "",
            goal.name,
            f"{goal.bound} {goal.limit:,.0f} {goal.unit}",
            f"{_figure(goal.measured)} {goal.unit}",
            "yes" if goal.met else "NO",
        )
    console.print(wanted)
    console.print("Times are processor time of the one thread that works, except for the import (wall clock).")


def _cells(figures: WorkloadFigures) -> list[tuple[str, str]]:
    """The rows of the table of figures, with their labels."""
    rows = [
        ("matches per publication", _figure(figures.matches_per_publication_mean)),
        ("match_many, 64 at a time (us per publication)", _figure(figures.match_us_per_publication)),
        ("  right after a scan", _figure(figures.match_after_scan_us_per_publication)),
        ("  with the keys listed", _figure(figures.match_and_list_us_per_publication)),
        ("NumPy scan (us per publication)", _figure(figures.numpy_scan_us_per_publication)),
        ("  as one table, a row per filter", _figure(figures.numpy_table_scan_us_per_publication)),
        ("brute force (us per publication)", _figure(figures.brute_force_us_per_publication)),
        ("times faster than the NumPy scan", _figure(figures.times_faster_than_numpy_scan)),
        ("  with the keys listed", _figure(figures.times_faster_than_numpy_scan_with_list)),
        ("  against the scan of one table", _figure(figures.times_faster_than_numpy_table_scan)),
        ("times faster than brute force", _figure(figures.times_faster_than_brute_force)),
        ("memory per filter (bytes)", _figure(figures.memory_bytes_per_filter)),
        ("filters in the covering set", f"{figures.covering_set_count:,}"),
    ]
    changes = (
        ("add", figures.add),
        ("remove", figures.remove),
        ("match between changes", figures.match_between_changes),
        ("covering check and add", figures.add_and_check),
        ("covering set: add", figures.covering_add),
        ("covering set: remove", figures.covering_remove),
    )
    for label, times in changes:
        cell = f"{_figure(times.median_us)} / {_figure(times.p99_us)} / {_figure(times.max_us)}"
        rows.append((f"{label}, median / p99 / max (us)", cell))
    if figures.scale is not None:
        larger = f"{_figure(figures.scale.larger_match_us_per_publication)} ({figures.scale.cost_ratio:.1f}x)"
        rows.append((f"match_many at {figures.scale.larger_filters_count:,} filters (us)", larger))
    rows.append(("same matches as the scans and brute force", "yes" if figures.verified else "NO"))
    return rows


def _figure(value: float) -> str:
    """A figure with three significant digits.

    >>> _figure(1234.5), _figure(12.34), _figure(0.1234)
    ('1,234', '12.3', '0.123')
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


@app.command("multistage")
def bench_multistage(
    subscribers: Annotated[int, typer.Option(min=1, max=20_000_000, metavar="N", help="Subscribers.")] = 1_000_000,
    brokers: Annotated[int, typer.Option(min=2, max=10_000, metavar="N", help="Brokers.")] = 100,
    subscriptions: Annotated[
        int, typer.Option(min=30, max=1_000_000, metavar="N", help="Back-end subscriptions.")
    ] = 10_000,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of all random choices.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Measure the coordination server's decisions: a shuffle, and one round of each migration.

    Exit code 1 if one of them takes more than 10 s, or all together more than 4 GB. Needs NumPy: pip install
    'trimtab[lab]'.

    \b
    Example:
      trimtab bench multistage --subscribers 100000
    """
    import msgspec

    try:
        from trimtab.lab.bench.multistage import PlanFigures, measure
    except ModuleNotFoundError as error:
        refuse(f"this benchmark needs {error.name}: pip install 'trimtab[lab]'")

    def on_plan(plan: PlanFigures) -> None:
        if not as_json:
            typer.echo(
                f"{plan.policy:<6} {plan.elapsed_s:6.2f} s ({plan.cpu_s:.2f} s of CPU)  {plan.moves:>9,} moves  "
                f"cov {plan.cov:.4f}  largest load {plan.ratio:.3f} of the lower bound"
            )

    figures = measure(subscribers, brokers, subscriptions, seed, on_plan)
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(figures), indent=2))
    else:
        typer.echo(
            f"{figures.subscribers_count:,} subscribers, {figures.brokers_count:,} brokers, {figures.back_end_count:,} "
            f"back-end and {figures.front_end_count:,} front-end subscriptions; at the start cov "
            f"{figures.before.cov:.4f}; {figures.peak_memory_bytes / 1e9:.2f} GB"
        )
    if not figures.is_within:
        raise typer.Exit(1)
