"""The coordination server as a command."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from trimtab.cli.input_lines import refuse
from trimtab.cli.network.commands import NetworkArgument, plan_of


def coordinator(  # noqa: PLR0917 (each one is an option)
    network: NetworkArgument,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients ask where to connect.")
    ] = "127.0.0.1:7100",
    at: Annotated[
        str | None, typer.Option("--at", metavar="BROKER", help="The broker it joins; the file's first if not given.")
    ] = None,
    placement: Annotated[
        str, typer.Option(metavar="NAME", help="nearest, random, round-robin or least-loaded.")
    ] = "least-loaded",
    policy: Annotated[
        str, typer.Option(metavar="NAME", help="none, ldm, sdm, gsh, multistage or groups.")
    ] = "multistage",
    round_every: Annotated[
        float, typer.Option("--round-every", metavar="SECONDS", help="How often the load is looked at.")
    ] = 60.0,
    report_every: Annotated[
        float, typer.Option("--report-every", metavar="SECONDS", help="How often brokers tell what has changed.")
    ] = 10.0,
    alpha: Annotated[float, typer.Option(metavar="COV", help="Subscribers migrate beyond this imbalance.")] = 0.15,
    gamma: Annotated[float, typer.Option(metavar="COV", help="All are shuffled beyond this imbalance.")] = 0.5,
    beta: Annotated[
        float, typer.Option(metavar="BYTES/S", help="Nothing is done up to this mean load of brokers.")
    ] = 300.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only what is wrong.")] = False,
    with_parent: Annotated[bool, typer.Option("--stop-with-parent", hidden=True)] = False,
) -> None:
    """Run the coordination server of a network until Ctrl-C or SIGTERM; prints `ready` when it has joined.

    Brokers whose [policy] has name = "coordinated" tell it who is where; it tells clients where to connect, and moves
    them when the load is uneven. Nothing depends on it: while it is away everybody is served where they are.

    \b
    Example:
      trimtab coordinator examples/coordinated.toml --policy ldm --round-every 10
    """
    import logging

    import msgspec

    from trimtab.network.links.address import Address
    from trimtab.network.network_file import BrokerEntry, LinkEntry
    from trimtab.network.server.broker_process import ProcessOptions, serve
    from trimtab.policies.multistage.config import (
        BALANCINGS,
        COORDINATOR_NAME,
        PLACEMENTS,
        CoordinatorConfig,
        MultistageConfig,
    )
    from trimtab.policies.registry import PolicyChoice

    plan = plan_of(network)
    names = [entry.name for entry in plan.brokers]
    if plan.policy.name != "coordinated":
        refuse(f'{network}: its brokers listen to no coordinator; it needs [policy] with name = "coordinated"')
    if at is not None and at not in names:
        refuse(f"{network}: no broker is named {at}; there are {', '.join(names)}")
    if COORDINATOR_NAME in names:
        refuse(f"{network}: a broker is named {COORDINATOR_NAME}; that is the coordinator's own name")
    for option, value, known in (("placement", placement, PLACEMENTS), ("policy", policy, BALANCINGS)):
        if value not in known:
            refuse(f"--{option}: {value} is none of {', '.join(known)}")
    try:
        address = Address.parse(listen)
        balancing = MultistageConfig(migrate_cov=alpha, shuffle_cov=gamma, idle_load_bytes_per_s=beta)
        config = CoordinatorConfig(
            placement=placement,  # type: ignore[arg-type]
            policy=policy,  # type: ignore[arg-type]
            balancing=balancing,
            round_every_s=round_every,
            report_every_s=report_every,
            broker_lifetime_s=3.5 * report_every,
        )
    except ValueError as error:
        refuse(str(error))
    whole = msgspec.structs.replace(
        plan,
        brokers=(*plan.brokers, BrokerEntry(COORDINATOR_NAME, address)),
        links=(*plan.links, LinkEntry(COORDINATOR_NAME, at or names[0])),
        policy=PolicyChoice.of("coordinated", coordinated=config),
    )
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(asctime)s %(message)s")
    try:
        started = ProcessOptions(stop_with_pid=os.getppid() if with_parent else None)
        serve(whole, COORDINATOR_NAME, lambda: typer.echo("ready"), started)
    except ModuleNotFoundError as error:
        refuse(f"the coordinator needs {error.name}: pip install 'trimtab[coordinator]'")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        typer.echo(f"the coordinator cannot listen at {address}: {reason}", err=True)
        raise typer.Exit(1) from None
