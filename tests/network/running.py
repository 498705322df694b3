"""What tests ask and do of a network that runs: deliveries through it, its file, commands on it, and waiting for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from typer.testing import CliRunner, Result

from trimtab import Client, Filter, Network
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text
from trimtab.network.client.subscription import Delivery
from trimtab.network.loops import run

WITHIN_S = 40.0


def wait_for(is_so: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
    """Look again and again until something is so."""
    ends_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < ends_s, f"after {within_s:g} s: not {what}"
        time.sleep(0.02)


async def delivered(network: Network, near: str, far: str, value: int) -> int:
    """What a subscriber at one broker gets when a publisher at another says a value."""
    async with (
        await Client.connect(network.address(near)) as publisher,
        await Client.connect(network.address(far)) as subscriber,
    ):
        subscription = await subscriber.subscribe(Filter.parse("a > 0"))
        await publisher.advertise(Filter.parse("a > 0"))
        await publisher.publish({"a": value})
        return int(str((await anext(subscription)).publication["a"]))


def check_delivery(network: Network, near: str, far: str, value: int) -> None:
    """What is published at one broker comes to another."""
    assert run(asyncio.wait_for(delivered(network, near, far, value), WITHIN_S)) == value


class Numbers:
    """A publisher of numbers at one broker, and what a subscriber to them at another has got."""

    def __init__(self, publisher: Client, subscriber: Client) -> None:
        self.publisher = publisher
        self.subscriber = subscriber
        self.got: list[int] = []

    def take(self, delivery: Delivery) -> None:
        """One more."""
        self.got.append(int(str(delivery.publication["n"])))

    async def publish(self, numbers: Iterable[int]) -> None:
        """Publish these."""
        for number in numbers:
            await self.publisher.publish({"n": number})

    async def arrived(self, count: int) -> None:
        """Wait until so many have come."""
        while len(self.got) < count:
            await asyncio.sleep(0.02)


@asynccontextmanager
async def numbers_from(network: Network, near: str, far: str) -> AsyncIterator[Numbers]:
    """Publisher P and subscriber S, until both are closed."""
    async with (
        await Client.connect(network.address(near), "P") as publisher,
        await Client.connect(network.address(far), "S") as subscriber,
    ):
        numbers = Numbers(publisher, subscriber)
        await publisher.advertise(Filter.parse("n >= 0"))
        await subscriber.subscribe(Filter.parse("n >= 0"), callback=numbers.take)
        yield numbers


def trimtab(*arguments: str) -> Result:
    """A command, in this process."""
    return CliRunner().invoke(app, list(arguments))


def file_of(network: Network, folder: Path) -> str:
    """The network's file, for commands."""
    file = folder / "network.toml"
    file.write_text(plan_text(network.plan), encoding="utf-8")
    return str(file)
