"""Brokers that begin again: `trimtab restart`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.network.network_file import BrokerEntry
    from trimtab.protocol.frames import BrokerStatus

LOOK_AGAIN_AFTER_S: Final = 0.05


def restart(
    network: Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")],
    brokers: Annotated[list[str] | None, typer.Argument(metavar="[BROKER]...", help="Only these.")] = None,
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

    from trimtab.cli.network_commands import plan_of

    plan = plan_of(network)
    names = [entry.name for entry in plan.brokers]
    if bool(brokers) == rolling:
        refuse("say either which brokers, or --rolling for all of them, one after the other")
    for name in brokers or ():
        if name not in names:
            refuse(f"{network}: no broker is named {printable(name)}; there are {', '.join(names)}")
    for name in brokers or names:
        problem, took_s = asyncio.run(_restart(plan.broker(name), within_s))
        if problem:
            typer.echo(printable(problem), err=True)
            raise typer.Exit(1)
        typer.echo(f"{name} began again and is healthy after {took_s:.1f} s")


async def _restart(entry: BrokerEntry, within_s: float) -> tuple[str, float]:
    """Why a broker has not begun again, empty if it has, and how long it took."""
    import asyncio

    from trimtab.network.clock import now_s
    from trimtab.network.status import ask_restart

    began_s = now_s()
    before = await _status(entry)
    if before is None:
        return f"{entry.name} does not answer at {entry.listen}", 0.0
    try:
        reply = await ask_restart(entry.listen)
    except (OSError, TimeoutError):
        return f"{entry.name} does not answer at {entry.listen}", 0.0
    if not reply.done:
        return reply.reason, 0.0
    while now_s() < began_s + within_s:
        status = await _status(entry)
        is_another = status is not None and status.session != before.session
        if status is not None and is_another and not status.links_missing and not status.is_learning:
            return "", now_s() - began_s
        await asyncio.sleep(LOOK_AGAIN_AFTER_S)
    return f"{entry.name} is not healthy after {within_s:g} s; see trimtab status", 0.0


async def _status(entry: BrokerEntry) -> BrokerStatus | None:
    from trimtab.network.status import ask_status

    try:
        return await ask_status(entry.listen)
    except (OSError, TimeoutError):
        return None
