"""The emergency application end to end: real Spark, real brokers, moving subscribers, every notification accounted for.

A tick is ten seconds of the paper's time: who joins subscribes, people's places are told, reports are fed, and the tick
ends when every channel has seen them. What clients get is compared with `emergency.found_by`, which knows nothing of
the engine. Between ticks the coordinator places and moves clients by what it is told of rates; moves go on while
notifications flow.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final
from urllib.request import Request, urlopen

import msgspec

from trimtab.balancing.multistage.config import Balancing, CoordinatorConfig, Placement
from trimtab.balancing.multistage.coordinator import (
    BrokerTold,
    ClientAsks,
    ClientTold,
    Coordinator,
    MoveEnded,
    OrderMove,
    Placed,
    Woken,
)
from trimtab.lab.emergency import TICK_S, EmergencyWorld, Person, Wanted, arguments_of, found_by
from trimtab.network.client import Client, ClientError, Delivery
from trimtab.network.local_network import Network, free_ports
from trimtab.network.loops import run
from trimtab.network.network_file import NetworkOptions
from trimtab.protocol.channels import stream_name

READY_WITHIN_S: Final = 120.0
SEEN_WITHIN_S: Final = 120.0
"""All channels have seen a tick's reports by then, and all clients have been told."""

BROKERS_COUNT: Final = 5
REPORT_BYTES: Final = 450
"""The middle of 200 to 700 bytes."""

ROUND_EVERY_TICKS: Final = 6
"""The coordinator looks at the load every minute of the paper's time."""


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
    """A person's client, what it was told, and what it must be told."""

    def __init__(self, person: Person, traffic: _Traffic) -> None:
        self.person = person
        self._traffic = traffic
        self.client: Client | None = None
        self.got: dict[Wanted, Counter[str]] = {}
        self.expected: dict[Wanted, Counter[str]] = {}
        self.latencies_s: list[float] = []
        self.out_of_order_count = 0
        self._last: dict[Wanted, int] = {}

    async def join(self, address: str) -> None:
        self.client = await Client.connect(address, self.person.name)
        for wanted in self.person.wants:
            self.got[wanted], self.expected[wanted] = Counter(), Counter()
            await self.client.subscribe_channel(wanted[0], arguments_of(wanted), callback=self._taker(wanted))

    def _taker(self, wanted: Wanted) -> Callable[[Delivery], None]:
        def take(delivery: Delivery) -> None:
            assert self.client is not None
            self.got[wanted][str(delivery.publication["reportId"])] += 1
            self.out_of_order_count += delivery.sequence <= self._last.get(wanted, 0)
            self._last[wanted] = delivery.sequence
            self.latencies_s.append(delivery.delay_s)
            self._traffic.add(self.client.broker, delivery)

        return take

    @property
    def waits(self) -> bool:
        """Whether something that it must be told has not come."""
        return any(sum(self.got[wanted].values()) < sum(self.expected[wanted].values()) for wanted in self.expected)


