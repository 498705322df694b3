"""The command `policy`: the brokers of a running network work by another policy from now on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.input_lines import printable, refuse
from trimtab.cli.network.commands import NetworkArgument, plan_of

if TYPE_CHECKING:
    from trimtab.network.network_file import BrokerEntry, NetworkPlan


def policy(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="none, padres, padres+grape-load75 ...")],
    network: NetworkArgument,
) -> None:
    """Let the brokers of a running network work by another policy, with the settings of their network file.

    The agents before stop, and what they have begun takes its course; no client notices. It holds until a broker is
    started again: write the policy into the network file too. What it would do: see trimtab plan. The exit code is 1 if
    a broker does not answer or refuses; the others have changed then.

    \b
    Example:
      trimtab policy padres examples/hotspot.toml
    """
    import asyncio

    from trimtab.policies.registry import check_policy

    plan = plan_of(network)
    try:
        check_policy(policy)
    except ValueError as error:
        refuse(str(error))
    problems = asyncio.run(_change(plan, policy))
    for problem in problems:
        typer.echo(printable(problem), err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{len(plan.brokers)} brokers work by {policy}")


async def _change(plan: NetworkPlan, policy: str) -> list[str]:
    """What went wrong, by broker."""
    import asyncio

    from trimtab.network.admin.status import ask_policy

    async def ask(entry: BrokerEntry) -> str:
        try:
            reply = await ask_policy(entry.address, policy)
        except TimeoutError:
            return f"{entry.name} does not answer at {entry.address}"
        except OSError as error:
            return f"{entry.name} does not answer at {entry.address}: {error.strerror or error}"
        return "" if reply.done else f"{entry.name}: {reply.reason}"

    return [problem for problem in await asyncio.gather(*(ask(entry) for entry in plan.brokers)) if problem]
