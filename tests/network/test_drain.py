"""`trimtab drain`: a broker leaves while publications flow, and nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from tests.network.link_proxy import LinkProxy
from tests.network.test_restarts import EVERY_S, NOTHING_WRONG, Got
from trimtab import Client, Filter, Network
from trimtab.broker.config import Acknowledges
from trimtab.cli.main import app
from trimtab.network.admin.local_network import plan_text
from trimtab.network.admin.whereabouts import status_at
from trimtab.network.clock import now_s
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import LinkEntry, NetworkOptions
from trimtab.network.server.ending import LEFT_EXIT_CODE

WITHIN_S = 60.0
ARRIVES_WITHIN_S = 10.0
BROKERS = ("B1", "B2", "B3", "B4")


def star(folder: Path, level: Acknowledges = "received", **options: float) -> Network:
    """Three brokers around B2, with their files in a folder; B3 is called by B2, and B4 calls it."""
    chosen = NetworkOptions(
        acknowledges=level,
        disk=str(folder / "disk") if level == "durable" else "",
        **options,  # type: ignore[arg-type]
    )
    replication = ReplicationSettings(provisioner="process") if level == "safe" else None
    links = [("B1", "B2"), ("B2", "B3"), ("B4", "B2")]
    plan = Network.of(BROKERS, links, chosen, replication=replication).plan
    file = folder / "network.toml"
    file.write_text(plan_text(plan), encoding="utf-8")
    return Network.from_file(file)


def drain(folder: Path, *arguments: str) -> Result:
    broker, *others = arguments
    return CliRunner().invoke(app, ["drain", broker, str(folder / "network.toml"), *others])


class Traffic:
    """A publisher and a subscriber at each of some brokers, all of them hearing all."""

    def __init__(self, network: Network, brokers: tuple[str, ...]) -> None:
        self.network = network
        self.brokers = brokers
        self.got = {name: Got() for name in brokers}
        self.published: dict[str, int] = {}
        self.stop = asyncio.Event()
        self.subscribers: list[Client] = []
        self.publishing: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        for name in self.brokers:
            client = await Client.connect(self.network.address(name), f"S{name}")
            await client.subscribe(Filter.parse("n >= 0"), callback=self.got[name].take)
            self.subscribers.append(client)
        self.publishing = [asyncio.create_task(self.publish(name)) for name in self.brokers]
        await asyncio.sleep(0.6)

    async def publish(self, broker: str) -> None:
        async with await Client.connect(self.network.address(broker), f"P{broker}") as publisher:
            await publisher.advertise(Filter.parse(f"p = '{broker}' AND n >= 0"))
            await asyncio.sleep(0.3)
            while not self.stop.is_set():
                await publisher.publish({"p": broker, "n": self.published.setdefault(publisher.name, 0)})
                self.published[publisher.name] += 1
                await asyncio.sleep(EVERY_S)
            await publisher.drain()

    async def end(self) -> dict[str, dict[str, int]]:
        """Stop, wait until all has arrived, and tell what is wrong for each subscriber."""
        await asyncio.sleep(0.3)
        self.stop.set()
        await asyncio.gather(*self.publishing)
        expected = {name: list(range(count)) for name, count in self.published.items()}
        ends_s = now_s() + ARRIVES_WITHIN_S
        while any(each.numbers != expected for each in self.got.values()) and now_s() < ends_s:
            await asyncio.sleep(0.05)
        for client in self.subscribers:
            await client.close()
        return {name: each.found(self.published) for name, each in self.got.items()}


@pytest.mark.parametrize("leaf", ["B3", "B4"])
@pytest.mark.parametrize("level", ["received", "safe", "durable"])
def test_a_broker_is_drained_while_publications_flow(level: Acknowledges, leaf: str, tmp_path: Path) -> None:
    with star(tmp_path, level) as network:

        async def work() -> tuple[Result, dict[str, dict[str, int]]]:
            traffic = Traffic(network, BROKERS)
            await traffic.begin()
            result = await asyncio.to_thread(drain, tmp_path, leaf)
            return result, await traffic.end()

        result, found = run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert result.exit_code == 0, result.output
        lines = result.stdout.splitlines()
        assert lines[-2].startswith(f"{leaf} has left: 2 clients moved, ")
        assert lines[-1].startswith(f"Now take {leaf} and its link out of ")
        assert found == dict.fromkeys(BROKERS, NOTHING_WRONG)
        assert network.wait_for_end(leaf) == LEFT_EXIT_CODE
        statuses = network.status()
        assert statuses[leaf] is None
        for name in set(BROKERS) - {leaf}:
            status = statuses[name]
            assert status is not None
            assert (status.links_missing, status.failures, status.is_learning) == ((), (), False)
        assert not list(tmp_path.glob(".trimtab/*.state"))
        network.start_broker(leaf)  # and it may come again, by its file
        network.wait_until_ready()


@pytest.mark.parametrize("level", ["received", "safe", "durable"])
def test_a_broker_that_links_others_gives_its_clients_away_and_carries_on(level: Acknowledges, tmp_path: Path) -> None:
    with star(tmp_path, level) as network:

        async def work() -> tuple[Result, Result, dict[str, dict[str, int]]]:
            traffic = Traffic(network, BROKERS)
            await traffic.begin()
            refused = await asyncio.to_thread(drain, tmp_path, "B2")
            result = await asyncio.to_thread(drain, tmp_path, "B2", "--carry", "--to", "B4", "--json")
            return refused, result, await traffic.end()

        refused, result, found = run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert (refused.exit_code, refused.stderr) == (
            1,
            "B2 links B1, B3, B4, which would be cut off from each other. With --carry its clients move, and B2 stays "
            "to carry what those say to each other\n",
        )
        assert result.exit_code == 0, result.output
        answer = json.loads(result.stdout)
        assert (answer["broker"], answer["left"], answer["moved_count"]) == ("B2", False, 2)
        assert found == dict.fromkeys(BROKERS, NOTHING_WRONG)
        network.check_alive()
        status = network.status()["B2"]
        assert status is not None
        assert [peer.name for peer in status.peers if peer.role == "client"] == []


def test_whoever_comes_to_a_broker_that_is_drained_is_sent_on(tmp_path: Path) -> None:
    with star(tmp_path) as network:
        assert drain(tmp_path, "B2", "--carry", "--to", "B1").exit_code == 0

        async def come() -> str:
            async with await Client.connect(network.address("B2"), "late") as client:
                await client.subscribe(Filter.parse("n >= 0"))
                ends_s = now_s() + ARRIVES_WITHIN_S
                while client.broker != "B1" and now_s() < ends_s:
                    await asyncio.sleep(0.05)
                return client.broker

        assert run_loop(come()) == "B1"
        moved = CliRunner().invoke(app, ["drain", "B3", str(tmp_path / "network.toml"), "--to", "B2"])
        assert (moved.exit_code, moved.stderr) == (1, "B2 is being drained and cannot take the clients of B3\n")

        async def move_there() -> Result:
            async with await Client.connect(network.address("B1"), "other"):
                command = ["move", "other", "B2", str(tmp_path / "network.toml")]
                return await asyncio.to_thread(CliRunner().invoke, app, command)

        refused = run_loop(move_there())
        assert refused.exit_code == 1
        assert "other stays at B1: " in refused.stderr
        assert "B2 is being drained and takes no clients" in refused.stderr
        cancelled = drain(tmp_path, "B2", "--cancel")
        assert (cancelled.exit_code, cancelled.stdout) == (0, "B2 stays and takes clients\n")
        again = drain(tmp_path, "B2", "--cancel")
        assert (again.exit_code, again.stderr) == (1, "B2 is not being drained\n")


def test_a_client_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with star(tmp_path) as network:
        proxy = LinkProxy(network.plan.broker("B3").listen.port)
        got = Got()

        async def work() -> tuple[Result, Result]:
            publisher = await Client.connect(network.address("B1"), "P")
            await publisher.advertise(Filter.parse("n >= 0"))
            subscriber = await Client.connect(f"127.0.0.1:{proxy.port}", "S")
            await subscriber.subscribe(Filter.parse("n >= 0"), callback=got.take)
            proxy.cut()
            for number in range(10):
                await publisher.publish({"n": number})
            early = await asyncio.to_thread(drain, tmp_path, "B3", "--within", "1")
            draining = asyncio.create_task(asyncio.to_thread(drain, tmp_path, "B3"))
            await asyncio.sleep(0.5)
            proxy.heal()
            late = await draining
            await publisher.publish({"n": 10})
            ends_s = now_s() + ARRIVES_WITHIN_S
            while got.numbers.get("P") != list(range(11)) and now_s() < ends_s:
                await asyncio.sleep(0.05)
            await subscriber.close()
            await publisher.close()
            return early, late

        try:
            early, late = run_loop(asyncio.wait_for(work(), WITHIN_S))
        finally:
            proxy.close()
        assert (early.exit_code, early.stderr) == (
            1,
            "B3 still has 1 client after 1 s: S: it is away, and waits for its return or the end of its lease. "
            "It goes on; say it again to wait on, or --cancel to take it back.\n",
        )
        assert late.exit_code == 0, late.output
        assert got.found({"P": 11}) == NOTHING_WRONG


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["B9"], 2, "no broker is named B9; there are B1, B2, B3, B4"),
        (["B3", "--to", "B9"], 2, "no broker is named B9; there are B1, B2, B3, B4"),
        (["B3", "--to", "B3"], 2, "--to B3: that is the broker that is to leave"),
        (["B3", "--cancel", "--carry"], 2, "--cancel goes with no other choice"),
        (["B3"], 1, "B3 does not answer at "),
        (["B3", "--cancel"], 1, "B3 does not answer at "),
    ],
)
def test_what_cannot_be_drained_is_said(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    star(tmp_path)
    result = drain(tmp_path, *arguments)
    assert result.exit_code == code
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_the_only_broker_cannot_give_its_clients_away(tmp_path: Path) -> None:
    with Network.of(["B1"]) as network:
        (tmp_path / "network.toml").write_text(plan_text(network.plan), encoding="utf-8")

        async def work() -> Result:
            async with await Client.connect(network.address("B1"), "c"):
                return await asyncio.to_thread(drain, tmp_path, "B1")

        result = run_loop(work())
        assert (result.exit_code, result.stderr) == (
            1,
            "nobody can take the clients of B1: it is the only broker of the file\n",
        )
        assert network.status()["B1"] is not None


@pytest.mark.parametrize("level", ["received", "safe"])
def test_a_link_that_breaks_while_a_broker_says_that_it_leaves_changes_nothing(
    level: Acknowledges, tmp_path: Path
) -> None:
    plan = Network.of(("B1", "B2"), [("B1", "B2")], NetworkOptions(acknowledges=level)).plan
    proxy = LinkProxy(plan.broker("B2").listen.port)
    link = LinkEntry("B1", "B2", Address("127.0.0.1", proxy.port))
    plan = msgspec.structs.replace(plan, links=(link,))
    (tmp_path / "network.toml").write_text(plan_text(plan), encoding="utf-8")
    with Network.from_file(tmp_path / "network.toml") as network:

        async def cut_when_it_leaves() -> None:
            while (status := await status_at(plan.broker("B2").listen)) is not None:
                if status.drain is not None and status.drain.phase == "leaving":
                    break
                await asyncio.sleep(0.002)
            proxy.cut()
            await asyncio.sleep(0.5)
            proxy.heal()

        async def work() -> tuple[Result, dict[str, dict[str, int]]]:
            traffic = Traffic(network, ("B1", "B2"))
            await traffic.begin()
            cutting = asyncio.create_task(cut_when_it_leaves())
            result = await asyncio.to_thread(drain, tmp_path, "B2", "--within", "20")
            await cutting
            return result, await traffic.end()

        try:
            result, found = run_loop(asyncio.wait_for(work(), WITHIN_S))
        finally:
            proxy.close()
        assert result.exit_code == 0, result.output
        assert found == dict.fromkeys(("B1", "B2"), NOTHING_WRONG)
        assert network.wait_for_end("B2") == LEFT_EXIT_CODE
        status = network.status()["B1"]
        assert status is not None
        assert status.links_missing == ()
        assert [peer.name for peer in status.peers if peer.role == "broker"] == []