class _BackEnd:
    """The active-data process."""

    def __init__(self, directory: Path, spark: str | None) -> None:
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "trimtab", "active", "start", "--dir", str(directory)]
        command += ["--listen", f"127.0.0.1:{port}"]
        self._process = subprocess.Popen(
            [*command, *(["--spark", spark] if spark else [])], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            raise RuntimeError("the active-data process did not start")
        self.url = line.split()[1]

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        content = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        request = Request(f"{self.url}{path}", content, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=READY_WITHIN_S) as answer:
            said: dict[str, Any] = json.load(answer)
            return said

    def feed(self, name: str, records: list[dict[str, Any]]) -> None:
        if not records:
            return
        said = self.ask("POST", f"/feeds/{name}", b"\n".join(msgspec.json.encode(each) for each in records))
        if said["rejected"]:
            raise RuntimeError(f"{said['rejected']} records were rejected by {name}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=30)


def statements(speed: float) -> str:
    """The definitions, with periods in the time of the run."""
    text = files("trimtab.lab").joinpath("emergency.sql").read_text(encoding="utf-8")
    return re.sub(r"PERIOD (\d+) SECONDS", lambda found: f"PERIOD {float(found[1]) / speed:.3f} SECONDS", text)


def run_emergency(
    options: EmergencyOptions, on_tick: Callable[[int, int], None] = lambda tick, count: None
) -> EmergencySummary:
    """Run it to the end and account for every notification."""
    world = EmergencyWorld(options.seed, people_count=options.people_count, run_s=options.minutes * 60)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        back_end = _BackEnd(Path(directory), options.spark)
        stack.callback(back_end.stop)
        back_end.ask("POST", "/statements", {"text": statements(options.speed)})
        names = [f"B{number}" for number in range(1, BROKERS_COUNT + 1)]
        links = [("B1", name) for name in names[1:]]
        network = stack.enter_context(Network.of(names, links, NetworkOptions(back_end=back_end.url)))
        return run(_all(options, world, back_end, network, on_tick))


async def _all(
    options: EmergencyOptions,
    world: EmergencyWorld,
    back_end: _BackEnd,
    network: Network,
    on_tick: Callable[[int, int], None],
) -> EmergencySummary:
    running = _Run(options, world, back_end, network)
    try:
        return await running.all_ticks(on_tick)
    finally:
        await running.close()


class _Run:
    def __init__(self, options: EmergencyOptions, world: EmergencyWorld, back_end: _BackEnd, network: Network) -> None:
        self._options = options
        self._world = world
        self._back_end = back_end
        self._network = network
        self._traffic = _Traffic()
        self._subscribers = {person.name: _Subscriber(person, self._traffic) for person in world.people}
        self._joined: dict[str, _Subscriber] = {}
        config = CoordinatorConfig(
            placement=options.placement, policy=options.policy, round_every_s=ROUND_EVERY_TICKS * TICK_S
        )
        self._coordinator = Coordinator(config, Random(f"emergency coordinator {options.seed}"))
        self._coordinator.start(0.0)
        self._sites = dict(zip(self._brokers, world.sites(BROKERS_COUNT, options.seed), strict=True))
        self._moving: set[asyncio.Task[None]] = set()
        self._moves_count = 0

    @property
    def _brokers(self) -> list[str]:
        return [broker.name for broker in self._network.plan.brokers]

    async def all_ticks(self, on_tick: Callable[[int, int], None]) -> EmergencySummary:
        began_s = time.monotonic()
        shelters = [msgspec.to_builtins(each) for each in self._world.shelters]
        await asyncio.to_thread(self._back_end.feed, "shelters", shelters)
        for tick in range(self._world.ticks_count):
            self._traffic.is_counted = 3 * tick >= 2 * self._world.ticks_count
            tick_ends_s = time.monotonic() + TICK_S / self._options.speed
            await self._tick(tick)
            on_tick(tick + 1, self._world.ticks_count)
            await asyncio.sleep(max(0.0, tick_ends_s - time.monotonic()))
        await asyncio.gather(*self._moving)
        await self._wait(lambda: not any(each.waits for each in self._joined.values()))
        return self._summary(time.monotonic() - began_s)

    async def _tick(self, tick: int) -> None:
        now_s = tick * TICK_S
        places = self._world.places(tick)
        self._tell_coordinator(now_s)
        for subscriber in self._subscribers.values():
            if subscriber.person.joins_tick == tick:
                await self._join(subscriber, places[subscriber.person.name], now_s)
        people = [{"userId": name, "x": x, "y": y} for name, (x, y) in places.items()]
        await asyncio.to_thread(self._back_end.feed, "locations", people)
        reports = self._world.reports(tick)
        for subscriber in self._joined.values():
            for wanted in subscriber.person.wants:
                subscriber.expected[wanted].update(found_by(wanted, reports, places))
        await asyncio.to_thread(self._back_end.feed, "reports", [msgspec.to_builtins(each) for each in reports])
        if tick % ROUND_EVERY_TICKS == 0 and tick:
            self._balance(now_s)
        await self._wait(self._all_seen)

    async def _wait(self, is_so: Callable[[], Any]) -> None:
        ends_s = time.monotonic() + SEEN_WITHIN_S
        while time.monotonic() < ends_s:
            if await asyncio.to_thread(is_so):
                return
            await asyncio.sleep(0.02)

    def _all_seen(self) -> bool:
        channels = self._back_end.ask("GET", "/status")["channels"]
        return not any(each["behind_count"] for each in channels)

    # ---- placing and moving ----

    async def _join(self, subscriber: _Subscriber, place: tuple[float, float], now_s: float) -> None:
        (placed,) = self._coordinator.handle(ClientAsks(subscriber.person.name, place), now_s)
        assert isinstance(placed, Placed) and placed.broker is not None, placed
        await subscriber.join(placed.address)
        self._joined[subscriber.person.name] = subscriber

    def _tell_coordinator(self, now_s: float) -> None:
        """Report for the brokers: who is where, and what each stream brought per second so far."""
        elapsed_s = max(now_s, TICK_S)
        rates = {name: size_bytes / elapsed_s for name, size_bytes in self._stream_bytes().items()}
        for broker in self._brokers:
            clients = tuple(
                ClientTold(name, tuple(_stream(wanted) for wanted in each.person.wants))
                for name, each in self._joined.items()
                if each.client is not None and each.client.broker == broker
            )
            told = BrokerTold(
                broker=broker,
                is_whole=True,
                clients=clients,
                rates_bytes_per_s=rates,
                site=self._sites[broker],
                address=self._network.address(broker),
            )
            self._coordinator.handle(told, now_s)

    def _stream_bytes(self) -> Counter[str]:
        """What each stream brought to one subscriber that had it the whole time, at most."""
        largest: Counter[str] = Counter()
        for each in self._joined.values():
            for wanted, got in each.got.items():
                name = _stream(wanted)
                largest[name] = max(largest[name], sum(got.values()) * REPORT_BYTES)
        return largest

    def _balance(self, now_s: float) -> None:
        for effect in self._coordinator.handle(Woken(), now_s):
            if isinstance(effect, OrderMove):
                task = asyncio.get_running_loop().create_task(self._move(effect, now_s))
                self._moving.add(task)
                task.add_done_callback(self._moving.discard)

    async def _move(self, order: OrderMove, now_s: float) -> None:
        client = self._joined[order.client].client
        assert client is not None
        is_moved = True
        try:
            await client.move(order.to_broker, self._network.address(order.to_broker))
            self._moves_count += 1
        except ClientError:
            is_moved = False
        for effect in self._coordinator.handle(MoveEnded(order.client, order.cause, is_moved), now_s):
            if isinstance(effect, OrderMove):
                await self._move(effect, now_s)

    async def close(self) -> None:
        """Everybody leaves."""
        clients = [each.client for each in self._joined.values() if each.client is not None]
        await asyncio.gather(*(client.close() for client in clients))

    # ---- what came of it ----

    def _summary(self, real_s: float) -> EmergencySummary:
        people = list(self._joined.values())
        pairs = [(each.expected[wanted], each.got[wanted]) for each in people for wanted in each.person.wants]
        latencies_s = sorted(latency_s for each in people for latency_s in each.latencies_s)
        loads = self._loads()
        totals = [load.input_bytes + load.output_bytes for load in loads.values()]
        mean = sum(totals) / len(totals)
        deviation = (sum((total - mean) ** 2 for total in totals) / len(totals)) ** 0.5
        return EmergencySummary(
            seed=self._options.seed,
            placement=self._options.placement,
            policy=self._options.policy,
            ticks_count=self._world.ticks_count,
            real_s=real_s,
            reports_count=sum(len(self._world.reports(tick)) for tick in range(self._world.ticks_count)),
            front_end_count=sum(len(each.person.wants) for each in people),
            back_end_count=len({wanted for each in people for wanted in each.person.wants}),
            notifications_count=sum(sum(got.values()) for _, got in pairs),
            expected_count=sum(sum(expected.values()) for expected, _ in pairs),
            missing_count=sum(len(set(expected) - set(got)) for expected, got in pairs),
            twice_count=sum(count - 1 for _, got in pairs for count in got.values()),
            wrong_count=sum(len(set(got) - set(expected)) for expected, got in pairs),
            out_of_order_count=sum(each.out_of_order_count for each in people),
            moves=self._moves_count,
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


def _stream(wanted: Wanted) -> str:
    return stream_name(wanted[0], arguments_of(wanted))


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def lines(summary: EmergencySummary) -> Iterator[str]:
    """The summary for people."""
    yield f"{summary.reports_count:,} reports in {summary.ticks_count} ticks, {summary.real_s:.0f} s"
    yield f"{summary.front_end_count:,} front-end and {summary.back_end_count:,} back-end subscriptions"
    yield (
        f"{summary.notifications_count:,} of {summary.expected_count:,} notifications: "
        f"{summary.missing_count} missing, {summary.twice_count} twice, {summary.wrong_count} wrong, "
        f"{summary.out_of_order_count} out of order"
    )
    yield f"{summary.moves:,} moves, largest load {summary.max_load:,.0f} bytes, variation {summary.cov:.3f}"
