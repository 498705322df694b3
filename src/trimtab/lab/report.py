"""One page of what all runs in a folder showed: claims with theirs, ours and whether they hold, figures and tables.

Everything is computed by Spark SQL over DIR/runs; only what is printed or drawn leaves Spark.
"""

from __future__ import annotations

import base64
import html
import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.lab.claims_files import Claim, Claims, FigureWanted
from trimtab.lab.figure_style import COLOURS, pyplot
from trimtab.lab.sweep import LOCAL, RUNS
from trimtab.protocol.records import RecordsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT: Final = "report.html"

_STYLE: Final = """
body { font: 15px/1.5 sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0; font-size: 14px }
th, td { border-bottom: 1px solid #ddd; padding: .25em .7em; text-align: left; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.yes { color: #0a7d32 } .no { color: #b3261e } .unknown { color: #777 }
img { max-width: 100% }
"""


class Found(msgspec.Struct, frozen=True):
    """A claim and what the runs say about it; without values it was not run."""

    claim: Claim
    seeds_count: int
    ours: float | None = None
    least: float | None = None
    most: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether it does; None if nobody knows."""
        return None if self.ours is None else self.claim.is_kept_by(self.ours)


class ReportSummary(msgspec.Struct, frozen=True):
    """What a report says, in numbers."""

    page: str
    runs_count: int
    violations_count: int
    claims_count: int
    hold_count: int
    fail_count: int
    unknown_count: int


def write_report(folder: Path, claims: Sequence[Claims], master: str = LOCAL) -> ReportSummary:
    """Compute everything and write DIR/report.html."""
    if not any((folder / RUNS).glob("*.parquet")):
        raise RecordsError(f"{folder}: no runs are here; `trimtab lab run STUDY --out {folder}` makes some")
    with _session(master) as spark:
        spark.read.parquet(str((folder / RUNS).absolute())).createOrReplaceTempView("runs")
        totals = spark.sql(
            "SELECT count(*) AS runs, sum(violations_count) AS violations, sum(cpu_s) AS cpu_s FROM "
            "(SELECT run, max(violations_count) AS violations_count, max(cpu_s) AS cpu_s FROM runs GROUP BY run)"
        ).first()
        assert totals is not None
        parts: list[str] = []
        found: list[Found] = []
        for each in claims:
            of_paper = [_ask(spark, claim) for claim in each.claim]
            pictures = [picture for figure in each.figure if (picture := _picture(spark, figure))]
            found += of_paper
            parts.append(f"<h2>{html.escape(each.paper)}</h2>{_claims_table(of_paper)}{''.join(pictures)}")
        tables = _tables(spark)
    page = folder / REPORT
    head = (
        f"<p>{totals['runs']:,} runs, {totals['cpu_s']:,.0f} s of CPU, {totals['violations']:,} promises broken "
        "(lost, doubled or reordered publications and the like).</p>"
    )
    text = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Trimtab: experiments</title><style>{_STYLE}</style>"
        f"<h1>Trimtab: experiments</h1>{head}{''.join(parts)}<h2>All runs</h2>{tables}</html>\n"
    )
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordsError(f"{page}: cannot be written: {error.strerror or error}") from None
    verdicts = [each.holds for each in found]
    return ReportSummary(
        page=str(page),
        runs_count=totals["runs"],
        violations_count=totals["violations"],
        claims_count=len(found),
        hold_count=verdicts.count(True),
        fail_count=verdicts.count(False),
        unknown_count=verdicts.count(None),
    )


@contextmanager
def _session(master: str) -> Iterator[SparkSession]:
    from trimtab.activedata.spark import SparkSettings, start_spark, stop_spark

    with tempfile.TemporaryDirectory() as work_dir:
        session = start_spark(SparkSettings(master=master, memory_mb=1_024), Path(work_dir))
        try:
            yield session
        finally:
            stop_spark(session)


# ---- claims ----


def _ask(spark: SparkSession, claim: Claim) -> Found:
    """The claim's value of each seed, and their mean, by SQL."""
    base = claim.cut_against or claim.relation_to
    query = f"WITH ours AS ({_selected(claim, claim.of)})"
    if base is None:
        query += " SELECT value AS said FROM ours"
    else:
        said = "100 * (1 - ours.value / other.value)" if claim.cut_against else "ours.value / other.value"
        query += f", other AS ({_selected(claim, base)}) SELECT {said} AS said FROM ours JOIN other USING (seed)"
    row = spark.sql(f"SELECT count(*) AS n, avg(said) AS ours, min(said) AS least, max(said) AS most FROM ({query})")
    found = row.first()
    assert found is not None
    return Found(claim, found["n"], found["ours"], found["least"], found["most"])


