"""Networks that promise no order lose nothing over TCP: clients take what comes late, each publication once."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

from tests.network.test_assistance import WITHIN_S, slow_network
from tests.network.test_failover import settings
from trimtab import Client, Filter, Network
from trimtab.network.admin.status import ask_status
from trimtab.network.client.subscription import Delivery
from trimtab.network.links.address import Address
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions

FILTERS_COUNT = 50
STAR = ["B1", "F", "B2", "B3"], [("B1", "F"), ("F", "B2"), ("F", "B3")]


def note(numbers: list[int], delivery: Delivery) -> None:
    numbers.append(int(str(delivery.publication["n"])))


def test_an_incremental_replacement_under_load_loses_only_what_the_dead_broker_alone_had() -> None:
    published: dict[str, list[int]] = {"before": [], "after": []}
    delivered: dict[str, list[int]] = {"B2": [], "B3": []}
    chosen = settings(provisioner="process", protocol="incremental")
    with Network.of(*STAR, NetworkOptions(covering=False), replication=chosen) as network:

        async def work(stack: AsyncExitStack) -> set[int]:
            publisher = await stack.enter_async_context(await Client.connect(network.address("B1"), "P"))
            await publisher.advertise(Filter.parse("kind >= 0 AND n >= 0"))
            filters = [Filter.parse(f"kind = {kind}") for kind in range(FILTERS_COUNT)]
            for broker, numbers in delivered.items():
                subscriber = await stack.enter_async_context(
                    await Client.connect(network.address(broker), broker + "s")
                )
                await subscriber.subscribe(*filters, callback=partial(note, numbers))

            sequence = itertools.count()

            async def publish(when: str, count: int) -> None:
                for _ in range(count):
                    n = next(sequence)
                    published[when].append(n)
                    await publisher.publish({"kind": -n % FILTERS_COUNT, "n": n})
                    await asyncio.sleep(0.002)

            await publish("before", 200)
            network.kill_broker("F")
            under_way = set(published["before"]) - (set(delivered["B2"]) & set(delivered["B3"]))
            await publish("after", 800)
            while not all(set(published["after"]) <= set(numbers) for numbers in delivered.values()):
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)  # nothing is to come twice
            return under_way

        async def within_time() -> set[int]:
            async with AsyncExitStack() as stack:
                return await asyncio.wait_for(work(stack), WITHIN_S)

        under_way = run_loop(within_time())
    for numbers in delivered.values():
        assert set(published["before"]) - set(numbers) <= under_way
        assert [n for n, count in Counter(numbers).items() if count > 1] == []


def test_an_assistant_without_reordering_loses_nothing() -> None:
    numbers: list[int] = []
    with slow_network(assisting="scheduling") as network:

        async def work() -> int:
            async with (
                await Client.connect(network.address("B1"), "P") as publisher,
                await Client.connect(network.address("B3"), "S") as subscriber,
            ):
                await publisher.advertise(Filter.parse("n >= 0"))
                filters = [Filter.parse(f"n >= 0 AND n <> -{number}") for number in range(1, 11)]
                await subscriber.subscribe(*filters, callback=partial(note, numbers))
                count, ends_at = 0, 0
                while not ends_at or count < ends_at:
                    for _ in range(15):
                        await publisher.publish({"n": count})
                        count += 1
                    await asyncio.sleep(0.1)
                    status = await ask_status(Address.parse(network.address("B1")))
                    if not ends_at and any(each.outcome == "assisted" for each in status.assistances):
                        ends_at = count + 300
                while len(numbers) < count:
                    await asyncio.sleep(0.02)
                return count

        count = run_loop(asyncio.wait_for(work(), WITHIN_S))
    assert sorted(numbers) == list(range(count))
