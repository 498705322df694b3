"""Subscribers to channels while their broker ends and begins again: no result is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from tests.network.link_proxy import LinkProxy
from tests.network.stand_in_back_end import StandInBackEnd
from tests.network.test_delivery import take
from tests.network.test_drain import drain
from trimtab import Client, Network
from trimtab.broker.config import Acknowledges
from trimtab.network.admin.local_network import plan_text
from trimtab.network.admin.rolling_restart import restart_broker
from trimtab.network.client.subscription import Delivery
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions

WITHIN_S = 60.0
HERE = {"place": 1}
RESULTS_COUNT = 900
"""More than what the queue of one client takes at once."""


def network_of(folder: Path, level: Acknowledges, back_end: StandInBackEnd) -> Network:
    options = NetworkOptions(
        back_end=f"http://127.0.0.1:{back_end.port}",
        acknowledges=level,
        disk=str(folder / "disk") if level == "durable" else "",
    )
    plan = Network.of(["B1", "B2"], [("B1", "B2")], options).plan
    (folder / "network.toml").write_text(plan_text(plan), encoding="utf-8")
    return Network.from_file(folder / "network.toml")


async def begin_again(network: Network, how: Literal["command", "signal"]) -> None:
    if how == "command":
        await restart_broker(network.plan, "B1", WITHIN_S)
        return
    assert await asyncio.to_thread(network.stop_broker, "B1") == 0
    network.start_broker("B1")
    await asyncio.to_thread(network.wait_until_ready)


def positions(deliveries: list[Delivery]) -> list[int]:
    return [delivery.sequence for delivery in deliveries]


@pytest.mark.parametrize("how", ["command", "signal"])
@pytest.mark.parametrize("level", ["received", "safe", "durable"])
def test_no_result_is_lost_while_a_broker_begins_again(
    level: Acknowledges, how: Literal["command", "signal"], tmp_path: Path
) -> None:
    back_end = StandInBackEnd(("near",), 3)
    back_end.start()
    try:
        with network_of(tmp_path, level, back_end) as network:
            proxy = LinkProxy(network.plan.broker("B1").listen.port)

            async def work() -> None:
                present = await Client.connect(network.address("B1"), "present")
                slow = await Client.connect(network.address("B1"), "slow")
                away = await Client.connect(f"127.0.0.1:{proxy.port}", "away")
                clients = [present, slow, away]
                streams = [await client.subscribe_channel("near", HERE) for client in clients]
                proxy.cut()
                taking = asyncio.create_task(take(streams[0], RESULTS_COUNT))
                for number in range(RESULTS_COUNT):
                    back_end.happen("near", HERE, {"number": number})
                    if number in (RESULTS_COUNT // 3, 2 * RESULTS_COUNT // 3):
                        await asyncio.sleep(0.2)
                        await begin_again(network, how)
                    await asyncio.sleep(0)
                proxy.heal()
                expected = list(range(1, RESULTS_COUNT + 1))
                assert positions(await taking) == expected
                assert positions(await take(streams[1], RESULTS_COUNT)) == expected
                assert positions(await take(streams[2], RESULTS_COUNT)) == expected
                back_end.happen("near", HERE, {"number": -1})  # what comes twice would come before it
                for stream in streams:
                    assert positions(await take(stream, 1)) == [RESULTS_COUNT + 1]
                for client in clients:
                    await client.close()

            try:
                run_loop(asyncio.wait_for(work(), WITHIN_S))
            finally:
                proxy.close()
    finally:
        back_end.stop()


def test_subscribers_to_channels_move_away_from_a_broker_that_is_drained(tmp_path: Path) -> None:
    back_end = StandInBackEnd(("near",), 0)
    back_end.start()
    try:
        with network_of(tmp_path, "received", back_end) as network:

            async def work() -> None:
                client = await Client.connect(network.address("B1"), "c")
                stream = await client.subscribe_channel("near", HERE)
                for number in range(100):
                    back_end.happen("near", HERE, {"number": number})
                    if number == 50:
                        result = await asyncio.to_thread(drain, tmp_path, "B1")
                        assert result.exit_code == 0, result.output
                assert positions(await take(stream, 100)) == list(range(1, 101))
                assert client.broker == "B2"
                await client.close()

            run_loop(asyncio.wait_for(work(), WITHIN_S))
    finally:
        back_end.stop()
