"""Draws the figures of a study: the metrics over the parameter, with every run as a dot.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), Figures 5.23 to
5.57.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.lab.figures.style import COLOURS, pyplot, save
from trimtab.lab.studies.study_runs import StudyPoint, StudySummary
from trimtab.simulation.scenarios.study import FigurePart
from trimtab.simulation.scenarios.study_metrics import METRICS


def draw_study(summary: StudySummary, to: Path) -> list[Path]:
    """Draw all figures of a study; the paths of the files."""
    plt = pyplot()
    written: list[Path] = []
    for part in summary.figures:
        figure, axes = plt.subplots()
        axes.set_title(f"{part.title} (compare figure {part.number})")
        axes.set_xlabel(summary.parameter)
        _draw(axes, part, [point for point in summary.points if point.runs])
        figure.tight_layout()
        written.append(save(figure, to, f"{summary.study}-{part.number}"))
        plt.close(figure)
    return written


def _draw(axes: Any, part: FigurePart, points: list[StudyPoint]) -> None:
    is_number = all(isinstance(point.value, int | float) for point in points)
    places = [point.value if is_number else number for number, point in enumerate(points)]
    if not is_number:
        axes.set_xticks(places, [str(point.value) for point in points])
    elif places and min(places) > 0 and max(places) >= 50 * min(places):
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    lowest = 0.0
    for number, metric in enumerate(part.metrics):
        told = [(place, point) for place, point in zip(places, points, strict=True) if point.means[metric] is not None]
        means = [float(point.means[metric] or 0.0) for _, point in told]
        axes.plot(
            [place for place, _ in told], means, color=COLOURS[number], marker="o", markersize=5, label=METRICS[metric]
        )
        for place, point in told:
            values = [getattr(run.metrics, metric) for run in point.runs]
            known = [value for value in values if value is not None]
            axes.plot(
                [place] * len(known),
                known,
                color=COLOURS[number],
                linestyle="none",
                marker=".",
                markersize=4,
                alpha=0.6,
            )
            lowest = min([lowest, *known])
    if lowest >= 0:
        axes.set_ylim(bottom=0)
    if len(part.metrics) == 1:
        axes.set_ylabel(METRICS[part.metrics[0]])
    else:
        axes.legend(loc="best")
