"""Figures of a report: metrics over settings, figures of the papers' studies, and what records tell over time.

What is drawn is computed by Spark SQL; a few hundred numbers leave it for a figure, however many rows there are. Each
figure is a file of DIR/figures, and inside the page.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trimtab.lab.figures.style import COLOURS, pyplot
from trimtab.lab.reports.html_page import picture
from trimtab.lab.reports.tables import quoted, setting
from trimtab.lab.studies.claims import FigureWanted
from trimtab.protocol.records import RecordsError
from trimtab.simulation.scenarios.study import FigurePart, Study, find_study
from trimtab.simulation.scenarios.study_metrics import METRICS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURES: Final = "figures"


_UNITS: Final[Mapping[str, str]] = {
    "_bytes_per_s": "bytes/s",
    "_per_s": "1/s",
    "_per_min": "1/min",
    "_mhz": "MHz",
    "_mbps": "Mbps",
    "_mb": "MB",
    "_bytes": "bytes",
    "_ms": "ms",
    "_s": "s",
    "_ratio": "ratio",
    "_count": "count",
}


def with_unit(name: str) -> str:
    """The name of a setting or metric as the label of an axis; names end in their unit.

    >>> with_unit("delay_mean_s"), with_unit("subscribers_count"), with_unit("policy")
    ('delay mean [s]', 'subscribers [count]', 'policy')
    """
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return f"{name.removesuffix(ending).replace('_', ' ')} [{unit}]"
    return name.replace("_", " ")


class Line(NamedTuple):
    """A line of a figure, with how far values are from it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    deviations: Sequence[float] | None = None


class Pictures:
    """Draws figures, keeps them as files and gives them as parts of a page."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FIGURES
        self.count = 0

    def draw(self, file_name: str, title: str, labels: tuple[str, str], lines: Sequence[Line]) -> str:
        """One figure, as a part of a page; the labels are those of its axes."""
        plt = pyplot()
        figure, axes = plt.subplots(layout="constrained")
        for number, line in enumerate(lines):
            colour = COLOURS[number % len(COLOURS)]
            if line.deviations is None:
                axes.plot(line.x, line.y, color=colour, label=line.name)
            else:
                axes.errorbar(
                    line.x,
                    line.y,
                    yerr=line.deviations,
                    color=colour,
                    marker="o",
                    markersize=3,
                    capsize=2,
                    label=line.name,
                )
        axes.set_title(title)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        if all(value >= 0 for line in lines for value in line.y):
            axes.set_ylim(bottom=0)
        axes.legend()
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=100)
        plt.close(figure)
        path = self._folder / f"{file_name}.png"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(drawn.getvalue())
        except OSError as error:
            raise RecordsError(f"{path}: cannot be written: {error.strerror or error}") from None
        self.count += 1
        return picture(title, drawn.getvalue())


def setting_picture(spark: SparkSession, pictures: Pictures, wanted: FigureWanted) -> str:
    """A metric over a setting, a line for each policy; nothing if there are no such runs."""
    x = f"try_cast({setting(wanted.x)} AS DOUBLE)"
    name = "policy" if wanted.by is None else setting(wanted.by)
    meant = "".join(f" AND {setting(key)} = {quoted(value)}" for key, value in wanted.of.items())
    rows = spark.sql(
        f"SELECT {name} AS name, {x} AS x, avg(value) AS y, coalesce(stddev_pop(value), 0) AS d FROM runs "
        f"WHERE scenario = {quoted(wanted.scenario)} AND metric = {quoted(wanted.metric)} AND {x} IS NOT NULL{meant} "
        "GROUP BY 1, 2 ORDER BY 1, 2"
    ).collect()
    if not rows:
        return ""
    lines = _lines(rows)
    chosen = "".join(f"-{value}" for value in wanted.of.values() if value)
    labels = (with_unit(wanted.x), with_unit(wanted.metric))
    return pictures.draw(f"{wanted.scenario}-{wanted.metric}-over-{wanted.x}{chosen}", wanted.title, labels, lines)


def study_pictures(spark: SparkSession, pictures: Pictures) -> dict[str, str]:
    """The figures of every study of the simulator that was run, by its name."""
    rows = spark.sql(
        "SELECT scenario, metric AS name, point AS x, avg(value) AS y, coalesce(stddev_pop(value), 0) AS d FROM runs "
        "WHERE point IS NOT NULL AND settings = '{}' GROUP BY scenario, metric, point ORDER BY scenario, metric, point"
    ).collect()
    found: dict[str, str] = {}
    for name in dict.fromkeys(row["scenario"] for row in rows):
        study = find_study(name)
        if study is not None:
            lines = {line.name: line for line in _lines([row for row in rows if row["scenario"] == name])}
            found[name] = "".join(_study_picture(pictures, study, part, lines) for part in study.figure)
    return found


def _study_picture(pictures: Pictures, study: Study, part: FigurePart, lines: dict[str, Line]) -> str:
    drawn = [
        lines[metric]._replace(x=[float(study.values[int(place)]) for place in lines[metric].x])
        for metric in part.metrics
        if metric in lines
    ]
    title = f"Figure {part.number}: {part.title}"
    labels = (with_unit(study.parameter), METRICS.get(part.metrics[0], with_unit(part.metrics[0])))
    return pictures.draw(f"{study.name}-{part.number}", title, labels, drawn) if drawn else ""


def _lines(rows: Sequence[Any]) -> list[Line]:
    """Rows with name, x, y and d as lines, by their names."""
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        by_name.setdefault(row["name"] or "the scenario's own", []).append(row)
    return [
        Line(name, [row["x"] for row in of_name], [row["y"] for row in of_name], [row["d"] for row in of_name])
        for name, of_name in by_name.items()
    ]
