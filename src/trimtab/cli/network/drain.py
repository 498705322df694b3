"""The command that takes a broker out of a running network: `trimtab drain`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.network.links.address import Address
    from trimtab.network.network_file import NetworkPlan
    from trimtab.protocol.frames import BrokerStatus, DrainRequest, DrainStatus

LOOK_AGAIN_AFTER_S: Final = 0.1
CLIENTS_SHOWN_COUNT: Final = 5


class _DrainProblem(Exception):
    """Why a broker has not been drained."""


def drain(  # noqa: PLR0917 (each one is an option)
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="The broker that is to leave.")],
    network: Annotated[str, typer.Argument(metavar="NETWORK.toml", help="The network file.")],
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="BROKER", help="Where its clients go; repeatable. All that run if missing."),
    ] = None,
    carry: Annotated[
        bool, typer.Option("--carry", help="Move its clients only; it stays for the brokers that it links.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take it back: the broker stays and takes clients.")] = False,
    within_s: Annotated[
        float, typer.Option("--within", metavar="SECONDS", min=0.1, help="Give up waiting then; it goes on.")
    ] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Let a broker leave a running network: its clients move, its queues empty, then it leaves. Nothing is lost.

    From the beginning on it takes no clients: those who come are sent on. Clients that are away are waited for until
    they return or their lease is over. The process of the broker ends with exit code 3.

    A broker that links two or more others cannot leave without cutting them off from each other, and is refused; with
    --carry its clients move, and it stays only to carry what those others say to each other.

    Exit code 1 with the reason if the broker has not left (or, with --carry, has clients) in time.

    \b
    Example:
      trimtab drain B7 examples/seven.toml
      trimtab drain B2 examples/seven.toml --carry --to B4 --to B5
    """
    import asyncio

    from trimtab.cli.network.commands import plan_of

    plan = plan_of(network)
    names = [entry.name for entry in plan.brokers]
    for name in (broker, *(to or ())):
        if name not in names:
            refuse(f"{network}: no broker is named {printable(name)}; there are {', '.join(names)}")
    if broker in (to or ()):
        refuse(f"--to {broker}: that is the broker that is to leave")
    if cancel and (to or carry):
        refuse("--cancel goes with no other choice")

    def report(text: str) -> None:
        if not as_json:
            typer.echo(printable(text))

    try:
        if cancel:
            asyncio.run(_cancel(plan, broker))
            answer: dict[str, object] = {"broker": broker, "cancelled": True}
            report(f"{broker} stays and takes clients")
        else:
            moved_count, took_s = asyncio.run(_drain(plan, broker, tuple(to or ()), within_s, report, carry=carry))
            answer = {"broker": broker, "left": not carry, "moved_count": moved_count, "took_s": round(took_s, 3)}
            clients = f"{_clients(moved_count)} moved"
            if carry:
                report(f"{broker} has no clients any more and carries on: {clients} in {took_s:.1f} s")
            else:
                report(f"{broker} has left: {clients}, {took_s:.1f} s")
                report(f"Now take {broker} and its link out of {network}: brokers that begin again wait for it else.")
    except _DrainProblem as problem:
        if as_json:
            typer.echo(json.dumps({"broker": broker, "problem": str(problem)}))
        else:
            typer.echo(printable(str(problem)), err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(answer))


async def _cancel(plan: NetworkPlan, broker: str) -> None:
    from trimtab.network.admin.whereabouts import find
    from trimtab.protocol.frames import DrainRequest

    address, status = await find(plan, broker)
    if status is None:
        raise _DrainProblem(f"{broker} does not answer at {address}")
    await _ask(address, broker, DrainRequest(cancel=True))


