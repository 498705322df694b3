"""What `trimtab up` does: all brokers of a network as processes, and a table of how they are."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trimtab.cli.input_lines import printable
from trimtab.cli.network.balancing_table import balancing_table, has_policy
from trimtab.cli.stop_signals import StopSignals
from trimtab.network.admin.local_network import Network, NetworkError, ask_all
from trimtab.network.network_file import NetworkPlan
from trimtab.protocol.frames import BrokerStatus

LOOK_AGAIN_AFTER_S: Final = 0.5
LOG_LINES_COUNT: Final = 6
LOG_TAIL_BYTES: Final = 4096

Statuses = Mapping[str, BrokerStatus | None]


def next_steps(plan: NetworkPlan, example: str | None) -> str:
    """What somebody may type next who has started the network without a file of their own."""
    first, last = plan.brokers[0], plan.brokers[-1]
    status = "trimtab status" if example is None else f"trimtab status --example {example}"
    many = f"{first.name} listens" if first is last else f"{len(plan.brokers)} brokers listen, {first.name}"
    return f"""\
{many} at {first.address}. In other terminals:
  trimtab sub --broker {last.address} "class = 'STOCK' AND volume > 300000"
  trimtab pub --broker {first.address} "[class,'STOCK'],[volume,412000]"
  {status}
