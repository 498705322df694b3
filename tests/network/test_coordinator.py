"""The coordinator as a process: it places clients, moves them, dies by SIGKILL, and comes again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trimtab import Client, Filter, Network, Publication
from trimtab.network.admin.local_network import ask_all, free_ports
from trimtab.network.admin.status import ask_place
from trimtab.network.client.client import ClientError
from trimtab.network.links.address import Address
from trimtab.protocol.frames import PlaceRequest

Result = TypeVar("Result")

SUBSCRIBERS_COUNT = 30


def run(work: Coroutine[Any, Any, Result], within_s: float = 150.0) -> Result:
    """On asyncio's own loop: uvloop's may wait for ever at its end where processes were started in it."""
    return asyncio.run(asyncio.wait_for(work, within_s))


@pytest.fixture
def network_file(tmp_path: Path) -> Path:
    brokers = [
        f'[[broker]]\nname = "B{number}"\nlisten = "127.0.0.1:{port}"\nsite = [{number * 10}.0, 0.0]\n'
        for number, port in enumerate(free_ports(3), 1)
    ]
    links = [f'[[link]]\nbetween = ["B1", "{other}"]\n' for other in ("B2", "B3")]
    path = tmp_path / "network.toml"
    path.write_text("\n".join(['[policy]\nname = "coordinated"\n', *brokers, *links]))
    return path


@asynccontextmanager
async def coordinator(network_file: Path, port: int, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A coordinator process that is ready; it is killed at the end."""
    command = [sys.executable, "-m", "trimtab", "coordinator", str(network_file), "--listen", f"127.0.0.1:{port}"]
    command += ["--report-every", "0.3", "--round-every", "1", "--beta", "0", "--quiet", "--stop-with-parent"]
    process = await asyncio.create_subprocess_exec(*command, *options, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class _Crowd:
    """Subscribers that note what they get, and a publisher that numbers what it says."""

    def __init__(self, publisher: Client) -> None:
        self.publisher = publisher
        self.subscribers: list[Client] = []
        self.got: list[list[int]] = []
        self.published_count = 0

    async def join(self, client: Client) -> None:
        got: list[int] = []
        number = len(self.subscribers)
        self.subscribers.append(client)
        self.got.append(got)
        wanted = Filter.parse(f"class = 'NEWS' AND n > {-number}")
        await client.subscribe(wanted, callback=lambda delivery: got.append(delivery.sequence))

    async def publish(self, for_s: float) -> None:
        for _ in range(int(for_s / 0.01)):
            self.published_count += 1
            await self.publisher.publish(Publication({"class": "NEWS"}, n=self.published_count))
            await asyncio.sleep(0.01)
        await self.publisher.drain()

    async def all_have_everything(self) -> None:
        while any(len(got) < self.published_count for got in self.got):
            await asyncio.sleep(0.02)
        assert all(got == list(range(1, self.published_count + 1)) for got in self.got)

    def brokers(self) -> list[str]:
        return sorted(client.broker for client in self.subscribers)

    async def close(self) -> None:
        for client in (*self.subscribers, self.publisher):
            await client.close()


def test_it_places_nearby_levels_dies_without_harm_and_comes_again(network_file: Path) -> None:
    (port,) = free_ports(1)
    where = f"127.0.0.1:{port}"

    async def work(network: Network) -> None:
        crowd = _Crowd(await Client.connect(network.address("B1"), "publisher"))
        await crowd.publisher.advertise(Filter.parse("class = 'NEWS' AND n > -1000"))
        async with coordinator(network_file, port, "--placement", "nearest", "--policy", "none"):
            for site, broker in (((21.0, 3.0), "B2"), ((100.0, 0.0), "B3")):  # until it has heard of both
                while (await ask_place(Address.parse(where), PlaceRequest("x", site), 5.0)).broker != broker:
                    await asyncio.sleep(0.05)
            for number in range(SUBSCRIBERS_COUNT):
                await crowd.join(await Client.connect_through(where, f"S{number}", site=(21.0, 3.0)))
            assert crowd.brokers() == ["B2"] * SUBSCRIBERS_COUNT
            far = await Client.connect_through(where, "far", site=(100.0, 0.0))
            assert far.broker == "B3"
            await far.close()
        with pytest.raises(ClientError, match="no coordinator at"):
            await Client.connect_through(where, "late")
        await crowd.publish(1.0)  # nobody coordinates
        assert crowd.brokers() == ["B2"] * SUBSCRIBERS_COUNT
        async with coordinator(network_file, port, "--placement", "round-robin", "--policy", "ldm") as process:
            await crowd.publish(1.0)
            while min(crowd.brokers().count(name) for name in ("B1", "B2", "B3")) < 5:
                await crowd.publish(0.5)
            process.kill()  # in the midst of its work
            await crowd.publish(1.0)
        async with coordinator(network_file, port, "--placement", "least-loaded", "--policy", "ldm"):
            told = [""]
            while not all(each.startswith("tells ") for each in told):
                await crowd.publish(0.5)
                statuses = await ask_all(network.plan)
                told = [status.agents[0].doing for status in statuses.values() if status is not None]
        await crowd.all_have_everything()
        assert sum(client.moves_count for client in crowd.subscribers) >= 10
        await crowd.close()

    with Network.from_file(network_file) as network:
        run(work(network))


def test_a_client_that_connects_to_the_coordinator_is_sent_on(network_file: Path) -> None:
    (port,) = free_ports(1)

    async def work(network: Network) -> None:
        async with coordinator(network_file, port, "--placement", "round-robin"):
            await send_on(network)

    async def send_on(network: Network) -> None:
        publisher = await Client.connect(network.address("B1"), "publisher")
        await publisher.advertise(Filter.parse("class = 'NEWS'"))
        await asyncio.sleep(1.0)
        subscriber = await Client.connect(f"127.0.0.1:{port}", "subscriber")
        got: list[int] = []
        await subscriber.subscribe(
            Filter.parse("class = 'NEWS'"), callback=lambda delivery: got.append(delivery.sequence)
        )
        for _ in range(100):
            await publisher.publish(Publication({"class": "NEWS"}))
            await asyncio.sleep(0.01)
        while len(got) < 100:
            await asyncio.sleep(0.02)
        assert got == list(range(1, 101))
        assert subscriber.broker in ("B1", "B2", "B3")
        await subscriber.close()
        await publisher.close()

    with Network.from_file(network_file) as network:
        run(work(network))


def test_a_broker_that_is_no_coordinator_says_so(network_file: Path) -> None:
    async def work(network: Network) -> None:
        with pytest.raises(ClientError, match="broker B1 is no coordinator"):
            await Client.connect_through(network.address("B1"))

    with Network.from_file(network_file) as network:
        run(work(network))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--policy", "best"], "--policy: best is none of none, ldm"),
        (["--placement", "far"], "--placement: far is none of nearest"),
        (["--at", "B9"], "no broker is named B9"),
        (["--alpha", "0.9"], "migrate_cov 0.9 is not between 0 and shuffle_cov 0.5"),
        (["--round-every", "0"], "round_every_s must be positive"),
    ],
)
def test_wrong_options_are_refused(network_file: Path, options: list[str], reason: str) -> None:
    from typer.testing import CliRunner

    from trimtab.cli.main import app

    result = CliRunner().invoke(app, ["coordinator", str(network_file), *options])
    assert result.exit_code == 2
    assert reason in result.output


def test_a_network_without_the_policy_is_refused(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from trimtab.cli.main import app

    path = tmp_path / "plain.toml"
    path.write_text('[[broker]]\nname = "B1"\nlisten = "127.0.0.1:7001"\nsite = [1.0, "x"]\n')
    assert (
        "plain.toml:4: site: expected two numbers, [X, Y]" in CliRunner().invoke(app, ["coordinator", str(path)]).output
    )
    path.write_text('[[broker]]\nname = "B1"\nlisten = "127.0.0.1:7001"\n')
    assert 'name = "coordinated"' in CliRunner().invoke(app, ["coordinator", str(path)]).output
