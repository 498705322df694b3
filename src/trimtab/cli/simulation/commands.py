"""The simulation commands: scenarios, and random runs that look for mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.input_lines import printable, refuse
from trimtab.cli.plain_help import PlainTyper
from trimtab.cli.simulation.coordination_tables import run_coordination_and_tell
from trimtab.cli.simulation.explore import sim_explore
from trimtab.cli.simulation.fuzz import sim_fuzz
from trimtab.cli.simulation.relocation_tables import run_relocation_and_tell
from trimtab.cli.simulation.replication_table_one import replication_table
from trimtab.cli.simulation.replication_tables import run_replication_and_tell
from trimtab.cli.simulation.simulated_records import simulated_records
from trimtab.cli.simulation.study_tables import run_and_tell

if TYPE_CHECKING:
    from trimtab.simulation.scenarios.run import Summary

app = PlainTyper(
    help="Simulate brokers and clients in virtual time, with every delivery checked.",
)


@app.callback()
def _group() -> None:
    pass


@app.command("list")
def sim_list(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array, for programs.")] = False,
) -> None:
    """List the scenarios that come along, and the studies, which run a scenario with one parameter changed.

    \b
    Example:
      trimtab sim list
    """
    from trimtab.simulation.coordination.scenario import parse_coordination, shipped_coordination_scenarios
    from trimtab.simulation.relocation.scenario import parse_relocation, shipped_relocation_scenarios
    from trimtab.simulation.replication.scenario import parse_replication, shipped_replication_scenarios
    from trimtab.simulation.scenarios.scenario import parse_scenario, shipped_scenarios
    from trimtab.simulation.scenarios.study import parse_study, shipped_studies

    scenarios = {name: parse_scenario(text, name).description for name, text in shipped_scenarios().items()}
    for name, text in shipped_coordination_scenarios().items():
        scenarios[name] = parse_coordination(text, name).description
    for name, text in shipped_relocation_scenarios().items():
        scenarios[name] = parse_relocation(text, name)[1][0].description
    for name, text in shipped_replication_scenarios().items():
        scenarios[name] = parse_replication(text, name)[1][0].description
    studies = {name: parse_study(text, name).description for name, text in shipped_studies().items()}
    if as_json:
        kinds = [("scenario", scenarios), ("study", studies)]
        entries = [
            {"name": name, "kind": kind, "description": text} for kind, all in kinds for name, text in all.items()
        ]
        typer.echo(json.dumps(entries, indent=2))
        return
    width = max(map(len, [*scenarios, *studies]))
    for name, text in scenarios.items():
        typer.echo(f"{name:<{width}}  {text}")
    for name, text in studies.items():
        typer.echo(f"{name:<{width}}  Study: {text}")


@app.command("run")
def sim_run(  # noqa: PLR0917 (each one is an option)
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A scenario or study that `trimtab sim list` shows, or a file.")
    ],
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of all random choices; the first one of a study.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write DIR/summary.json, and records as Parquet; see docs/records.md."),
    ] = None,
    deliveries_one_in: Annotated[
        int,
        typer.Option(
            "--deliveries-one-in", min=0, metavar="N", help="Record one delivery in N (1: all, 0: none), with --out."
        ),
    ] = 1,
    quotes: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Quotes as CSV or CSV.gz: symbol,date,open,high,low,close,volume."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace a value of the scenario: duration_s=10, broker.0.cpu_mhz=50; with a coordinator, or "
            "publishers that move, also a list, policy=ldm,gsh.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Of a study or list: seeds per point.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of a study: short runs with one seed, to try it out.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Of a study or list: runs at the same time.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Run a scenario to rest and check every delivery; exit code 1 if a promise was broken.

    A study runs every point with several seeds, and prints a table; so does a scenario with a coordinator, or with
    publishers that move, or with a broker that fails, for which --set has lists.

    \b
    Example:
      trimtab sim run stock-small --seed 7 --set duration_s=60
      trimtab sim run padres-press-samples --quick --out results
      trimtab sim run bad-scale --set placement=nearest --set policy=none,ldm,gsh
      trimtab sim run relocation-clustered --set spread=1 --set policy=pop,grape-load100 --seeds 3
    """
    import time

    import msgspec

    from trimtab.protocol.records import RecordsError
    from trimtab.simulation.coordination.scenario import find_coordination_text
    from trimtab.simulation.relocation.scenario import find_relocation_text
    from trimtab.simulation.replication.scenario import find_replication_text
    from trimtab.simulation.scenarios.run import ScenarioRun
    from trimtab.simulation.scenarios.scenario import ScenarioError, read_scenario
    from trimtab.simulation.scenarios.study import find_study
    from trimtab.simulation.workloads.quotes import QuotesError, load_quotes

    overrides: dict[str, str] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            refuse(f"--set {setting}: expected KEY=VALUE")
        overrides[key.strip()] = value.strip()
    try:
        study = find_study(scenario)
    except ScenarioError as error:
        refuse(str(error))
    if study is not None:
        if quotes is not None:
            refuse("--quotes is for scenarios; in a study the scenario names its quotes (--set quotes=FILE)")
        first = 1 if seed is None else seed
        wanted_seeds = list(range(first, first + (seeds or (1 if quick else 3))))
        run_and_tell(study, wanted_seeds, overrides, out, processes, quick=quick, as_json=as_json)
        return
    coordination_text, relocation_text = find_coordination_text(scenario), find_relocation_text(scenario)
    replication_text = find_replication_text(scenario)
    if coordination_text is not None or relocation_text is not None or replication_text is not None:
        if quotes is not None or quick:
            refuse(f"{scenario}: --quotes and --quick are not for scenarios that compare policies")
        chosen_seeds = None
        if seed is not None or seeds is not None:
            first = 1 if seed is None else seed
            chosen_seeds = list(range(first, first + (seeds or 1)))
        if replication_text is not None:
            run_replication_and_tell(
                scenario, replication_text, overrides, chosen_seeds, out, processes, as_json=as_json
            )
            return
        if relocation_text is not None:
            run_relocation_and_tell(scenario, relocation_text, overrides, chosen_seeds, out, processes, as_json=as_json)
            return
        assert coordination_text is not None
        run_coordination_and_tell(scenario, coordination_text, overrides, chosen_seeds, out, processes, as_json=as_json)
        return
    if seeds is not None or quick or processes is not None:
        refuse(f"{scenario}: --seeds, --quick and --processes are for studies, not for a scenario")
    try:
        wanted = read_scenario(scenario, overrides)
        run_seed = wanted.seed if seed is None else seed
        with simulated_records(
            out, "sim", run=f"{wanted.name}-{run_seed}", deliveries_one_in=deliveries_one_in, besides="summary"
        ) as recorder:
            prepared = ScenarioRun(wanted, run_seed, None if quotes is None else load_quotes(Path(quotes)), recorder)
            begin_cpu_s = time.process_time()
            summary = prepared.run()
            cpu_s = time.process_time() - begin_cpu_s
    except (ScenarioError, QuotesError, RecordsError) as error:
        refuse(str(error))
    data = msgspec.to_builtins(summary)
    if out is not None:
        _write_summary(Path(out), data)
    if as_json:
        typer.echo(json.dumps({**data, "cpu_s": cpu_s}, indent=2))
    else:
        _print_summary(summary, cpu_s)
    if summary.violations:
        raise typer.Exit(1)