def _selected(claim: Claim, settings: Mapping[str, str]) -> str:
    """The values by seed of the runs with these settings."""
    conditions = [f"scenario = {_quoted(claim.scenario)}", f"metric = {_quoted(claim.metric)}"]
    conditions += [f"{_setting(key)} = {_quoted(value)}" for key, value in settings.items()]
    return f"SELECT seed, avg(value) AS value FROM runs WHERE {' AND '.join(conditions)} GROUP BY seed"


def _setting(key: str) -> str:
    return f"get_json_object(settings, {_quoted('$.' + key)})"


def _quoted(text: str) -> str:
    """A text of SQL.

    >>> _quoted("it's")
    "'it\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _claims_table(found: Sequence[Found]) -> str:
    rows = []
    for each in found:
        claim, ours = each.claim, each.ours
        verdict = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("unknown", "not run")}[each.holds]
        ratio = "" if ours is None or not claim.theirs else f"{ours / claim.theirs:.2f}"
        spread = "" if ours is None else f"{_shown(each.least)} to {_shown(each.most)}, {each.seeds_count} seeds"
        rows.append(
            f"<tr><td>{html.escape(claim.where)}<td>{html.escape(claim.says)}"
            f"<td class=number>{_shown(claim.theirs)}<td class=number>{_shown(ours)}<td>{spread}"
            f"<td class=number>{ratio}<td>{html.escape(claim.holds)}<td class={verdict[0]}>{verdict[1]}"
        )
    head = "<tr><th>Where<th>Claim<th>Theirs<th>Ours<th>Seeds<th>Ratio<th>Asked<th>Verdict"
    return f"<table>{head}{''.join(rows)}</table>"


# ---- figures and tables ----


def _picture(spark: SparkSession, wanted: FigureWanted) -> str:
    """A metric over a setting with a line for each policy, inside the page; nothing if there are no such runs."""
    x = f"CAST({_setting(wanted.x)} AS DOUBLE)"
    rows = spark.sql(
        f"SELECT policy, {x} AS x, avg(value) AS y, coalesce(stddev_pop(value), 0) AS d FROM runs "
        f"WHERE scenario = {_quoted(wanted.scenario)} AND metric = {_quoted(wanted.metric)} AND {x} IS NOT NULL "
        "GROUP BY policy, x ORDER BY policy, x"
    ).collect()
    if not rows:
        return ""
    plt = pyplot()
    figure, axes = plt.subplots(layout="constrained")
    for number, policy in enumerate(dict.fromkeys(row["policy"] for row in rows)):
        line = [row for row in rows if row["policy"] == policy]
        axes.errorbar(
            [row["x"] for row in line],
            [row["y"] for row in line],
            yerr=[row["d"] for row in line],
            color=COLOURS[number % len(COLOURS)],
            marker="o",
            markersize=3,
            capsize=2,
            label=policy or "the scenario's own",
        )
    axes.set_title(wanted.title)
    axes.set_xlabel(wanted.x)
    axes.set_ylim(bottom=0)
    axes.legend()
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    plt.close(figure)
    data = base64.b64encode(drawn.getvalue()).decode()
    return f'<p><img alt="{html.escape(wanted.title)}" src="data:image/png;base64,{data}"></p>'


def _tables(spark: SparkSession) -> str:
    """Of every scenario a table with a row for each of its settings and its most telling numbers."""
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
    return f"{_shown(mean)} ± {_shown(deviation)}" if deviation else _shown(mean)


def _shown(value: float | None) -> str:
    """A number for people.

    >>> _shown(12345.6), _shown(0.012345), _shown(None), _shown(3.0)
    ('12,346', '0.0123', '', '3')
    """
    if value is None:
        return ""
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
