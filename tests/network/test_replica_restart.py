"""A replica is a broker like any other: it is asked to end and begins again in its place, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.network.test_drain import Traffic
from tests.network.test_restarts import NOTHING_WRONG
from trimtab import Network
from trimtab.broker.config import Acknowledges
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text
from trimtab.network.clock import now_s
from trimtab.network.failover.replication_settings import Provisioner, ReplicationSettings
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions

WITHIN_S = 60.0
BROKERS = ("B1", "B2", "B3")


def line(folder: Path, level: Acknowledges, provisioner: Provisioner) -> Network:
    settings = ReplicationSettings(provisioner=provisioner, look_every_s=0.1, suspect_after_s=0.2, crash_after_s=0.2)
    options = NetworkOptions(acknowledges=level, disk=str(folder / "disk") if level == "durable" else "")
    standbys_count = 1 if provisioner == "standby" else 0
    links = [("B1", "B2"), ("B2", "B3")]
    plan = Network.of(BROKERS, links, options, replication=settings, standbys_count=standbys_count).plan
    file = folder / "network.toml"
    file.write_text(plan_text(plan), encoding="utf-8")
    return Network.from_file(file)


async def replaced(network: Network, broker: str) -> None:
    """Kill a broker and wait until a replica has its place and knows all routes."""
    await asyncio.to_thread(network.kill_broker, broker)
    ends_s = now_s() + WITHIN_S / 2
    while now_s() < ends_s:
        status = (await asyncio.to_thread(network.status))[broker]
        if status is not None and status.replica and not status.is_learning and not status.links_missing:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"{broker} was not replaced")


@pytest.mark.parametrize(
    ("level", "provisioner"),
    [("received", "process"), ("safe", "process"), ("safe", "standby"), ("durable", "process")],
)
def test_a_replica_begins_again_in_its_place(level: Acknowledges, provisioner: Provisioner, tmp_path: Path) -> None:
    with line(tmp_path, level, provisioner) as network:

        async def work() -> dict[str, dict[str, int]]:
            await replaced(network, "B2")  # before there is traffic, for at received a death may lose
            traffic = Traffic(network, BROKERS)
            await traffic.begin()
            for _ in range(2):
                command = ["restart", str(tmp_path / "network.toml"), "B2"]
                result = await asyncio.to_thread(CliRunner().invoke, app, command)
                assert result.exit_code == 0, result.output
                assert result.stdout.startswith("B2 began again and is healthy after ")
            return await traffic.end()

        network.look_for_replicas(network.status())
        found = run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert found == dict.fromkeys(BROKERS, NOTHING_WRONG)
        statuses = network.status()
        status = statuses["B2"]
        assert status is not None
        assert (status.replica, status.epoch) == ("synchronous", 4)
        assert not list(tmp_path.glob(".trimtab/B2.state"))
        network.look_for_replicas(statuses)


def test_a_replica_that_is_asked_to_end_may_come_back_by_its_file(tmp_path: Path) -> None:
    with line(tmp_path, "received", "process") as network:

        async def work() -> dict[str, dict[str, int]]:
            await replaced(network, "B2")
            network.look_for_replicas(await asyncio.to_thread(network.status))
            traffic = Traffic(network, BROKERS)
            await traffic.begin()
            await asyncio.to_thread(network.end_replica, "B2")
            await asyncio.sleep(0.2)
            network.start_broker("B2")
            await asyncio.to_thread(network.wait_until_ready)
            return await traffic.end()

        found = run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert found == dict.fromkeys(BROKERS, NOTHING_WRONG)
        status = network.status()["B2"]
        assert status is not None
        assert (status.replica, status.epoch) == ("", 3)