Ctrl-C ends it. `trimtab init` writes a network file of your own."""


def run_network(plan: NetworkPlan, file: str | None, records: str | None = None, hints: str = "") -> int:
    """Run all brokers until Ctrl-C or SIGTERM, with records if a folder is given; returns the exit code.

    `hints` are said once it is ready.
    """
    stop = StopSignals.installed()
    with tempfile.TemporaryFile() as log:
        in_terminal = sys.stdout.isatty()
        network = Network(plan, file, log=log if in_terminal else None, quiet=False, records=records)
        try:
            network.start(until=stop.is_set)
            if not stop.is_set():
                typer.echo(f"ready\n{hints}" if hints else "ready")
            reported = _watch_in_terminal(network, log, stop) if in_terminal else _watch(network, stop)
        except NetworkError as error:
            if stop.is_set():  # a broker that was just being started may have got the signal as well, and ended first
                return 0
            typer.echo(str(error), err=True)
            log.seek(0)
            typer.echo(printable(log.read().decode(errors="replace")), err=True, nl=False)
            return 1
        finally:
            network.stop()
    return 1 if reported else 0


def _watch(network: Network, stop: StopSignals) -> dict[str, int]:
    """Wait for the end; brokers that die are reported."""
    reported: dict[str, int] = {}
    while not stop.wait(LOOK_AGAIN_AFTER_S):
        lines = _newly_dead(network, reported)
        if reported:
            lines += _newly_replaced(network, network.status(), reported)
        for line in lines:
            typer.echo(line, err=True)
    return reported


def _watch_in_terminal(network: Network, log: IO[bytes], stop: StopSignals) -> dict[str, int]:
    reported: dict[str, int] = {}
    with Live(refresh_per_second=4) as live:
        while not stop.is_set():
            statuses = asyncio.run(ask_all(network.plan))
            for line in [*_newly_dead(network, reported), *_newly_replaced(network, statuses, reported)]:
                live.console.print(line, style="bold red")
            tables = [status_table(statuses), *([balancing_table(statuses)] if has_policy(statuses) else [])]
            if has_failures(statuses):
                tables.append(failures_table(statuses))
            if has_assistances(statuses):
                tables.append(assistances_table(statuses))
            if has_fences(statuses):
                tables.append(fences_table(statuses))
            if has_disk_news(statuses):
                tables.append(disks_table(statuses))
            live.update(Group(*tables, Text(_tail(log))))
            stop.wait(LOOK_AGAIN_AFTER_S)
    return reported


def _newly_dead(network: Network, reported: dict[str, int]) -> list[str]:
    found = [(name, code) for name, code in network.dead() if name not in reported and not network.has_replica(name)]
    reported.update(found)
    return [f"broker {name} has ended with exit code {code}" for name, code in found]


def _newly_replaced(network: Network, statuses: Statuses, reported: dict[str, int]) -> list[str]:
    """Brokers that another process is since the last look; they are dead no more. Stand-bys are made up for."""
    found = network.look_for_replicas(statuses)
    if found:
        network.refill_standbys()
    for name, _ in found:
        reported.pop(name, None)
    return [f"broker {name} was replaced by process {pid}" for name, pid in found]


def _tail(log: IO[bytes]) -> str:
    with suppress(OSError):
        size_bytes = log.seek(0, 2)
        log.seek(max(0, size_bytes - LOG_TAIL_BYTES))
        lines = printable(log.read().decode(errors="replace")).splitlines()
        return "\n".join(lines[-LOG_LINES_COUNT:])
    return ""


def status_table(statuses: Statuses) -> Table:
    """One line for each broker: rates, queues, tables, load (input and output utilisation ratio) and links.

    It fits 80 columns. What waits is what has arrived and what is to go out.
    """
    table = Table(title="Brokers", box=SIMPLE_HEAD, padding=0)
    table.add_column("broker")
    for title in ("in/s", "out/s", "waiting", "adverts", "subs", "clients", "I_r", "O_r", "MB"):
        table.add_column(title, justify="right")
    table.add_column("links", overflow="fold")
    for name, status in statuses.items():
        if status is None:
            table.add_row(name, *[""] * 9, Text("does not answer", style="bold red"))
            continue
        verdicts = {peer.name: f" ({peer.verdict})" for peer in status.peers if peer.verdict not in ("", "alive")}
        missing = ", ".join(f"{each}{verdicts.get(each, '')}" for each in status.links_missing)
        table.add_row(
            name,
            f"{status.publications_in_per_s:,.0f}",
            f"{status.publications_out_per_s:,.0f}",
            f"{status.input_count + sum(peer.queued_count for peer in status.peers):,}",
            f"{status.advertisements_count:,}",
            f"{status.subscriptions_count:,}",
            f"{sum(peer.role == 'client' for peer in status.peers):,}",
            f"{status.load['input_utilization_ratio']:.2f}",
            f"{status.load['output_utilization_ratio']:.2f}",
            f"{status.memory_bytes / 1e6:,.0f}",
            Text(f"down: {missing}", style="bold red") if missing else Text("up"),
        )
    return table


def has_failures(statuses: Statuses) -> bool:
    """Whether a broker has seen a neighbour fail."""
    return any(status is not None and status.failures for status in statuses.values())


def failures_table(statuses: Statuses) -> Table:
    """One line for each failure, the latest first: how the broker failed, who noticed it, and what came of it."""
    table = Table(title="Failures", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for title in ("broker", "failed", "seen by", "how", "what came of it"):
        table.add_column(title)
    now_s = time.time()
    found = [(failure, name) for name, each in statuses.items() if each is not None for failure in each.failures]
    for failure, name in sorted(found, key=lambda one: -one[0].noticed_s):
        outcome = printable(failure.outcome)
        if failure.replaced_s is not None:
            outcome = f"replaced {failure.replaced_s - failure.noticed_s:.2f} s later ({failure.protocol})"
        ago = f"{max(0.0, now_s - failure.noticed_s):,.0f} s ago"
        table.add_row(failure.broker, ago, name, failure.why, Text(outcome))
    return table


def has_assistances(statuses: Statuses) -> bool:
    """Whether a broker has an assistant, or is to get one."""
    return any(status is not None and status.assistances for status in statuses.values())


def assistances_table(statuses: Statuses) -> Table:
    """One line for each broker that was congested, the latest first, and what was done about it."""
    table = Table(title="Assistants", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for title in ("broker", "congested", "seen by", "what is done"):
        table.add_column(title)
    now_s = time.time()
    found = [(each, name) for name, status in statuses.items() if status is not None for each in status.assistances]
    for each, name in sorted(found, key=lambda one: -one[0].noticed_s):
        ago = f"{max(0.0, now_s - each.noticed_s):,.0f} s ago"
        table.add_row(each.broker, ago, name, Text(printable(each.outcome)))
    return table


def has_fences(statuses: Statuses) -> bool:
    """Whether a broker acknowledges nothing, because it may have been replaced."""
    return any(status is not None and status.fenced for status in statuses.values())


def fences_table(statuses: Statuses) -> Table:
    """One line for each broker that is fenced, and why."""
    table = Table(title="Fenced: nothing is acknowledged there")
    for title in ("broker", "why"):
        table.add_column(title, overflow="fold")
    for name, status in statuses.items():
        if status is not None and status.fenced:
            table.add_row(name, Text(printable(status.fenced), style="bold red"))
    return table


def has_disk_news(statuses: Statuses) -> bool:
    """Whether a broker has found damage on its disk, or has no room there."""
    return any(status is not None and (status.disk_damage or status.disk_problem) for status in statuses.values())


def disks_table(statuses: Statuses) -> Table:
    """One line for each damage that a broker has found on its disk, and for each disk without room."""
    table = Table(title="Disks")
    for title in ("broker", "what is wrong"):
        table.add_column(title, overflow="fold")
    for name, status in statuses.items():
        for text in () if status is None else (*filter(None, [status.disk_problem]), *status.disk_damage):
            table.add_row(name, Text(printable(text), style="bold red"))
    return table


def peers_table(statuses: Statuses) -> Table:
    """One line for each neighbour and client of each broker."""
    table = Table(title="Links and clients", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for title in ("broker", "peer", "role", "state"):
        table.add_column(title)
    for title in ("queued", "unacked", "adverts", "subs"):
        table.add_column(title, justify="right")
    for name, status in statuses.items():
        for peer in status.peers if status is not None else ():
            table.add_row(
                name,
                Text(printable(peer.name)),
                peer.role,
                "connected" if peer.connected else "away",
                f"{peer.queued_count:,}",
                f"{peer.unacknowledged_count:,}",
                f"{peer.advertisements_count:,}",
                f"{peer.subscriptions_count:,}",
            )
    return table
