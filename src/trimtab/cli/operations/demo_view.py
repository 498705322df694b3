"""What `trimtab demo` shows: a live view in a terminal, plain lines elsewhere, and a summary at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.cli.input_lines import printable

if TYPE_CHECKING:
    from trimtab.operations.demonstration.demonstration import Demonstration, DemoSummary
    from trimtab.protocol.frames import BrokerStatus

BAR_CHARS_COUNT: Final = 14
WIDE_CHARS_COUNT: Final = 100
TALL_LINES_COUNT: Final = 30
CHANNELS_LINES_COUNT: Final = 10
OTHER_LINES_COUNT: Final = 15
"""A terminal with fewer columns gets shorter bars; one with fewer lines gets channels in one line, and fewer moves."""

FULL_RATIO: Final = 1.2
"""The end of a bar; an overloaded broker is asked for more than it can do."""

BUSY_RATIO: Final = 0.6
OVERLOADED_RATIO: Final = 0.9


def live_view(demo: Demonstration, width: int = 120, height: int = 40) -> RenderableType:
    """Clock, brokers, moves and channels as they are at the moment, in so many columns and lines."""
    channels: RenderableType | None = None
    channels_height = 0
    if demo.channels is not None:
        is_tall = height >= TALL_LINES_COUNT
        channels = _channels(demo) if is_tall else _channels_line(demo)
        channels_height = CHANNELS_LINES_COUNT if is_tall else 1
    elif demo.note is not None:
        channels, channels_height = Text(demo.note, style="yellow"), 1
    moves_count = max(1, min(demo.bundles.maxlen or 1, height - OTHER_LINES_COUNT - channels_height))
    parts = [_clock(demo), _brokers(demo, width), _moves(demo, moves_count)]
    return Group(*parts, *(() if channels is None else (channels,)))


def _clock(demo: Demonstration) -> RenderableType:
    ends = f" of about {60 * demo.options.minutes:.0f}   "
    text = Text.assemble((f" {demo.time_s:4.0f} s ", "bold reverse"), ends, (demo.phase, "bold"), overflow="ellipsis")
    text.no_wrap = True
    load = demo.load
    if load is not None:
        published, expected, _, undelivered = load.counts
        done = f"{expected - undelivered:,} of {expected:,} deliveries that must happen so far"
        text.append(f"\n {published:,} publications, {done}; {load.moves_count:,} moves", "dim")
    return text


def _table(title: Text) -> Table:
    return Table(title=title, title_justify="left", title_style="", expand=True, box=SIMPLE_HEAD, show_edge=False)


def _brokers(demo: Demonstration, width: int) -> Table:
    table = Table(
        title="Brokers", title_justify="left", title_style="bold", expand=True, box=SIMPLE_HEAD, show_edge=False
    )
    bar_chars_count = BAR_CHARS_COUNT if width >= WIDE_CHARS_COUNT else BAR_CHARS_COUNT // 2
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
            _bar(status.load["input_utilization_ratio"], bar_chars_count),
            _bar(status.load["output_utilization_ratio"], bar_chars_count),
            f"{_queued_count(status):,}",
            f"{_clients_count(status):,}",
            Text(printable(_doing(status))),
        )
    return table


def _queued_count(status: BrokerStatus) -> int:
    return status.input_count + sum(peer.queued_count for peer in status.peers)


def _clients_count(status: BrokerStatus) -> int:
    return sum(peer.role == "client" for peer in status.peers)


def _bar(ratio: float, chars_count: int = BAR_CHARS_COUNT) -> Text:
    """A share of a capacity.

    >>> _bar(0.6).plain
    '███████        60 %'
    """
    filled = round(chars_count * min(ratio, FULL_RATIO) / FULL_RATIO)
    style = "red" if ratio >= OVERLOADED_RATIO else "yellow" if ratio >= BUSY_RATIO else "green"
    return Text.assemble(("█" * filled, style), " " * (chars_count - filled), f"{ratio:4.0%}".replace("%", " %"))


def _doing(status: BrokerStatus) -> str:
    agent = next(iter(status.agents), None)
    if agent is None:
        return ""
    if agent.decision and agent.decided_ago_s is not None:
        return f"{agent.doing}; {agent.decided_ago_s:.0f} s ago: {agent.decision}"
    return f"{agent.role}: {agent.doing}"


def _moves(demo: Demonstration, lines_count: int) -> RenderableType:
    lines = [
        f" {bundle.at_s:4.0f} s   {bundle.from_broker} gave {bundle.count} subscriber{'s' * (bundle.count != 1)} "
        f"to {bundle.to_broker}"
        for bundle in demo.bundles
    ]
    text = "\n".join(lines[: -lines_count - 1 : -1]) or " nobody has moved yet"
    return Text.assemble(("\nMoves\n", "bold"), text, "\n")


def _channels_line(demo: Demonstration) -> RenderableType:
    channels = demo.channels
    assert channels is not None
    counts = channels.counts()
    medians = [view.latency_median_s for view in channels.views() if view.latency_median_s is not None]
    latency = f", about {sum(medians) / len(medians):.1f} s from report to subscriber" if medians else ""
    told = f"{counts.arrived_count:,} of {counts.expected_count:,} notifications{latency}"
    return Text.assemble(
        ("Channels on Spark: ", "bold"), f"{told}; {channels.doing}", overflow="ellipsis", no_wrap=True
    )


def _channels(demo: Demonstration) -> RenderableType:
    channels = demo.channels
    assert channels is not None
    title = Text.assemble(("Channels on Spark: ", "bold"), channels.doing)
    table = _table(title)
    table.add_column("channel")
    for heading in ("subscriptions", "notifications", "of", "median s", "longest s"):
        table.add_column(heading, justify="right")
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
    if channels is not None and (channels.expected_count or summary.channels_problem is None):
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
