"""The command `plan`: what would become of a running network, and how a former plan compares with what did."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from trimtab.cli.input_lines import printable, refuse
from trimtab.cli.network.commands import JsonOption, NetworkArgument, plan_of
from trimtab.cli.simulation.simulated_records import simulated_records

if TYPE_CHECKING:
    from rich.console import Console

    from trimtab.network.network_file import NetworkPlan
    from trimtab.operations.plan.plan import WhatIfPlan
    from trimtab.operations.plan.present import Present
    from trimtab.records.files import RecordFiles

SAMPLE_S: Final = 5.0
OBSERVE_S: Final = 15.0
DELIVERIES_ONE_IN: Final = 10
"""Of the deliveries of a plan so many are recorded; of everything else all."""


def plan(  # noqa: PLR0917 (each one is an option)
    network: NetworkArgument,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="POLICY", help="Another policy; else that of the network file.")
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", metavar="N", help="How long it goes on.")] = 30.0,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What changes: broker.B3=gone, traffic=2 ...; repeatable."),
    ] = None,
    sample_s: Annotated[
        float | None,
        typer.Option("--sample-s", metavar="SECONDS", help="How long is looked at what clients publish (5)."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the simulated time.")] = 1,
    runs: Annotated[
        int, typer.Option("--runs", min=1, max=100, metavar="N", help="So many seeds, to see what is chance.")
    ] = 1,
    kept: Annotated[
        str | None, typer.Option("--from", metavar="DIR", help="Go on from a snapshot kept there; nobody is asked.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Keep the plan, its snapshot and its records there.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="DIR", help="Compare a plan kept there with the network as it is."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what would become of a running network under a policy or with changes, without touching it.

    The brokers tell their clients' filters, and for some seconds note what their own clients publish. The simulator
    then goes on from there with the same brokers and agents, as it is and as planned, and shows load, delays, moves
    and risks.

    --set changes what goes on: broker.NAME=gone (its clients join a neighbour), traffic=FACTOR,
    traffic.PUBLISHER=FACTOR, cpu.NAME=MHZ, bandwidth.NAME=MBPS, client.NAME=BROKER, and settings such as
    policy.padres.local_ratio_threshold=0.05.

    The exit code is 1 if a broker does not answer, unless --set says that it is gone.

    \b
    Example:
      trimtab plan examples/hotspot.toml --policy padres --minutes 10 --out /tmp/plan
      trimtab plan examples/hotspot.toml --set broker.B3=gone --set traffic=2
      trimtab plan examples/hotspot.toml --against /tmp/plan
    """
    described = plan_of(network)
    for option, value in (("--minutes", minutes), ("--sample-s", SAMPLE_S if sample_s is None else sample_s)):
        if not 0 < value < math.inf:
            refuse(f"{option}: expected a number above 0")
    if against is not None:
        if policy or changes or out or kept:
            refuse("--against compares a plan that was made: it goes with no --policy, --set, --out or --from")
        _compare(described, against, sample_s or OBSERVE_S, as_json=as_json)
        return
    wanted = policy or described.policy.name
    _check(described, wanted, changes or [], sample_s or SAMPLE_S)
    present = _present(described, kept, changes or [], sample_s or SAMPLE_S)
    with _records(out, f"plan {wanted}") as recorder:
        made = _make(
            present,
            network=network,
            policy=wanted,
            changes=changes or [],
            minutes=minutes,
            seed=seed,
            runs_count=runs,
            recorder=recorder,
        )
    if out is not None:
        _keep(out, made, present)
    if as_json:
        import msgspec

        typer.echo(json.dumps(msgspec.to_builtins(made)))
    else:
        _show(made)
    if made.planned.violations:
        raise typer.Exit(1)


def _check(described: NetworkPlan, policy: str, changes: list[str], sample_s: float) -> None:
    """Refuse what is wrong before anybody is asked anything."""
    from trimtab.operations.plan.changes import ChangeError, gone_brokers
    from trimtab.policies.registry import check_policy
    from trimtab.protocol.snapshots import SAMPLE_MAX_S

    if sample_s > SAMPLE_MAX_S:
        refuse(f"--sample-s: brokers note what is published for {SAMPLE_MAX_S:g} s at most")
    try:
        check_policy(policy)
    except ValueError as error:
        refuse(f"--{error}")
    names = [entry.name for entry in described.brokers]
    try:
        unknown = [name for name in gone_brokers(changes) if name not in names]
    except ChangeError as error:
        refuse(str(error))
    if unknown:
        refuse(f"--set broker.{unknown[0]}=gone: no broker is named {unknown[0]}; there are {', '.join(names)}")


