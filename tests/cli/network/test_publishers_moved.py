"""`trimtab pub` under the policy "delay": a broker sends the publisher elsewhere while it publishes or leaves."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trimtab import Client, Network
from trimtab.network.loops import run
from trimtab.network.network_file import NetworkOptions

RUNS_COUNT = 9
QUICK_RUNS_COUNT = 60
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    options = NetworkOptions(meter_window_s=1.0)
    with Network.of(["Bh", "b1", "b2"], [("Bh", "b1"), ("Bh", "b2")], options, policy="delay") as running:
        yield running


def test_publishers_that_are_moved_end_with_exit_code_0(network: Network) -> None:
    moved_count = 0
    for number in range(RUNS_COUNT):
        broker = ("b1", "b2", "Bh")[number % 3]
        command = [sys.executable, "-m", "trimtab", "pub", "--broker", network.address(broker)]
        command += [f"[class,'WAVE'],[height,{number}]", f"[class,'WAVE'],[height,{number}],[buoy,'D']"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
        assert answer.returncode == 0, answer.stderr
        assert "has accepted 2 publications" in answer.stderr and "Traceback" not in answer.stderr
        moved_count += "has moved" in answer.stderr
    assert moved_count


def test_publishers_may_leave_at_any_moment_of_a_move(network: Network) -> None:
    """They wait for so long after their publication that the move begins, goes on or is over when they close."""
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    rng = random.Random(seed)

    async def publish_and_leave(address: str, pause_s: float) -> bool:
        async with asyncio.timeout(WITHIN_S), await Client.connect(address) as client:
            await client.publish({"class": "WAVE", "height": 3.5})
            await client.drain()
            await asyncio.sleep(pause_s)
            return client.moves_count > 0

    addresses = [network.address(name) for name in ("b1", "b2")]
    moved = [
        run(publish_and_leave(addresses[number % 2], rng.uniform(0.0, 0.05))) for number in range(QUICK_RUNS_COUNT)
    ]
    assert any(moved)
