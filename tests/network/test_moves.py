"""Subscribers go on at other broker processes while publications flow: none is missed, none comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from trimtab import Client, Filter, Network, Publication
from trimtab.network.client.client import RefusedError
from trimtab.network.client.subscription import Delivery
from trimtab.network.loops import run as run_loop

Result = TypeVar("Result")

LINKS = (("B1", "B2"), ("B2", "B3"), ("B2", "B4"))
PUBLICATIONS_COUNT = 4_000


def run(work: Coroutine[Any, Any, Result], within_s: float = 40.0) -> Result:
    return run_loop(asyncio.wait_for(work, within_s))


def test_a_subscriber_that_moves_while_publications_flow_gets_each_once_and_in_order() -> None:
    async def work(network: Network) -> None:
        publisher = await Client.connect(network.address("B1"), "publisher")
        await publisher.advertise(Filter.parse("a > 0"))
        mover = await Client.connect(network.address("B3"), "mover")
        got: list[int] = []
        await mover.subscribe(Filter.parse("a > 0"), callback=lambda delivery: got.append(delivery.sequence))

        async def publish() -> None:
            for number in range(1, PUBLICATIONS_COUNT + 1):
                await publisher.publish(Publication(a=number))
                if number % 20 == 0:
                    await asyncio.sleep(0.002)
            await publisher.drain()

        publishing = asyncio.get_running_loop().create_task(publish())
        for broker in ("B4", "B1", "B2", "B3"):
            await asyncio.sleep(0.05)
            assert await mover.move(broker, str(network.address(broker))) == broker
            assert mover.broker == broker
        await publishing
        while len(got) < PUBLICATIONS_COUNT:
            await asyncio.sleep(0.01)
        assert got == list(range(1, PUBLICATIONS_COUNT + 1))
        assert mover.moves_count == 4
        await mover.close()
        await publisher.close()

    with Network.of(("B1", "B2", "B3", "B4"), LINKS) as network:
        run(work(network))


def noting(numbers: list[int]) -> Callable[[Delivery], None]:
    return lambda delivery: numbers.append(delivery.sequence)


def test_a_publisher_that_moves_while_it_publishes_is_heard_once_and_in_order() -> None:
    async def work(network: Network) -> None:
        got: dict[str, list[int]] = {name: [] for name in ("B1", "B3", "B4")}
        readers = []
        for broker, numbers in got.items():
            reader = await Client.connect(network.address(broker), f"reader at {broker}")
            await reader.subscribe(Filter.parse("a > 0"), callback=noting(numbers))
            readers.append(reader)
        publisher = await Client.connect(network.address("B1"), "publisher")
        await publisher.advertise(Filter.parse("a > 0"))

        async def publish() -> None:
            for number in range(1, PUBLICATIONS_COUNT + 1):
                await publisher.publish(Publication(a=number))
                if number % 20 == 0:
                    await asyncio.sleep(0.002)
            await publisher.drain()

        publishing = asyncio.get_running_loop().create_task(publish())
        for broker in ("B4", "B3", "B1", "B2"):
            await asyncio.sleep(0.05)
            assert await publisher.move(broker, str(network.address(broker))) == broker
            assert publisher.broker == broker
        await publishing
        while min(map(len, got.values())) < PUBLICATIONS_COUNT:
            await asyncio.sleep(0.01)
        assert all(numbers == list(range(1, PUBLICATIONS_COUNT + 1)) for numbers in got.values())
        assert publisher.moves_count == 4
        for client in (publisher, *readers):
            await client.close()

    with Network.of(("B1", "B2", "B3", "B4"), LINKS) as network:
        run(work(network))


def test_a_move_to_nobody_leaves_a_publisher_where_it_is() -> None:
    async def work(network: Network) -> None:
        async with await Client.connect(network.address("B1"), "publisher") as publisher:
            await publisher.advertise(Filter.parse("a > 0"))
            await publisher.publish(Publication(a=1))
            with pytest.raises(RefusedError, match="did not move to B1: the client is already there"):
                await publisher.move("B1", str(network.address("B1")))

    with Network.of(("B1", "B2", "B3", "B4"), LINKS) as network:
        run(work(network))


def test_a_publisher_that_has_published_nothing_moves_and_its_publications_wait_for_it() -> None:
    async def work(network: Network) -> None:
        reader = await Client.connect(network.address("B4"), "reader")
        wanted = await reader.subscribe(Filter.parse("a > 0"))
        publisher = await Client.connect(network.address("B1"), "publisher")
        await publisher.advertise(Filter.parse("a > 0"))
        move = asyncio.ensure_future(publisher.move("B2", str(network.address("B2"))))
        await asyncio.sleep(0)  # the move begins
        for number in range(1, 101):
            await publisher.publish(Publication(a=number))
        assert await move == "B2"
        await publisher.drain()
        assert [(await anext(wanted)).publication["a"] for _ in range(100)] == list(range(1, 101))
        await publisher.close()
        await reader.close()

    with Network.of(("B1", "B2", "B3", "B4"), LINKS) as network:
        run(work(network))
