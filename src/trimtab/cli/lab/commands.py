"""`trimtab lab`: experiments on Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.input_lines import printable, refuse
from trimtab.cli.plain_help import PlainTyper

if TYPE_CHECKING:
    from trimtab.lab.studies.any_run import RunResult

app = PlainTyper(help="Experiments on Spark: all runs of a study, on all cores or on a cluster.")


@app.command("list")
def lab_list() -> None:
    """The studies that come along; scenarios and studies of `trimtab sim list` can be run as well.

    \b
    Example:
      trimtab lab list
    """
    from trimtab.lab.studies.studies import bundled_lab_studies, jobs_of, read_lab_study

    for name in bundled_lab_studies():
        study = read_lab_study(name)
        typer.echo(f"{name:<12} {len(jobs_of(study, [1])):>4} runs for each seed  {study.title}")


@app.command("run")
def lab_run(  # noqa: PLR0917 (each one is an option)
    studies: Annotated[list[str], typer.Argument(metavar="STUDY", help="Studies, scenarios, or files of them.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="Where results are, and are looked for.")] = "lab-results",
    spark: Annotated[str, typer.Option(metavar="MASTER", help="spark://HOST:PORT of a cluster.")] = "local[*]",
    seeds: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Seeds of each run.")] = 3,
    seed: Annotated[int, typer.Option(metavar="S", help="The first seed.")] = 1,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value in all scenarios.")
    ] = None,
    with_records: Annotated[
        bool, typer.Option("--records", help="Keep loads, moves and a hundredth of deliveries over time as well.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Run studies as tasks of Spark; finished runs are not repeated. Exit code 1 if one failed or lost something.

    Workers of a cluster need trimtab installed. Results are Parquet: DIR/runs has a row for each number of each run.
    With --records DIR/records has their telemetry, from which `trimtab lab report` draws curves over time.

    \b
    Example:
      trimtab lab run relocation --seeds 3 --out results
      trimtab lab run stock-small --set duration_s=60
    """
    from trimtab.activedata.errors import ActiveDataError
    from trimtab.lab.studies.studies import jobs_of, read_lab_study
    from trimtab.lab.studies.sweep import run_sweep
    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.scenarios.documents import ScenarioError

    overrides = _overrides(settings)
    wanted_seeds = range(seed, seed + seeds)
    try:
        jobs = [job for name in studies for job in jobs_of(read_lab_study(name), wanted_seeds, overrides)]
        with _Progress(len(jobs), shown=not as_json or sys.stderr.isatty()) as progress:
            report = run_sweep(jobs, Path(out), spark, progress.came, with_records=with_records)
    except (ScenarioError, RecordsError, ActiveDataError) as error:
        refuse(str(error))
    if as_json:
        data = {
            "runs_count": len(jobs),
            "done_before_count": report.done_before_count,
            "failed": [{"run": each.job.described(), "error": each.error} for each in report.failures],
            "violations_count": report.violations_count,
            "cpu_s": sum(each.cpu_s for each in report.results),
            "out": out,
        }
        typer.echo(json.dumps(data, indent=2))
    else:
        done_count = len(report.results) - len(report.failures)
        before = f", {report.done_before_count:,} were there already" if report.done_before_count else ""
        typer.echo(f"{done_count:,} of {len(jobs):,} runs done{before}; results are in {out}")
        for each in report.failures:
            typer.echo(printable(f"FAILED {each.job.described()}: {each.error}"))
        if report.violations_count:
            typer.echo(f"{report.violations_count:,} promises were broken")
    if report.failures or report.violations_count:
        raise typer.Exit(1)