async def _drain(
    plan: NetworkPlan,
    broker: str,
    chosen: tuple[str, ...],
    within_s: float,
    report: Callable[[str], None],
    *,
    carry: bool,
) -> tuple[int, float]:
    """Have a broker leave; returns how many clients have moved and how long it took, or raises why it has not left."""
    import asyncio

    from trimtab.network.admin.whereabouts import find, status_at
    from trimtab.network.clock import now_s
    from trimtab.protocol.frames import DrainRequest

    began_s = now_s()
    address, before = await find(plan, broker)
    if before is None:
        raise _DrainProblem(f"{broker} does not answer at {address}: only a broker that runs can be drained")
    targets = await _targets(plan, before, chosen)
    await _ask(address, broker, DrainRequest(targets=targets, carries=carry))
    told, moved_count = "", 0
    drained: DrainStatus | None = None
    while now_s() < began_s + within_s:
        status = await status_at(address)
        if status is None:
            if await _is_forgotten(plan, broker, before):
                return moved_count, now_s() - began_s
        elif status.session != before.session:
            raise _DrainProblem(f"{broker} was started again meanwhile and has not left; drain it again")
        elif status.drain is None:
            raise _DrainProblem(f"{broker} stays: somebody has taken that back")
        else:
            drained, moved_count = status.drain, status.drain.moved_count
            if carry and not drained.clients_count:
                return moved_count, now_s() - began_s
            if (progress := _progress(broker, drained)) != told:
                told = progress
                report(progress)
        await asyncio.sleep(LOOK_AGAIN_AFTER_S)
    raise _DrainProblem(_too_late(plan, broker, drained, within_s))


async def _targets(plan: NetworkPlan, status: BrokerStatus, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Where clients are to go: brokers that run and are not drained themselves, those with the fewest clients first."""
    from trimtab.network.admin.local_network import ask_all

    others = {name: each for name, each in (await ask_all(plan)).items() if name != status.name}
    silent = [name for name in chosen if others[name] is None]
    if silent:
        raise _DrainProblem(f"{', '.join(silent)} does not answer and cannot take the clients of {status.name}")
    leaving = [name for name in chosen if (each := others[name]) is not None and each.drain is not None]
    if leaving:
        raise _DrainProblem(f"{', '.join(leaving)} is being drained and cannot take the clients of {status.name}")
    if chosen:
        return chosen
    clients = {
        name: sum(peer.role == "client" for peer in each.peers)
        for name, each in others.items()
        if each is not None and each.drain is None
    }
    if not clients and any(peer.role == "client" for peer in status.peers):
        why = "it is the only broker of the file" if not others else f"{', '.join(others)} do not answer or leave, too"
        raise _DrainProblem(f"nobody can take the clients of {status.name}: {why}")
    return tuple(sorted(clients, key=lambda name: clients[name]))


async def _ask(address: Address, broker: str, request: DrainRequest) -> None:
    from trimtab.network.admin.status import ask_drain

    try:
        reply = await ask_drain(address, request)
    except TimeoutError:
        raise _DrainProblem(f"{broker} does not answer at {address}") from None
    except OSError as error:
        raise _DrainProblem(f"{broker} at {address} was not told: {error} (an earlier version cannot drain)") from None
    if not reply.done:
        raise _DrainProblem(reply.reason)


async def _is_forgotten(plan: NetworkPlan, broker: str, before: BrokerStatus) -> bool:
    """Whether the broker has left, as its neighbours see it, and is not only away."""
    from trimtab.network.admin.whereabouts import find

    neighbours = [peer.name for peer in before.peers if peer.role == "broker"]
    for name in neighbours:
        if name not in [entry.name for entry in plan.brokers]:
            continue
        _, status = await find(plan, name)
        if status is None or any(peer.name == broker for peer in status.peers):
            return False
    return True


def _progress(broker: str, drained: DrainStatus) -> str:
    if drained.phase != "moving":
        return f"{broker}: all clients have moved, queues empty"
    return f"{broker}: {drained.moved_count:,} moved, {drained.clients_count:,} to move"


def _clients(count: int) -> str:
    return f"{count:,} client{'s' if count != 1 else ''}"


def _too_late(plan: NetworkPlan, broker: str, drained: DrainStatus | None, within_s: float) -> str:
    if drained is None:
        return f"{broker} does not answer any more, and its neighbours do not say that it has left; see trimtab status"
    again = "It goes on; say it again to wait on, or --cancel to take it back."
    if drained.clients_count:
        shown = "; ".join(f"{each.client}: {each.why}" for each in drained.clients[:CLIENTS_SHOWN_COUNT])
        more = drained.clients_count - CLIENTS_SHOWN_COUNT
        also = f"; and {more:,} more" if more > 0 else ""
        return f"{broker} still has {_clients(drained.clients_count)} after {within_s:g} s: {shown}{also}. {again}"
    return f"{broker} has no clients, but something still waits there for others after {within_s:g} s. {again}"
