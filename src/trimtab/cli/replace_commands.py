"""Replicas on the command line: which one to be, `trimtab standby` and `trimtab replace`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.network.network_file import BrokerEntry, NetworkPlan
    from trimtab.network.replication_settings import ReplicaOrder


def replica_order(
    plan: NetworkPlan, name: str, protocol: str | None, *, neighbours: str | None, listen: str | None, or_at: str | None
) -> ReplicaOrder | None:
    """What a replica is to be, from the options of `trimtab broker`; None for a broker that replaces nobody."""
    from trimtab.network.address import Address, found_here
    from trimtab.network.replication_settings import ReplicaOrder, parse_neighbours
    from trimtab.replication.config import PROTOCOLS

    if protocol is None:
        if neighbours is not None or listen is not None:
            refuse("--neighbours and --listen are for --replica")
        return None
    if plan.replication is None:
        refuse("--replica: the network file has no section [replication], so nobody would tell a replica anything")
    if protocol not in PROTOCOLS:
        refuse(f"--replica: no protocol of replication is called {protocol}; there are {', '.join(PROTOCOLS)}")
    if plan.options.acknowledges == "safe" and protocol != "synchronous":
        refuse(f"--replica {protocol}: what is safe stays so only with the protocol synchronous")
    try:
        found = parse_neighbours(neighbours) if neighbours is not None else None
        for _, address in found or ():
            Address.parse(address)
    except ValueError as error:
        refuse(f"--neighbours: {error}")
    if found is None:
        found = tuple((each, str(plan.broker(each).listen)) for each in plan.neighbours_of(name))
    try:
        where = Address.parse(listen) if listen is not None else plan.broker(name).listen
    except ValueError as error:
        refuse(f"--listen: {error}")
    return ReplicaOrder(name, protocol, found, str(where if or_at is None else found_here(where, or_at)))


NetworkArgument = Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")]


def standby(
    network: NetworkArgument,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where it waits; else the file's first.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only what is wrong.")] = False,
    stop_with: Annotated[int | None, typer.Option("--stop-with", hidden=True)] = None,
) -> None:
    """Stand by as a process that replaces a broker of a network when one fails; then it is that broker.

    The network file names where such processes wait ([[standby]] with listen), and provisioner = "standby".

    \b
    Example:
      trimtab standby examples/standby.toml --listen 127.0.0.1:7108
    """
    import logging
    import os

    from trimtab.network.address import Address
    from trimtab.network.broker_process import serve
    from trimtab.network.loops import run
    from trimtab.network.stand_by import StandBy

    plan = _plan_of(network)
    try:
        address = Address.parse(listen) if listen is not None else next(iter(plan.standbys), None)
    except ValueError as error:
        refuse(f"--listen: {error}")
    if address is None:
        refuse(f"{network} has no [[standby]]; say where to wait with --listen HOST:PORT")
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(asctime)s %(message)s")

    async def wait() -> ReplicaOrder | None:
        return await StandBy(plan, address, stop_with).wait()

    at = str(address)
    try:
        order = run(wait())
        if order is not None:
            at = order.listen
            options = ["--quiet"] if quiet else []
            serve(plan, order.broker, file=network, order=order, stop_with_pid=stop_with, replica_options=options)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        typer.echo(f"cannot listen at {at}: {reason}", err=True)
        raise typer.Exit(1) from None


def replace(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="The broker that has failed.")],
    network: NetworkArgument,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", metavar="PROTOCOL", help="basic, synchronous or incremental; else the file's."),
    ] = None,
    within_s: Annotated[
        float, typer.Option("--within", metavar="SECONDS", min=0.1, help="Give up waiting for the replica then.")
    ] = 30.0,
) -> None:
    """Replace a broker that has failed: a neighbour of it has a replica started, which takes its name and its place.

    Waits until the replica knows all routes. Exit code 1 with the reason if the broker lives or nobody can replace it.

    \b
    Example:
      trimtab replace B2 examples/failover.toml --protocol synchronous
    """
    import asyncio

    from trimtab.replication.config import PROTOCOLS

    plan = _plan_of(network)
    names = [entry.name for entry in plan.brokers]
    if broker not in names:
        refuse(f"{network}: no broker is named {broker}; there are {', '.join(names)}")
    if protocol is not None and protocol not in PROTOCOLS:
        refuse(f"--protocol: no protocol of replication is called {protocol}; there are {', '.join(PROTOCOLS)}")
    if plan.replication is None:
        refuse(f"{network} has no section [replication]: nobody watches its brokers, and nobody could tell a replica")
    if plan.replication.provisioner == "none":
        refuse(
            f"{network} configures no provisioner (provisioner in [replication]); to start a replica by hand: "
            f"trimtab broker {broker} {network} --replica {protocol or plan.replication.protocol}"
        )
    problem = asyncio.run(_replace(plan, broker, protocol or "", within_s))
    if problem:
        typer.echo(printable(problem), err=True)
        raise typer.Exit(1)
    typer.echo(f"{broker} is replaced")


async def _replace(plan: NetworkPlan, broker: str, protocol: str, within_s: float) -> str:
    """Why the broker is not replaced, empty if it is."""
    from trimtab.network.status import ask_replace
    from trimtab.protocol.frames import ReplaceRequest

    entry = plan.broker(broker)
    if await _answers(entry):
        return f"{broker} lives: it answers at {entry.listen}; only a broker that has failed is replaced"
    neighbours = [plan.broker(name) for name in plan.neighbours_of(broker)]
    silent: list[str] = []
    reasons: list[str] = []
    for neighbour in neighbours:
        try:
            reply = await ask_replace(neighbour.listen, ReplaceRequest(broker, protocol), within_s)
        except TimeoutError:
            return f"{neighbour.name} was asked to have {broker} replaced, but does not know after {within_s:g} s"
        except OSError:
            silent.append(neighbour.name)
            continue
        if reply.done:
            return ""
        reasons.append(f"{neighbour.name}: {reply.reason}")
    if not reasons:
        return f"no neighbour of {broker} answers ({', '.join(silent) or 'it has none'}), so nobody can tell a replica"
    return f"{broker} is not replaced: {'; '.join(reasons)}"


async def _answers(entry: BrokerEntry) -> bool:
    from trimtab.network.status import ask_status

    try:
        await ask_status(entry.listen)
    except (OSError, TimeoutError):
        return False
    return True


def _plan_of(path: str) -> NetworkPlan:
    from trimtab.network.network_file import NetworkFileError, read_network_file

    try:
        return read_network_file(path)
    except NetworkFileError as error:
        refuse(str(error))
