"""Brokers that begin again: `trimtab restart`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.network.server.broker_process import ProcessOptions

LOOK_AGAIN_AFTER_S: Final = 0.05


def restart(
    network: Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")],
    brokers: Annotated[list[str] | None, typer.Argument(metavar="BROKER", help="Only these.")] = None,
    rolling: Annotated[bool, typer.Option("--rolling", help="All of the file, one after the other.")] = False,
    within_s: Annotated[
        float, typer.Option("--within", metavar="SECONDS", min=0.1, help="Give up waiting for a broker then.")
    ] = 60.0,
) -> None:
    """Let brokers end and begin again, each when the one before it is healthy; nothing is lost.

    A broker begins again in its own process, with the network file and the program as they are then. It is healthy when
    all its links are up and it knows all routes. Stops at the first that is not, with exit code 1.

    \b
    Example:
      trimtab restart examples/seven.toml --rolling
      trimtab restart examples/seven.toml B3
    """
    import asyncio

    from trimtab.cli.network.commands import plan_of
    from trimtab.network.admin.rolling_restart import RestartProblem, restart_broker

    plan = plan_of(network)
    names = [entry.name for entry in plan.brokers]
    if bool(brokers) == rolling:
        refuse("say either which brokers, or --rolling for all of them, one after the other")
    for name in brokers or ():
        if name not in names:
            refuse(f"{network}: no broker is named {printable(name)}; there are {', '.join(names)}")
    for name in brokers or names:
        try:
            took_s = asyncio.run(restart_broker(plan, name, within_s))
        except RestartProblem as problem:
            typer.echo(printable(str(problem)), err=True)
            raise typer.Exit(1) from None
        typer.echo(f"{name} began again and is healthy after {took_s:.1f} s")


@contextmanager
def failures_told(cannot_listen: Callable[[], str]) -> Iterator[None]:
    """Tell people why a broker's process cannot serve, or does no more, and end with exit code 1."""
    from trimtab.network.server.broker_process import SecondReplicaError
    from trimtab.network.server.publication_log import PublicationLogError
    from trimtab.network.server.state_file import StateFileError

    try:
        yield
    except (SecondReplicaError, PublicationLogError, StateFileError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        typer.echo(f"{cannot_listen()}: {reason}", err=True)
        raise typer.Exit(1) from None


def serve_to_the_end(network: str, name: str, options: ProcessOptions, ready: Callable[[], None] | None = None) -> None:
    """Serve one incarnation after the other, as long as each wants to begin again.

    The next one begins in the program as it is loaded, which takes no time, unless the program on the disk has changed:
    then the process loads that, with the network file and its options.
    """
    import msgspec

    from trimtab.cli.network.commands import plan_of
    from trimtab.network.server.broker_process import serve
    from trimtab.network.server.ending import LEFT_EXIT_CODE, are_unchanged, command_of, loaded_files

    words = [*options.replica_options, *(["--stop-with", str(options.stop_with_pid)] if options.stop_with_pid else [])]
    files = loaded_files()
    while (ending := serve(plan_of(network), name, ready, options)).how == "begins again":
        options = msgspec.structs.replace(options, order=ending.order)
        if not are_unchanged(files):
            command = command_of(ending, network, words)
            os.execv(command[0], command)  # noqa: S606 (the program itself, without a shell)
    if ending.how == "left":
        raise typer.Exit(LEFT_EXIT_CODE)
