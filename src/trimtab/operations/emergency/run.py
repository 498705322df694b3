"""The emergency application end to end: real Spark, real brokers, moving subscribers, every notification accounted for.

A tick is ten seconds of the paper's time: who joins subscribes, people's places are told, reports are fed, and the tick
ends when every channel has seen them. What clients get is compared with `emergency.found_by`, which knows nothing of
the engine. A coordinator places the clients, and moves them by the rates that brokers measure, while notifications
flow.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec

from trimtab.activedata.spark.cluster import SparkCluster, spark_cluster
from trimtab.network.admin.local_network import Network, free_ports, plan_text
from trimtab.network.client.client import Client
from trimtab.network.client.subscription import Delivery
from trimtab.network.links.address import Address
from trimtab.network.loops import run
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan
from trimtab.operations.emergency.application import TICK_S, EmergencyWorld, Person, Report, definitions_at_speed
from trimtab.operations.emergency.channel_account import ChannelAccount, added
from trimtab.operations.own_process import ActiveProcess, OwnProcess
from trimtab.policies.multistage.config import Balancing, Placement
from trimtab.policies.registry import PolicyChoice
from trimtab.simulation.workloads.city import Point
from trimtab.simulation.workloads.emergency import Wanted

SEEN_WITHIN_S: Final = 600.0
"""All channels have seen a tick's reports by then."""

COME_WITHIN_S: Final = 120.0
"""What has not come to its subscriber so long after the last tick is missing."""

BROKERS_COUNT: Final = 5
REPORTS_AWAITED_COUNT: Final = 3
"""The coordinator has heard of every broker after so many times of reporting; then subscribers come."""

ROUND_EVERY_S: Final = 60.0
"""The coordinator looks at the load every minute of the paper's time."""


class EmergencyError(RuntimeError):
    """The run cannot go on; the message says why."""


class EmergencyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to run."""

    seed: int = 1
    placement: Placement = "nearest"
    policy: Balancing = "none"
    speed: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """The paper's time goes so much faster; a tick takes longer if Spark needs it."""

    people_count: int = 400
    minutes: Annotated[float, msgspec.Meta(ge=0.5)] = 30.0
    spark: str | None = None
    """A Spark master, local mode if not given."""

    workers_count: Annotated[int, msgspec.Meta(ge=0)] = 0
    """A standalone Spark with so many workers is started on this machine for the run, and used."""

    isolates_workers: bool = False
    """Whether workers have a temporary folder of their own, in which they see the storage directory and nothing else of
    this process; one must be root for that."""

    kills_worker: bool = False
    """Whether a worker is killed half way, while it works on a tick's reports."""

    def __post_init__(self) -> None:
        if self.workers_count and self.spark:
            raise ValueError("a Spark of its own, or the one at an address, not both")
        if self.isolates_workers and not self.workers_count:
            raise ValueError("workers that are isolated are those of --workers N, and there are none")
        if self.kills_worker and self.workers_count < 2:
            raise ValueError("a worker is killed only where there is another one (--workers 2)")


class BrokerLoad(msgspec.Struct, frozen=True):
    """What one broker had to do, in bytes of notifications: fetched once, delivered to each."""

    input_bytes: int
    output_bytes: int
    clients_count: int