@app.command("report")
def lab_report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where `trimtab lab run --out` has put results.")],
    claims: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Claims of your own, in place of those of the papers.")
    ] = None,
    spark: Annotated[str, typer.Option(metavar="MASTER", help="spark://HOST:PORT of a cluster.")] = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Compute all tables and figures of results with Spark SQL, and write one page: theirs, ours, and what holds.

    \b
    Example:
      trimtab lab report results
    """
    import msgspec

    from trimtab.activedata.errors import ActiveDataError
    from trimtab.lab.reports.report import write_report
    from trimtab.lab.studies.claims import bundled_claims, parse_claims
    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.scenarios.documents import ScenarioError

    try:
        wanted = [parse_claims(_text_of(name), name) for name in claims or []] or bundled_claims()
        summary = write_report(Path(folder), wanted, spark)
    except (ScenarioError, RecordsError, ActiveDataError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(summary), indent=2))
        return
    typer.echo(
        f"{summary.runs_count:,} runs; of {summary.claims_count:,} claims {summary.hold_count:,} hold, "
        f"{summary.fail_count:,} do not, {summary.unknown_count:,} were not run: {summary.page}"
    )


def _text_of(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        refuse(f"{name}: {error}")


@app.command("all")
def lab_all(
    out: Annotated[str, typer.Option(metavar="DIR", help="Where results are, and are looked for.")] = "lab-results",
    spark: Annotated[str, typer.Option(metavar="MASTER", help="spark://HOST:PORT of a cluster.")] = "local[*]",
    seeds: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Seeds of each run.")] = 3,
) -> None:
    """Run everything of all papers, which takes hours on two cores, and report; what is there is not run again.

    \b
    Example:
      trimtab lab all --out results
    """
    from trimtab.lab.studies.studies import bundled_lab_studies

    exit_code = 0
    try:
        lab_run(list(bundled_lab_studies()), out, spark, seeds)
    except typer.Exit as ended:
        exit_code = ended.exit_code
        if exit_code != 1:
            raise
    lab_report(out, None, spark)
    if exit_code:
        raise typer.Exit(exit_code)


@app.command("compare")
def lab_compare(  # noqa: PLR0917 (each one is an option)
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario of `trimtab sim list`, or a file.")],
    policies: Annotated[str, typer.Option(metavar="A,B,...", help="Policies to compare.")] = "none",
    own: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="FILE.py:CLASS", help="A policy of yours that takes part."),
    ] = None,
    out: Annotated[str, typer.Option(metavar="DIR", help="Where results are, and are looked for.")] = "lab-results",
    spark: Annotated[str, typer.Option(metavar="MASTER", help="spark://HOST:PORT of a cluster.")] = "local[*]",
    seeds: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Seeds of each run.")] = 3,
    seed: Annotated[int, typer.Option(metavar="S", help="The first seed.")] = 1,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the scenario.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Run a scenario with several policies and the same seeds, print what each reached, and draw their curves.

    \b
    Example:
      trimtab lab compare padres-local --policies none,padres,padres-fast --set duration_s=3000
      trimtab lab compare padres-local --policies padres --policy examples/own_policy.py:Even
    """
    import msgspec

    from trimtab.activedata.errors import ActiveDataError
    from trimtab.lab.studies.comparison import compare, draw_comparison
    from trimtab.lab.studies.studies import LabStudy, RunsPart, jobs_of
    from trimtab.lab.studies.sweep import run_sweep
    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.scenarios.documents import ScenarioError

    wanted = [*(name.strip() for name in policies.split(",") if name.strip()), *(own or [])]
    study = LabStudy([RunsPart(scenario, vary={"policy": list(dict.fromkeys(wanted))})], name=Path(scenario).stem)
    folder = Path(out)
    try:
        jobs = jobs_of(study, range(seed, seed + seeds), _overrides(settings))
        if any(job.point is not None for job in jobs):
            refuse(f"{scenario} is a study: compare policies on its scenario")
        with _Progress(len(jobs), shown=not as_json or sys.stderr.isatty()) as progress:
            report = run_sweep(jobs, folder, spark, progress.came, with_records=True)
        for each in report.failures:
            typer.echo(printable(f"FAILED {each.job.described()}: {each.error}"), err=True)
        if report.failures:
            raise typer.Exit(1)
        compared = compare(jobs, folder)
        picture = draw_comparison(jobs, folder, folder)
    except (ScenarioError, RecordsError, ActiveDataError) as error:
        refuse(str(error))
    if as_json:
        data = {"scenario": scenario, "policies": msgspec.to_builtins(compared), "picture": str(picture or "")}
        typer.echo(json.dumps(data, indent=2))
        return
    labels = list(dict.fromkeys(label for each in compared for label in each.means))
    width = max(map(len, labels))
    typer.echo(printable(" " * width + "".join(f"  {each.policy[-22:]:>22}" for each in compared)))
    for label in labels:
        values = "".join(f"  {_shown(each.means.get(label)):>22}" for each in compared)
        typer.echo(f"{label:<{width}}{values}")
    if picture is not None:
        typer.echo(f"curves: {picture}")


def _overrides(settings: list[str] | None) -> dict[str, str]:
    overrides = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            refuse(f"--set {setting}: expected KEY=VALUE")
        overrides[key.strip()] = value.strip()
    return overrides


def _shown(value: float | None) -> str:
    """A number of a table.

    >>> _shown(0.01234), _shown(1480.0), _shown(None)
    ('0.0123', '1,480', 'not reached')
    """
    if value is None:
        return "not reached"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


class _Progress:
    """A bar on a terminal, lines elsewhere."""

    def __init__(self, runs_count: int, *, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._runs_count = runs_count
        self._came_count = 0
        self._is_shown = shown
        self._bar: Progress | None = None
        if shown and sys.stderr.isatty():
            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("starting Spark", total=runs_count)

    def __enter__(self) -> _Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def came(self, result: RunResult) -> None:
        """A run is over."""
        self._came_count += 1
        text = printable(f"{result.job.described()} ({result.cpu_s:.0f} s of CPU)")
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=text)
        elif self._is_shown:
            typer.echo(f"{self._came_count}: {text}", err=True)
