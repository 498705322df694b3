"""Brokers of seven that are killed while publications flow: is anything lost, doubled or reordered, and for how long?

Publishers and subscribers live in this process, brokers are processes of their own. Each publication carries its number
among its publisher's, and each subscriber knows which number it wants next, so that every mistake is seen when it
happens. Service has resumed when every subscriber has got something from every publisher again, counted from the moment
at which a neighbour noticed the failure.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.broker.replication.config import Protocol
from trimtab.language import Filter
from trimtab.network.admin.local_network import Network, ask_all
from trimtab.network.client.client import Client, RefusedError
from trimtab.network.client.subscription import Delivery
from trimtab.network.clock import now_s
from trimtab.network.failover.replication_settings import Provisioner, ReplicationSettings
from trimtab.network.network_file import NetworkOptions

TREE: Final = (("B1", "B2"), ("B1", "B3"), ("B2", "B4"), ("B2", "B5"), ("B3", "B6"), ("B3", "B7"))
BROKERS: Final = tuple(f"B{number}" for number in range(1, 8))
PUBLISHERS: Final = {"P1": "B1", "P4": "B4", "P7": "B7"}
SUBSCRIBERS: Final = {"S2": "B2", "S5": "B5", "S6": "B6", "S7": "B7"}
"""Where they are: all but B3 have a client."""

KEEPS_UP_WITHIN_S: Final = 60.0
"""Everything published must have arrived so long after the last publication, and service resume after a death."""

LOOK_AGAIN_AFTER_S: Final = 0.05

Report = Callable[[str], None]


class FailoverBench(msgspec.Struct, frozen=True):
    """What is tried."""

    kills_count: int = 20
    publications_count: int = 100_000
    """Published around each kill."""
    rate_per_s: float = 5_000.0
    """Of all publishers together."""
    seed: int = 1
    acknowledges: Acknowledges = "safe"
    protocol: Protocol = "synchronous"
    provisioner: Provisioner = "standby"
    standbys_count: int = 2
    replication: ReplicationSettings | None = None
    """Other settings than the usual ones."""
    moves_every_s: float = 0.0
    """How often one of the clients moves to another broker, publishers included; 0 if they stay."""

    def settings(self) -> ReplicationSettings:
        """How brokers are watched."""
        if self.replication is not None:
            return self.replication
        return ReplicationSettings(
            protocol=self.protocol,
            provisioner=self.provisioner,
            look_every_s=0.25,
            suspect_after_s=0.5,
            crash_after_s=0.5,
            hang_after_s=20.0,
        )


class KillFigures(msgspec.Struct, frozen=True):
    """One broker killed, and what came of it; times are seconds."""

    broker: str
    after_count: int
    """Publications published before the kill, of this round."""
    noticed_s: float
    """From the kill until a neighbour said that the broker had crashed."""
    replaced_s: float | None
    """From then until its replica knew all routes, as that neighbour saw it."""
    resumed_s: float
    """From then until every subscriber had something from every publisher again."""
    confirmed_s: float
    """From the moment at which that neighbour saw its replica know all routes until subscriptions to every publisher,
    which somebody asked for when the broker had just died, were confirmed; 0 if they were before."""
    clients_count: int
    """Clients of the broker that was killed."""


class FailoverFigures(msgspec.Struct, frozen=True):
    """What all of it came to."""

    kills: tuple[KillFigures, ...]
    publications_count: int
    deliveries_count: int
    lost_count: int
    doubled_count: int
    """Delivered twice, or after a later one of the same publisher."""
    refused_count: int
    elapsed_s: float
    publications_per_s: float
    brokers_cpu_s: float
    """Of the brokers that answer at the end, since they began."""
    moved_count: int
    stayed_count: int
    """Moves of clients that came to their end, and that did not."""
    bench: FailoverBench

    @property
    def resumed_max_s(self) -> float:
        """The longest time until service resumed."""
        return max((kill.resumed_s for kill in self.kills), default=0.0)

    @property
    def confirmed_max_s(self) -> float:
        """The longest time until subscriptions were confirmed that had to wait for a replica."""
        return max((kill.confirmed_s for kill in self.kills), default=0.0)

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost, doubled or reordered."""
        return self.lost_count == self.doubled_count == self.refused_count == 0


