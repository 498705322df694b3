"""The commands that change the links of a running network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trimtab.cli.input_lines import printable, refuse
from trimtab.cli.plain_help import PlainTyper

if TYPE_CHECKING:
    from trimtab.network.network_file import BrokerEntry
    from trimtab.protocol.frames import LinkReply

FirstArgument = Annotated[str, typer.Argument(metavar="BROKER", help="The broker that calls.")]
SecondArgument = Annotated[str, typer.Argument(metavar="NEIGHBOUR", help="The broker that is called.")]
NetworkArgument = Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")]

app = PlainTyper(help="Change the links of a running network; its file stays as it is.")


@app.callback()
def _group() -> None:
    pass


@app.command("add")
def link_add(first: FirstArgument, second: SecondArgument, network: NetworkArgument) -> None:
    """Link two running brokers; a link that would close a cycle is refused with exit code 1.

    Routes are set up as for a link of the network file. After a restart of the first broker the link is gone unless the
    file names it.

    \b
    Example:
      trimtab link add B1 B5 examples/seven.toml
    """
    here, there = _entries(network, first, second)
    _tell(_ask(here, "add", there.name, str(there.address)), f"{first} and {second} are linked")


@app.command("remove")
def link_remove(first: FirstArgument, second: SecondArgument, network: NetworkArgument) -> None:
    """End the link between two running brokers; what is under way on it is lost.

    \b
    Example:
      trimtab link remove B1 B2 examples/seven.toml
    """
    here, there = _entries(network, first, second)
    replies = [_ask(here, "remove", there.name), _ask(there, "remove", here.name)]
    done = f"{first} and {second} are not linked any more: what is published on one side does not reach the other"
    _tell(next((reply for reply in replies if reply.done), replies[0]), done)


def _entries(path: str, first: str, second: str) -> tuple[BrokerEntry, BrokerEntry]:
    from trimtab.network.network_file import NetworkFileError, commanded_network

    try:
        plan = commanded_network(path)
    except NetworkFileError as error:
        refuse(str(error))
    names = [entry.name for entry in plan.brokers]
    for name in (first, second):
        if name not in names:
            refuse(f"{path}: no broker is named {name}; there are {', '.join(names)}")
    return plan.broker(first), plan.broker(second)


def _ask(broker: BrokerEntry, change: Literal["add", "remove"], neighbour: str, address: str = "") -> LinkReply:
    import asyncio

    from trimtab.network.admin.status import ask_link
    from trimtab.network.security.errors import NotPermittedError
    from trimtab.protocol.frames import LinkRequest

    try:
        return asyncio.run(ask_link(broker.address, LinkRequest(change, neighbour, address)))
    except NotPermittedError as error:
        typer.echo(printable(f"{broker.name}: {error}"), err=True)
        raise typer.Exit(1) from None
    except (OSError, TimeoutError):
        typer.echo(f"broker {broker.name} does not answer at {broker.address}", err=True)
        raise typer.Exit(1) from None


def _tell(reply: LinkReply, done: str) -> None:
    if not reply.done:
        typer.echo(printable(reply.reason), err=True)
        raise typer.Exit(1)
    typer.echo(printable(done))
