"""A rolling restart of seven brokers while publications flow: is anything lost, and how long does a delivery take?

Publishers and subscribers live in this process, brokers are processes of their own. A delivery's delay counts from the
moment at which its publication was due, so that what a publisher had to wait for its broker counts as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Final, Literal

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.lab.bench.failover import BROKERS, KEEPS_UP_WITHIN_S, LOOK_AGAIN_AFTER_S, PUBLISHERS, TREE
from trimtab.language import Filter
from trimtab.network.admin.local_network import Network, plan_text
from trimtab.network.admin.rolling_restart import restart_broker
from trimtab.network.client.client import Client
from trimtab.network.client.subscription import Delivery
from trimtab.network.clock import now_s
from trimtab.network.network_file import NetworkOptions

SUBSCRIBERS: Final = {f"S{name.removeprefix('B')}": name for name in BROKERS}
"""One at each broker."""

RESTARTED_WITHIN_S: Final = 60.0

Report = Callable[[str], None]


class RestartBench(msgspec.Struct, frozen=True):
    """What is tried."""

    rate_per_s: float = 1_000.0
    """Of all publishers together."""
    acknowledges: Acknowledges = "safe"
    by: Literal["command", "signal"] = "command"
    """command: as `trimtab restart` does, in the process; signal: each process is ended (SIGTERM) and another one
    started, as a supervisor does, or as when the program on the disk has changed."""
    rest_s: float = 1.0
    """Between two restarts, and before the first and after the last."""


class BrokerRestart(msgspec.Struct, frozen=True):
    """One broker that began again."""

    broker: str
    took_s: float
    """Until it was healthy."""
    delay_max_s: float
    """The longest delay of a delivery from its beginning until the next restart."""


class RestartFigures(msgspec.Struct, frozen=True):
    """What came of it."""

    restarts: tuple[BrokerRestart, ...]
    publications_count: int
    deliveries_count: int
    lost_count: int
    doubled_count: int
    """Delivered twice, or after a later one of the same publisher."""
    refused_count: int
    elapsed_s: float
    publications_per_s: float
    delay_median_s: float
    delay_max_s: float
    bench: RestartBench

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost, doubled or reordered."""
        return self.lost_count == self.doubled_count == self.refused_count == 0


class _Subscriber:
    """Knows which number of each publisher comes next, and how late it came."""

    def __init__(self) -> None:
        self.next_numbers: dict[str, int] = dict.fromkeys(PUBLISHERS, 0)
        self.delays_s: list[float] = []
        self.lost_count = 0
        self.doubled_count = 0
        self.delay_max_s = 0.0
        """Since the last restart began."""

    def take(self, delivery: Delivery) -> None:
        """A publication came."""
        values = delivery.publication
        number, due_s = values["n"], values["due_s"]
        assert isinstance(number, int)
        assert isinstance(due_s, float)
        wanted = self.next_numbers[delivery.publisher]
        if number < wanted:
            self.doubled_count += 1
            return
        delay_s = now_s() - due_s
        self.delays_s.append(delay_s)
        self.delay_max_s = max(self.delay_max_s, delay_s)
        self.lost_count += number - wanted
        self.next_numbers[delivery.publisher] = number + 1


