"""`trimtab sim fuzz`: random runs that look for violations."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeAlias

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.simulation.fuzz.bugs.core_bugs import Bug
    from trimtab.simulation.fuzz.findings import Finding
    from trimtab.simulation.fuzz.fuzz import BugReport, Draw, FuzzReport
    from trimtab.simulation.fuzz.run import RunReport

    _Kept: TypeAlias = tuple[Finding, Path]

FINDINGS_MAX_COUNT: Final = 20
"""So many failures of one command are shrunk, printed and kept; the rest are counted."""


def sim_fuzz(  # noqa: PLR0917 (options of a command)
    runs: Annotated[int, typer.Option(min=1, max=10_000_000, metavar="N", help="Number of runs.")] = 200,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of the first run; the next has the next.")] = 1,
    bug: Annotated[str | None, typer.Option(metavar="NAME", help="Put a deliberate bug into the core.")] = None,
    bugs: Annotated[
        bool, typer.Option("--bugs", help="For each deliberate bug, in how many runs it is found; 1 if one is not.")
    ] = False,
    with_: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="WHAT",
            help="'replication': brokers die, are replaced or started again and get assistants, with everything else.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, max=1024, metavar="N", help="Processes; 0: one for each core.")] = 1,
    shrink: Annotated[bool, typer.Option("--shrink/--no-shrink", help="Make the plans of failed runs smaller.")] = True,
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="Run a plan that was kept, nothing else.")] = None,
    endless: Annotated[bool, typer.Option("--endless", help="Run with fresh seeds until Ctrl-C.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where plans of failed runs are kept.")] = Path("build/fuzz"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Random small networks with churn, moves and faults, each run to rest and checked; exit code 1 if one fails.

    \b
    Example:
      trimtab sim fuzz --runs 500
      trimtab sim fuzz --bugs --json
      trimtab sim fuzz --runs 500 --with replication --jobs 0
      trimtab sim fuzz --plan build/fuzz/replication-17.json
    """
    from trimtab.simulation.fuzz.bugs.core_bugs import BUGS, bug_named
    from trimtab.simulation.fuzz.bugs.replication_bugs import REPLICATION_BUGS
    from trimtab.simulation.fuzz.full_plans import draw_plan_with_replication
    from trimtab.simulation.fuzz.fuzz import fuzz, fuzz_bug
    from trimtab.simulation.fuzz.plans import draw_plan

    if plan is not None:
        _run_kept(plan, as_json)
    draws: dict[str | None, Draw] = {
        None: draw_plan,
        "replication": draw_plan_with_replication,
    }
    if with_ not in draws:
        refuse(f"--with {with_}: there is only 'replication'")
    draw = draws[with_]
    known_bugs = BUGS if with_ is None else REPLICATION_BUGS
    if bugs:
        _report_bugs([fuzz_bug(each, max(seed, each.first_seed), runs, draw) for each in known_bugs], as_json)
        return
    try:
        wanted = None if bug is None else bug_named(bug, known_bugs)
    except ValueError as error:
        refuse(str(error))
    jobs_count = jobs or os.cpu_count() or 1
    if endless:
        _fuzz_endlessly(draw, with_ or "", wanted, jobs_count, out, shrinks=shrink)
    show_progress = sys.stderr.isatty() and not as_json
    done_count = 0

    def on_run(_: RunReport) -> None:
        nonlocal done_count
        done_count += 1
        if show_progress and done_count % 50 == 0:
            typer.echo(f"\r{done_count:,} of {runs:,} runs", err=True, nl=done_count == runs)

    report = fuzz(seed, runs, on_run, wanted, draw, jobs_count=jobs_count)
    kept = _keep(report, draw, with_ or "", wanted, out, shrinks=shrink)
    suffix = ("" if bug is None else f" --bug {bug}") + ("" if with_ is None else f" --with {with_}")
    if as_json:
        typer.echo(json.dumps(_fuzz_data(report, suffix, kept), indent=2))
    else:
        _print_fuzz(report, suffix, kept)
    if report.failures:
        raise typer.Exit(1)


def _keep(report: FuzzReport, draw: Draw, with_: str, bug: Bug | None, out: Path, *, shrinks: bool) -> list[_Kept]:
    """Shrink what failed, and keep it."""
    from trimtab.simulation.fuzz.endless import finding_of
    from trimtab.simulation.fuzz.findings import write_finding

    kept: list[_Kept] = []
    for failure in report.failures[:FINDINGS_MAX_COUNT]:
        finding = finding_of(draw(failure.seed), failure, with_, bug, shrinks=shrinks)
        kept.append((finding, write_finding(finding, out)))
    return kept


