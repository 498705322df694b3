"""Clients that publish, subscribe, move, come and go, and note what they see."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from trimtab.lab.bench.nemesis.cluster import Cluster
from trimtab.lab.bench.nemesis.history import Gap, History, Publications, SubscriptionHistory, Wanted
from trimtab.lab.bench.nemesis.schedule import BROKERS
from trimtab.language import Filter
from trimtab.network.client.client import Client, ClientError, RefusedError
from trimtab.network.client.subscription import Delivery

SYMBOLS: Final = ("S1", "S2", "S3", "S4", "S5")
PRICE_MAX: Final = 99
LOOK_EVERY_S: Final = 0.02
PATIENCE_S: Final = 600.0
"""A client goes on looking for its broker for so long before it begins again elsewhere."""

Clock = Callable[[], float]


class WorkloadOptions(msgspec.Struct, frozen=True):
    """Who works, and how much."""

    seed: int = 1
    rate_per_s: float = 300.0
    publishers_count: int = 6
    subscribers_count: int = 8
    passing_subscribers_count: int = 2
    """Of these so many come and go."""
    moves_every_s: float = 1.5
    stay_min_s: float = 15.0
    stay_max_s: float = 60.0
    """How long those that come and go stay."""


class _Member:
    """A client that is in the network now."""

    def __init__(self, client: Client, publications: Publications | None) -> None:
        self.client = client
        self.publications = publications
        self.subscription: SubscriptionHistory | None = None
        self.is_moving = False
        self.is_leaving = False

    @property
    def places(self) -> list[tuple[float, str]]:
        if self.publications is not None:
            return self.publications.places
        return [] if self.subscription is None else self.subscription.places

    def look(self, now_s: float) -> None:
        """Note what the client shows: how much is acknowledged, and where it is."""
        if self.publications is not None:
            count = len(self.publications.sequences) - self.client.waiting_count
            self.publications.accepted(count, now_s)
        places, broker = self.places, self.client.broker
        if broker and (not places or places[-1][1] != broker):
            places.append((round(now_s, 3), broker))


class Workload:
    """All clients, in one process."""

    def __init__(self, cluster: Cluster, history: History, options: WorkloadOptions, clock: Clock) -> None:
        self._cluster = cluster
        self._history = history
        self._options = options
        self._clock = clock
        self._rng = random.Random(f"workload {options.seed}")
        self._members: dict[str, _Member] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: list[asyncio.Task[None]] = []
        self._moving: dict[asyncio.Task[None], None] = {}
        self._is_stopping = asyncio.Event()
        self.deliveries_count = 0
        self.moved_count = 0
        self.stayed_count = 0
        """Moves that were done, and that were undone or refused."""
        self.problems: list[str] = []
        """Clients that could not go on."""

    # ---- what others ask ----

    async def begin(self) -> None:
        """Let subscribers come first, so that much is owed to them, and then publishers."""
        options = self._options
        staying_count = options.subscribers_count - options.passing_subscribers_count
        loop = asyncio.get_running_loop()
        here = [self._arrive(f"S{slot + 1}", self._random("S", slot)) for slot in range(staying_count)]
        await asyncio.gather(*here)
        for slot in range(staying_count, options.subscribers_count):
            self._tasks.append(loop.create_task(self._pass_by(f"S{slot + 1}", self._random("S", slot))))
        for slot in range(options.publishers_count):
            publishing = loop.create_task(self._publish(f"P{slot + 1}", self._random("P", slot)), name=f"P{slot + 1}")
            self._publishing.append(publishing)
        self._tasks += [loop.create_task(self._look()), loop.create_task(self._move())]

    def stop(self) -> None:
        """Publish no more, and move no more."""
        self._is_stopping.set()

    def waiting(self) -> list[str]:
        """Clients that are not at rest, and why; none if all that was published is acknowledged."""
        found: list[str] = []
        for name, member in self._members.items():
            where = f"{name} at {member.client.broker}"
            if not member.client.is_connected:
                found.append(f"{where} is not connected")
            if member.is_moving:
                found.append(f"{where} is moving")
            if member.publications is not None and (count := member.client.waiting_count):
                found.append(f"{where} waits for the acknowledgement of {count} publications")
            if member.subscription is not None and member.subscription.in_force_s is None:
                found.append(f"{where} waits for the confirmation of its subscription")
        if self._is_stopping.is_set():
            found += [f"{task.get_name()} has not ended" for task in self._publishing if not task.done()]
        return found

    def disconnected(self) -> list[str]:
        """Clients that have no connection now."""
        return [name for name, member in self._members.items() if not member.client.is_connected]

    async def end(self) -> None:
        """Look for the last time, and let everybody go."""
        tasks = [*self._tasks, *self._publishing, *self._moving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in self._members.values():
            self._note_refused(member)
            member.look(self._clock())
        closing = [member.client.close() for member in self._members.values()]
        await asyncio.gather(*closing, return_exceptions=True)

    # ---- clients ----

    def _random(self, role: str, slot: int) -> random.Random:
        return random.Random(f"{role}{slot} {self._options.seed}")

    async def _connected(self, name: str, rng: random.Random) -> Client:
        """A client at any broker that answers."""
        while True:
            address = self._cluster.address(rng.choice(BROKERS), through_proxy=rng.random() < 0.6)
            try:
                return await Client.connect(address, name, reattach_after_s=PATIENCE_S)
            except ClientError:
                await asyncio.sleep(0.2)

    async def _arrive(self, name: str, rng: random.Random) -> _Member:
        """A subscriber comes, and stays; its subscription is in force then."""
        member = _Member(await self._connected(name, rng), None)
        wanted = Wanted(rng.choice(("", *SYMBOLS)), rng.randrange(0, PRICE_MAX))
        subscription = member.subscription = self._history.subscription(name, wanted)
        self._members[name] = member

        def take(delivery: Delivery) -> None:
            self.deliveries_count += 1
            if subscription.ended_s is None:
                values = delivery.publication.values_by_name
                self._history.take(subscription, delivery.publisher, values, self._clock())

        _watch_gaps(member.client, subscription, self._clock)
        await member.client.subscribe(Filter.parse(wanted.text), callback=take)
        subscription.in_force_s = self._clock()
        return member

    async def _pass_by(self, slot: str, rng: random.Random) -> None:
        """Subscribers, one after the other, that come and go; the last one stays."""
        options, generation = self._options, 0
        while not self._is_stopping.is_set():
            generation += 1
            name = f"{slot}.{generation}"
            with self._telling(name):
                member = await self._arrive(name, rng)
                await self._until_stopped(rng.uniform(options.stay_min_s, options.stay_max_s))
                if self._is_stopping.is_set():
                    return
                assert member.subscription is not None
                member.is_leaving = True
                await self._connection_of(member)
                member.subscription.ended_s = self._clock()
                await member.client.close()
            self._members.pop(name, None)

    async def _publish(self, slot: str, rng: random.Random) -> None:
        """Publishers, one after the other, that leave when all that they published is acknowledged."""
        options, generation = self._options, 0
        while not self._is_stopping.is_set():
            generation += 1
            name = f"{slot}.{generation}"
            with self._telling(name):
                client = await self._connected(name, rng)
                member = self._members[name] = _Member(client, self._history.publisher(name))
                await self._publish_for(member, rng, rng.uniform(options.stay_min_s, options.stay_max_s))
                await client.drain()
                member.look(self._clock())
                if self._is_stopping.is_set():
                    return
                member.is_leaving = True
                self._note_refused(member)
                await self._connection_of(member)
                await client.close()
            self._members.pop(name, None)

    async def _publish_for(self, member: _Member, rng: random.Random, stays_s: float) -> None:
        client, publications = member.client, member.publications
        assert publications is not None
        symbols = rng.sample(SYMBOLS, 2)
        announced = f"p = '{client.name}' AND n >= 0 AND price >= 0"
        for symbol in symbols:
            await client.advertise(Filter.parse(f"{announced} AND symbol = '{symbol}'"))
        interval_s = self._options.publishers_count / self._options.rate_per_s
        ends_s = self._clock() + stays_s
        next_s = self._clock()
        while not self._is_stopping.is_set() and (now_s := self._clock()) < ends_s:
            if next_s > now_s:
                await asyncio.sleep(max(0.01, next_s - now_s))
                continue
            next_s = max(next_s + interval_s, now_s - 1.0)  # what was missed for longer is not made up for at once
            number = publications.published(rng.choice(symbols), rng.randrange(0, PRICE_MAX + 1), now_s)
            publications.sequences.append(await client.publish(publications.values(number)))

    async def _connection_of(self, member: _Member) -> None:
        """Wait until a client can say that it leaves; if it cannot, its broker keeps everything for it for a lease."""
        while not member.client.is_connected:
            await asyncio.sleep(LOOK_EVERY_S)

    def _note_refused(self, member: _Member) -> None:
        if member.publications is None:
            return
        for refused in member.client.refused:
            sequence = int(refused.about.rpartition(":")[2])
            member.publications.refused.add(member.publications.number_of(sequence))
            self.problems.append(f"{refused.about} was refused: {refused.reason}")

    @contextlib.contextmanager
    def _telling(self, name: str) -> Any:
        """A client that cannot go on is a finding, and the end of that client only."""
        try:
            yield
        except (ClientError, RefusedError) as error:
            self.problems.append(f"{self._clock():.1f} s: {name} could not go on: {error}")

    # ---- what goes on beside ----

    async def _look(self) -> None:
        while True:
            now_s = self._clock()
            for member in list(self._members.values()):
                member.look(now_s)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _move(self) -> None:
        """Let one client after the other go elsewhere, wherever it is and whatever happens there."""
        rng = self._rng
        while not await self._until_stopped(self._options.moves_every_s * rng.uniform(0.5, 1.5)):
            broker, through_proxy, drawn = rng.choice(BROKERS), rng.random() < 0.6, rng.random()
            members = [each for each in self._members.values() if not each.is_moving and not each.is_leaving]
            if not members:
                continue
            member = members[int(drawn * len(members))]
            if broker == member.client.broker:
                continue
            address = self._cluster.address(broker, through_proxy=through_proxy)
            member.is_moving = True
            moving = asyncio.get_running_loop().create_task(self._move_one(member, broker, address))
            self._moving[moving] = None
            moving.add_done_callback(lambda done: self._moving.pop(done, None))

    async def _move_one(self, member: _Member, broker: str, address: str) -> None:
        member.places.append((round(self._clock(), 3), f"on the way to {broker}"))
        try:
            await member.client.move(broker, address)
            self.moved_count += 1
        except RefusedError:
            self.stayed_count += 1
        except ClientError as error:
            if not member.is_leaving:
                self.problems.append(f"{self._clock():.1f} s: {member.client.name} could not move: {error}")
        finally:
            member.is_moving = False

    async def _until_stopped(self, within_s: float) -> bool:
        """Whether the end came within that time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_stopping.wait(), within_s)
        return self._is_stopping.is_set()


def _watch_gaps(client: Client, subscription: SubscriptionHistory, clock: Clock) -> None:
    """Note what a subscriber is told that may be missing."""
    if not hasattr(client, "on_gap"):
        return

    def told(notice: Any) -> None:
        subscription.gaps.append(Gap(notice.publisher, notice.first, notice.last, clock()))

    client.on_gap = told
