"""Draws a run with topics and latency requirements: uplink utilisation, and what waits for the topic that fared worst.

Source: R. Tao, S. Poslad, J. Bigham, resilient delay sensitive load management in environment crisis messaging systems
(2013), Figures 3, 4 and 5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from trimtab.lab.figures.style import COLOURS, legend_beside, pyplot, save
from trimtab.simulation.scenarios.crisis_watch import CrisisSummary
from trimtab.simulation.scenarios.run import MessagesSummary

LINE_COLOURS: Final = (COLOURS[0], COLOURS[1], COLOURS[3], COLOURS[5], COLOURS[6], COLOURS[7])
"""Those that are told apart where lines cross."""


def draw_crisis(run: MessagesSummary, to: Path) -> list[Path]:
    """Draw all figures; the paths of the files."""
    crisis = run.details.crisis
    assert crisis is not None
    plt = pyplot()
    written = [_draw_uplinks(plt, run.policy, crisis, to)]
    if crisis.worst_topic is not None:
        written.append(_draw_queue(plt, run.policy, crisis, crisis.worst_topic, to))
    return written


def _draw_uplinks(plt: Any, policy: str, crisis: CrisisSummary, to: Path) -> Path:
    figure, axes = plt.subplots()
    axes.set_title(f"Uplink utilisation, {policy} (compare figures 3 and 5)")
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
    path = save(figure, to, f"{policy}-uplinks")
    plt.close(figure)
    return path


def _draw_queue(plt: Any, policy: str, crisis: CrisisSummary, topic: int, to: Path) -> Path:
    figure, axes = plt.subplots()
    axes.set_title(f"Messages waiting for topic {topic}, {policy} (compare figure 4)")
    axes.plot(_times_s(crisis), crisis.queue_depth[str(topic)][:-1], color=COLOURS[0])
    _mark_moves(axes, crisis)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("messages in all its queues")
    axes.set_ylim(bottom=0)
    figure.tight_layout()
    path = save(figure, to, f"{policy}-worst-queue")
    plt.close(figure)
    return path


def _times_s(crisis: CrisisSummary) -> list[float]:
    """When brokers were looked at, but for the last time, when all was at rest again."""
    return crisis.read_at_s[:-1]


def _mark_moves(axes: Any, crisis: CrisisSummary) -> None:
    """A mark at the lower edge for each time at which clients moved after the burst."""
    times = [move.done_s for move in crisis.moves]
    axes.plot(times, [0] * len(times), color="#d44c47", linestyle="none", marker="^", markersize=7, clip_on=False)