def _present(described: NetworkPlan, kept: str | None, changes: list[str], sample_s: float) -> Present:
    """The network as it is, or as it was when a snapshot was kept."""
    import asyncio

    from trimtab.operations.plan.changes import ChangeError, changed, gone_brokers
    from trimtab.operations.plan.plan import PlanError, read_present
    from trimtab.operations.plan.present import SilentBrokerError, take_present

    try:
        if kept is not None:
            present = read_present(kept)
        else:
            present = asyncio.run(take_present(described, sample_s, gone_brokers(changes)))
        changed(present, changes)
    except (ChangeError, PlanError) as error:
        refuse(str(error))
    except SilentBrokerError as error:
        _fail(f"does not answer: {error}\n(a broker that is to be gone: --set broker.NAME=gone)")
    return present


def _make(present: Present, **wanted: Any) -> WhatIfPlan:
    from trimtab.operations.plan.plan import PlanError, make_plan

    try:
        with _Progress() as progress:
            return make_plan(present, on_progress=progress.told, **wanted)
    except PlanError as error:
        _fail(str(error))


@contextmanager
def _records(folder: str | None, run: str) -> Iterator[RecordFiles | None]:
    from trimtab.protocol.records import RecordsError

    try:
        with simulated_records(folder, "plan", run=run, deliveries_one_in=DELIVERIES_ONE_IN, besides="plan") as files:
            yield files
    except RecordsError as error:
        _fail(str(error))


class _Progress:
    """A bar on standard error, where that is a terminal; virtual time takes a while."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def told(self, which: str, share: float) -> None:
        """So much of one of the two is done."""
        if which not in self._tasks:
            self._tasks[which] = self._bar.add_task(which, total=1.0)
        self._bar.update(self._tasks[which], completed=share)


def _keep(out: str, made: WhatIfPlan, present: Present) -> None:
    from trimtab.operations.plan.plan import PlanError, write_plan

    try:
        write_plan(out, made, present)
    except PlanError as error:
        _fail(str(error))


def _show(made: WhatIfPlan) -> None:
    from trimtab.cli.operations.plan_tables import brokers_table, network_table, plan_lines, spread_table

    console = _console()
    typer.echo(
        f"{made.clients_count:,} clients with {made.subscriptions_count:,} subscriptions; {made.publishers_count:,} "
        f"publishers, {made.rate_per_s:,.1f} publications per second"
    )
    console.print(brokers_table(made))
    console.print(network_table(made))
    if made.spread.runs_count > 1:
        console.print(spread_table(made))
    for line in plan_lines(made):
        typer.echo(line)


def _compare(described: NetworkPlan, folder: str, for_s: float, *, as_json: bool) -> None:
    import asyncio

    from trimtab.operations.plan.comparison import compared, observe
    from trimtab.operations.plan.plan import PlanError, read_plan

    try:
        former = read_plan(folder)
    except PlanError as error:
        refuse(str(error))
    try:
        found = compared(former, asyncio.run(observe(described, for_s)), for_s)
    except PlanError as error:
        _fail(str(error))
    if as_json:
        import msgspec

        typer.echo(json.dumps(msgspec.to_builtins(found)))
        return
    from trimtab.cli.operations.plan_tables import comparison_table

    _console().print(comparison_table(found))
    fewest, most = found.moves_predicted_count
    predicted = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    typer.echo(
        f"Moves: {predicted} predicted, {found.moves_observed_count:,} observed. "
        f"The snapshot is {found.elapsed_s / 60:,.1f} minutes old; brokers run {', '.join(found.running_policies)}."
    )
    if not found.input_rate_per_s:
        typer.echo("Nothing is published at present: there is no load to compare.")


def _console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120)


def _fail(message: str) -> NoReturn:
    typer.echo(printable(message), err=True)
    raise typer.Exit(1)
