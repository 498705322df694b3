"""The table of `trimtab up` and `trimtab status` that tells what brokers do about their load, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from trimtab.cli.input_lines import printable
from trimtab.protocol.frames import AgentStatus, BrokerStatus

_STYLES: Final = {"OK": "green", "BUSY": "yellow", "STABILIZING": "cyan", "N/A": "bold red"}


def has_policy(statuses: Mapping[str, BrokerStatus | None]) -> bool:
    """Whether some broker balances."""
    return any(status is not None and status.policy != "none" for status in statuses.values())


def balancing_table(statuses: Mapping[str, BrokerStatus | None]) -> Table:
    """One line for each broker: its load, its clients and their moves, its status, what it does and why."""
    policies = dict.fromkeys(status.policy for status in statuses.values() if status is not None)
    table = Table(title=f"Balancing ({', '.join(policies)})", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("broker")
    for title in ("clients", "I_r", "O_r", "match ms", "came", "went"):
        table.add_column(title, justify="right")
    table.add_column("status")
    table.add_column("what it does, and what it did last", ratio=1, min_width=24)
    for name, status in statuses.items():
        if status is None:
            table.add_row(name, *[""] * 7, Text("does not answer", style="bold red"))
            continue
        load = status.load
        table.add_row(
            name,
            f"{sum(peer.role == 'client' for peer in status.peers):,}",
            f"{load['input_utilization_ratio']:.2f}",
            f"{load['output_utilization_ratio']:.2f}",
            f"{load['matching_delay_s'] * 1000:.1f}",
            f"{status.moved_in_count:,}",
            f"{status.moved_out_count:,}",
            Text("\n").join(Text(agent.status, style=_STYLES.get(agent.status, "")) for agent in status.agents),
            Text("\n".join(line for agent in status.agents for line in _story(agent))),
        )
    return table


def _story(agent: AgentStatus) -> list[str]:
    lines = [f"{agent.role}: {agent.doing}"]
    if agent.decision and agent.decided_ago_s is not None:
        lines.append(f"{agent.decided_ago_s:.0f} s ago: {agent.decision}")
    return [printable(line) for line in lines]
