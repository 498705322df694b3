"""All numbers of all runs as tables of a page, and how numbers and names are written there and in SQL."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tables(spark: SparkSession) -> str:
    """Of every scenario a table with a row for each of its settings and its numbers."""
    rows = spark.sql(
        "SELECT scenario, point, settings, metric, avg(value) AS mean, coalesce(stddev_pop(value), 0) AS deviation, "
        "count(DISTINCT seed) AS seeds FROM runs WHERE metric <> 'seed' "
        "GROUP BY scenario, point, settings, metric ORDER BY scenario, point, settings, metric"
    ).collect()
    by_scenario: dict[str, dict[tuple[Any, str], list[Any]]] = {}
    for row in rows:
        settings = by_scenario.setdefault(row["scenario"], {})
        settings.setdefault((row["point"], row["settings"]), []).append(row)
    parts = []
    for scenario, by_settings in by_scenario.items():
        lines = []
        for (point, settings_json), metrics in by_settings.items():
            said = ", ".join(f"{key} {value}" for key, value in msgspec.json.decode(settings_json).items())
            said = f"point {point + 1} {said}" if point is not None else said
            numbers = "; ".join(f"{row['metric']} {_with_deviation(row['mean'], row['deviation'])}" for row in metrics)
            lines.append(f"<tr><td>{html.escape(said)}<td>{metrics[0]['seeds']}<td>{html.escape(numbers)}")
        parts.append(
            f"<details><summary>{html.escape(scenario)} ({len(by_settings)} settings)</summary>"
            f"<table><tr><th>Settings<th>Seeds<th>Means ± standard deviations</tr>{''.join(lines)}</table></details>"
        )
    return "".join(parts)


def _with_deviation(mean: float, deviation: float) -> str:
    """A mean, with its deviation if it has one.

    >>> _with_deviation(3.0, 0.0), _with_deviation(3.0, 0.5)
    ('3', '3 ± 0.5')
    """
    return f"{shown(mean)} ± {shown(deviation)}" if deviation else shown(mean)


def shown(value: float | None) -> str:
    """A number for people.

    >>> shown(12345.6), shown(0.012345), shown(None), shown(3.0)
    ('12,346', '0.0123', '', '3')
    """
    if value is None:
        return ""
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def setting(key: str) -> str:
    """A setting of a run in SQL, empty if it was not made."""
    return f"coalesce(setting[{quoted(key)}], '')"


def quoted(text: str) -> str:
    """A text of SQL.

    >>> quoted("it's")
    "'it\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
