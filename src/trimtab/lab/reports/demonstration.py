"""The page that `trimtab demo` leaves: what was promised and came of it, load over time, sessions and channels."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from trimtab.lab.figures.padres_figures import draw_run
from trimtab.lab.figures.style import COLOURS, MissingMatplotlibError, pyplot, save
from trimtab.lab.reports.html_page import picture, write_page
from trimtab.operations.demonstration.channels import ChannelView
from trimtab.records.story import SessionStory, read_sessions

REPORT: Final = "report.html"
FIGURES: Final = {
    "output-ratio": "Bandwidth in use, by broker",
    "input-ratio": "Matching capacity in use, by broker",
    "subscribers": "Subscribers, by broker",
    "output-queue-delay": "How long messages waited to be sent",
    "notification-latency": "From a report to its subscribers, through Spark and the brokers",
}
LATENCY_OVER_S: Final = 5.0


def write_demo_report(  # noqa: PLR0917 (each one is a part of the page)
    out: Path,
    records: Path,
    summary: Sequence[str],
    channels: Sequence[ChannelView],
    latencies_s: Sequence[tuple[float, float]],
    began_s: float,
) -> Path:
    """Write the page from the records of a run; raises `RecordsError` if they cannot be read or it cannot be written.

    Latencies of notifications come with the time of their arrival. All times of the page count from the beginning, as
    those of the live view did.
    """
    sessions = read_sessions(records)
    parts = [f"<p>{'<br>'.join(html.escape(line) for line in summary)}</p>"]
    try:
        figures = {path.stem: path for path in draw_run(records, out / "figures", FIGURES, began_s)}
        if latencies_s:
            path = _draw_latencies([(time_s - began_s, each_s) for time_s, each_s in latencies_s], out / "figures")
            figures[path.stem] = path
        parts += [picture(title, figures[name].read_bytes()) for name, title in FIGURES.items() if name in figures]
    except MissingMatplotlibError as error:
        parts.append(f"<p>{html.escape(str(error))}</p>")
    parts += ["<h2>Balancing sessions</h2>", _sessions_table(sessions, began_s)]
    if channels:
        parts += ["<h2>Channels</h2>", _channels_table(channels)]
    parts.append(
        f"<p>More of the same: <code>trimtab sessions --records {html.escape(str(records))}</code>, "
        f"<code>trimtab story CLIENT --records {html.escape(str(records))}</code>.</p>"
    )
    page = out / REPORT
    write_page(page, "Trimtab: a network that levels itself", "".join(parts))
    return page


def _draw_latencies(latencies_s: Sequence[tuple[float, float]], folder: Path) -> Path:
    plt: Any = pyplot()
    figure, axes = plt.subplots()
    places: dict[int, list[float]] = {}
    for time_s, latency_s in latencies_s:
        places.setdefault(int(time_s // LATENCY_OVER_S), []).append(latency_s)
    times = [(place + 0.5) * LATENCY_OVER_S for place in sorted(places)]
    found = [places[place] for place in sorted(places)]
    lines = {"median": [median(each) for each in found], "longest": [max(each) for each in found]}
    for number, (label, values) in enumerate(lines.items()):
        axes.plot(times, values, color=COLOURS[number], marker="o", markersize=3, label=label)
    axes.set_title("Notification latency")
    axes.set_xlabel("time [s]")
    axes.set_ylabel(f"latency, of {LATENCY_OVER_S:.0f} s each [s]")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.tight_layout()
    path = save(figure, folder, "notification-latency")
    plt.close(figure)
    return path


def _sessions_table(sessions: Sequence[SessionStory], began_s: float) -> str:
    rows = [
        f"<tr><td class=number>{each.begin_s - began_s:.0f} s<td>{html.escape(each.initiator)}"
        f"<td>{html.escape(each.acceptor or 'nobody')}<td class=number>{each.moved_count}"
        f"<td>{html.escape(each.index)}<td>{html.escape(each.reason)}<td>{html.escape(each.outcome)}"
        for each in sessions
    ]
    head = "<tr><th>When<th>Gave<th>To<th>Subscribers<th>Index<th>Why, as the one that gives says<th>Outcome"
    return f"<table>{head}{''.join(rows)}</table>"


def _channels_table(channels: Sequence[ChannelView]) -> str:
    rows = [
        f"<tr><td>{html.escape(each.name)}<td class=number>{each.subscriptions_count:,}"
        f"<td class=number>{each.arrived_count:,}<td class=number>{each.expected_count:,}"
        for each in channels
    ]
    return f"<table><tr><th>Channel<th>Subscriptions<th>Notifications<th>Expected{''.join(rows)}</table>"
