"""`trimtab sim explore`: every order of events in small networks, and what led to each violation."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.simulation.explore.cases import Case
    from trimtab.simulation.explore.search import Exploration
    from trimtab.simulation.fuzz.bugs.core_bugs import Bug


def sim_explore(  # noqa: PLR0917 (options of a command)
    case: Annotated[str | None, typer.Option(metavar="NAME", help="Only this case; all without it.")] = None,
    states: Annotated[
        int, typer.Option(min=1, max=100_000_000, metavar="N", help="States of each case and level at most.")
    ] = 20_000,
    level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="received, safe or durable; all those of a case without it.")
    ] = None,
    bug: Annotated[str | None, typer.Option(metavar="NAME", help="Put a deliberate bug into the core.")] = None,
    lists: Annotated[bool, typer.Option("--list", help="List the cases.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Every order of deliveries and every moment of death in small networks; exit code 1 if a promise is broken.

    \b
    Example:
      trimtab sim explore --list
      trimtab sim explore --case leave-death --level safe --states 2000
    """
    from trimtab.simulation.explore.cases import CASES
    from trimtab.simulation.explore.search import explore

    if lists:
        _list(CASES, as_json)
        return
    wanted = [each for each in CASES if case in (None, each.name)]
    if not wanted:
        refuse(f"--case {case}: there are {', '.join(each.name for each in CASES)}")
    if level not in (None, "received", "safe", "durable"):
        refuse(f"--level {level}: there are received, safe and durable")
    deliberate = None if bug is None else _bug_named(bug)
    runs = [(each, one) for each in wanted for one in each.levels if level in (None, one)]
    if not runs:
        refuse(f"--case {case}: it has the levels {', '.join(wanted[0].levels)}")
    explorations: list[Exploration] = []
    for each, one in runs:

        def tell(states_count: int, left_count: int, label: str = f"{each.name} {one}") -> None:
            end = "" if sys.stderr.isatty() else "\n"
            typer.echo(f"\r{label}: {states_count:,} states, {left_count:,} left{end}", err=True, nl=False)

        found = explore(each, one, states, deliberate, tell)
        if sys.stderr.isatty():
            typer.echo("\r\033[K", err=True, nl=False)
        explorations.append(found)
        if not as_json:
            _print(found)
    if as_json:
        typer.echo(json.dumps({"explorations": [_data(each) for each in explorations]}, indent=2))
    if any(each.violated_count for each in explorations):
        raise typer.Exit(1)


def _bug_named(name: str) -> Bug:
    from trimtab.simulation.fuzz.bugs.core_bugs import BUGS, bug_named
    from trimtab.simulation.fuzz.bugs.replication_bugs import REPLICATION_BUGS

    try:
        return bug_named(name, (*BUGS, *REPLICATION_BUGS))
    except ValueError as error:
        refuse(str(error))


def _list(cases: tuple[Case, ...], as_json: bool) -> None:
    if as_json:
        data = [{"name": each.name, "text": each.text, "levels": list(each.levels)} for each in cases]
        typer.echo(json.dumps(data, indent=2))
        return
    for each in cases:
        typer.echo(f"{each.name:<28} {each.text} [{', '.join(each.levels)}]")


def _data(exploration: Exploration) -> dict[str, Any]:
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(exploration)
    return data


def _print(exploration: Exploration) -> None:
    left = f"{exploration.left_count:,} left" if exploration.left_count else "0 left (complete)"
    typer.echo(
        f"{exploration.case:<28} {exploration.level:<9} {exploration.states_count:>9,} states, {left}, "
        f"{exploration.ends_count:,} ends checked, {exploration.violated_count:,} violated"
    )
    for found in exploration.found:
        typer.echo("")
        for violation in found.violations:
            typer.echo(printable(f"  {violation.kind}: {violation.text}"))
        typer.echo("  what led to it:")
        for line in found.transcript:
            typer.echo(printable(f"  {line}"))
        typer.echo("")
