"""Runs scenarios of every kind for `trimtab sim run`, and tells what they showed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from trimtab.cli.input_lines import aligned, printable, refuse
from trimtab.cli.simulation import coordination_tables, relocation_tables, replication_tables
from trimtab.cli.simulation.crisis_lines import attack_lines, crisis_lines
from trimtab.cli.simulation.simulated_records import simulated_records

if TYPE_CHECKING:
    from trimtab.simulation.scenarios.documents import Document
    from trimtab.simulation.scenarios.kinds import Loaded
    from trimtab.simulation.scenarios.run import MessagesSummary
    from trimtab.simulation.scenarios.summary import GridSummary, Summary


def run_and_tell(
    document: Document,
    overrides: Mapping[str, str],
    seeds: Sequence[int] | None,
    out: str | None,
    *,
    world: str,
    deliveries_one_in: int,
    processes_count: int | None,
    as_json: bool,
) -> None:
    """Run all points of a scenario, and print what they showed; exit code 1 if a promise was broken."""
    import msgspec

    from trimtab.lab.studies.grid_runs import only_run, run_grid
    from trimtab.lab.studies.summary_files import write_summary
    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.scenarios.documents import ScenarioError
    from trimtab.simulation.scenarios.kinds import KINDS, points_of, run_scenario
    from trimtab.simulation.workloads.quotes import QuotesError

    def on_run(run: Summary[Any], done_count: int, all_count: int) -> None:
        said = f"policy {run.policy}, seed {run.seed} ({run.cpu_s:.1f} s of CPU)"
        typer.echo(f"{done_count} of {all_count}: {said}", err=True)

    try:
        loaded = points_of(document, overrides)
        chosen = seeds or [loaded.points[0].scenario.seed]
        grid: GridSummary | None = None
        run: Summary[Any] | None
        if world == "tcp":
            run = _run_live(loaded, chosen)
        elif KINDS[loaded.kind].with_records and len(loaded.points) == len(chosen) == 1:
            scenario = loaded.points[0].scenario
            with simulated_records(
                out, "sim", run=f"{loaded.name}-{chosen[0]}", deliveries_one_in=deliveries_one_in, besides="summary"
            ) as recorder:
                run = run_scenario(scenario, chosen[0], recorder)
        else:
            grid = run_grid(loaded, chosen, processes_count, on_run if not as_json or sys.stderr.isatty() else None)
            run = only_run(grid, loaded, chosen)
        found = run or grid
        assert found is not None
        if out is not None:
            write_summary(found, Path(out))
    except (ScenarioError, QuotesError, RecordsError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        typer.echo(printable("\n".join(_lines(loaded, run, grid))))
    runs = [run] if run is not None else grid.runs if grid is not None else []
    violations = [violation for each in runs for violation in each.violations]
    if not as_json:
        for violation in violations[:20]:
            typer.echo(printable(f"VIOLATION {violation.kind}: {violation.text}"))
    if violations:
        raise typer.Exit(1)


def _run_live(loaded: Loaded, seeds: Sequence[int]) -> MessagesSummary:
    from trimtab.operations.live_scenario import run_live
    from trimtab.simulation.scenarios.documents import ScenarioError
    from trimtab.simulation.scenarios.kinds import KINDS

    if not KINDS[loaded.kind].runs_live:
        kinds = ", ".join(name for name, kind in KINDS.items() if kind.runs_live)
        raise ScenarioError(f"{loaded.name}: of the kind {loaded.kind}; on processes run those of the kind {kinds}")
    if len(loaded.points) > 1 or len(seeds) > 1:
        raise ScenarioError(f"{loaded.name}: --world tcp runs one scenario with one seed")
    return run_live(loaded.points[0].scenario, seeds[0])


def _lines(loaded: Loaded, run: Summary[Any] | None, grid: GridSummary | None) -> list[str]:
    if run is not None and loaded.kind in _OF_A_RUN:
        return _OF_A_RUN[loaded.kind](run)
    assert grid is not None
    return _OF_A_GRID.get(loaded.kind, grid_lines)(grid)


def grid_lines(grid: GridSummary) -> list[str]:
    """A line for each run of a grid with messages."""
    rows = [[*grid.varied, "seed", "deliveries", "delay", "lost", "duplicated", "reordered", "moves"]]
    for point, run in zip(grid.points, grid.runs, strict=True):
        counts = (run.lost, run.duplicated, run.reordered, run.moves)
        delay = milliseconds(run.details.delay_mean_s)
        rows.append(
            [*map(str, point.values()), str(run.seed), f"{run.deliveries:,}", delay, *(f"{each:,}" for each in counts)]
        )
    return [grid.scenario, "", *aligned(rows)]


def summary_lines(summary: MessagesSummary) -> list[str]:
    """A run with messages in words and figures."""
    found = summary.details
    delays = ", ".join(
        f"{'max' if name == '100' else f'{name}%'} {milliseconds(value)}"
        for name, value in found.delay_percentiles_s.items()
    )
    rows = [
        ("scenario", f"{summary.scenario} (seed {summary.seed}), policy {summary.policy}"),
        ("simulated", f"{summary.simulated_s:,.1f} s"),
        ("network", f"{summary.brokers:,} brokers, {summary.clients:,} clients, {summary.moves:,} moves"),
        ("publications", f"{summary.publications:,}"),
        ("deliveries", f"{summary.deliveries:,}"),
        ("delay", f"mean {milliseconds(found.delay_mean_s)}, {delays}"),
        ("lost", f"{summary.lost:,}"),
        ("duplicated", f"{summary.duplicated:,}"),
        ("reordered", f"{summary.reordered:,}"),
        ("faults", ", ".join(f"{count:,} {kind}" for kind, count in found.faults.items()) or "none"),
    ]
    if summary.world == "sim":
        rate_per_s = (summary.deliveries or 0) / summary.cpu_s if summary.cpu_s else 0.0
        rows += [
            ("trace", summary.trace_hash),
            ("speed", f"{rate_per_s:,.0f} checked deliveries per second of CPU ({summary.cpu_s:.2f} s)"),
        ]
    lines = [f"{label:<13} {value}" for label, value in rows]
    if found.attack is not None:
        lines += attack_lines(found.attack)
    elif found.crisis is not None:
        lines += crisis_lines(found.crisis)
    return lines


def milliseconds(value_s: float) -> str:
    """A time for people.

    >>> milliseconds(0.0123), milliseconds(2.5)
    ('12.3 ms', '2.50 s')
    """
    return f"{value_s:.2f} s" if value_s >= 1 else f"{value_s * 1000:.1f} ms"


_OF_A_RUN: Final[Mapping[str, Callable[[Any], list[str]]]] = {
    "messages": summary_lines,
    "coordination": coordination_tables.summary_lines,
}
_OF_A_GRID: Final[Mapping[str, Callable[[GridSummary], list[str]]]] = {
    "coordination": coordination_tables.grid_lines,
    "relocation": relocation_tables.relocation_lines,
    "replication": replication_tables.replication_lines,
}
