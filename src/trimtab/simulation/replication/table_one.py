"""Table 1 of the replication paper by running: which protocol keeps which property when a broker fails.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, table 1.

Each run draws a small network from its seed: a broker with two to four neighbours, some with a broker behind them,
publishers that publish steadily, and subscribers in different places that ask for the same. While they publish the
broker dies and is replaced (permanent failures), or is congested and gets an assistant (transient ones). What
subscribers received is checked for the four properties.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.replication.config import Assisting, Protocol, ReplicationConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Assist, Deliver
from trimtab.protocol.link import LinkConfig
from trimtab.simulation.checkers.properties import (
    PropertyName,
    PropertyViolation,
    PublicationKey,
    Reception,
    check_properties,
    ordering_degree_ratio,
    repeated_deliveries,
)
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.failures import StandByPool
from trimtab.simulation.faults.faults import Congest, Crash
from trimtab.simulation.world.world import World

FAULTY: Final = "F"
_BEGIN_S: Final = 5.0
_PUBLISHING_S: Final = 4.0
_REST_S: Final = 120.0


class TableRow(msgspec.Struct, frozen=True):
    """A protocol of the table and what it promises."""

    name: str
    protocol: Protocol
    assisting: Assisting
    """never: the broker dies; otherwise it is congested."""
    ticks: tuple[PropertyName, ...]
    crosses: tuple[PropertyName, ...]


_COMPLETE: Final[PropertyName] = "strong complete"
_ORDERED: Final[PropertyName] = "strong ordered"

ROWS: Final = (
    TableRow("basic", "basic", "never", ("weak ordered",), ("weak complete",)),
    TableRow("synchronous", "synchronous", "never", ("weak complete", "weak ordered"), ()),
    TableRow("incremental", "incremental", "never", ("weak complete",), ("weak ordered",)),
    TableRow("incremental-ordered", "incremental-ordered", "never", ("weak complete", "weak ordered"), ()),
    TableRow("basic-scheduling", "basic", "scheduling", (), (_COMPLETE, _ORDERED)),
    TableRow("synchronous-scheduling", "synchronous", "scheduling", (_COMPLETE,), (_ORDERED,)),
    TableRow("incremental-scheduling", "incremental", "scheduling", (_COMPLETE,), (_ORDERED,)),
    TableRow("basic-reordering", "basic", "reordering", (_ORDERED,), (_COMPLETE,)),
    TableRow("synchronous-reordering", "synchronous", "reordering", (_COMPLETE, _ORDERED), ()),
    TableRow("incremental-reordering", "incremental", "reordering", (_COMPLETE, _ORDERED), ()),
)
"""The nine protocols with the ticks and the crosses of the table, and one that the paper has not."""


class TableRun(msgspec.Struct, frozen=True):
    """What one run showed."""

    protocol: str
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

    def note(self, client: str, deliver: Deliver, at_s: float) -> None:
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


def run_once(row: TableRow, seed: int) -> TableRun:
    """One run of a protocol."""
    rng = Random(f"trimtab table 1 {seed}")
    world = World(seed, link=LinkConfig(window_frames_count=rng.choice((2, 4, 16))))
    links = _build(world, rng, row)
    filters: dict[str, str] = {}
    histories = _Histories(filters)
    world.on_delivery = histories.note
    _populate(world, rng, filters, [name for name in world.brokers if name != FAULTY])
    fails_s = _BEGIN_S + rng.uniform(0.5, 2.0)
    if row.assisting == "never":
        world.failures.provisioner = StandByPool(world, rng.uniform(0.0, 0.5), machines_count=1)
        world.add_fault(Crash(broker=FAULTY, at_s=fails_s, noticed_after_s=rng.choice((0.0, 0.05))))
    else:
        world.add_fault(Congest(broker=FAULTY, at_s=_BEGIN_S, for_s=8.0, cpu_mhz=rng.uniform(4.0, 20.0)))
        neighbours = tuple((far, "") for near, far in links if near == FAULTY)
        request = Assist(FAULTY, "1", row.protocol, row.assisting == "reordering", neighbours)
        world.at(fails_s, world.failures.assist, request)
    over_s = _BEGIN_S + _PUBLISHING_S + 20.0
    world.run(over_s)
    world.retire_agents()
    world.run(over_s + _REST_S)
    check_rest(world, links)
    lost = {PublicationKey(*key) for key in world.failures.lost_with_brokers}
    history = histories.receptions()
    allowed = {"missing", "out of order", "delivered twice"}  # the properties say which of these are promised
    mistakes = [f"{each.kind}: {each.text}" for each in world.checker.violations if each.kind not in allowed]
    return TableRun(
        protocol=row.name,
        seed=seed,
        deliveries_count=world.checker.deliveries_count,
        violations=check_properties(history, lost),
        mistakes=[*mistakes, *repeated_deliveries(history)],
        ordering_degree_ratio=histories.ordering_degree_ratio(),
    )


def _build(world: World, rng: Random, row: TableRow) -> list[tuple[str, str]]:
    links = [(FAULTY, f"N{number}") for number in range(1, rng.randint(2, 4) + 1)]
    links += [(near, f"{near}b") for _, near in list(links) if rng.random() < 0.4]
    replication = ReplicationConfig(protocol=row.protocol, look_every_s=0.1, crash_after_s=0.2, ask_again_s=2.0)
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
        world.add_client(client, broker, order="any")  # one that drops what is late would hide disorder

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

    protocol: str
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


def run_some(row: TableRow, first_seed: int, runs_count: int) -> list[TableRun]:
    """Runs of one protocol with consecutive seeds."""
    return [run_once(row, seed) for seed in range(first_seed, first_seed + runs_count)]


def table_of(runs: Iterable[TableRun]) -> Table:
    """What runs showed: as many of each protocol."""
    by_protocol: dict[str, list[TableRun]] = {row.name: [] for row in ROWS}
    for run in runs:
        by_protocol[run.protocol].append(run)
    cells: list[TableCell] = []
    mistakes: list[str] = []
    degrees: dict[str, float] = {}
    for row in ROWS:
        of_row = by_protocol[row.name]
        mistakes += [f"{row.name}, seed {run.seed}: {text}" for run in of_row for text in run.mistakes]
        degrees[row.name] = sum(run.ordering_degree_ratio for run in of_row) / len(of_row)
        for name in sorted((*row.ticks, *row.crosses)):
            seeds = [run.seed for run in of_row if any(each.name == name for each in run.violations)]
            cells.append(TableCell(row.name, name, name in row.ticks, len(seeds), min(seeds, default=None)))
    return Table(len(by_protocol[ROWS[0].name]), cells, mistakes, degrees)