class _Subscriber:
    """Knows which number of each publisher comes next."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.next_numbers: dict[str, int] = dict.fromkeys(PUBLISHERS, 0)
        self.deliveries_count = 0
        self.lost_count = 0
        self.doubled_count = 0
        self.awaited: dict[str, None] = {}
        """Publishers of whom something must come before service has resumed here."""

    def take(self, delivery: Delivery) -> None:
        """A publication came."""
        publisher, number = delivery.publisher, delivery.publication["n"]
        assert isinstance(number, int)
        wanted = self.next_numbers[publisher]
        self.deliveries_count += 1
        if number < wanted:
            self.doubled_count += 1
            return
        self.lost_count += number - wanted
        self.next_numbers[publisher] = number + 1
        if self.awaited:
            self.awaited.pop(publisher, None)


class FailoverRun:
    """The network, its clients, and one who kills."""

    def __init__(self, bench: FailoverBench, network: Network, report: Report) -> None:
        self._bench = bench
        self._network = network
        self._report = report
        self._rng = random.Random(bench.seed)
        self._published: dict[str, int] = dict.fromkeys(PUBLISHERS, 0)
        self._subscribers = {name: _Subscriber(name) for name in SUBSCRIBERS}
        self._is_replacing = False
        self._clients: list[Client] = []
        self._moved_count = 0
        self._stayed_count = 0

    @property
    def _published_count(self) -> int:
        return sum(self._published.values())

    async def run(self) -> FailoverFigures:
        """All rounds; each has its publications and one kill."""
        began_s = now_s()
        bench = self._bench
        publishers = {
            name: await Client.connect(self._network.address(at), name, publish_window_count=2_000)
            for name, at in PUBLISHERS.items()
        }
        for name, client in publishers.items():
            await client.advertise(Filter.parse(f"p = '{name}' AND n >= 0"))
        subscribers = [await Client.connect(self._network.address(at), name) for name, at in SUBSCRIBERS.items()]
        for client in subscribers:
            await client.subscribe(Filter.parse("n >= 0"), callback=self._subscribers[client.name].take)
        self._clients = [*publishers.values(), *subscribers]
        total_count = bench.publications_count * max(1, bench.kills_count)
        moving = asyncio.create_task(self._move())
        publishing = [asyncio.create_task(self._publish(client, total_count)) for client in publishers.values()]
        working = [moving, *publishing]
        kills: list[KillFigures] = []
        try:
            for round_number in range(bench.kills_count):
                share = self._rng.uniform(0.1, 0.8)
                after_count = int(bench.publications_count * (round_number + share))
                await self._until(lambda: self._published_count >= after_count, working, "publications")  # noqa: B023
                self._is_replacing = True
                await self._until_all_stand_by(working)
                kills.append(await self._kill(after_count - round_number * bench.publications_count, working))
                self._is_replacing = False
                self._report(f"{round_number + 1} of {bench.kills_count}: {_line(kills[-1])}")
            await asyncio.gather(*publishing)
            moving.cancel()
            for client in publishers.values():
                await asyncio.wait_for(client.drain(), KEEPS_UP_WITHIN_S)
            await self._until_all_has_arrived()
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
        elapsed_s = now_s() - began_s
        statuses = await ask_all(self._network.plan)
        cpu_s = sum(status.cpu_s for status in statuses.values() if status is not None)
        refused_count = sum(len(client.refused) for client in publishers.values())
        for client in (*publishers.values(), *subscribers):
            await client.close()
        return self._figures(kills, refused_count, elapsed_s, cpu_s)

    def _figures(self, kills: list[KillFigures], refused_count: int, elapsed_s: float, cpu_s: float) -> FailoverFigures:
        found = self._subscribers.values()
        missing_count = sum(
            count - subscriber.next_numbers[name] for subscriber in found for name, count in self._published.items()
        )
        return FailoverFigures(
            kills=tuple(kills),
            publications_count=self._published_count,
            deliveries_count=sum(subscriber.deliveries_count for subscriber in found),
            lost_count=sum(subscriber.lost_count for subscriber in found) + missing_count,
            doubled_count=sum(subscriber.doubled_count for subscriber in found),
            refused_count=refused_count,
            elapsed_s=elapsed_s,
            publications_per_s=self._published_count / elapsed_s,
            brokers_cpu_s=cpu_s,
            moved_count=self._moved_count,
            stayed_count=self._stayed_count,
            bench=self._bench,
        )

    async def _publish(self, client: Client, total_count: int) -> None:
        """Publish at a steady rate, as far as the network takes it, until all together have published enough."""
        interval_s = len(PUBLISHERS) / self._bench.rate_per_s
        began_s, name = now_s(), client.name
        number = 0
        while self._published_count < total_count or self._is_replacing:
            wait_s = began_s + number * interval_s - now_s()
            if wait_s > 0.01:
                await asyncio.sleep(wait_s)
            elif wait_s < -1.0:
                began_s -= wait_s  # the network was slower: what was missed is not made up for in one burst
            await client.publish({"p": name, "n": number})
            number += 1
            self._published[name] = number

    async def _move(self) -> None:
        """Let one client after the other go to another broker, wherever it is and whatever happens there."""
        while self._bench.moves_every_s:
            await asyncio.sleep(self._bench.moves_every_s)
            client = self._rng.choice(self._clients)
            broker = self._rng.choice([name for name in BROKERS if name != client.broker])
            try:
                await client.move(broker, self._network.address(broker))
            except RefusedError:
                self._stayed_count += 1
            else:
                self._moved_count += 1

    async def _kill(self, after_count: int, working: list[asyncio.Task[Any]]) -> KillFigures:
        network, plan = self._network, self._network.plan
        broker = self._rng.choice(BROKERS)
        clients_count = sum(client.broker == broker for client in self._clients)
        killed_s = now_s()
        os.kill(network.pid(broker), signal.SIGKILL)
        asking = asyncio.create_task(self._ask(broker))
        working = [*working, asking]
        noticed_s, replaced_s = 0.0, None
        for subscriber in self._subscribers.values():
            subscriber.awaited = {}
        while not noticed_s:
            self._check(working, killed_s, f"{broker} was killed and nobody noticed it")
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
            noticed_s, replaced_s = self._noticed(await ask_all(plan), broker, killed_s)
        for subscriber in self._subscribers.values():
            subscriber.awaited = dict.fromkeys(PUBLISHERS)
        while any(subscriber.awaited for subscriber in self._subscribers.values()):
            waiting = [f"{each.name} from {name}" for each in self._subscribers.values() for name in each.awaited]
            self._check(working, killed_s, f"{broker} was killed, and service has not resumed: {', '.join(waiting)}")
            await asyncio.sleep(0.005)
        resumed_s = now_s()
        while True:
            statuses = await ask_all(plan)
            network.look_for_replicas(statuses)
            replaced_s = self._noticed(statuses, broker, killed_s)[1]
            if replaced_s is not None:
                break
            self._check(working, killed_s, f"{broker} was killed and not replaced")
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        while not asking.done():
            self._check(working, killed_s, f"{broker} was killed, and new subscriptions are not confirmed")
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        return KillFigures(
            broker=broker,
            after_count=after_count,
            noticed_s=noticed_s - killed_s,
            replaced_s=replaced_s - noticed_s,
            resumed_s=resumed_s - noticed_s,
            confirmed_s=max(0.0, asking.result() - replaced_s),
            clients_count=clients_count,
        )

    async def _ask(self, dead: str) -> float:
        """Come to a broker that lives and subscribe to what every publisher has announced; returns when all knew."""
        broker = self._rng.choice([name for name in BROKERS if name != dead])
        async with await Client.connect(self._network.address(broker), f"Q{self._published_count}") as client:
            for name in PUBLISHERS:
                await client.subscribe(Filter.parse(f"p = '{name}' AND n = 0"))  # only the first one would match
            return now_s()

    def _noticed(self, statuses: object, broker: str, killed_s: float) -> tuple[float, float | None]:
        """When somebody noticed a death, 0 if nobody has, and when that one saw it replaced."""
        assert isinstance(statuses, dict)
        found = [
            failure
            for status in statuses.values()
            for failure in (status.failures if status is not None else ())
            if failure.broker == broker and failure.noticed_s >= killed_s
        ]
        if not found:
            return 0.0, None
        first = min(found, key=lambda failure: failure.noticed_s)
        return first.noticed_s, first.replaced_s

    def _check(self, working: list[asyncio.Task[Any]], since_s: float, what: str) -> None:
        for task in working:
            if task.done() and task.exception() is not None:
                task.result()
        if now_s() - since_s > KEEPS_UP_WITHIN_S:
            raise TimeoutError(f"after {KEEPS_UP_WITHIN_S:g} s: {what}")

    async def _until(self, is_so: Callable[[], bool], working: list[asyncio.Task[Any]], what: str) -> None:
        since_s, last_count = now_s(), -1
        while not is_so():
            if self._published_count != last_count:
                since_s, last_count = now_s(), self._published_count
            self._check(working, since_s, f"no more {what}")
            await asyncio.sleep(0.002)

    async def _until_all_stand_by(self, working: list[asyncio.Task[Any]]) -> None:
        """Wait until all brokers answer and all who stand by are there: one failure at a time."""
        since_s = now_s()
        while True:
            statuses = await ask_all(self._network.plan)
            self._network.look_for_replicas(statuses)
            self._network.refill_standbys()
            if all(statuses.values()) and self._network.all_stand_by():
                return
            self._check(working, since_s, "not all brokers and those who stand by are there")
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)

    async def _until_all_has_arrived(self) -> None:
        ends_s = now_s() + KEEPS_UP_WITHIN_S
        while now_s() < ends_s:
            if all(each.next_numbers == self._published for each in self._subscribers.values()):
                break
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        await asyncio.sleep(0.2)  # what comes twice would come now


def _line(kill: KillFigures) -> str:
    return f"{kill.broker} noticed after {kill.noticed_s:.2f} s, resumed {kill.resumed_s:.2f} s later"


def network_of(bench: FailoverBench, folder: str) -> Network:
    """The seven brokers, not started yet; what is durable goes to a folder."""
    standbys_count = bench.standbys_count if bench.provisioner == "standby" else 0
    is_durable = bench.acknowledges == "durable"
    options = NetworkOptions(acknowledges=bench.acknowledges, disk=folder if is_durable else "")
    return Network.of(BROKERS, TREE, options, replication=bench.settings(), standbys_count=standbys_count)


def run_failover_bench(bench: FailoverBench, report: Report) -> FailoverFigures:
    """Start the network, kill brokers, and tell what came of it."""
    from trimtab.network.loops import run

    async def work(network: Network) -> FailoverFigures:
        return await FailoverRun(bench, network, report).run()

    report("starting seven brokers")
    with TemporaryDirectory(prefix="trimtab-") as folder, network_of(bench, folder) as network:
        return run(work(network))
