"""Subscribers go on at other broker processes while publications flow: none is missed, none comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from trimtab import Client, Filter, Network, Publication
from trimtab.network.client import RefusedError
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


def test_a_publisher_is_told_that_it_does_not_move() -> None:
    async def work(network: Network) -> None:
        async with await Client.connect(network.address("B1"), "publisher") as publisher:
            await publisher.advertise(Filter.parse("a > 0"))
            await publisher.publish(Publication(a=1))
            with pytest.raises(RefusedError, match="did not move to B2: a client that publishes"):
                await publisher.move("B2", str(network.address("B2")))

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
