"""Broker processes are killed where that may lose publications: what is lost stands in notices, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from trimtab import BlockingClient, Client, Filter, GapNotice, Network
from trimtab.broker.config import Acknowledges
from trimtab.client.gaps import ANSWERS_WITHIN_S
from trimtab.network.admin.local_network import plan_text
from trimtab.network.client.subscription import Delivery
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions

BROKERS = ("B1", "B2", "B3", "B4")
LINKS = [("B1", "B2"), ("B2", "B3"), ("B3", "B4")]
WITHIN_S = 90.0


def line(level: Acknowledges, folder: Path) -> Network:
    """Four brokers in a row, and nobody who would replace them."""
    file = folder / "network.toml"
    file.write_text(
        plan_text(Network.of(BROKERS, LINKS, NetworkOptions(acknowledges=level, window_frames_count=64)).plan),
        encoding="utf-8",
    )
    return Network.from_file(file)


def told(notices: Sequence[GapNotice], publisher: str, following: Sequence[int]) -> set[int]:
    """The numbers that stand in notices about a publisher; an open one ends before the next delivery."""
    numbers: set[int] = set()
    for each in notices:
        if each.publisher == publisher:
            assert each.first is not None
            last = each.last
            if last is None:
                last = min((number - 1 for number in following if number >= each.first), default=1_000_000)
            numbers.update(range(each.first, last + 1))
    return numbers


class Subscriber:
    """What a subscriber got, and was told."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.got: dict[str, list[int]] = {}
        self.notices: list[GapNotice] = []
        client.on_gap = self.notices.append

    def take(self, delivery: Delivery) -> None:
        self.got.setdefault(delivery.publisher, []).append(delivery.sequence)


@pytest.mark.parametrize(
    ("level", "killed", "stalled"),
    [
        ("received", ("B2",), "B3"),
        ("received", ("B2", "B3"), "B4"),
        ("received", ("B4",), ""),
        ("safe", ("B2", "B3"), "B4"),
        ("safe", ("B3",), "B4"),
    ],
)
def test_what_was_acknowledged_and_is_missing_stands_in_notices(
    level: Acknowledges, killed: tuple[str, ...], stalled: str, tmp_path: Path
) -> None:
    """Publishers at both ends publish without pause, and one is silent; the subscribers are at both ends, too."""
    accepted: dict[str, int] = {}
    subscribers: dict[str, Subscriber] = {}
    with line(level, tmp_path) as network:

        async def publish(broker: str, stop: asyncio.Event) -> None:
            async with await Client.connect(network.address(broker), f"P{broker}") as publisher:
                await publisher.advertise(Filter.parse(f"p = '{broker}' AND n >= 0"))
                await asyncio.sleep(0.3)
                while not stop.is_set():
                    number = await publisher.publish({"p": broker, "n": 1})
                    if number % 20 == 0:
                        await asyncio.sleep(0.01)
                await publisher.drain()
                accepted[publisher.name] = number
                await asyncio.sleep(2.0)

        async def work() -> None:
            for broker in ("B1", "B4"):
                subscriber = subscribers[broker] = Subscriber(
                    await Client.connect(network.address(broker), f"S{broker}")
                )
                await subscriber.client.subscribe(Filter.parse("n >= 0"), callback=subscriber.take)
            silent = await Client.connect(network.address("B1"), "silent")
            await silent.advertise(Filter.parse("p = 'silent' AND n >= 0"))
            for _ in range(5):
                await silent.publish({"p": "silent", "n": 1})
            await silent.drain()
            accepted["silent"] = 5
            stop = asyncio.Event()
            publishing = [asyncio.create_task(publish(broker, stop)) for broker in ("B1", "B4")]
            await asyncio.sleep(1.5)
            for _ in range(2):
                if stalled:
                    os.kill(network.pid(stalled), signal.SIGSTOP)  # what is for it waits at those before it
                    await asyncio.sleep(0.4)
                for name in killed:
                    await asyncio.to_thread(network.kill_broker, name)
                if stalled:
                    os.kill(network.pid(stalled), signal.SIGCONT)
                for name in killed:
                    network.start_broker(name)
                await asyncio.to_thread(network.wait_until_ready)
                await asyncio.sleep(1.0)
            stop.set()
            await asyncio.gather(*publishing)
            await asyncio.sleep(ANSWERS_WITHIN_S - 2.0)
            await silent.close()
            for each in subscribers.values():
                assert each.client.gaps_count == len(each.notices)
                await each.client.close()

        run_loop(asyncio.wait_for(work(), WITHIN_S))
    lost_count = 0
    for b, e in subscribers.items():
        print(b, *e.notices, sep="\n   ")
    for subscriber in subscribers.values():
        for publisher, count in accepted.items():
            got = subscriber.got[publisher]
            missing = set(range(1, count + 1)).difference(got)
            lost_count += len(missing)
            assert missing <= told(subscriber.notices, publisher, got), publisher
    assert lost_count or not stalled or (len(killed) == 1 and level == "safe")
    if level == "safe" and len(killed) == 1:
        assert [each.notices for each in subscribers.values()] == [[], []]
        assert lost_count == 0
    else:
        assert all(each.notices for each in subscribers.values())
        assert not any(told(each.notices, "silent", each.got["silent"]) for each in subscribers.values())


def _errors(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stderr is not None
    return process.stderr


def test_trimtab_sub_prints_gaps_and_blocking_clients_keep_them(tmp_path: Path) -> None:
    with line("received", tmp_path) as network:
        command = [sys.executable, "-m", "trimtab", "sub", "n >= 0", "--broker", network.address("B4")]
        printing = [
            subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for more in ([], ["--json"])
        ]

        async def work() -> None:
            async with await Client.connect(network.address("B1"), "P") as publisher:
                await publisher.advertise(Filter.parse("n >= 0"))
                for process in printing:
                    assert await asyncio.to_thread(_errors(process).readline) == "subscribed\n"
                await publisher.publish({"n": 1})
                await publisher.drain()
                await asyncio.sleep(0.5)
                await asyncio.to_thread(network.kill_broker, "B3")
                network.start_broker("B3")
                await asyncio.to_thread(network.wait_until_ready)
                await asyncio.sleep(1.0)

        with BlockingClient(network.address("B4")) as blocking:
            blocking.subscribe(Filter.parse("n >= 0"))
            run_loop(asyncio.wait_for(work(), WITHIN_S))
            assert [each.publisher for each in blocking.gaps] == [""]
            assert blocking.gaps_count == 1
        for process in printing:
            process.send_signal(signal.SIGTERM)
        (text, errors), (objects, _) = [process.communicate(timeout=20) for process in printing]
    reason = "B3 was started again without what was under way there"
    assert f"gap: publications may be lost: {reason}" in errors
    assert "gap" not in text
    gaps = [found["gap"] for found in map(json.loads, objects.splitlines()) if "gap" in found]
    assert gaps == [{"publisher": "", "first": None, "last": None, "reason": reason}]
