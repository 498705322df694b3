"""The simulation commands: scenarios, and random runs that look for mistakes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from trimtab.cli.input_lines import refuse
from trimtab.cli.plain_help import PlainTyper
from trimtab.cli.simulation.explore import sim_explore
from trimtab.cli.simulation.fuzz import sim_fuzz
from trimtab.cli.simulation.replication_table_one import replication_table

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
    """List the bundled scenarios by paper, and the studies, which run a scenario with one parameter changed.

    \b
    Example:
      trimtab sim list
    """
    from trimtab.simulation.scenarios.documents import bundled_documents
    from trimtab.simulation.scenarios.kinds import PAPERS

    documents = bundled_documents()
    entries = [
        {key: str(document.data.get(key, "")) for key in ("name", "kind", "paper", "description")}
        for document in documents.values()
    ]
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
        return
    width = max(map(len, documents))
    for paper, title in PAPERS.items():
        typer.echo(f"{title}:")
        for entry in entries:
            if entry["paper"] == paper:
                study = "Study: " if entry["kind"] == "study" else ""
                typer.echo(f"  {entry['name']:<{width}}  {study}{entry['description']}")


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
            help="Replace a value of the scenario: duration_s=10, broker.0.cpu_mhz=50, policy=padres; of several with "
            "commas, policy=ldm,gsh, every one is run.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, metavar="N", help="Seeds per point.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of a study: short runs with one seed, to try it out.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Runs at the same time, of several.")
    ] = None,
    world: Annotated[
        str,
        typer.Option(metavar="sim|tcp", help="sim: in virtual time; tcp: on broker processes, in real time."),
    ] = "sim",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Run a scenario to rest and check every delivery; exit code 1 if a promise was broken.

    A study runs every point with several seeds, and prints a table; so does a scenario with a grid, with lists in
    --set, or with several seeds. With --json the summaries are as docs/simulation.md describes them.

    \b
    Example:
      trimtab sim run stock-small --seed 7 --set duration_s=60
      trimtab sim run figure-2-2 --world tcp
      trimtab sim run padres-press-samples --quick --out results
      trimtab sim run bad-scale --set placement=nearest --set policy=none,ldm,gsh
      trimtab sim run relocation-clustered --set spread=1 --set policy=pop,grape-load100 --seeds 3
    """
    from trimtab.cli.simulation.scenario_runs import run_and_tell
    from trimtab.cli.simulation.study_tables import run_study_and_tell
    from trimtab.simulation.scenarios.documents import ScenarioError, find_document
    from trimtab.simulation.scenarios.study import KIND, study_of

    overrides = {} if quotes is None else {"quotes": json.dumps(quotes)}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            refuse(f"--set {setting}: expected KEY=VALUE")
        overrides[key.strip()] = value.strip()
    chosen = None
    if seed is not None or seeds is not None:
        first = 1 if seed is None else seed
        chosen = list(range(first, first + (seeds or 1)))
    try:
        document = find_document(scenario)
        study = study_of(document) if document.kind == KIND else None
    except ScenarioError as error:
        refuse(str(error))
    if world not in ("sim", "tcp"):
        refuse(f"--world {world}: expected sim or tcp")
    if study is not None and world == "tcp":
        refuse(f"{scenario}: a study runs in the simulator only, not with --world tcp")
    if quick and study is None:
        refuse(f"{scenario}: --quick is for studies, not for a scenario")
    if study is not None:
        first = 1 if seed is None else seed
        wanted_seeds = list(range(first, first + (seeds or (1 if quick else 3))))
        run_study_and_tell(study, wanted_seeds, overrides, out, processes, quick=quick, as_json=as_json)
        return
    run_and_tell(
        document,
        overrides,
        chosen,
        out,
        world=world,
        deliveries_one_in=deliveries_one_in,
        processes_count=processes,
        as_json=as_json,
    )


app.command("replication-table")(replication_table)
app.command("explore")(sim_explore)
app.command("fuzz")(sim_fuzz)
