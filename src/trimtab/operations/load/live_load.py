"""Load on a running network from one process: publishers and subscribers of stock quotes, and an account of it all.

The checker of the simulator is told what publishers hand over, which subscriptions are in force and what arrives. It
computes what must arrive from filters and publications alone, so that nothing that brokers do can hide a loss.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Final

from trimtab.language import Filter, Publication
from trimtab.network.admin.local_network import ask_all
from trimtab.network.client.client import Client, ClientError
from trimtab.network.client.subscription import Delivery
from trimtab.network.clock import now_s
from trimtab.network.network_file import NetworkPlan
from trimtab.operations.load.levelness import LevelWatch
from trimtab.operations.load.load_report import LoadOptions, LoadReport, LoadSecond
from trimtab.protocol.frames import BrokerStatus
from trimtab.protocol.records import DeliveryRecord, MoveRecord, Recorder
from trimtab.simulation.checkers.deliveries import DeliveryChecker
from trimtab.simulation.workloads.quotes import generate_quotes
from trimtab.simulation.workloads.stock import StockWorkload, publication_of

QUIET_FOR_S: Final = 15.0
LOOK_AGAIN_AFTER_S: Final = 0.05
"""What is under way at the end is awaited until nothing has arrived for so long, and is looked for so often."""

REPORT_EVERY_S: Final = 1.0


class LoadRun:
    """One run: join, publish, wait for what is under way, leave."""

    def __init__(
        self,
        plan: NetworkPlan,
        options: LoadOptions,
        recorder: Recorder | None = None,
        on_second: Callable[[LoadSecond], None] | None = None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._recorder = recorder
        self._on_second = on_second
        self._checker = DeliveryChecker()
        self._expected_count = 0
        self._subscribers: list[Client] = []
        self._publishers: list[Client] = []
        self._moves: Counter[str] = Counter()
        self._last_move_s: float | None = None
        self._began_s = now_s()
        self._watch = LevelWatch(plan)
        self._seconds: list[LoadSecond] = []
        self.on_status: Callable[[float, Mapping[str, BrokerStatus | None]], None] | None = None
        """Told each second how the brokers are."""
        self.on_move: Callable[[MoveRecord], None] | None = None
        """Told of every move of a subscriber."""
        self.ends = asyncio.Event()
        """Set when publishers have stopped; who sets it earlier ends the run before its time."""

    @property
    def time_s(self) -> float:
        """Since the beginning."""
        return now_s() - self._began_s

    @property
    def level_after_s(self) -> float | None:
        """Since when the brokers have been level, None as long as they were not."""
        return self._watch.level_after_s

    @property
    def subscribers(self) -> Sequence[Client]:
        """Those who have joined so far, in their order."""
        return self._subscribers

    @property
    def all_joined(self) -> bool:
        """Whether every subscription is in force."""
        return len(self._checker.subscriptions) == self._options.subscribers_count

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Publications, deliveries that must happen, deliveries, and those that still must happen."""
        checker = self._checker
        return checker.published_count, self._expected_count, checker.deliveries_count, checker.undelivered_count

    @property
    def moves_count(self) -> int:
        """Subscribers that have moved so far, each as often as it did."""
        return self._moves["moved"]

    async def run(self, beside: Callable[[], Coroutine[None, None, None]] | None = None) -> LoadReport:
        """Do it; raises `ClientError` if a broker cannot be reached.

        What goes on beside it ends when `ends` is set and may take its time; nobody leaves before it is over.
        """
        options = self._options
        rng = Random(f"load {options.seed}")
        quotes = generate_quotes(rng, symbols_count=options.publishers_count)
        workload = StockWorkload(quotes, rng, symbols_count=options.publishers_count)
        filters = list(workload.subscriptions(options.subscribers_count))
        by_symbol = {
            symbol: [publication_of(quote) for quote in quotes if quote.symbol == symbol] for symbol in workload.symbols
        }
        try:
            for symbol in workload.symbols:
                await self._open_publisher(symbol, workload.advertisement(symbol))
            self._began_s = now_s()
            async with asyncio.TaskGroup() as working:
                tasks = [
                    working.create_task(self._publish(client, by_symbol[symbol], rng.random()))
                    for client, symbol in zip(self._publishers, workload.symbols, strict=True)
                ]
                watching = working.create_task(self._watch_seconds())
                other = working.create_task(beside()) if beside is not None else None
                await self._join_all(filters)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.ends.wait(), max(0.0, self._began_s + options.for_s - now_s()))
                self.ends.set()
                for task in tasks:
                    task.cancel()
                await self._settle()
                if other is not None:
                    await other
                watching.cancel()
        except ExceptionGroup as errors:
            raise _first_of(errors) from None
        finally:
            await asyncio.gather(*(client.close() for client in (*self._publishers, *self._subscribers)))
        return self._report()

    # ---- publishers ----

    async def _open_publisher(self, symbol: str, advertisement: Filter) -> None:
        address = self._plan.broker(self._options.publish_at).address
        client = await Client.connect(address, f"{self._options.name}-{symbol}")
        self._publishers.append(client)
        await client.advertise(advertisement)

    async def _publish(self, client: Client, publications: Sequence[Publication], phase: float) -> None:
        """Publish at a steady rate until the task is cancelled."""
        every_s = self._options.publishers_count / self._options.rate_per_s
        next_s = now_s() + phase * every_s
        number = 0
        while True:
            await asyncio.sleep(max(0.0, next_s - now_s()))
            next_s += every_s
            publication = publications[number % len(publications)]
            number += 1
            sequence = await client.publish(publication)
            checker = self._checker
            checker.published(client.name, sequence)
            checker.accepted(client.name, sequence, publication.values_by_name, now_s())
            self._expected_count += checker.due_count_of(client.name, sequence)

    # ---- subscribers ----

    async def _join_all(self, filters: Sequence[Filter]) -> None:
        """Let subscribers join one after the other, at the wanted rate but not faster than their broker confirms."""
        async with asyncio.TaskGroup() as joining:
            for number, filter in enumerate(filters):
                due_s = self._began_s + number / self._options.join_per_s
                await asyncio.sleep(max(0.0, due_s - now_s()))
                joining.create_task(self._join(number, filter))

    async def _join(self, number: int, filter: Filter) -> None:
        address = self._plan.broker(self._options.subscribe_at).address
        client = await Client.connect(address, f"{self._options.name}-s{number:04d}")
        self._subscribers.append(client)
        client.on_move = self._moved

        def delivered(delivery: Delivery) -> None:
            self._note_subscription(delivery.subscriptions[0], client, filter)
            self._delivered(client, delivery)

        subscription = await client.subscribe(filter, callback=delivered)
        self._note_subscription(subscription.ids[0], client, filter)
        self._checker.in_force(subscription.ids[0], now_s())

    def _note_subscription(self, id: str, client: Client, filter: Filter) -> None:
        """Tell the checker of a subscription before anything is delivered to it, or else when it is in force."""
        if id not in self._checker.subscriptions:
            self._checker.subscribed(id, client.name, filter)

    def _delivered(self, client: Client, delivery: Delivery) -> None:
        time_s = now_s()
        self._checker.delivered(client.name, delivery, time_s)
        if self._recorder is not None:
            self._recorder.record(
                DeliveryRecord(
                    time_s,
                    client.name,
                    client.broker,
                    delivery.publisher,
                    delivery.sequence,
                    delivery.delay_s,
                    delivery.hops,
                    len(delivery.subscriptions),
                    len(delivery.late_for),
                )
            )

    def _moved(self, record: MoveRecord) -> None:
        self._moves[record.outcome] += 1
        if record.outcome == "moved":
            self._last_move_s = record.end_s - self._began_s
        if self._recorder is not None:
            self._recorder.record(record)
        if self.on_move is not None:
            self.on_move(record)

    # ---- watching ----

    async def _watch_seconds(self) -> None:
        before = (0, 0, 0)
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            checker = self._checker
            counts = (checker.published_count, checker.deliveries_count, self._moves["moved"])
            statuses = await ask_all(self._plan)
            time_s = now_s() - self._began_s
            if self.on_status is not None:
                self.on_status(time_s, statuses)
            if self.ends.is_set():
                continue
            self._watch.look(time_s if self.all_joined else None, statuses)
            told = {name: status.load for name, status in statuses.items() if status is not None}
            second = LoadSecond(
                time_s,
                published_count=counts[0] - before[0],
                delivered_count=counts[1] - before[1],
                moves_count=counts[2] - before[2],
                clients=self._clients(),
                input_utilization_ratio={name: load["input_utilization_ratio"] for name, load in told.items()},
                output_utilization_ratio={name: load["output_utilization_ratio"] for name, load in told.items()},
            )
            before = counts
            self._seconds.append(second)
            if self._on_second is not None:
                self._on_second(second)

    def _clients(self) -> dict[str, int]:
        counted = Counter(client.broker for client in self._subscribers)
        return {entry.name: counted[entry.name] for entry in self._plan.brokers}

    async def _settle(self) -> None:
        """Wait for the acknowledgement of everything, and for what must still arrive, as long as anything does."""
        draining = asyncio.gather(*(client.drain() for client in self._publishers))
        seen_count, quiet_since_s = -1, now_s()
        while (self._checker.undelivered_count or not draining.done()) and now_s() < quiet_since_s + QUIET_FOR_S:
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
            if self._checker.deliveries_count != seen_count:
                seen_count, quiet_since_s = self._checker.deliveries_count, now_s()
        if not draining.done():
            draining.cancel()
            raise ClientError(f"publications are not acknowledged {QUIET_FOR_S:g} s after the last delivery")
        await draining

    def _report(self) -> LoadReport:
        checker = self._checker
        lost_count = checker.undelivered_count
        checker.check_at_rest()
        for client in self._publishers:
            for refused in client.refused:
                checker.rejected(client.name, refused.about, refused.reason, now_s())
        kinds = Counter(violation.kind for violation in checker.violations)
        counted = ("missing", "delivered twice", "out of order")
        return LoadReport(
            subscribers_count=len(self._subscribers),
            published_count=checker.published_count,
            expected_count=self._expected_count,
            delivered_count=checker.deliveries_count,
            lost_count=lost_count,
            duplicated_count=kinds["delivered twice"],
            reordered_count=kinds["out of order"],
            other_violations=[f"{each.kind}: {each.text}" for each in checker.violations if each.kind not in counted],
            moves_count=self._moves["moved"],
            stayed_count=self._moves["stayed"],
            last_move_s=self._last_move_s,
            delay_median_s=checker.delays.percentile_s(50),
            delay_p99_s=checker.delays.percentile_s(99),
            level_after_s=self._watch.level_after_s,
            clients=self._clients(),
            seconds=self._seconds,
        )


def _first_of(errors: ExceptionGroup[Exception]) -> Exception:
    """The first error of a group, which may hold groups."""
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first