def _write_summary(folder: Path, data: Any) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        refuse(f"{folder}: cannot be written: {error.strerror or error}")


def _print_summary(summary: Summary, cpu_s: float) -> None:
    delays = ", ".join(
        f"{'max' if name == '100' else f'{name}%'} {_milliseconds(value)}"
        for name, value in summary.delay_percentiles_s.items()
    )
    faults = ", ".join(f"{count:,} {kind}" for kind, count in summary.faults_count.items()) or "none"
    for label, value in (
        ("scenario", f"{summary.scenario} (seed {summary.seed})"),
        ("simulated", f"{summary.simulated_s:,.1f} s"),
        (
            "network",
            f"{summary.brokers_count:,} brokers, {summary.clients_count:,} clients, {summary.moves_count:,} moves",
        ),
        ("publications", f"{summary.publications_count:,}"),
        ("deliveries", f"{summary.deliveries_count:,}"),
        ("delay", f"mean {_milliseconds(summary.delay_mean_s)}, {delays}"),
        ("lost", f"{summary.lost_count:,}"),
        ("duplicated", f"{summary.duplicated_count:,}"),
        ("reordered", f"{summary.reordered_count:,}"),
        ("faults", faults),
        ("trace", summary.trace_hash),
        ("speed", f"{summary.deliveries_count / cpu_s:,.0f} checked deliveries per second of CPU ({cpu_s:.2f} s)"),
    ):
        typer.echo(f"{label:<13} {value}")
    if summary.crisis is not None:
        from trimtab.cli.simulation.crisis_lines import attack_lines, crisis_lines

        attack = summary.attack
        for line in crisis_lines(summary.crisis) if attack is None else attack_lines(attack):
            typer.echo(printable(line))
    for violation in summary.violations[:20]:
        typer.echo(printable(f"VIOLATION {violation.kind}: {violation.text}"))


def _milliseconds(value_s: float) -> str:
    """A time for people.

    >>> _milliseconds(0.0123), _milliseconds(2.5)
    ('12.3 ms', '2.50 s')
    """
    return f"{value_s:.2f} s" if value_s >= 1 else f"{value_s * 1000:.1f} ms"


app.command("replication-table")(replication_table)
app.command("explore")(sim_explore)
app.command("fuzz")(sim_fuzz)
