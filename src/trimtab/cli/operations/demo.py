"""The command `demo`: a network that levels itself, with channels on Spark, in about two minutes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.operations.demonstration.demonstration import Demonstration, DemoOptions, DemoSummary

REFRESH_EVERY_S: Final = 0.5
LINE_EVERY_S: Final = 5.0
MARK: Final = "demonstration.json"
"""A folder with this file was made here, and may be made again."""

MADE: Final = ("records", "figures", "active", "report.html", "brokers.log", "active.log", MARK)


def demo(  # noqa: PLR0917 (each one is an option)
    minutes: Annotated[float, typer.Option("--minutes", metavar="M", help="How long publishers publish.")] = 2.0,
    subscribers: Annotated[int, typer.Option("--subscribers", metavar="N", help="How many subscribers.")] = 400,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="With or without channels on Spark.")] = True,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where records, logs and the report go.")] = Path(
        "build/demo"
    ),
    policy: Annotated[
        str,
        typer.Option("--policy", metavar="NAME", help="padres-fast, or padres, which is the thesis's."),
    ] = "padres-fast",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Which quotes, filters and reports.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the summary, as JSON, for programs.")] = False,
    quick_start: Annotated[bool, typer.Option("--quick-start", hidden=True)] = False,
) -> None:
    """Show a network that levels itself: 400 subscribers join the weakest of four brokers, and nothing is lost.

    Starts a head and four unequal edge-brokers as processes, Spark with the channels of the emergency application,
    publishers and subscribers, and shows loads, queues, moves and latencies while the brokers balance. The exit code is
    0 only if the load became level and everybody got exactly what it must. Ctrl-C ends everything.

    \b
    Example:
      trimtab demo
      trimtab demo --minutes 1.5 --no-spark --out /tmp/demo
      trimtab demo --policy padres
    """
    import msgspec

    try:
        from trimtab.operations.demonstration.demonstration import DemoOptions
    except ModuleNotFoundError as error:
        refuse(f"the demonstration needs {error.name}: pip install 'trimtab[active,lab]' brings everything for it")

    given = {"minutes": minutes, "subscribers_count": subscribers, "with_spark": spark, "policy": policy, "seed": seed}
    try:
        options = msgspec.convert(
            {**given, "out": str(out), "spark_options": ("--quick-start",) * quick_start}, DemoOptions, dec_hook=_path
        )
    except msgspec.ValidationError as error:
        refuse(_in_options(str(error)))
    _make_folder(out)
    raise typer.Exit(_run(options, as_json=as_json))


def _path(type: type, value: object) -> Path:
    return Path(str(value))


def _in_options(reason: str) -> str:
    """A mistake in terms of what was typed.

    >>> _in_options("Expected `int` >= 1 - at `$.subscribers_count`")
    '--subscribers: Expected `int` >= 1'
    """
    text, _, place = reason.partition(" - at `$.")
    option = place.rstrip("`").removesuffix("_count")
    return f"--{option}: {text}" if option else text


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not (out / MARK).exists():
            refuse(f"--out {out}: is not empty, and is not from an earlier demonstration; name another folder")
        for name in MADE:
            if (out / name).is_dir():
                shutil.rmtree(out / name)
            else:
                (out / name).unlink(missing_ok=True)
        (out / MARK).write_text("{}\n", encoding="utf-8")
    except OSError as error:
        refuse(f"--out {out}: cannot be written: {error.strerror or error}")


def _run(options: DemoOptions, *, as_json: bool) -> int:
    from trimtab.cli.stop_signals import StopSignals
    from trimtab.network.admin.local_network import NetworkError
    from trimtab.network.client.client import ClientError
    from trimtab.network.loops import run
    from trimtab.operations.demonstration.demonstration import Demonstration, Stopped
    from trimtab.protocol.records import RecordsError

    stop = StopSignals.installed()
    demonstration = Demonstration(options, stop.is_set)
    try:
        summary = run(_shown(demonstration, as_json=as_json))
        stop.uninstall()
        _tell(options, summary, demonstration, as_json=as_json)
    except (Stopped, NetworkError, ClientError, RecordsError) as error:
        if stop.is_set():  # a broker that was just being started may have got the signal as well, and ended first
            typer.echo("stopped; all processes have ended", err=True)
            return 128 + (stop.number or 0)
        typer.echo(printable(f"{error}; what the brokers said is in {options.out / 'brokers.log'}"), err=True)
        return 1
    return 0 if summary.is_good else 1


async def _shown(demonstration: Demonstration, *, as_json: bool) -> DemoSummary:
    """Run it, and show it as well as the reader can see it."""
    import asyncio

    working = asyncio.ensure_future(demonstration.run())
    if as_json:
        return await working
    if sys.stdout.isatty():
        from rich.live import Live

        from trimtab.cli.operations.demo_view import live_view

        with Live(auto_refresh=False, transient=True) as live:
            while not working.done():
                live.update(live_view(demonstration, *live.console.size), refresh=True)
                await asyncio.wait([working], timeout=REFRESH_EVERY_S)
    else:
        from trimtab.cli.operations.demo_view import progress_line

        if demonstration.note is not None:
            typer.echo(demonstration.note)
        while not working.done():
            typer.echo(progress_line(demonstration))
            await asyncio.wait([working], timeout=LINE_EVERY_S)
    return await working


def _tell(options: DemoOptions, summary: DemoSummary, demonstration: Demonstration, *, as_json: bool) -> None:
    import msgspec

    from trimtab.cli.operations.demo_view import summary_lines

    text = msgspec.json.format(msgspec.json.encode(summary), indent=2).decode()
    (options.out / MARK).write_text(text + "\n", encoding="utf-8")
    lines = [printable(line) for line in summary_lines(summary)]
    if not as_json:
        typer.echo("\n" + "\n".join(lines))
    where = _report(options, lines, demonstration)
    typer.echo(text if as_json else f"Report: {where}")


def _report(options: DemoOptions, lines: list[str], demonstration: Demonstration) -> str:
    """Draw and write the page; where it is, or why there is none."""
    from trimtab.lab.reports.demonstration import write_demo_report

    if demonstration.records is None:
        return "none, because records need pyarrow: pip install 'trimtab[lab]'"
    channels = demonstration.channels
    page = write_demo_report(
        options.out,
        demonstration.records,
        lines,
        () if channels is None else channels.views(),
        () if channels is None else channels.latencies_s,
        demonstration.began_s,
    )
    return str(page.absolute())
