"""What `trimtab demo` shows: a live view in a terminal, plain lines elsewhere, and a summary at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from trimtab.cli.input_lines import printable

if TYPE_CHECKING:
    from trimtab.lab.demonstration import Demonstration, DemoSummary
    from trimtab.protocol.frames import BrokerStatus

BAR_CHARS_COUNT: Final = 14
FULL_RATIO: Final = 1.2
"""The end of a bar; an overloaded broker is asked for more than it can do."""

BUSY_RATIO: Final = 0.6
OVERLOADED_RATIO: Final = 0.9


def live_view(demo: Demonstration) -> RenderableType:
    """Clock, brokers, moves and channels as they are at the moment."""
    parts: list[RenderableType] = [_clock(demo), _brokers(demo), _moves(demo)]
    if demo.channels is not None:
        parts.append(_channels(demo))
    elif demo.note is not None:
        parts.append(Text(demo.note, style="yellow"))
    return Group(*parts)


def _clock(demo: Demonstration) -> RenderableType:
    until_s = 60 * demo.options.minutes
    text = Text.assemble(
        (f" {demo.time_s:4.0f} s ", "bold reverse"), f" of about {until_s:.0f}   ", (demo.phase, "bold")
    )
    load = demo.load
    if load is not None:
        published, expected, delivered, _ = load.counts
        text.append(
            f"\n {published:,} publications, {delivered:,} deliveries of {expected:,} that must happen so far", "dim"
        )
    return text


def _brokers(demo: Demonstration) -> Table:
    table = Table(title="Brokers", title_justify="left", expand=True)
    table.add_column("broker")
    table.add_column("matching", no_wrap=True)
    table.add_column("bandwidth", no_wrap=True)
    for title in ("queued", "clients"):
        table.add_column(title, justify="right")
    table.add_column("what it does", ratio=1, no_wrap=True)
    for name, status in demo.statuses.items():
        if status is None:
            table.add_row(name, "", "", "", "", Text("does not answer", style="bold red"))
            continue
        table.add_row(
            name,
            _bar(status.load["input_utilization_ratio"]),
            _bar(status.load["output_utilization_ratio"]),
            f"{_queued_count(status):,}",
            f"{_clients_count(status):,}",
            Text(printable(_doing(status))),
        )
    return table


def _queued_count(status: BrokerStatus) -> int:
    return status.input_count + sum(peer.queued_count for peer in status.peers)


def _clients_count(status: BrokerStatus) -> int:
    return sum(peer.role == "client" for peer in status.peers)


def _bar(ratio: float) -> Text:
    """A share of a capacity.

    >>> _bar(0.6).plain
    '███████        60 %'
    """
    filled = round(BAR_CHARS_COUNT * min(ratio, FULL_RATIO) / FULL_RATIO)
    style = "red" if ratio >= OVERLOADED_RATIO else "yellow" if ratio >= BUSY_RATIO else "green"
    return Text.assemble(("█" * filled, style), " " * (BAR_CHARS_COUNT - filled), f"{ratio:4.0%}".replace("%", " %"))


def _doing(status: BrokerStatus) -> str:
    agent = next(iter(status.agents), None)
    if agent is None:
        return ""
    if agent.decision and agent.decided_ago_s is not None:
        return f"{agent.doing}; {agent.decided_ago_s:.0f} s ago: {agent.decision}"
    return f"{agent.role}: {agent.doing}"


def _moves(demo: Demonstration) -> Panel:
    lines = [
        f"{bundle.at_s:4.0f} s   {bundle.from_broker} gave {bundle.count} subscriber{'s' * (bundle.count != 1)} "
        f"to {bundle.to_broker}"
        for bundle in demo.bundles
    ]
    return Panel(Text("\n".join(reversed(lines)) or "nobody has moved yet"), title="Moves", title_align="left")


def _channels(demo: Demonstration) -> RenderableType:
    channels = demo.channels
    assert channels is not None
    table = Table(title=f"Channels on Spark: {channels.doing}", title_justify="left", expand=True)
    table.add_column("channel")
    for title in ("subscriptions", "notifications", "of", "median s", "longest s"):
        table.add_column(title, justify="right")
    for view in channels.views():
        table.add_row(
            view.name,
            f"{view.subscriptions_count:,}",
            f"{view.arrived_count:,}",
            f"{view.expected_count:,}",
            _seconds(view.latency_median_s),
            _seconds(view.latency_max_s),
        )
    return table


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def progress_line(demo: Demonstration) -> str:
    """One line for where there is no terminal."""
    parts = [f"{demo.time_s:4.0f} s", demo.phase]
    if demo.load is not None:
        _, _, delivered, _ = demo.load.counts
        loads = "  ".join(
            f"{name} {max(status.load['input_utilization_ratio'], status.load['output_utilization_ratio']):.0%}"
            f"/{_clients_count(status)}"
            for name, status in demo.statuses.items()
            if status is not None
        )
        parts += [f"load/clients: {loads}", f"{delivered:,} delivered"]
    if demo.channels is not None:
        counts = demo.channels.counts()
        parts.append(f"channels: {demo.channels.doing}, {counts.arrived_count:,} of {counts.expected_count:,}")
    return "   ".join(parts)


def summary_lines(summary: DemoSummary) -> Iterator[str]:
    """What came of it, in a few lines."""
    load = summary.load
    within_s = summary.balanced_within_s
    if within_s is None:
        yield "Time to balance: not reached; the brokers were not level within the time of the run."
    else:
        joined = f"{load.subscribers_count} subscribers had joined the weakest broker"
        yield f"Time to balance: {within_s:.0f} s after {joined}."
    clients = ", ".join(f"{name} {count}" for name, count in load.clients.items() if count)
    yield f"Moves: {load.moves_count:,}, while traffic flowed; subscribers at the end: {clients}."
    yield (
        f"Deliveries: {load.expected_count - load.lost_count:,} of {load.expected_count:,} that had to happen, from "
        f"{load.published_count:,} publications; lost {load.lost_count:,}, doubled {load.duplicated_count:,}, "
        f"out of order {load.reordered_count:,}."
    )
    channels = summary.channels
    if channels is not None:
        yield (
            f"Channels on Spark: {channels.arrived_count:,} of {channels.expected_count:,} notifications about "
            f"{summary.reports_count:,} reports; lost {channels.missing_count:,}, doubled {channels.twice_count:,}, "
            f"wrong {channels.wrong_count:,}, out of order {channels.out_of_order_count:,}."
        )
    if summary.channels_problem is not None:
        yield f"Not reached: {summary.channels_problem}."
    if summary.note is not None:
        yield f"Left out: {summary.note}."
    for violation in load.other_violations[:10]:
        yield f"Wrong: {violation}"
