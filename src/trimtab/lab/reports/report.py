"""One page of what all runs in a folder showed: claims with theirs, ours and whether they hold, figures and tables.

Everything is computed by Spark SQL over DIR/runs and DIR/records; only what is printed or drawn leaves Spark.
"""

from __future__ import annotations

import html
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.lab.reports.claims import Found, ask, claims_table
from trimtab.lab.reports.figures import Pictures, setting_picture, study_pictures
from trimtab.lab.reports.html_page import write_page
from trimtab.lab.reports.records import RecordsSummary, records_part
from trimtab.lab.reports.tables import tables
from trimtab.lab.studies.claims import Claims
from trimtab.lab.studies.sweep import LOCAL, RECORDS, RUNS
from trimtab.protocol.records import RecordsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT: Final = "report.html"


class ReportSummary(msgspec.Struct, frozen=True):
    """What a report says, in numbers."""

    page: str
    runs_count: int
    violations_count: int
    claims_count: int
    hold_count: int
    fail_count: int
    unknown_count: int
    figures_count: int = 0
    records: RecordsSummary = RecordsSummary()


def write_report(folder: Path, claims: Sequence[Claims], master: str = LOCAL) -> ReportSummary:
    """Compute everything and write DIR/report.html, and its figures to DIR/figures."""
    if not any((folder / RUNS).glob("*.parquet")):
        raise RecordsError(f"{folder}: no runs are here; `trimtab lab run STUDY --out {folder}` makes some")
    pictures = Pictures(folder)
    with _session(master) as spark:
        spark.read.parquet(str((folder / RUNS).absolute())).createOrReplaceTempView("stored")
        spark.sql(
            "SELECT *, from_json(settings, 'map<string,string>') AS setting FROM stored"
        ).cache().createOrReplaceTempView("runs")
        totals = spark.sql(
            "SELECT count(*) AS runs, sum(violations_count) AS violations, sum(cpu_s) AS cpu_s FROM "
            "(SELECT run, max(violations_count) AS violations_count, max(cpu_s) AS cpu_s FROM runs GROUP BY run)"
        ).first()
        assert totals is not None
        parts: list[str] = []
        found: list[Found] = []
        of_studies = study_pictures(spark, pictures)
        for each in claims:
            of_paper = ask(spark, each.claim)
            found += of_paper
            drawn = [setting_picture(spark, pictures, figure) for figure in each.figure]
            drawn += [of_studies.pop(name) for name in each.studies if name in of_studies]
            parts.append(f"<h2>{html.escape(each.paper)}</h2>{claims_table(of_paper)}{''.join(drawn)}")
        parts += [f"<h2>{html.escape(name)}</h2>{drawn}" for name, drawn in of_studies.items() if drawn]
        over_time, records = records_part(spark, pictures, folder / RECORDS)
        if over_time:
            parts.append(f"<h2>Over time</h2><p>From {records.rows_count:,} rows of records.</p>{over_time}")
        all_runs = tables(spark)
    page = folder / REPORT
    head = (
        f"<p>{totals['runs']:,} runs, {totals['cpu_s']:,.0f} s of CPU, {totals['violations']:,} promises broken "
        f"(lost, doubled or reordered publications and the like).</p><p>{html.escape(_made())}</p>"
    )
    write_page(page, "Trimtab: experiments", f"{head}{''.join(parts)}<h2>All runs</h2>{all_runs}")
    verdicts = [each.holds for each in found]
    return ReportSummary(
        page=str(page),
        runs_count=totals["runs"],
        violations_count=totals["violations"],
        claims_count=len(found),
        hold_count=verdicts.count(True),
        fail_count=verdicts.count(False),
        unknown_count=verdicts.count(None),
        figures_count=pictures.count,
        records=records,
    )


def _made() -> str:
    """When and where the page was made."""
    return (
        f"Made on {time.strftime('%Y-%m-%d')} with Python {platform.python_version()} on a machine with "
        f"{os.cpu_count()} processors ({platform.machine()})."
    )


@contextmanager
def _session(master: str) -> Iterator[SparkSession]:
    from trimtab.activedata.spark.session import SparkSettings, start_spark, stop_spark

    with tempfile.TemporaryDirectory() as work_dir:
        session = start_spark(SparkSettings(master=master, memory_mb=1_024), Path(work_dir))
        try:
            yield session
        finally:
            stop_spark(session)
