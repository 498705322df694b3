"""A publisher's stream ends, and the broker process in the middle, slow to pass its publications on, is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from trimtab import Client, Filter, Network
from trimtab.broker.config import Acknowledges
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions

WITHIN_S = 60.0
PUBLICATIONS_COUNT = 400
SLOW_MBPS = 0.2


def line(level: Acknowledges, folder: Path) -> Network:
    """Three brokers in a row, with a slow way out of the middle one."""
    disk = str(folder) if level == "durable" else ""
    options = NetworkOptions(acknowledges=level, disk=disk, enforce_capacities=True)
    replication = ReplicationSettings(provisioner="standby", look_every_s=0.1, suspect_after_s=0.3, crash_after_s=0.3)
    links = [("B1", "B2"), ("B2", "B3")]
    network = Network.of(["B1", "B2", "B3"], links, options, replication=replication, standbys_count=1)
    brokers = tuple(
        msgspec.structs.replace(entry, bandwidth_mbps=SLOW_MBPS) if entry.name == "B2" else entry
        for entry in network.plan.brokers
    )
    return Network(msgspec.structs.replace(network.plan, brokers=brokers))


async def leave(publisher: Client, advertisement: str, network: Network) -> None:
    """The publisher leaves the network."""
    await publisher.close()


async def unadvertise(publisher: Client, advertisement: str, network: Network) -> None:
    """The publisher ends its advertisement, and stays."""
    await publisher.unadvertise(advertisement)


async def move_away(publisher: Client, advertisement: str, network: Network) -> None:
    """The publisher goes to the broker of the subscriber, over the one that will be killed."""
    moved = asyncio.ensure_future(publisher.move("B1", str(network.address("B1"))))
    moved.add_done_callback(lambda done: done.cancelled() or done.exception())  # a move that meets a death may not be


@pytest.mark.parametrize("level", ["safe", "durable"])
@pytest.mark.parametrize("end", [leave, unadvertise, move_away])
def test_what_a_publisher_said_before_its_stream_ends_survives_the_broker_in_the_middle(
    level: Acknowledges, end: Callable[[Client, str, Network], Awaitable[None]], tmp_path: Path
) -> None:
    with line(level, tmp_path) as network:
        numbers: list[object] = []

        async def work() -> None:
            async with await Client.connect(network.address("B1"), "S") as subscriber:
                publisher = await Client.connect(network.address("B3"), "P")
                advertisement = await publisher.advertise(Filter.parse("n >= 0"))
                subscription = await subscriber.subscribe(Filter.parse("n >= 0"))
                for number in range(PUBLICATIONS_COUNT):
                    await publisher.publish({"n": number})
                await publisher.drain()
                await end(publisher, advertisement, network)
                await asyncio.sleep(0.2)  # B3 knows of the end, and B2 has most of what was before it in its queue
                os.kill(network.pid("B2"), signal.SIGKILL)
                async for delivery in subscription:
                    numbers.append(delivery.publication["n"])
                    if len(numbers) == PUBLICATIONS_COUNT:
                        break
                await publisher.close()

        run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert numbers == list(range(PUBLICATIONS_COUNT))
