"""Replicas on the command line: which one to be, `trimtab standby`, `replace` and `assist`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.network.failover.membership import StoodBy
    from trimtab.network.failover.replication_settings import ReplicaOrder
    from trimtab.network.network_file import BrokerEntry, NetworkPlan


def replica_order(
    plan: NetworkPlan,
    name: str,
    protocol: str | None,
    *,
    neighbours: str | None,
    listen: str | None,
    or_at: str | None,
    assists: bool = False,
    reorders: bool = False,
    epoch: int = 1,
) -> ReplicaOrder | None:
    """What a replica is to be, from the options of `trimtab broker`; None for a broker that replaces nobody."""
    from trimtab.broker.replication.config import PROTOCOLS
    from trimtab.network.failover.replication_settings import ReplicaOrder, parse_neighbours
    from trimtab.network.links.address import Address, found_here, free_address

    if protocol is None:
        if neighbours is not None or listen is not None or assists or reorders or epoch > 1:
            refuse("--neighbours, --listen, --assist, --reorder and --epoch are for --replica")
        return None
    if plan.replication is None:
        refuse("--replica: the network file has no section [replication], so nobody would tell a replica anything")
    if protocol not in PROTOCOLS:
        refuse(f"--replica: no protocol of replication is called {protocol}; there are {', '.join(PROTOCOLS)}")
    if reorders and not assists:
        refuse("--reorder is for --assist")
    if assists and not reorders and plan.options.acknowledges != "received":
        refuse(f"--assist: what is {plan.options.acknowledges} stays in order only with --reorder")
    if plan.options.acknowledges != "received" and protocol != "synchronous":
        refuse(f"--replica {protocol}: what is {plan.options.acknowledges} stays so only with the protocol synchronous")
    try:
        found = parse_neighbours(neighbours) if neighbours is not None else None
        for _, address in found or ():
            Address.parse(address)
    except ValueError as error:
        refuse(f"--neighbours: {error}")
    if found is None:
        linked = [*([name] if assists else []), *plan.neighbours_of(name)]
        found = tuple((each, str(plan.broker(each).address)) for each in linked)
    try:
        where = Address.parse(listen) if listen is not None else plan.broker(name).listen
    except ValueError as error:
        refuse(f"--listen: {error}")
    if assists:
        where = free_address(where.host if or_at is None else or_at)
    elif or_at is not None:
        where = found_here(where, or_at)
    return ReplicaOrder(name, protocol, found, str(where), assists=assists, reorders=reorders, epoch=epoch)


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
      trimtab standby examples/failover.toml --listen 127.0.0.1:7010
    """
    import logging

    from trimtab.cli.network.restart import failures_told, serve_to_the_end
    from trimtab.network.failover.stand_by import StandBy
    from trimtab.network.links.address import Address
    from trimtab.network.loops import run
    from trimtab.network.server.broker_process import ProcessOptions

    plan = _plan_of(network)
    try:
        address = Address.parse(listen) if listen is not None else next(iter(plan.standbys), None)
    except ValueError as error:
        refuse(f"--listen: {error}")
    if address is None:
        refuse(f"{network} has no [[standby]]; say where to wait with --listen HOST:PORT")
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(asctime)s %(message)s")

    stood_by: StoodBy | None = None

    async def wait() -> ReplicaOrder | None:
        nonlocal stood_by
        waiting = StandBy(plan, address, stop_with)
        order = await waiting.wait()
        stood_by = waiting.stood_by
        return order

    at = str(address)
    with failures_told(lambda: f"cannot listen at {at}"):
        order = run(wait())
        if order is not None:
            at = order.listen
            options = ("--quiet",) if quiet else ()
            started = ProcessOptions(network, order, stop_with, None, options, stood_by)
            serve_to_the_end(network, order.broker, started)


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

    plan = _plan_for(broker, network, protocol)
    _tell(asyncio.run(_replace(plan, broker, protocol or "", within_s)), f"{broker} is replaced")