class RestartRun:
    """The network, its clients, and the operator."""

    def __init__(self, bench: RestartBench, network: Network, report: Report) -> None:
        self._bench = bench
        self._network = network
        self._report = report
        self._published: dict[str, int] = dict.fromkeys(PUBLISHERS, 0)
        self._subscribers = {name: _Subscriber() for name in SUBSCRIBERS}
        self._stop = asyncio.Event()

    async def run(self) -> RestartFigures:
        """Let each broker begin again while publications flow."""
        bench, network = self._bench, self._network
        publishers = {name: await Client.connect(network.address(at), name) for name, at in PUBLISHERS.items()}
        for name, client in publishers.items():
            await client.advertise(Filter.parse(f"p = '{name}' AND n >= 0 AND due_s >= 0.0"))
        subscribers = [await Client.connect(network.address(at), name) for name, at in SUBSCRIBERS.items()]
        for client in subscribers:
            await client.subscribe(Filter.parse("n >= 0"), callback=self._subscribers[client.name].take)
        began_s = now_s()
        publishing = [asyncio.create_task(self._publish(client)) for client in publishers.values()]
        try:
            await asyncio.sleep(bench.rest_s)
            restarts = [await self._restart(name) for name in BROKERS]
            self._stop.set()
            await asyncio.gather(*publishing)
            elapsed_s = now_s() - began_s
            for client in publishers.values():
                await asyncio.wait_for(client.drain(), KEEPS_UP_WITHIN_S)
            await self._until_all_has_arrived()
        finally:
            self._stop.set()
            for task in publishing:
                task.cancel()
            await asyncio.gather(*publishing, return_exceptions=True)
        refused_count = sum(len(client.refused) for client in publishers.values())
        for client in (*publishers.values(), *subscribers):
            await client.close()
        return self._figures(restarts, refused_count, elapsed_s)

    async def _restart(self, name: str) -> BrokerRestart:
        for subscriber in self._subscribers.values():
            subscriber.delay_max_s = 0.0
        took_s = await self._begin_again(name)
        await asyncio.sleep(self._bench.rest_s)
        delay_max_s = max(subscriber.delay_max_s for subscriber in self._subscribers.values())
        self._report(f"{name} began again after {took_s:.2f} s")
        return BrokerRestart(name, took_s, delay_max_s)

    async def _begin_again(self, name: str) -> float:
        network, began_s = self._network, now_s()
        if self._bench.by == "command":
            return await restart_broker(network.plan, name, RESTARTED_WITHIN_S)
        await asyncio.to_thread(network.stop_broker, name)
        network.start_broker(name)
        await asyncio.to_thread(network.wait_until_ready)
        return now_s() - began_s

    async def _publish(self, client: Client) -> None:
        """Publish at a steady rate; what the network did not take in time is late, and counts as that."""
        interval_s = len(PUBLISHERS) / self._bench.rate_per_s
        began_s, name = now_s(), client.name
        number = 0
        while not self._stop.is_set():
            due_s = began_s + number * interval_s
            wait_s = due_s - now_s()
            if wait_s > 0.002:
                await asyncio.sleep(wait_s)
            await client.publish({"p": name, "n": number, "due_s": due_s})
            number += 1
            self._published[name] = number

    async def _until_all_has_arrived(self) -> None:
        ends_s = now_s() + KEEPS_UP_WITHIN_S
        while now_s() < ends_s:
            if all(each.next_numbers == self._published for each in self._subscribers.values()):
                break
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        await asyncio.sleep(0.2)  # what comes twice would come now

    def _figures(self, restarts: list[BrokerRestart], refused_count: int, elapsed_s: float) -> RestartFigures:
        found = self._subscribers.values()
        delays_s = sorted(delay_s for each in found for delay_s in each.delays_s)
        missing_count = sum(
            count - each.next_numbers[name] for each in found for name, count in self._published.items()
        )
        count = sum(self._published.values())
        return RestartFigures(
            restarts=tuple(restarts),
            publications_count=count,
            deliveries_count=len(delays_s),
            lost_count=sum(each.lost_count for each in found) + missing_count,
            doubled_count=sum(each.doubled_count for each in found),
            refused_count=refused_count,
            elapsed_s=elapsed_s,
            publications_per_s=count / elapsed_s,
            delay_median_s=delays_s[len(delays_s) // 2] if delays_s else 0.0,
            delay_max_s=delays_s[-1] if delays_s else 0.0,
            bench=self._bench,
        )


def run_restart_bench(bench: RestartBench, report: Report) -> RestartFigures:
    """Start the network, let all brokers begin again, and tell what came of it."""
    from pathlib import Path

    from trimtab.network.loops import run

    async def work(network: Network) -> RestartFigures:
        return await RestartRun(bench, network, report).run()

    report("starting seven brokers")
    with TemporaryDirectory(prefix="trimtab-") as folder:
        disk = str(Path(folder, "disk")) if bench.acknowledges == "durable" else ""
        options = NetworkOptions(acknowledges=bench.acknowledges, disk=disk)
        file = Path(folder, "network.toml")
        file.write_text(plan_text(Network.of(BROKERS, TREE, options).plan), encoding="utf-8")
        with Network.from_file(file) as network:
            return run(work(network))
