"""Broker processes that are congested, and assistants that share their load."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from tests.network.running import file_of, trimtab
from trimtab import Client, Filter, Network
from trimtab.broker.config import Acknowledges
from trimtab.network.admin.status import ask_status
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions
from trimtab.protocol.frames import BrokerStatus

WITHIN_S = 60.0
FILTERS_COUNT = 10
SLOW_MHZ = 16.5
"""With ten subscriptions a publication takes 0.01 s."""

SETTINGS = ReplicationSettings(
    look_every_s=0.1,
    suspect_after_s=5.0,
    crash_after_s=5.0,
    hang_after_s=20.0,
    congested_count=30,
    congested_after_s=0.3,
    provisioner="process",
)


def slow_network(acknowledges: Acknowledges = "received", disk: str = "", **changes: object) -> Network:
    """Three brokers in a line, the second with a slow processor."""
    options = NetworkOptions(
        covering=False, enforce_capacities=True, window_frames_count=20, acknowledges=acknowledges, disk=disk
    )
    network = Network.of(
        ["B1", "B2", "B3"],
        [("B1", "B2"), ("B2", "B3")],
        options,
        replication=msgspec.structs.replace(SETTINGS, **changes),
    )
    first, second, third = network.plan.brokers
    slow = msgspec.structs.replace(second, cpu_mhz=SLOW_MHZ)
    return Network(msgspec.structs.replace(network.plan, brokers=(first, slow, third)))


def status_of(network: Network, broker: str) -> BrokerStatus:
    status = network.status()[broker]
    assert status is not None
    return status


def pid_of_assistant(network: Network) -> int:
    """A neighbour of the broker that is assisted has started it."""
    parents = ",".join(str(network.pid(name)) for name in ("B1", "B3"))
    [pid] = subprocess.check_output(["pgrep", "-P", parents, "-f", "--", "--assist"]).split()
    return int(pid)


async def publish_until(network: Network, is_enough: Callable[[int], Awaitable[bool]]) -> tuple[int, list[int]]:
    """Publish faster than the slow broker can until it is enough; how many, and what arrives in which order."""
    numbers: list[int] = []
    async with (
        await Client.connect(network.address("B1"), "P") as publisher,
        await Client.connect(network.address("B3"), "S") as subscriber,
    ):
        await publisher.advertise(Filter.parse("n >= 0"))
        filters = [Filter.parse(f"n >= 0 AND n <> -{number}") for number in range(1, FILTERS_COUNT + 1)]
        await subscriber.subscribe(*filters, callback=lambda each: numbers.append(int(str(each.publication["n"]))))
        count = 0
        while not await is_enough(count):
            for _ in range(15):
                await publisher.publish({"n": count})
                count += 1
            await asyncio.sleep(0.1)
        while len(numbers) < count:
            await asyncio.sleep(0.02)
        return count, numbers


def test_a_congested_broker_is_assisted_and_publications_stay_in_order() -> None:
    with slow_network(assisting="reordering") as network:
        assisted_at: list[int] = []

        async def is_enough(count: int) -> bool:
            status = await ask_status(Address.parse(network.address("B1")))
            if not assisted_at and any(each.outcome == "assisted" for each in status.assistances):
                assisted_at.append(count)
            return bool(assisted_at) and count >= assisted_at[0] + 300

        count, numbers = run_loop(asyncio.wait_for(publish_until(network, is_enough), WITHIN_S))
        assert numbers == list(range(count))
        [failure] = status_of(network, "B1").assistances
        assert (failure.broker, failure.why, failure.outcome) == ("B2", "congestion", "assisted")
        assert {peer.name for peer in status_of(network, "B3").peers} == {"B2", "B2~"}
        assert status_of(network, "B2").publications_in_count < count  # the rest went through the assistant


@pytest.mark.parametrize("acknowledges", ["safe", "durable"])
def test_an_assistant_leaves_by_itself_when_the_congestion_is_over(acknowledges: Acknowledges, tmp_path: Path) -> None:
    disk = str(tmp_path) if acknowledges == "durable" else ""
    with slow_network(acknowledges, disk, assisting="reordering", relieved_count=2, relieved_after_s=2.0) as network:
        phases: list[int] = []

        async def peers() -> set[str]:
            return {peer.name for peer in (await ask_status(Address.parse(network.address("B3")))).peers}

        async def is_enough(count: int) -> bool:
            is_there = "B2~" in await peers()
            if len(phases) == 0 and is_there:
                phases.append(count)
            elif len(phases) == 1 and count >= phases[0] + 150:
                phases.append(count)
                await asyncio.sleep(8.0)  # nothing is published: the congestion ends, and the assistant goes
                assert "B2~" not in await peers()
            return len(phases) == 2 and count >= phases[1] + 60

        count, numbers = run_loop(asyncio.wait_for(publish_until(network, is_enough), WITHIN_S))
        assert numbers == list(range(count))
        assert status_of(network, "B2").publications_in_count < count


def test_an_assistant_is_killed_and_nothing_safe_is_lost() -> None:
    with slow_network("safe", assisting="reordering", relieved_count=2) as network:
        killed_at: list[int] = []

        async def is_enough(count: int) -> bool:
            status = await ask_status(Address.parse(network.address("B1")))
            if not killed_at and any(each.outcome == "assisted" for each in status.assistances):
                await asyncio.sleep(1.0)
                os.kill(pid_of_assistant(network), signal.SIGKILL)
                killed_at.append(count)
            return bool(killed_at) and count >= killed_at[0] + 150

        count, numbers = run_loop(asyncio.wait_for(publish_until(network, is_enough), WITHIN_S))
        assert numbers == list(range(count))


def test_a_broker_is_assisted_by_hand(tmp_path: Path) -> None:
    with slow_network() as network:
        file = file_of(network, tmp_path)
        result = trimtab("assist", "B2", file, "--protocol", "incremental", "--reorder")
        assert (result.exit_code, result.stdout) == (0, "B2 is assisted\n"), result.stderr
        again = trimtab("assist", "B2", file)
        assert (again.exit_code, again.stderr.count("B2 has an assistant already")) == (1, 2)

        async def is_enough(count: int) -> bool:
            return count >= 300

        assert run_loop(asyncio.wait_for(publish_until(network, is_enough), WITHIN_S)) == (300, list(range(300)))
        assert status_of(network, "B2").publications_in_count < 250
        network.kill_broker("B3")
        gone = trimtab("assist", "B3", file)
        assert gone.exit_code == 1
        assert gone.stderr == f"B3 does not answer at {network.address('B3')}; only a broker that lives is assisted\n"


@pytest.mark.parametrize(
    ("acknowledges", "replication", "arguments", "expected"),
    [
        ("received", SETTINGS, ["B9"], "{file}: no broker is named B9; there are B1, B2\n"),
        ("received", None, ["B2"], "{file} has no section [replication]: nobody watches its brokers"),
        ("safe", SETTINGS, ["B2"], '{file}: acknowledges = "safe" needs --reorder and the protocol synchronous\n'),
    ],
)
def test_what_cannot_be_assisted_is_told(
    tmp_path: Path, acknowledges: str, replication: ReplicationSettings | None, arguments: list[str], expected: str
) -> None:
    options = NetworkOptions(acknowledges="safe" if acknowledges == "safe" else "received")
    file = file_of(Network.of(["B1", "B2"], [("B1", "B2")], options, replication=replication), tmp_path)
    broker, *further = arguments
    result = trimtab("assist", broker, file, *further)
    assert result.exit_code == 2
    assert result.stderr.startswith(expected.format(file=file))
