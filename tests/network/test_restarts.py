"""Brokers are asked to end and are started again while publications flow: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.network.link_proxy import LinkProxy
from trimtab import Client, Filter, Network
from trimtab.broker.config import Acknowledges
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text
from trimtab.network.client.subscription import Delivery
from trimtab.network.clock import now_s
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions
from trimtab.network.server.state_file import StateFileError, read_state, write_state
from trimtab.protocol.events import LeftBehind
from trimtab.protocol.messages import Publish

WITHIN_S = 60.0
ARRIVES_WITHIN_S = 10.0
NOTHING_WRONG = {"lost": 0, "doubled or reordered": 0}
BROKERS = ("B1", "B2", "B3")
EVERY_S = 0.004


def line(level: Acknowledges, folder: Path, replication: ReplicationSettings | None = None) -> Network:
    """Three brokers in a row, with their files in a folder."""
    options = NetworkOptions(acknowledges=level, disk=str(folder / "disk") if level == "durable" else "")
    plan = Network.of(BROKERS, [("B1", "B2"), ("B2", "B3")], options, replication=replication).plan
    file = folder / "network.toml"
    file.write_text(plan_text(plan), encoding="utf-8")
    return Network.from_file(file)


async def by_signal(network: Network, folder: Path) -> None:
    """End one broker after the other with SIGTERM, and start it again a while later."""
    for name in BROKERS:
        assert await asyncio.to_thread(network.stop_broker, name) == 0
        await asyncio.sleep(0.2)
        network.start_broker(name)
        await asyncio.to_thread(network.wait_until_ready)
        await asyncio.sleep(0.3)


async def by_command(network: Network, folder: Path) -> None:
    """The same with `trimtab restart`."""
    command = ["restart", str(folder / "network.toml"), "--rolling"]
    result = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert result.exit_code == 0, result.output
    assert [text.split(" and ")[0] for text in result.stdout.splitlines()] == [
        f"{name} began again" for name in BROKERS
    ]
    network.check_alive()


async def by_kill(network: Network, folder: Path) -> None:
    """End one broker after the other with SIGKILL, and start it again as a supervisor would."""
    for name in BROKERS:
        await asyncio.to_thread(network.kill_broker, name)
        await asyncio.sleep(0.2)
        network.start_broker(name)
        await asyncio.to_thread(network.wait_until_ready)
        await asyncio.sleep(0.3)


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


@pytest.mark.parametrize(
    ("level", "restart"),
    [
        *((level, restart) for level in ("received", "safe", "durable") for restart in (by_signal, by_command)),
        ("safe", by_kill),
        ("durable", by_kill),
    ],
)
def test_a_rolling_restart_loses_nothing(
    level: Acknowledges, restart: Callable[[Network, Path], Awaitable[None]], tmp_path: Path
) -> None:
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
            await restart(network, tmp_path)
            stop.set()
            await asyncio.gather(*publishing)
            expected = {name: list(range(count)) for name, count in published.items()}
            ends_s = now_s() + ARRIVES_WITHIN_S
            while any(each.numbers != expected for each in got.values()) and now_s() < ends_s:
                await asyncio.sleep(0.05)
            for client in subscribers:
                assert list(client.gaps) == []
                await client.close()

        run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert {name: each.found(published) for name, each in got.items()} == dict.fromkeys(BROKERS, NOTHING_WRONG)


@pytest.mark.parametrize("level", ["received", "safe", "durable"])
def test_what_waits_for_a_client_that_is_away_waits_over_a_restart(level: Acknowledges, tmp_path: Path) -> None:
    with line(level, tmp_path) as network:
        proxy = LinkProxy(network.plan.broker("B1").listen.port)
        got = Got()

        async def work() -> None:
            publisher = await Client.connect(network.address("B1"), "P")
            await publisher.advertise(Filter.parse("n >= 0"))
            subscriber = await Client.connect(f"127.0.0.1:{proxy.port}", "S")
            await subscriber.subscribe(Filter.parse("n >= 0"), callback=got.take)
            proxy.cut()
            for number in range(10):
                await publisher.publish({"n": number})
            if level != "safe":  # there it is not acknowledged while nobody but B1 has it
                await publisher.drain()
            await asyncio.sleep(0.2)
            assert await asyncio.to_thread(network.stop_broker, "B1") == 0
            network.start_broker("B1")
            await asyncio.to_thread(network.wait_until_ready)
            await publisher.publish({"n": 10})
            proxy.heal()
            ends_s = now_s() + ARRIVES_WITHIN_S
            while got.numbers.get("P") != list(range(11)) and now_s() < ends_s:
                await asyncio.sleep(0.05)
            await subscriber.close()
            await publisher.close()

        try:
            run_loop(asyncio.wait_for(work(), WITHIN_S))
        finally:
            proxy.close()
        assert got.found({"P": 11}) == NOTHING_WRONG
        assert not list(tmp_path.glob(".trimtab/*.new"))


def test_a_broker_that_is_asked_to_begin_again_is_not_replaced(tmp_path: Path) -> None:
    settings = ReplicationSettings(provisioner="process", look_every_s=0.1, suspect_after_s=0.2, crash_after_s=0.2)
    with line("safe", tmp_path, settings) as network:
        pids = {name: network.pid(name) for name in BROKERS}
        run_loop(by_command(network, tmp_path))
        statuses = network.status()
        assert {name: status.pid for name, status in statuses.items() if status is not None} == pids
        assert [status.failures for status in statuses.values() if status is not None] == [(), (), ()]
    assert not (tmp_path / ".trimtab").exists()  # nobody has left anything behind


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say either which brokers, or --rolling"),
        (["B1", "--rolling"], "say either which brokers, or --rolling"),
        (["B9"], "no broker is named B9; there are B1, B2, B3"),
        (["B1"], "B1 does not answer at "),
    ],
)
def test_what_cannot_be_restarted_is_said(arguments: list[str], said: str, tmp_path: Path) -> None:
    line("received", tmp_path)
    result = CliRunner().invoke(app, ["restart", str(tmp_path / "network.toml"), *arguments])
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_state_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "B1.state"
    left = LeftBehind(tails={"S": (Publish(publisher="P", sequence=1, values={"n": 1}, origin_s=0.0),)})
    write_state(path, 3, left)
    assert read_state(path) == (3, left)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(StateFileError, match=r"B1\.state: not a state file, or damaged"):
            read_state(path)
        path.write_bytes(content[:place])
        with pytest.raises(StateFileError, match=r"B1\.state: not a state file, or damaged"):
            read_state(path)
    path.unlink()
    assert read_state(path) is None
    with pytest.raises(StateFileError, match="cannot be kept"):
        write_state(Path("/proc/nowhere/B1.state"), 1, left)
