"""How long a report over very many records takes.

Records of a real, short simulation are repeated under the names of other runs until there are as many rows as wanted;
then the whole report is made: Spark begins, claims are asked, figures are drawn, the page is written.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.lab.reports.report import ReportSummary, write_report
from trimtab.lab.studies.any_run import run_job
from trimtab.lab.studies.claims import bundled_claims
from trimtab.lab.studies.studies import Job
from trimtab.lab.studies.sweep import LOCAL, RECORDS, run_sweep

if TYPE_CHECKING:
    import pyarrow as pa

SECONDS_MAX: Final = 60.0
_SCENARIO: Final = "stock-small"
_RUNS_COUNT: Final = 40
"""The rows are those of so many runs."""


class ReportFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One report."""

    rows_count: int
    runs_count: int
    elapsed_s: float
    prepared_s: float
    """What making the records took."""
    seconds_max: float
    is_within: bool


def measure_report(rows_count: int) -> ReportFigures:
    """Make records in a folder that is deleted afterwards, and report on them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begin_s = time.perf_counter()
        _prepare(folder, rows_count)
        prepared_s = time.perf_counter() - begin_s
        begin_s = time.perf_counter()
        summary: ReportSummary = write_report(folder, bundled_claims())
        elapsed_s = time.perf_counter() - begin_s
    return ReportFigures(
        rows_count=summary.records.rows_count,
        runs_count=summary.records.runs_count,
        elapsed_s=elapsed_s,
        prepared_s=prepared_s,
        seconds_max=SECONDS_MAX,
        is_within=elapsed_s <= SECONDS_MAX,
    )


def _prepare(folder: Path, rows_count: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    job = Job("bench", _SCENARIO, {}, 1)
    run_sweep([job], folder, LOCAL)
    with tempfile.TemporaryDirectory() as made:
        result = run_job(job, made, deliveries_one_in=1)
        if result.error:
            raise RuntimeError(result.error)
        tables = {path.name: pq.read_table(path) for path in Path(made).iterdir()}
    each_count = sum(table.num_rows for table in tables.values())
    times = max(round(rows_count / each_count / _RUNS_COUNT), 1)
    for number in range(_RUNS_COUNT):
        for name, table in tables.items():
            repeated = pa.concat_tables([table] * times)
            _write(folder / RECORDS / f"run-{number}" / name, _named(repeated, f"run-{number}"))


def _named(table: pa.Table, run: str) -> pa.Table:
    import pyarrow as pa

    place = table.column_names.index("run")
    names = (
        pa.array([run]).dictionary_encode().take(pa.array([0] * table.num_rows)).cast(table.schema.field("run").type)
    )
    return table.set_column(place, table.schema.field("run"), names)


def _write(folder: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    pq.write_table(table, folder / "bench-00001.parquet")