def assist(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="The broker that is congested.")],
    network: NetworkArgument,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", metavar="PROTOCOL", help="basic, synchronous or incremental; else the file's."),
    ] = None,
    reorder: Annotated[bool, typer.Option("--reorder", help="Put publications in order again behind the two.")] = False,
    within_s: Annotated[
        float, typer.Option("--within", metavar="SECONDS", min=0.1, help="Give up waiting for the assistant then.")
    ] = 30.0,
) -> None:
    """Start an assistant that shares the load of a broker: each publication goes where it waits least.

    Waits until the assistant knows all routes. Without --reorder publications may overtake each other. The assistant
    leaves by itself when it was not needed for `relieved_after_s`, when somebody near it fails, or when it is asked to.

    \b
    Example:
      trimtab assist B2 network.toml --protocol incremental --reorder
    """
    import asyncio

    from trimtab.network.admin.status import ask_assist
    from trimtab.protocol.frames import AssistRequest

    plan = _plan_for(broker, network, protocol)
    if plan.options.acknowledges != "received" and (not reorder or protocol not in (None, "synchronous")):
        level = plan.options.acknowledges
        refuse(f'{network}: acknowledges = "{level}" needs --reorder and the protocol synchronous')

    async def ask(neighbour: BrokerEntry) -> tuple[bool, str]:
        request = AssistRequest(broker, protocol or "", reorder)
        reply = await ask_assist(neighbour.address, request, within_s)
        return reply.done, reply.reason

    async def work() -> str:
        if not await _answers(plan.broker(broker)):
            return f"{broker} does not answer at {plan.broker(broker).address}; only a broker that lives is assisted"
        return await _ask_neighbours(plan, broker, ask, "assisted", within_s)

    _tell(asyncio.run(work()), f"{broker} is assisted")


async def _replace(plan: NetworkPlan, broker: str, protocol: str, within_s: float) -> str:
    """Why the broker is not replaced, empty if it is."""
    from trimtab.network.admin.status import ask_replace
    from trimtab.protocol.frames import ReplaceRequest

    entry = plan.broker(broker)
    if await _answers(entry):
        return f"{broker} lives: it answers at {entry.address}; only a broker that has failed is replaced"

    async def ask(neighbour: BrokerEntry) -> tuple[bool, str]:
        reply = await ask_replace(neighbour.address, ReplaceRequest(broker, protocol), within_s)
        return reply.done, reply.reason

    return await _ask_neighbours(plan, broker, ask, "replaced", within_s)


async def _ask_neighbours(
    plan: NetworkPlan,
    broker: str,
    ask: Callable[[BrokerEntry], Coroutine[None, None, tuple[bool, str]]],
    done: str,
    within_s: float,
) -> str:
    """Ask one neighbour after the other; returns why none of them has done it, empty if one has."""
    silent: list[str] = []
    reasons: list[str] = []
    for neighbour in [plan.broker(name) for name in plan.neighbours_of(broker)]:
        try:
            is_done, reason = await ask(neighbour)
        except TimeoutError:
            return f"{neighbour.name} was asked to have {broker} {done}, but does not know after {within_s:g} s"
        except OSError:
            silent.append(neighbour.name)
            continue
        if is_done:
            return ""
        reasons.append(f"{neighbour.name}: {reason}")
    if not reasons:
        return f"no neighbour of {broker} answers ({', '.join(silent) or 'it has none'}), so nobody can tell a replica"
    return f"{broker} is not {done}: {'; '.join(reasons)}"


async def _answers(entry: BrokerEntry) -> bool:
    from trimtab.network.admin.status import ask_status

    try:
        await ask_status(entry.address)
    except (OSError, TimeoutError):
        return False
    return True


def _tell(problem: str, done: str) -> None:
    if problem:
        typer.echo(printable(problem), err=True)
        raise typer.Exit(1)
    typer.echo(done)


def _plan_for(broker: str, network: str, protocol: str | None) -> NetworkPlan:
    """The network of a broker that is to be replaced or assisted; a mistake ends the command."""
    from trimtab.broker.replication.config import PROTOCOLS

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
    return plan


def _plan_of(path: str) -> NetworkPlan:
    from trimtab.network.network_file import NetworkFileError, commanded_network

    try:
        return commanded_network(path)
    except NetworkFileError as error:
        refuse(str(error))
