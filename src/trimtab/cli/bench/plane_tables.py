"""The tables of `trimtab bench plane`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from trimtab.lab.bench.plane.goals import PlaneGoal
    from trimtab.lab.bench.plane.plane import PlaneReport


def print_plane_tables(report: PlaneReport, goals: Sequence[PlaneGoal], width: int | None) -> None:
    """Show the figures of every system, of the client library and of memory, and the goals."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, width=width)
    _print_planes(console, report)
    _print_delays(console, report)
    memory, client = report.memory, report.client
    console.print(
        f"Memory: {memory.bytes_per_filter:,.0f} bytes per filter ({memory.filters_count:,} stored), "
        f"{memory.bytes_per_connection:,.0f} bytes per idle connection ({memory.connections_count:,} open)."
    )
    console.print(
        f"Client library: publishes {client.published_per_cpu_s:,.0f} and receives {client.received_per_cpu_s:,.0f} "
        f"per second of its processor time ({client.published_per_s:,.0f} and {client.received_per_s:,.0f} per second)."
    )
    _print_goals(console, goals)


def _print_planes(console: Console, report: PlaneReport) -> None:
    from rich.table import Table

    table = Table(
        title=f"One server process, {report.filters_count:,} subscriptions, payload {report.payload_bytes} bytes",
        title_justify="left",
    )
    table.add_column("system")
    for heading in (
        "fan-out",
        "publications per CPU s",
        "deliveries per CPU s",
        "deliveries per s",
        "trimtab, per CPU s",
        "trimtab, by wall",
        "load clients busy",
    ):
        table.add_column(heading, justify="right")
    for each in report.planes:
        table.add_row(
            each.system,
            f"{each.fan_out:.1f}",
            f"{each.publications_per_cpu_s:,.0f}",
            f"{each.deliveries_per_cpu_s:,.0f}",
            f"{each.deliveries_per_s:,.0f}",
            f"{each.trimtab_times_per_cpu_s:.2f} x",
            f"{each.trimtab_times_by_wall:.2f} x",
            f"{each.load_cpu_ratio:.0%}",
        )
    console.print(table)


def _print_delays(console: Console, report: PlaneReport) -> None:
    from rich.table import Table

    first = report.delays[0]
    table = Table(
        title=f"Delays at {first.publications_per_s:,} publications/s to {first.connections_count} connections",
        title_justify="left",
    )
    table.add_column("system")
    table.add_column("median (ms)", justify="right")
    table.add_column("99th percentile (ms)", justify="right")
    for each in report.delays:
        table.add_row(each.system, f"{each.delay_p50_ms:.2f}", f"{each.delay_p99_ms:.2f}")
    console.print(table)


def _print_goals(console: Console, goals: Sequence[PlaneGoal]) -> None:
    from rich.table import Table

    table = Table(title="Goals", title_justify="left")
    table.add_column("goal")
    table.add_column("wanted", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("met")
    for goal in goals:
        table.add_row(
            goal.name,
            f"{goal.bound} {goal.limit:,g} {goal.unit}",
            f"{goal.measured:,.0f} {goal.unit}" if goal.measured >= 100 else f"{goal.measured:.2f} {goal.unit}",
            "yes" if goal.met else "NO",
        )
    console.print(table)
