"""The command that moves a client of a running network to another broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.network.network_file import BrokerEntry, NetworkPlan


def move(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="The client's name, a publisher or a subscriber.")],
    to: Annotated[str, typer.Argument(metavar="BROKER", help="The broker that it shall go to.")],
    network: Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")],
    within_s: Annotated[
        float, typer.Option("--within", metavar="SECONDS", min=0.1, help="Give up waiting for the outcome then.")
    ] = 60.0,
) -> None:
    """Move a client of a running network to another broker; nothing is lost, doubled or reordered by that.

    The broker that serves the client asks it to move, as a policy would. Exit code 1 with the reason if it stays.

    \b
    Example:
      trimtab move quotes B6 examples/seven.toml
    """
    import asyncio

    from trimtab.network.network_file import NetworkFileError, commanded_network

    try:
        plan = commanded_network(network)
    except NetworkFileError as error:
        refuse(str(error))
    names = [entry.name for entry in plan.brokers]
    if to not in names:
        refuse(f"{network}: no broker is named {to}; there are {', '.join(names)}")
    has_moved, said = asyncio.run(_move(plan, client, to, within_s))
    typer.echo(printable(said), err=not has_moved)
    if not has_moved:
        raise typer.Exit(1)


async def _move(plan: NetworkPlan, client: str, to: str, within_s: float) -> tuple[bool, str]:
    """Whether the client has moved, and from where or why not."""
    import asyncio

    from trimtab.network.admin.status import ask_move
    from trimtab.network.security.errors import NotPermittedError
    from trimtab.protocol.frames import MoveRequest

    found = await asyncio.gather(*[_serves(entry, client) for entry in plan.brokers])
    serving = [entry for entry, serves in zip(plan.brokers, found, strict=True) if serves]
    if not serving:
        silent = [entry.name for entry, serves in zip(plan.brokers, found, strict=True) if serves is None]
        also = f"; no answer from {', '.join(silent)}" if silent else ""
        return False, f"no broker of the network serves {client}{also}"
    entry = serving[0]
    if entry.name == to:
        return False, f"{client} is at {to} already"
    try:
        reply = await ask_move(entry.address, MoveRequest(client, to), within_s)
    except TimeoutError:
        unknown = f"does not know after {within_s:g} s what came of it"
        return False, f"{entry.name} has asked {client} to move, but {unknown}"
    except OSError as error:
        said = "refuses" if isinstance(error, NotPermittedError) else f"does not answer at {entry.address}"
        return False, f"broker {entry.name} {said}: {error.strerror or error}"
    if not reply.done:
        return False, f"{client} stays at {entry.name}: {reply.reason}"
    return True, f"{client} has moved from {entry.name} to {to}"


async def _serves(entry: BrokerEntry, client: str) -> bool | None:
    """Whether a broker serves a client, None if it does not answer."""
    from trimtab.network.admin.status import ask_status

    try:
        status = await ask_status(entry.address)
    except (OSError, TimeoutError):
        return None
    return any(peer.name == client and peer.role == "client" and peer.connected for peer in status.peers)
