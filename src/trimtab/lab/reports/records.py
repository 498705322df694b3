"""What the records of runs tell over time, by Spark SQL over all rows at once: loads, delays and moves."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.lab.reports.figures import Line, Pictures
from trimtab.lab.reports.tables import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BINS_COUNT: Final = 200
"""A curve over time has no more points than this."""

_RUNS_DRAWN_MAX_COUNT: Final = 20
"""So many runs are drawn, in the order of their names; all are in the table."""

_TABLES: Final = ("load", "deliveries", "moves")


class RecordsSummary(msgspec.Struct, frozen=True):
    """How much there was to read."""

    rows_count: int = 0
    runs_count: int = 0


def records_part(spark: SparkSession, pictures: Pictures, folder: Path) -> tuple[str, RecordsSummary]:
    """A table and figures of all runs that have records, as a part of the page; empty if none has."""
    if not any(folder.glob("*/load/*.parquet")):
        return "", RecordsSummary()
    rows_count = 0
    for name in _TABLES:
        paths = sorted({str(path.parent.absolute()) for path in folder.glob(f"*/{name}/*.parquet")})
        if paths:
            frame = spark.read.parquet(*paths)
            frame.createOrReplaceTempView(name)
            rows_count += frame.count()
        else:
            spark.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {_EMPTY[name]}")
    totals = spark.sql(_TOTALS).collect()
    runs = [row["run"] for row in totals]
    drawn = runs[:_RUNS_DRAWN_MAX_COUNT]
    parts = [_table(totals)]
    curves = {
        "input": (
            "share of the matching capacity in use",
            _by_run(spark.sql(_loads("input_utilization_ratio")).collect()),
        ),
        "output": ("share of the bandwidth in use", _by_run(spark.sql(_loads("output_utilization_ratio")).collect())),
        "delay": ("delivery delay [s]", _by_run(spark.sql(_DELAYS).collect())),
    }
    for run in drawn:
        for what, (title, lines) in curves.items():
            if run in lines:
                parts.append(pictures.draw(f"{run}-{what}", f"{run}: {title}", ("time [s]", title), lines[run]))
    if len(runs) > len(drawn):
        parts.append(f"<p>{len(drawn)} of {len(runs)} runs are drawn.</p>")
    return "".join(parts), RecordsSummary(rows_count, len(runs))


_EMPTY: Final = {
    "deliveries": "SELECT '' AS run, 0D AS time_s, 0D AS delay_s, 0 AS late_count WHERE false",
    "moves": "SELECT '' AS run, '' AS outcome WHERE false",
}

_BINNED: Final = (
    "ends AS (SELECT run, greatest(max(time_s), 1D) AS end_s FROM load GROUP BY run), "
    "binned AS (SELECT t.*, ceil(t.time_s / (e.end_s / {bins})) * (e.end_s / {bins}) AS bin_s "
    "FROM {table} t JOIN ends e ON t.run = e.run)"
)


def _loads(ratio: str) -> str:
    """A ratio of each broker over time."""
    return (
        f"WITH {_BINNED.format(bins=_BINS_COUNT, table='load')} "
        f"SELECT run, broker AS name, bin_s AS x, avg({ratio}) AS y FROM binned "
        "GROUP BY run, broker, bin_s ORDER BY run, name, x"
    )


_DELAYS: Final = (
    f"WITH {_BINNED.format(bins=_BINS_COUNT, table='deliveries')}, "
    "summed AS (SELECT run, bin_s, percentile_approx(delay_s, array(0.5, 0.99), 1000) AS p, avg(delay_s) AS mean "
    "FROM binned GROUP BY run, bin_s) "
    "SELECT run, name, x, y FROM (SELECT run, bin_s AS x, "
    "stack(3, 'mean', mean, 'median', p[0], '99th percentile', p[1]) AS (name, y) FROM summed) ORDER BY run, name, x"
)

_TOTALS: Final = (
    "WITH l AS (SELECT run, max(time_s) AS end_s, count(DISTINCT broker) AS brokers, "
    "max(input_utilization_ratio) AS input_max, max(output_utilization_ratio) AS output_max, "
    "sum(CASE WHEN input_utilization_ratio >= 1 OR output_utilization_ratio >= 1 THEN 1 ELSE 0 END) AS overloaded, "
    "count(*) AS readings FROM load GROUP BY run), "
    "d AS (SELECT run, count(*) AS deliveries, avg(delay_s) AS delay_s, "
    "percentile_approx(delay_s, 0.99, 1000) AS delay_p99_s, sum(late_count) AS late FROM deliveries GROUP BY run), "
    "m AS (SELECT run, sum(CASE WHEN outcome = 'moved' THEN 1 ELSE 0 END) AS moved, count(*) AS asked "
    "FROM moves GROUP BY run) "
    "SELECT l.*, d.deliveries, d.delay_s, d.delay_p99_s, d.late, m.moved, m.asked "
    "FROM l LEFT JOIN d USING (run) LEFT JOIN m USING (run) ORDER BY run"
)


def _by_run(rows: list[Any]) -> dict[str, list[Line]]:
    """Rows with run, name, x and y, which are sorted by these, as the lines of each run."""
    found: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for row in rows:
        x, y = found.setdefault(row["run"], {}).setdefault(row["name"], ([], []))
        x.append(row["x"])
        y.append(row["y"])
    return {run: [Line(name, x, y) for name, (x, y) in lines.items()] for run, lines in found.items()}


def _table(totals: list[Any]) -> str:
    head = (
        "<tr><th>Run<th>Time s<th>Brokers<th>Highest input ratio<th>Highest output ratio<th>Readings overloaded"
        "<th>Deliveries recorded<th>Mean delay s<th>99th percentile s<th>Late<th>Clients moved"
    )
    rows = []
    for row in totals:
        numbers = (
            row["end_s"],
            row["brokers"],
            row["input_max"],
            row["output_max"],
            row["overloaded"] / row["readings"],
            row["deliveries"],
            row["delay_s"],
            row["delay_p99_s"],
            row["late"],
            row["moved"],
        )
        cells = "".join(f"<td class=number>{shown(number)}" for number in numbers)
        rows.append(f"<tr><td>{html.escape(row['run'])}{cells}")
    return f"<table>{head}{''.join(rows)}</table>"
