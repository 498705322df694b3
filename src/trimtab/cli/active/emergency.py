"""`trimtab active scenario`: the emergency application end to end, on Spark and real brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from trimtab.cli.input_lines import printable, refuse
from trimtab.policies.multistage.config import BALANCINGS, PLACEMENTS

_NAME: Final = "bad-emergency"
_SETTINGS: Final = {"placement": PLACEMENTS, "policy": BALANCINGS}


def scenario(  # noqa: PLR0917 (each one is an option)
    name: Annotated[str, typer.Argument(metavar="SCENARIO", help=f"{_NAME}.")],
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of all random choices.")] = 1,
    speed: Annotated[float, typer.Option("--speed", metavar="X", help="How much faster than the paper's time.")] = 10.0,
    minutes: Annotated[float, typer.Option("--minutes", metavar="M", help="Minutes of the paper's time.")] = 30.0,
    people: Annotated[int, typer.Option("--people", min=1, metavar="N", help="Subscribers.")] = 400,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="placement=nearest, policy=gsh.")
    ] = None,
    spark: Annotated[str | None, typer.Option("--spark", metavar="MASTER", help="A Spark master.")] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=0, metavar="N", help="Start a standalone Spark with N workers for the run.")
    ] = 0,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Workers share nothing but the storage directory (for root).")
    ] = False,
    kill_worker: Annotated[bool, typer.Option("--kill-worker", help="Kill one of them half way.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write DIR/summary.json.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Run subscribers that move, reports and seven channels on Spark, and account for every notification.

    The exit code is 1 if one is missing, comes twice, is wrong or out of order.

    \b
    Example:
      trimtab active scenario bad-emergency --speed 20 --set placement=nearest --set policy=gsh --json
    """
    from rich.progress import Progress

    from trimtab.activedata.errors import ActiveDataError
    from trimtab.operations.emergency.run import EmergencyError, EmergencyOptions, lines, run_emergency
    from trimtab.operations.own_process import OwnProcessError

    if name != _NAME:
        refuse(f"there is no scenario {name}; there is {_NAME}")
    chosen = dict(_setting(each) for each in settings or ())
    given = {"seed": seed, "speed": speed, "minutes": minutes, "people_count": people, "spark": spark, **chosen}
    given |= {"workers_count": workers, "kills_worker": kill_worker, "isolates_workers": isolated}
    try:
        options = msgspec.convert(given, EmergencyOptions)
    except msgspec.ValidationError as error:
        refuse(f"{error}")
    with Progress(transient=True, disable=as_json) as progress:
        task = progress.add_task("starting Spark and brokers", total=None)
        try:
            summary = run_emergency(
                options, lambda tick, count: progress.update(task, description="ticks", completed=tick, total=count)
            )
        except (EmergencyError, OwnProcessError, ActiveDataError) as error:
            typer.echo(printable(str(error)), err=True)
            raise typer.Exit(1) from None
    text = msgspec.json.format(msgspec.json.encode(summary), indent=2).decode()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "summary.json").write_text(text + "\n", encoding="utf-8")
    typer.echo(text if as_json else "\n".join(lines(summary)))
    if summary.missing_count or summary.twice_count or summary.wrong_count or summary.out_of_order_count:
        raise typer.Exit(1)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or key not in _SETTINGS:
        refuse(f"--set {printable(text)}: expected {' or '.join(f'{each}=VALUE' for each in _SETTINGS)}")
    if value not in _SETTINGS[key]:
        refuse(f"--set {printable(text)}: expected {key}= one of {', '.join(_SETTINGS[key])}")
    return key, value