class EmergencySummary(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    scenario: str = "bad-emergency"
    seed: int
    placement: str
    policy: str
    spark: str
    worker_killed_tick: int | None
    """When a worker of Spark was killed."""
    ticks_count: int
    real_s: float
    reports_count: int
    front_end_count: int
    back_end_count: int
    notifications_count: int
    expected_count: int
    missing_count: int
    twice_count: int
    wrong_count: int
    out_of_order_count: int
    moves: int
    max_load: float
    cov: float
    total_load: float
    """Bytes that brokers fetched and delivered during the last third of the run."""

    loads_by_broker: dict[str, BrokerLoad]
    latency_median_s: float
    """From the execution of a channel to the subscriber."""
    latency_p99_s: float


class _Traffic:
    """What brokers fetch and deliver, while it is looked at."""

    def __init__(self) -> None:
        self.is_counted = False
        self.output_bytes: Counter[str] = Counter()
        self._input_bytes: dict[str, dict[tuple[str, int], int]] = {}

    def add(self, broker: str, delivery: Delivery) -> None:
        if not self.is_counted:
            return
        size_bytes = len(msgspec.json.encode(delivery.publication.values_by_name))
        self.output_bytes[broker] += size_bytes
        self._input_bytes.setdefault(broker, {})[delivery.publisher, delivery.sequence] = size_bytes

    def input_bytes(self, broker: str) -> int:
        """Each result counts once, however many clients of the broker get it."""
        return sum(self._input_bytes.get(broker, {}).values())


class _Subscriber:
    """A person's client and its account."""

    def __init__(self, person: Person, traffic: _Traffic) -> None:
        self.person = person
        self._traffic = traffic
        self.account = ChannelAccount(person, self._notified)
        self.client: Client | None = None

    async def join(self, coordinator: Address, place: Point) -> None:
        self.client = await Client.connect_through(coordinator, self.person.name, site=place)
        await self.account.subscribe(self.client)

    def _notified(self, wanted: Wanted, delivery: Delivery) -> None:
        assert self.client is not None
        self._traffic.add(self.client.broker, delivery)


def run_emergency(
    options: EmergencyOptions, on_tick: Callable[[int, int], None] = lambda tick, count: None
) -> EmergencySummary:
    """Run it to the end and account for every notification."""
    world = EmergencyWorld(options.seed, people_count=options.people_count, run_s=options.minutes * 60)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        cluster = None
        storage = Path(directory) / "active"
        if options.workers_count:
            storage.mkdir()
            shares = [storage] if options.isolates_workers else None
            cluster = stack.enter_context(spark_cluster(Path(directory), options.workers_count, shares=shares))
        back_end = ActiveProcess(storage, options.spark if cluster is None else cluster.master)
        stack.callback(back_end.stop)
        back_end.wait_until_ready()
        back_end.run(definitions_at_speed(options.speed))
        plan = _plan(world, options.seed, back_end.url)
        file = Path(directory) / "network.toml"
        file.write_text(plan_text(plan), encoding="utf-8")
        network = stack.enter_context(Network(plan, file))
        coordinator = Address("127.0.0.1", free_ports(1)[0])
        process = OwnProcess(
            *("coordinator", str(file), "--listen", str(coordinator), "--quiet", "--stop-with-parent"),
            *("--placement", options.placement, "--policy", options.policy),
            *("--round-every", f"{ROUND_EVERY_S / options.speed}", "--report-every", f"{TICK_S / options.speed}"),
        )
        stack.callback(process.stop)
        process.wait_until_ready()
        running = _Run(options, world, back_end, network, coordinator, cluster)
        return run(_all(running, on_tick))


def _plan(world: EmergencyWorld, seed: int, back_end_url: str) -> NetworkPlan:
    """Brokers that stand about the city, all linked to the first."""
    ports = free_ports(BROKERS_COUNT)
    brokers = tuple(
        BrokerEntry(f"B{number}", Address("127.0.0.1", port), site=site)
        for number, (port, site) in enumerate(zip(ports, world.sites(BROKERS_COUNT, seed), strict=True), 1)
    )
    links = tuple(LinkEntry("B1", entry.name) for entry in brokers[1:])
    return NetworkPlan(brokers, links, NetworkOptions(back_end=back_end_url), PolicyChoice("coordinated"))


async def _all(running: _Run, on_tick: Callable[[int, int], None]) -> EmergencySummary:
    try:
        return await running.all_ticks(on_tick)
    finally:
        await running.close()


class _Run:
    def __init__(  # noqa: PLR0917 (parts of a run)
        self,
        options: EmergencyOptions,
        world: EmergencyWorld,
        back_end: ActiveProcess,
        network: Network,
        coordinator: Address,
        cluster: SparkCluster | None,
    ) -> None:
        self._options = options
        self._world = world
        self._back_end = back_end
        self._network = network
        self._traffic = _Traffic()
        self._subscribers = {person.name: _Subscriber(person, self._traffic) for person in world.people}
        self._joined: dict[str, _Subscriber] = {}
        self._before: tuple[list[Report], dict[str, Point]] = ([], {})
        """The reports and places of the tick before."""
        self._coordinator = coordinator
        self._cluster = cluster
        self._killed_tick: int | None = None

    @property
    def _brokers(self) -> list[str]:
        return [broker.name for broker in self._network.plan.brokers]

    async def all_ticks(self, on_tick: Callable[[int, int], None]) -> EmergencySummary:
        began_s = time.monotonic()
        await asyncio.sleep(1.0 + REPORTS_AWAITED_COUNT * TICK_S / self._options.speed)
        shelters = [msgspec.to_builtins(each) for each in self._world.shelters]
        await asyncio.to_thread(self._back_end.feed, "shelters", shelters)
        for tick in range(self._world.ticks_count):
            self._traffic.is_counted = 3 * tick >= 2 * self._world.ticks_count
            tick_ends_s = time.monotonic() + TICK_S / self._options.speed
            await self._tick(tick)
            on_tick(tick + 1, self._world.ticks_count)
            await asyncio.sleep(max(0.0, tick_ends_s - time.monotonic()))
        await self._becomes(lambda: not any(each.account.waits for each in self._joined.values()), COME_WITHIN_S)
        return self._summary(time.monotonic() - began_s)

    async def _tick(self, tick: int) -> None:
        places = self._world.places(tick)
        for subscriber in self._subscribers.values():
            if subscriber.person.joins_tick == tick:
                await subscriber.join(self._coordinator, places[subscriber.person.name])
                subscriber.account.allow(*self._before)
                self._joined[subscriber.person.name] = subscriber
        people = [{"userId": name, "x": x, "y": y} for name, (x, y) in places.items()]
        await asyncio.to_thread(self._back_end.feed, "locations", people)
        reports = self._world.reports(tick)
        self._before = (reports, places)
        for subscriber in self._joined.values():
            subscriber.account.expect(reports, places)
        await asyncio.to_thread(self._back_end.feed, "reports", [msgspec.to_builtins(each) for each in reports])
        if self._options.kills_worker and self._cluster is not None and tick == self._world.ticks_count // 2:
            self._cluster.kill_worker(0)
            self._killed_tick = tick
        if not await self._becomes(self._all_seen):
            raise EmergencyError(f"tick {tick}: the channels have not seen its reports within {SEEN_WITHIN_S:g} s")

    async def _becomes(self, is_so: Callable[[], bool], within_s: float = SEEN_WITHIN_S) -> bool:
        """Wait until something is so; whether that happened in time."""
        ends_s = time.monotonic() + within_s
        while time.monotonic() < ends_s:
            if await asyncio.to_thread(is_so):
                return True
            await asyncio.sleep(0.02)
        return False

    def _all_seen(self) -> bool:
        return not any(each["behind_count"] for each in self._back_end.channels())

    async def close(self) -> None:
        """Everybody leaves."""
        clients = [each.client for each in self._joined.values() if each.client is not None]
        await asyncio.gather(*(client.close() for client in clients))

    # ---- what came of it ----

    def _summary(self, real_s: float) -> EmergencySummary:
        people = list(self._joined.values())
        counts = added(each.account.counts() for each in people)
        latencies_s = sorted(latency_s for each in people for latency_s in each.account.latencies_s)
        loads = self._loads()
        totals = [load.input_bytes + load.output_bytes for load in loads.values()]
        mean = sum(totals) / len(totals)
        deviation = (sum((total - mean) ** 2 for total in totals) / len(totals)) ** 0.5
        return EmergencySummary(
            seed=self._options.seed,
            placement=self._options.placement,
            policy=self._options.policy,
            spark=self._cluster.master if self._cluster is not None else self._options.spark or "local",
            worker_killed_tick=self._killed_tick,
            ticks_count=self._world.ticks_count,
            real_s=real_s,
            reports_count=sum(len(self._world.reports(tick)) for tick in range(self._world.ticks_count)),
            front_end_count=sum(len(each.person.wants) for each in people),
            back_end_count=len({wanted for each in people for wanted in each.person.wants}),
            notifications_count=counts.arrived_count,
            expected_count=counts.expected_count,
            missing_count=counts.missing_count,
            twice_count=counts.twice_count,
            wrong_count=counts.wrong_count,
            out_of_order_count=counts.out_of_order_count,
            moves=sum(each.client.moves_count for each in people if each.client is not None),
            max_load=max(totals),
            cov=deviation / mean if mean else 0.0,
            total_load=float(sum(totals)),
            loads_by_broker=loads,
            latency_median_s=_quantile(latencies_s, 0.5),
            latency_p99_s=_quantile(latencies_s, 0.99),
        )

    def _loads(self) -> dict[str, BrokerLoad]:
        loads: dict[str, BrokerLoad] = {}
        for broker in self._brokers:
            clients = [each.client for each in self._joined.values() if each.client is not None]
            clients_count = sum(client.broker == broker for client in clients)
            loads[broker] = BrokerLoad(
                self._traffic.input_bytes(broker), self._traffic.output_bytes[broker], clients_count
            )
        return loads


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def lines(summary: EmergencySummary) -> Iterator[str]:
    """The summary for people."""
    killed = "" if summary.worker_killed_tick is None else f", a worker killed in tick {summary.worker_killed_tick}"
    yield f"Spark: {summary.spark}{killed}"
    yield f"{summary.reports_count:,} reports in {summary.ticks_count} ticks, {summary.real_s:.0f} s"
    yield f"{summary.front_end_count:,} front-end and {summary.back_end_count:,} back-end subscriptions"
    yield (
        f"{summary.notifications_count:,} of {summary.expected_count:,} notifications: "
        f"{summary.missing_count} missing, {summary.twice_count} twice, {summary.wrong_count} wrong, "
        f"{summary.out_of_order_count} out of order"
    )
    yield f"{summary.moves:,} moves, largest load {summary.max_load:,.0f} bytes, variation {summary.cov:.3f}"