def _run_kept(path: Path, as_json: bool) -> NoReturn:
    """Run a plan from a file, with the deliberate bug that it was found with."""
    import msgspec

    from trimtab.simulation.fuzz.bugs.core_bugs import BUGS, bug_named
    from trimtab.simulation.fuzz.bugs.replication_bugs import REPLICATION_BUGS
    from trimtab.simulation.fuzz.findings import FindingError, plan_lines, read_finding
    from trimtab.simulation.fuzz.fuzz import run_with_bug

    try:
        finding = read_finding(path)
        bug = bug_named(finding.bug, (*BUGS, *REPLICATION_BUGS)) if finding.bug else None
    except (FindingError, ValueError) as error:
        refuse(str(error))
    report = run_with_bug(finding.plan, bug)
    if as_json:
        data = {"violations": msgspec.to_builtins(report.violations), "trace_hash": report.trace_hash}
        typer.echo(json.dumps(data, indent=2))
    else:
        for line in plan_lines(finding.plan):
            typer.echo(printable(line))
        for violation in report.violations:
            typer.echo(printable(f"VIOLATION {violation.kind}: {violation.text}"))
        typer.echo(f"{len(report.violations)} violations; trace {report.trace_hash}")
    raise typer.Exit(1 if report.violations else 0)


def _fuzz_endlessly(draw: Draw, with_: str, bug: Bug | None, jobs_count: int, out: Path, *, shrinks: bool) -> NoReturn:
    from trimtab.simulation.fuzz.endless import Endless

    endless = Endless(draw, with_, bug, shrinks=shrinks, folder=out, say=lambda line: typer.echo(printable(line)))
    typer.echo(f"{jobs_count} processes; Ctrl-C ends; violations are kept in {out}")
    endless.run(jobs_count)
    raise typer.Exit(1 if endless.failures_count else 0)


def _replay(seed: int, suffix: str) -> str:
    return f"trimtab sim fuzz --runs 1 --seed {seed}{suffix}"


def _fuzz_data(report: FuzzReport, suffix: str, kept: list[_Kept]) -> Any:
    import msgspec

    from trimtab.simulation.fuzz.fuzz import summary_of

    plan_files = {finding.seed: str(path) for finding, path in kept}
    failures = [
        {
            "seed": failure.seed,
            "replay": _replay(failure.seed, suffix),
            "violations": msgspec.to_builtins(failure.violations),
            "plan_file": plan_files.get(failure.seed),
        }
        for failure in report.failures
    ]
    return msgspec.to_builtins(summary_of(report, failures))


def _print_fuzz(report: FuzzReport, suffix: str, kept: list[_Kept]) -> None:
    faults = ", ".join(f"{count:,} {kind}" for kind, count in report.faults_count.items()) or "none"
    violations_count = sum(len(failure.violations) for failure in report.failures)
    for label, value in (
        ("runs", f"{report.runs_count:,} (seeds {report.first_seed} to {report.first_seed + report.runs_count - 1})"),
        ("simulated", f"{report.simulated_s:,.0f} s"),
        ("publications", f"{report.publications_count:,}"),
        ("deliveries", f"{report.deliveries_count:,}"),
        ("moves", f"{report.moves_count:,}"),
        ("results", f"{report.results_count:,} of channels delivered"),
        ("slow clients", f"{report.dropped_count:,} publications dropped, {report.disconnected_count:,} disconnected"),
        ("faults", faults),
        ("violations", f"{violations_count:,} in {len(report.failures):,} runs"),
        ("trace", report.trace_hash),
    ):
        typer.echo(f"{label:<13} {value}")
    findings = {finding.seed: (finding, path) for finding, path in kept}
    for failure in report.failures[:FINDINGS_MAX_COUNT]:
        typer.echo(f"\nseed {failure.seed}; replay: {_replay(failure.seed, suffix)}")
        for violation in failure.violations[:5]:
            typer.echo(printable(f"  {violation.kind}: {violation.text}"))
        if failure.seed in findings:
            _print_finding(*findings[failure.seed])


def _print_finding(finding: Finding, path: Path) -> None:
    from trimtab.simulation.fuzz.findings import plan_lines

    typer.echo(f"the plan, as small as was found; run it: trimtab sim fuzz --plan {path}")
    for violation in finding.violations[:2]:
        typer.echo(printable(f"  {violation.kind}: {violation.text}"))
    for line in plan_lines(finding.plan):
        typer.echo(printable(f"  {line}"))


def _report_bugs(reports: list[BugReport], as_json: bool) -> None:
    import msgspec

    if as_json:
        typer.echo(json.dumps({"bugs": msgspec.to_builtins(reports)}, indent=2))
    else:
        width = max(len(report.bug) for report in reports)
        for report in reports:
            found = "NOT FOUND" if report.found_after_runs_count is None else f"run {report.found_after_runs_count}"
            typer.echo(printable(f"{report.bug:<{width}}  {found:<10} {report.first_violation}"[:160]))
    if any(report.found_after_runs_count is None for report in reports):
        raise typer.Exit(1)
