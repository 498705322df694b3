"""Table 1 of the replication paper by running: which protocol keeps which property when a broker dies.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, table 1, permanent failures.

Each run draws a small network from its seed: a broker with two to four neighbours, some with a broker behind them,
publishers that publish steadily, and subscribers in different places that ask for the same. The broker dies while they
publish and is replaced. What subscribers received is checked for the four properties.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Deliver
from trimtab.protocol.link import LinkConfig
from trimtab.replication.config import PROTOCOLS, Protocol, ReplicationConfig
from trimtab.replication.ordering import ordering_degree_ratio
from trimtab.replication.properties import (
    PropertyName,
    PropertyViolation,
    PublicationKey,
    Reception,
    check_properties,
    repeated_deliveries,
)
from trimtab.simulation.failures import StandByPool
from trimtab.simulation.faults import Crash
from trimtab.simulation.rest import check_rest
from trimtab.simulation.world import World

FAULTY: Final = "F"
_BEGIN_S: Final = 5.0
_PUBLISHING_S: Final = 4.0
_REST_S: Final = 120.0

PROMISED: Final[dict[Protocol, tuple[PropertyName, ...]]] = {
    "basic": ("weak ordered",),
    "synchronous": ("weak complete", "weak ordered"),
    "incremental": ("weak complete",),
}
"""The ticks of the table, for brokers that fail for good."""

NOT_PROMISED: Final[dict[Protocol, tuple[PropertyName, ...]]] = {
    "basic": ("weak complete",),
    "synchronous": (),
    "incremental": ("weak ordered",),
}
"""The crosses of the table."""


class TableRun(msgspec.Struct, frozen=True):
    """What one run showed."""

    protocol: Protocol
    seed: int
    deliveries_count: int
    violations: list[PropertyViolation]
    mistakes: list[str]
    """What must not happen under any protocol: repetitions, wrong routing tables, no rest."""
    ordering_degree_ratio: float


class _Histories:
    """What each client received."""

    def __init__(self, filters: dict[str, str]) -> None:
        self._filters = filters
        self.by_subscription: dict[tuple[str, str], list[PublicationKey]] = {}
        self.by_client: dict[str, list[PublicationKey]] = {}

    def note(self, client: str, deliver: Deliver) -> None:
        key = PublicationKey(deliver.publisher, deliver.sequence)
        self.by_client.setdefault(client, []).append(key)
        for id in deliver.subscriptions:
            self.by_subscription.setdefault((client, self._filters[id]), []).append(key)

    def receptions(self) -> list[Reception]:
        """For completeness each subscription, for order all that a client received."""
        each = [Reception(client, text, tuple(keys)) for (client, text), keys in self.by_subscription.items()]
        return [*each, *(Reception(name, f"all of {name}", tuple(keys)) for name, keys in self.by_client.items())]

    def ordering_degree_ratio(self) -> float:
        """The mean over all clients and publishers."""
        degrees = [
            ordering_degree_ratio([key.sequence for key in keys if key.publisher == publisher])
            for keys in self.by_client.values()
            for publisher in dict.fromkeys(key.publisher for key in keys)
        ]
        return sum(degrees) / len(degrees) if degrees else 1.0


def run_once(protocol: Protocol, seed: int) -> TableRun:
    """One run of a protocol."""
    rng = Random(f"trimtab table 1 {seed}")
    world = World(seed, link=LinkConfig(window_frames_count=rng.choice((2, 4, 16))))
    world.keeps_order = False  # clients that drop what is late would hide disorder
    links = _build(world, rng, protocol)
    filters: dict[str, str] = {}
    histories = _Histories(filters)
    world.on_delivery = histories.note
    _populate(world, rng, filters, [name for name in world.brokers if name != FAULTY])
    dies_s = _BEGIN_S + rng.uniform(0.5, 2.0)
    world.failures.provisioner = StandByPool(world, rng.uniform(0.0, 0.5), machines_count=1)
    world.add_fault(Crash(broker=FAULTY, at_s=dies_s, noticed_after_s=rng.choice((0.0, 0.05))))
    over_s = _BEGIN_S + _PUBLISHING_S + 20.0
    world.run(over_s)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(over_s + _REST_S)
    check_rest(world, links)
    lost = {PublicationKey(*key) for key in world.failures.lost_with_brokers}
    history = histories.receptions()
    allowed = {"missing", "out of order", "delivered twice"}  # the properties say which of these are promised
    mistakes = [f"{each.kind}: {each.text}" for each in world.checker.violations if each.kind not in allowed]
    return TableRun(
        protocol=protocol,
        seed=seed,
        deliveries_count=world.checker.deliveries_count,
        violations=check_properties(history, lost),
        mistakes=[*mistakes, *repeated_deliveries(history)],
        ordering_degree_ratio=histories.ordering_degree_ratio(),
    )


def _build(world: World, rng: Random, protocol: Protocol) -> list[tuple[str, str]]:
    links = [(FAULTY, f"N{number}") for number in range(1, rng.randint(2, 4) + 1)]
    links += [(near, f"{near}b") for _, near in list(links) if rng.random() < 0.4]
    replication = ReplicationConfig(
        protocol=protocol, look_every_s=0.1, crash_after_s=0.2, ask_again_s=2.0, clients_return_within_s=5.0
    )
    covering = rng.random() < 0.5
    for name in dict.fromkeys(end for link in links for end in link):
        neighbours = tuple(end for link in links if name in link for end in link if end != name)
        world.add_broker(
            BrokerConfig(
                name,
                neighbours=neighbours,
                replication=replication,
                subscription_covering=covering,
                link=world.link_config,
            )
        )
    for first, second in links:
        world.add_link(first, second, rng.uniform(0.002, 0.08))
    return links


def _populate(world: World, rng: Random, filters: dict[str, str], places: list[str]) -> None:
    texts = [f"[x,>=,{low}],[x,<=,{low + rng.randint(1, 8)}]" for low in rng.sample(range(20), 6)]

    def join(client: str, broker: str) -> None:
        world.add_client(client, broker)

    def advertise(client: str) -> None:
        world.advertise(client, Filter.parse("[x,isPresent,0]"))

    def subscribe(client: str, text: str) -> None:
        filters[world.subscribe(client, Filter.parse(text))] = text

    for number in range(1, rng.randint(1, 3) + 1):
        name = f"p{number}"
        world.at(0.5, join, name, rng.choice(places))
        world.at(1.5, advertise, name)
        time_s, pace_s = _BEGIN_S, rng.choice((0.02, 0.05))
        while time_s < _BEGIN_S + _PUBLISHING_S:
            world.at(time_s, world.publish, name, {"x": rng.randint(0, 27)})
            time_s += rng.expovariate(1 / pace_s)

    for number in range(1, rng.randint(4, 8) + 1):
        name = f"s{number}"
        world.at(0.5, join, name, rng.choice([*places, FAULTY]))
        for text in rng.sample(texts, rng.randint(2, 5)):
            world.at(rng.uniform(2.0, 3.0), subscribe, name, text)


class TableCell(msgspec.Struct, frozen=True):
    """How often a property was violated in many runs of a protocol, and by which seed first."""

    protocol: Protocol
    property_name: PropertyName
    is_promised: bool
    violated_count: int
    first_seed: int | None


class Table(msgspec.Struct, frozen=True):
    """The table, as runs showed it."""

    runs_count: int
    cells: list[TableCell]
    mistakes: list[str]
    ordering_degree_ratios: dict[str, float]

    @property
    def is_reproduced(self) -> bool:
        """Whether all that is promised was kept, and all that is not was seen to be violated."""
        return not self.mistakes and all((cell.violated_count == 0) == cell.is_promised for cell in self.cells)


def run_table(first_seed: int, runs_count: int, protocols: Iterable[Protocol] = PROTOCOLS) -> Table:
    """Run each protocol with consecutive seeds."""
    cells: list[TableCell] = []
    mistakes: list[str] = []
    degrees: dict[str, float] = {}
    for protocol in protocols:
        runs = [run_once(protocol, seed) for seed in range(first_seed, first_seed + runs_count)]
        mistakes += [f"{protocol}, seed {run.seed}: {text}" for run in runs for text in run.mistakes]
        degrees[protocol] = sum(run.ordering_degree_ratio for run in runs) / len(runs)
        names = (*PROMISED[protocol], *NOT_PROMISED[protocol])
        for name in sorted(names):
            seeds = [run.seed for run in runs if any(each.name == name for each in run.violations)]
            is_promised = name in PROMISED[protocol]
            cells.append(TableCell(protocol, name, is_promised, len(seeds), seeds[0] if seeds else None))
    return Table(runs_count, cells, mistakes, degrees)
