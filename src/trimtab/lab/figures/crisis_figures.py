"""Draws a run with topics and latency requirements: uplink utilisation, and what waits for the topic that fared worst.

Source: R. Tao, S. Poslad, J. Bigham, resilient delay sensitive load management in environment crisis messaging systems
(2013), Figures 3, 4 and 5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from trimtab.lab.figures.style import COLOURS, legend_beside, pyplot, save
from trimtab.lab.studies.summary_files import read_summary
from trimtab.simulation.scenarios.crisis_watch import CrisisSummary

LINE_COLOURS: Final = (COLOURS[0], COLOURS[1], COLOURS[3], COLOURS[5], COLOURS[6], COLOURS[7])
"""Those that are told apart where lines cross."""


class CrisisRun(msgspec.Struct, frozen=True):
    """Of a run's summary what is drawn."""

    scenario: str
    seed: int
    crisis: CrisisSummary | None = None


def read_crisis(folder: Path) -> CrisisRun | None:
    """The summary of a run with topics, None if the folder has none."""
    run = read_summary(folder, CrisisRun, "crisis")
    return None if run is None or run.crisis is None else run


def draw_crisis(run: CrisisRun, to: Path) -> list[Path]:
    """Draw all figures; the paths of the files."""
    crisis = run.crisis
    assert crisis is not None
    plt = pyplot()
    written = [_draw_uplinks(plt, crisis, to)]
    if crisis.worst_topic is not None:
        written.append(_draw_queue(plt, crisis, crisis.worst_topic, to))
    return written


def _draw_uplinks(plt: Any, crisis: CrisisSummary, to: Path) -> Path:
    figure, axes = plt.subplots()
    axes.set_title(f"Uplink utilisation, {crisis.policy} (compare figures 3 and 5)")
    edges = [name for name in crisis.uplink_utilization if crisis.placement.get(name)]
    for number, name in enumerate(edges):
        percents = [100 * ratio for ratio in crisis.uplink_utilization[name]]
        axes.plot(_times_s(crisis), percents[:-1], color=LINE_COLOURS[number % len(LINE_COLOURS)], label=name)
    axes.axhline(100, color="#555555", linewidth=0.8, linestyle="--")
    _mark_moves(axes, crisis)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("% of the bandwidth")
    axes.set_ylim(bottom=0)
    legend_beside(axes)
    figure.tight_layout()
    path = save(figure, to, f"{crisis.policy}-uplinks")
    plt.close(figure)
    return path


def _draw_queue(plt: Any, crisis: CrisisSummary, topic: int, to: Path) -> Path:
    figure, axes = plt.subplots()
    axes.set_title(f"Messages waiting for topic {topic}, {crisis.policy} (compare figure 4)")
    axes.plot(_times_s(crisis), crisis.queue_depth[str(topic)][:-1], color=COLOURS[0])
    _mark_moves(axes, crisis)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("messages in all its queues")
    axes.set_ylim(bottom=0)
    figure.tight_layout()
    path = save(figure, to, f"{crisis.policy}-worst-queue")
    plt.close(figure)
    return path


def _times_s(crisis: CrisisSummary) -> list[float]:
    """When brokers were looked at, but for the last time, when all was at rest again."""
    return crisis.read_at_s[:-1]


def _mark_moves(axes: Any, crisis: CrisisSummary) -> None:
    """A mark at the lower edge for each time at which clients moved after the burst."""
    times = [move.done_s for move in crisis.moves]
    axes.plot(times, [0] * len(times), color="#d44c47", linestyle="none", marker="^", markersize=7, clip_on=False)
