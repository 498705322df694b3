"""The small networks that are explored."""
from __future__ import annotations
from typing import Literal
import msgspec
from trimtab.broker.config import Acknowledges
from trimtab.simulation.explore.incarnations import TakenBy

class Act(msgspec.Struct, frozen=True):
    """Something that the application of a client does."""

    client: str
    what: Literal["advertise", "subscribe", "publish", "unadvertise", "unsubscribe", "move", "leave"]
    filter: str = ""
    values: tuple[int, ...] = ()
    id: str = ""
    broker: str = ""
    waits_for_acceptance: bool = False

    def told(self) -> str:
        """What is done, for people."""
        return f"{self.what} {self.filter or self.id or self.broker or ', '.join(map(str, self.values))}".rstrip()

class Case(msgspec.Struct, frozen=True):
    name: str
    text: str
    links: tuple[tuple[str, str], ...]
    clients: tuple[tuple[str, str], ...]
    setup: tuple[Act, ...]
    scripts: tuple[tuple[Act, ...], ...]
    dies: tuple[str, ...] = ()
    taken_by: TakenBy = "replica"
    slow_uplinks: tuple[tuple[str, str], ...] = ()
    slow_brokers: tuple[str, ...] = ()
    levels: tuple[Acknowledges, ...] = ("safe", "durable")

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(sorted({end for link in self.links for end in link}))
