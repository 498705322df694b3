"""`trimtab bench nemesis`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.lab.bench.nemesis.run import NemesisBench
    from trimtab.lab.bench.nemesis.schedule import BrokerKind


def bench_nemesis(  # noqa: PLR0917 (each one is an option)
    minutes: Annotated[float, typer.Option(min=0.05, max=10_000, metavar="N", help="How long things happen.")] = 5.0,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help="Seed of what happens and who works; drawn and told if not given.")
    ] = None,
    level: Annotated[
        Literal["safe", "durable", "received"],
        typer.Option(help="What an acknowledgement means; received may lose, and then the exit code is 1."),
    ] = "safe",
    rate: Annotated[
        float, typer.Option(min=1, max=100_000, metavar="N", help="Publications per second of all publishers.")
    ] = 300.0,
    replicas: Annotated[
        bool, typer.Option(help="Brokers replace each other; else who is killed is always started again.")
    ] = True,
    links: Annotated[bool, typer.Option(help="Cut, half-close and silence links as well.")] = True,
    only: Annotated[
        str, typer.Option(metavar="KINDS", help="What happens to brokers, like kill,pause; everything if not given.")
    ] = "",
    damage: Annotated[
        bool, typer.Option("--damage", help="With durable: flip bits in logs, too. What that costs must be told.")
    ] = False,
    drain: Annotated[bool, typer.Option("--drain", help="Drain brokers as well (trimtab drain).")] = False,
    faketime: Annotated[
        str, typer.Option(metavar="FILE", help="Set clocks with libfaketimeMT.so.1 (Debian: package libfaketime).")
    ] = "",
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Where schedule, events, logs and histories are kept.")
    ] = "build/nemesis",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Kill, stop, restart and cut off broker processes for minutes, and see whether a promise is broken.

    kill: SIGKILL, and started again; replace: SIGKILL, and others see to a replica; terminate: SIGTERM, and started
    again; restart: trimtab restart; pause: stopped for a while; hang: stopped until others give it up.

    Seven brokers, six publishers and eight subscribers that come, move and go. With safe the next death comes when the
    takeover is over; with durable at any time, also of several at once and of all. A checker that shares nothing with
    the network says what was acknowledged, delivered, lost, doubled, reordered or wrong. Exit code 1 if a promise was
    broken. Ctrl-C ends the run early and checks what there is.

    \b
    Example:
      trimtab bench nemesis --minutes 3 --level durable --seed 7
    """
    from trimtab.lab.bench.nemesis.run import NemesisBench
    from trimtab.lab.bench.nemesis.schedule import USUAL_KINDS

    if damage and level != "durable":
        refuse(f"--damage is for --level durable: at {level} brokers have no log")
    if faketime and not Path(faketime).is_file():
        refuse(f"--faketime: there is no file {faketime}; Debian has it in the package libfaketime")
    more: dict[BrokerKind, bool] = {"damage": damage, "drain": drain, "clock": bool(faketime)}
    kinds = tuple(kind for kind in USUAL_KINDS if not only or kind in only.split(","))
    for kind in filter(None, only.split(",")):
        if kind not in USUAL_KINDS:
            refuse(f"--only: {kind} is not known; expected {', '.join(USUAL_KINDS)}")
    drawn = int(time.time()) % 1_000_000 if seed is None else seed
    bench = NemesisBench(
        minutes=minutes,
        seed=drawn,
        level=level,
        rate_per_s=rate,
        kinds=(*kinds, *(kind for kind, is_wanted in more.items() if is_wanted)),
        has_replicas=replicas,
        has_link_faults=links,
        faketime=faketime,
    )
    folder = Path(out) / f"{level}-{drawn}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        refuse(f"--out: {folder} cannot be made: {error.strerror}")
    _run(bench, folder, as_json)


def _run(bench: NemesisBench, folder: Path, as_json: bool) -> None:
    import msgspec

    from trimtab.lab.bench.nemesis.report import lines
    from trimtab.lab.bench.nemesis.run import run_nemesis
    from trimtab.network.admin.local_network import NetworkError

    try:
        outcome = run_nemesis(bench, folder, lambda text: print(printable(text), file=sys.stderr, flush=True))
    except NetworkError as error:
        typer.echo(printable(f"{error}; see {folder / 'brokers.log'}"), err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(outcome), indent=2))
    else:
        for line in lines(outcome):
            typer.echo(printable(line))
        findings = folder / "findings.txt"
        if findings.stat().st_size:
            typer.echo(f"what was done around each finding: {findings}")
    if not outcome.is_right:
        raise typer.Exit(1)
