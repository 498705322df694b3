"""`trimtab active start`: runs active data and its service until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from trimtab.cli.active.service import LISTEN, token_from
from trimtab.cli.input_lines import printable, refuse

DIRECTORY: Final = "active-data"
LOOK_AFTER_COMPANION_S: Final = 0.5
INTERRUPTED_CODE: Final = 130
"""The exit code of a command that Ctrl-C has ended."""


def start(  # noqa: PLR0917 (each one is an option)
    directory: Annotated[str, typer.Option("--dir", metavar="DIR", help="Where everything is kept.")] = DIRECTORY,
    spark: Annotated[
        str | None, typer.Option("--spark", metavar="MASTER", help="A Spark master; local mode if not given.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    jars: Annotated[
        list[Path] | None,
        typer.Option("--jar", metavar="FILE", help="A jar for Spark, a driver of JDBC for example; may be repeated."),
    ] = None,
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")] = LISTEN,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="A token that every request must bring; or TRIMTAB_TOKEN."),
    ] = None,
    host_names: Annotated[
        list[str] | None, typer.Option("--host-name", metavar="NAME", help="A name by which it is asked.")
    ] = None,
    origins: Annotated[
        list[str] | None, typer.Option("--origin", metavar="URL", help="Whose web pages may ask.")
    ] = None,
    sources: Annotated[
        list[Path] | None,
        typer.Option("--files", metavar="DIR", help="Where statements may read files; else the current folder."),
    ] = None,
    memory_mb: Annotated[
        int, typer.Option("--memory", min=512, metavar="MB", help="Memory of Spark's driver.")
    ] = 1_536,
    query_s: Annotated[
        float, typer.Option("--query-seconds", min=0.1, metavar="S", help="After so long a query is cancelled.")
    ] = 60.0,
    quick_start: Annotated[bool, typer.Option("--quick-start", hidden=True)] = False,
    stop_with: Annotated[int | None, typer.Option("--stop-with", hidden=True)] = None,
) -> None:
    """Run active data until Ctrl-C or SIGTERM; prints a line `ready` with its address when it can be used.

    Spark's own log goes to DIR/spark/spark.log. Elsewhere than on the loopback address a token is needed.

    \b
    Example:
      trimtab active start --dir city
      trimtab active start --spark spark://127.0.0.1:7077 --conf spark.executor.memory=2g
    """
    import logging

    from trimtab.activedata.active import ActiveData
    from trimtab.activedata.errors import ActiveDataError
    from trimtab.activedata.execution.queries import QueryLimits
    from trimtab.activedata.service.access import AccessError, rules_for
    from trimtab.activedata.service.http import Service
    from trimtab.activedata.spark.session import LOCAL_MASTER, SparkSettings
    from trimtab.network.failover.process_identity import ProcessIdentity

    companion = None if stop_with is None else ProcessIdentity.of_process(stop_with)
    host, port = _host_and_port(listen)
    try:
        rules = rules_for(host, token_from(token_file), host_names or (), origins or ())
    except AccessError as error:
        refuse(str(error))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_at_once)
    settings = SparkSettings(
        master=spark or LOCAL_MASTER,
        memory_mb=memory_mb,
        quick_start=quick_start,
        extra=_settings(conf or [], jars or []),
    )
    limits = QueryLimits(time_max_s=query_s, file_roots=tuple(str(each) for each in sources or [Path.cwd()]))
    try:
        with _busy("starting Spark"):
            active = ActiveData(directory, settings, limits)
    except (ActiveDataError, OSError) as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(1) from None
    for number in (signal.SIGINT, signal.SIGTERM):  # Spark has a handler of its own
        signal.signal(number, lambda *_: stopped.set())
    with active:
        try:
            service = Service(active, host, port, rules)
        except OSError as error:
            typer.echo(f"cannot listen at {listen}: {error.strerror}", err=True)
            raise typer.Exit(1) from None
        except ActiveDataError as error:
            typer.echo(printable(str(error)), err=True)
            raise typer.Exit(1) from None
        service.start()
        typer.echo(f"ready http://{host}:{service.port}")
        while not stopped.wait(LOOK_AFTER_COMPANION_S) and (companion is None or companion.is_running()):
            pass
        service.close()


def _end_at_once(*_: object) -> None:
    """End while Spark starts: nothing was promised yet, and an exception could get lost in what is started."""
    from trimtab.operations.own_process import kill_children

    kill_children()
    sys.stderr.write("stopped while Spark was starting\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED_CODE)


def _settings(given: list[str], jars: list[Path]) -> dict[str, str]:
    found: dict[str, str] = {}
    for jar in jars:
        if not jar.is_file():
            refuse(f"--jar {printable(str(jar))}: there is no such file")
    if jars:
        names = [str(each.absolute()) for each in jars]
        found = {"spark.jars": ",".join(names), "spark.driver.extraClassPath": os.pathsep.join(names)}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            refuse(f"--conf {printable(each)}: expected spark.KEY=VALUE")
        found[key] = value
    return found


def _host_and_port(text: str) -> tuple[str, int]:
    from trimtab.network.links.address import Address

    try:
        address = Address.parse(text)
    except ValueError as error:
        refuse(str(error))
    return address.host, address.port


@contextmanager
def _busy(what: str) -> Iterator[None]:
    """A sign of life on standard error while something is waited for, in a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
