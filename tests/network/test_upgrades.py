"""Brokers of two versions in one network: each is upgraded while publications flow, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from tests.network.raw_peer import RawPeer
from tests.network.test_drain import Traffic, drain
from tests.network.test_restarts import NOTHING_WRONG
from trimtab import Network
from trimtab.broker.config import Acknowledges
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions, NetworkPlan
from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import VERSION, VERSION_MIN, Leaving

WITHIN_S = 90.0
BROKERS = ("B1", "B2", "B3", "B4")
LINKS = [("B1", "B2"), ("B2", "B3"), ("B3", "B4")]


def write(plan: NetworkPlan, folder: Path, version: int) -> Path:
    """The network file, with brokers kept at a version."""
    options = msgspec.structs.replace(plan.options, wire_version_max=version)
    file = folder / "network.toml"
    file.write_text(plan_text(msgspec.structs.replace(plan, options=options)), encoding="utf-8")
    return file


WITHOUT_LEAVING = 2
"""The last version that has no message with which a broker says that it leaves."""


def line(folder: Path, level: Acknowledges = "received", version: int = VERSION - 1) -> Network:
    """Four brokers in a row that are kept at a version, the one before the present one if none is given."""
    options = NetworkOptions(acknowledges=level, disk=str(folder / "disk") if level == "durable" else "")
    return Network.from_file(write(Network.of(BROKERS, LINKS, options).plan, folder, version))


def restart(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["restart", str(file), *arguments])


def versions(network: Network) -> dict[str, dict[str, int]]:
    """The version that each broker speaks with each of its neighbours and clients."""
    return {
        name: {peer.name: peer.wire_version for peer in status.peers if peer.role == "broker"}
        for name, status in network.status().items()
        if status is not None
    }


@pytest.mark.parametrize("level", ["received", "safe", "durable"])
def test_a_rolling_upgrade_loses_nothing(level: Acknowledges, tmp_path: Path) -> None:
    with line(tmp_path, level) as network:
        before, after = VERSION - 1, VERSION

        async def work() -> dict[str, dict[str, int]]:
            traffic = Traffic(network, BROKERS)
            await traffic.begin()
            file = write(network.plan, tmp_path, after)
            half = await asyncio.to_thread(restart, file, "B3", "B1")
            assert half.exit_code == 0, half.output
            assert (await asyncio.to_thread(versions, network)) == {
                "B1": {"B2": before},
                "B2": {"B1": before, "B3": before},
                "B3": {"B2": before, "B4": before},
                "B4": {"B3": before},
            }
            whole = await asyncio.to_thread(restart, file, "--rolling")
            assert whole.exit_code == 0, whole.output
            return await traffic.end()

        assert versions(network)["B2"] == {"B1": before, "B3": before}
        found = run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert found == dict.fromkeys(BROKERS, NOTHING_WRONG)
        assert versions(network)["B2"] == {"B1": after, "B3": after}


def test_a_broker_leaves_a_network_whose_brokers_do_not_know_how_that_is_said(tmp_path: Path) -> None:
    with line(tmp_path, version=WITHOUT_LEAVING) as network:
        assert restart(write(network.plan, tmp_path, VERSION), "B4").exit_code == 0

        async def work() -> tuple[Result, dict[str, dict[str, int]]]:
            traffic = Traffic(network, BROKERS)
            await traffic.begin()
            result = await asyncio.to_thread(drain, tmp_path, "B4")
            return result, await traffic.end()

        result, found = run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert result.exit_code == 0, result.output
        assert found == dict.fromkeys(BROKERS, NOTHING_WRONG)
        status = network.status()["B3"]
        assert status is not None
        assert [peer.name for peer in status.peers if peer.role == "broker"] == ["B2"]


def test_a_broker_that_is_kept_at_a_version_takes_no_message_of_a_later_one(tmp_path: Path) -> None:
    with line(tmp_path, version=WITHOUT_LEAVING) as network:
        network.stop_broker("B4")
        with RawPeer(network.address("B3")) as peer:
            greeting = peer.greet("B4", "8-8-ff@elsewhere", epoch=9, version_min=VERSION_MIN)
            assert isinstance(greeting, Hello)
            assert (greeting.version, greeting.version_min) == (WITHOUT_LEAVING, VERSION_MIN)
            peer.say(Leaving())
            reason = f"a message that version {WITHOUT_LEAVING} of the protocol does not have"
            assert peer.goodbye() == f"not a frame: {reason}"
