"""Several broker processes are killed at once, and are started again in any order: at `durable` nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trimtab import Client, Filter, Network
from trimtab.network.admin.local_network import plan_text
from trimtab.network.client.subscription import Delivery
from trimtab.network.clock import now_s
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions

BROKERS = ("B1", "B2", "B3", "B4")
PUBLICATIONS_COUNT = 400
LATE_S = 6.0
WITHIN_S = 60.0
ARRIVES_WITHIN_S = 20.0


def line(folder: Path) -> Network:
    """Four brokers in a row, each with its disk, and nobody who would replace them."""
    options = NetworkOptions(acknowledges="durable", disk=str(folder / "disk"))
    links = [("B1", "B2"), ("B2", "B3"), ("B3", "B4")]
    file = folder / "network.toml"
    file.write_text(plan_text(Network.of(BROKERS, links, options).plan), encoding="utf-8")
    return Network.from_file(file)


async def kill(network: Network, names: tuple[str, ...]) -> None:
    for name in names:
        await asyncio.to_thread(network.kill_broker, name)


@pytest.mark.parametrize(
    ("killed", "first", "leaves"),
    [
        (("B2", "B3"), ("B2",), False),
        (("B1", "B2"), ("B2",), True),
        (BROKERS, BROKERS, True),
        (BROKERS, ("B4",), True),
        (BROKERS, ("B1",), True),
    ],
)
def test_what_was_acknowledged_survives_the_death_of_several_brokers(
    killed: tuple[str, ...], first: tuple[str, ...], leaves: bool, tmp_path: Path
) -> None:
    """The publisher may be gone for good, and the first to be started again waits for the others for seconds."""
    got: list[object] = []

    def take(delivery: Delivery) -> None:
        got.append(delivery.publication["n"])

    with line(tmp_path) as network:

        async def work() -> None:
            subscriber = await Client.connect(network.address("B1"), "S")
            publisher = await Client.connect(network.address("B4"), "P")
            await publisher.advertise(Filter.parse("n >= 0"))
            await subscriber.subscribe(Filter.parse("n >= 0"), callback=take)
            for number in range(PUBLICATIONS_COUNT):
                await publisher.publish({"n": number})
            await publisher.drain()
            if leaves:
                await publisher.close()
            await kill(network, killed)
            for name in first:
                network.start_broker(name)
            if len(first) < len(killed):
                await asyncio.sleep(LATE_S)
            for name in killed:
                if name not in first:
                    network.start_broker(name)
            await asyncio.to_thread(network.wait_until_ready)
            ends_s = now_s() + ARRIVES_WITHIN_S
            while len(got) < PUBLICATIONS_COUNT and now_s() < ends_s:
                await asyncio.sleep(0.05)
            await subscriber.close()
            await publisher.close()

        run_loop(asyncio.wait_for(work(), WITHIN_S))
    assert got == list(range(PUBLICATIONS_COUNT))
