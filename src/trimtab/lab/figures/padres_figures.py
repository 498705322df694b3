"""Draws the figures of the thesis's section 5.2 from the records of a run.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), Figures 5.3 to
5.15 and 5.17 to 5.22.

Edge-brokers are drawn, one line each; where there are more than one cluster also the means of clusters. The times of
sessions that moved subscribers are marked at the lower edge of the figures over time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Final

from trimtab.lab.figures.session_figures import draw_estimates, draw_session_counts
from trimtab.lab.figures.style import COLOURS, legend_beside, pyplot, save
from trimtab.records.runs import Row, RunRecords, means_over, read_run

OVERHEAD_OVER_S: Final = 100.0
"""The overhead is a mean over so long."""

DELAY_DEVIATION_OVER_S: Final = 100.0
"""And the deviation of delays, which are read one by one and jump."""

DELAY_OVER_S: Final = 20.0
"""The delivery delay, too."""


def draw_run(folder: Path, to: Path, only: Collection[str] | None = None, began_s: float | None = None) -> list[Path]:
    """Draw all figures for which there are records, or only those of some names; the paths of the files."""
    records = read_run(folder, began_s)
    plt = pyplot()
    pictures = _Pictures(plt, records, to, only)
    over_time: list[tuple[str, str, str, Callable[[Row], float]]] = [
        ("input-ratio", "Input ratio", "input utilisation ratio", lambda row: row["input_utilization_ratio"]),
        ("output-ratio", "Output ratio", "output utilisation ratio", lambda row: row["output_utilization_ratio"]),
        ("matching-delay", "Matching delay", "matching delay [ms]", lambda row: 1000 * row["matching_delay_s"]),
        ("input-queue-delay", "Input queuing delay", "input queuing delay [s]", lambda row: row["input_queue_delay_s"]),
        (
            "output-queue-delay",
            "Output queuing delay",
            "output queuing delay [s]",
            lambda row: row["output_queue_delay_s"],
        ),
        ("subscribers", "Subscribers", "clients", lambda row: row["clients_count"]),
    ]
    for name, title, axis, value in over_time:
        pictures.over_time(name, title, axis, value)
        if len(records.clusters) > 1:
            pictures.clusters(f"cluster-{name}", f"{title}, clusters", axis, value, total=name == "subscribers")
    pictures.deviations()
    pictures.delay_deviations()
    pictures.overhead()
    if records.delays:
        pictures.delivery_delay()
    if any(row["acceptor"] and row["subscribers_moved_count"] for row in records.sessions):
        pictures.keep(draw_estimates(plt, records), "estimates")
        pictures.keep(draw_session_counts(plt, records), "sessions")
    return pictures.written


class _Pictures:
    """Draws into files and remembers which."""

    def __init__(self, plt: Any, records: RunRecords, to: Path, only: Collection[str] | None) -> None:
        self._plt = plt
        self._only = only
        self._records = records
        self._to = to
        self.written: list[Path] = []
        self._until_s = max(records.everyone)

    def keep(self, figure: Any, name: str) -> None:
        """Write a figure, if it is wanted."""
        if self._only is None or name in self._only:
            if not figure.legends:  # such a figure has its own layout
                figure.tight_layout()
            self.written.append(save(figure, self._to, name))
        self._plt.close(figure)

    def _axes(self, title: str, axis: str) -> tuple[Any, Any]:
        figure, axes = self._plt.subplots()
        axes.set_title(title)
        axes.set_xlabel("time [s]")
        axes.set_ylabel(axis)
        axes.set_xlim(0, self._until_s)
        return figure, axes

    def _mark_sessions(self, axes: Any) -> None:
        """Little marks where sessions ended that moved subscribers."""
        times = [row["end_s"] for row in self._records.sessions if row["subscribers_moved_count"]]
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, top)
        axes.plot(
            times,
            [bottom] * len(times),
            linestyle="none",
            marker="|",
            markersize=9,
            color="#555555",
            clip_on=False,
            label="sessions",
            zorder=5,
        )

    def over_time(self, name: str, title: str, axis: str, value: Callable[[Row], float]) -> None:
        figure, axes = self._axes(title, axis)
        for number, (broker, rows) in enumerate(self._records.loads.items()):
            axes.plot(
                [row["time_s"] for row in rows],
                [value(row) for row in rows],
                color=COLOURS[number % len(COLOURS)],
                linestyle="-" if number < len(COLOURS) else "--",
                label=broker,
            )
        axes.set_ylim(bottom=0)
        self._mark_sessions(axes)
        legend_beside(axes)
        self.keep(figure, name)

    def clusters(self, name: str, title: str, axis: str, value: Callable[[Row], float], *, total: bool) -> None:
        figure, axes = self._axes(title, axis)
        times = sorted(self._records.everyone)
        for number, (head, edges) in enumerate(self._records.clusters.items()):
            lines = []
            for time_s in times:
                values = [value(row) for row in self._records.everyone[time_s] if row["broker"] in edges]
                lines.append(sum(values) if total else fmean(values) if values else 0.0)
            axes.plot(times, lines, color=COLOURS[number % len(COLOURS)], label=head)
        axes.set_ylim(bottom=0)
        self._mark_sessions(axes)
        legend_beside(axes)
        self.keep(figure, name)

    def _deviation(self, column: str) -> tuple[list[float], list[float]]:
        edges = self._records.loads
        times = sorted(self._records.everyone)
        deviations = [
            pstdev([row[column] for row in self._records.everyone[time_s] if row["broker"] in edges] or [0.0])
            for time_s in times
        ]
        return times, deviations

    def deviations(self) -> None:
        figure, axes = self._axes("Standard deviation over edge-brokers", "of utilisation ratios")
        for number, index in enumerate(("input", "output")):
            times, values = self._deviation(f"{index}_utilization_ratio")
            axes.plot(times, values, color=COLOURS[number], label=f"{index} ratio")
        axes.set_ylim(bottom=0)
        self._mark_sessions(axes)
        legend_beside(axes)
        self.keep(figure, "ratio-deviation")

    def delay_deviations(self) -> None:
        figure, axes = self._axes(
            "Standard deviation over edge-brokers", f"of delays, mean of {DELAY_DEVIATION_OVER_S:.0f} s [s]"
        )
        names = {
            "matching_delay_s": "matching",
            "input_queue_delay_s": "input queue",
            "output_queue_delay_s": "output queue",
        }
        for number, (column, label) in enumerate(names.items()):
            times, values = self._deviation(column)
            smooth = means_over(times, values, DELAY_DEVIATION_OVER_S)
            axes.plot(times, [max(value, 1e-5) for value in smooth], color=COLOURS[number], label=label)
        axes.set_yscale("log")
        legend_beside(axes)
        self.keep(figure, "delay-deviation")

    def overhead(self) -> None:
        figure, axes = self._axes("Messages that are no publications", f"share in the last {OVERHEAD_OVER_S:.0f} s [%]")
        times = sorted(self._records.everyone)
        counts = {
            time_s: (
                sum(row["control_out_count"] for row in self._records.everyone[time_s]),
                sum(row["publications_out_count"] for row in self._records.everyone[time_s]),
            )
            for time_s in times
        }
        shares: list[tuple[float, float]] = []
        for time_s in times:
            window = [counts[each] for each in times if time_s - OVERHEAD_OVER_S < each <= time_s]
            control_count, data_count = sum(each[0] for each in window), sum(each[1] for each in window)
            if time_s >= OVERHEAD_OVER_S and control_count + data_count:
                shares.append((time_s, 100 * control_count / (control_count + data_count)))
        axes.plot([each[0] for each in shares], [each[1] for each in shares], color=COLOURS[0])
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        self._mark_sessions(axes)
        self.keep(figure, "overhead")

    def delivery_delay(self) -> None:
        sampled = f", one delivery in {self._records.sampled_one_in}" if self._records.sampled_one_in > 1 else ""
        figure, axes = self._axes(f"Delivery delay{sampled}", f"mean of {DELAY_OVER_S:.0f} s [s]")
        sums: dict[int, list[float]] = {}
        for time_s, delay_s in self._records.delays:
            place = sums.setdefault(int(time_s // DELAY_OVER_S), [0.0, 0.0])
            place[0] += 1
            place[1] += delay_s
        places = sorted(sums)
        axes.plot(
            [(place + 0.5) * DELAY_OVER_S for place in places],
            [sums[place][1] / sums[place][0] for place in places],
            color=COLOURS[0],
        )
        axes.set_yscale("log")
        self.keep(figure, "delivery-delay")
