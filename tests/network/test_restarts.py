"""Brokers are asked to end and are started again while publications flow: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from trimtab import Client, Filter, Network
from trimtab.broker.config import Acknowledges
from trimtab.network.clock import now_s
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions
from trimtab.network.subscription import Delivery

WITHIN_S = 60.0
ARRIVES_WITHIN_S = 10.0
NOTHING_WRONG = {"lost": 0, "doubled or reordered": 0}
BROKERS = ("B1", "B2", "B3")
EVERY_S = 0.004


def line(level: Acknowledges, folder: Path) -> Network:
    """Three brokers in a row, without anybody who would replace them."""
    options = NetworkOptions(acknowledges=level, disk=str(folder) if level == "durable" else "")
    return Network.of(BROKERS, [("B1", "B2"), ("B2", "B3")], options)


class Got:
    """What one subscriber has got."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}

    def take(self, delivery: Delivery) -> None:
        number = delivery.publication["n"]
        assert isinstance(number, int)
        self.numbers.setdefault(delivery.publisher, []).append(number)

    def found(self, published: dict[str, int]) -> dict[str, int]:
        """How many were lost, and how many came twice or out of order."""
        lost_count = sum(
            len({*range(count)}.difference(self.numbers.get(name, ()))) for name, count in published.items()
        )
        pairs = [pair for numbers in self.numbers.values() for pair in pairwise(numbers)]
        return {"lost": lost_count, "doubled or reordered": sum(first >= second for first, second in pairs)}


@pytest.mark.parametrize("level", ["received", "safe", "durable"])
def test_a_rolling_restart_loses_nothing(level: Acknowledges, tmp_path: Path) -> None:
    with line(level, tmp_path) as network:
        got = {name: Got() for name in BROKERS}
        published: dict[str, int] = {}

        async def publish(broker: str, stop: asyncio.Event) -> None:
            async with await Client.connect(network.address(broker), f"P{broker}") as publisher:
                await publisher.advertise(Filter.parse(f"p = '{broker}' AND n >= 0"))
                await asyncio.sleep(0.3)
                while not stop.is_set():
                    await publisher.publish({"p": broker, "n": published.setdefault(publisher.name, 0)})
                    published[publisher.name] += 1
                    await asyncio.sleep(EVERY_S)
                await publisher.drain()

        async def work() -> None:
            subscribers = [await Client.connect(network.address(name), f"S{name}") for name in BROKERS]
            for client, broker in zip(subscribers, BROKERS, strict=True):
                await client.subscribe(Filter.parse("n >= 0"), callback=got[broker].take)
            stop = asyncio.Event()
            publishing = [asyncio.create_task(publish(name, stop)) for name in ("B1", "B3")]
            await asyncio.sleep(0.6)
            for name in BROKERS:
                assert await asyncio.to_thread(network.stop_broker, name) == 0
                await asyncio.sleep(0.2)
                network.start_broker(name)
                await asyncio.to_thread(network.wait_until_ready)
                await asyncio.sleep(0.3)
            stop.set()
            await asyncio.gather(*publishing)
            expected = {name: list(range(count)) for name, count in published.items()}
            ends_s = now_s() + ARRIVES_WITHIN_S
            while any(each.numbers != expected for each in got.values()) and now_s() < ends_s:
                await asyncio.sleep(0.05)
            for client in subscribers:
                await client.close()

        run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert {name: each.found(published) for name, each in got.items()} == dict.fromkeys(BROKERS, NOTHING_WRONG)
