"""Brokers that are started again or replaced: who has the place, by epochs and not by clocks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.network.running import check_delivery, file_of, wait_for
from trimtab import Client, Filter, Network
from trimtab.network.admin.local_network import free_ports
from trimtab.network.admin.status import ask_status
from trimtab.network.client.subscription import Delivery
from trimtab.network.failover.process_identity import yields_to
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import NetworkOptions
from trimtab.protocol.frames import BrokerStatus

WITHIN_S = 30.0
BY_HAND = ReplicationSettings(look_every_s=0.1, suspect_after_s=0.3, crash_after_s=0.3, replaces="by-hand")
LINE = ["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")]


def status_at(address: str) -> BrokerStatus | None:
    try:
        return asyncio.run(ask_status(Address.parse(address)))
    except (OSError, TimeoutError):
        return None


def is_linked(address: str, epoch: int) -> bool:
    """Whether a broker of this epoch is there with all its links."""
    status = status_at(address)
    return status is not None and status.epoch == epoch and not status.links_missing


@contextmanager
def replica(
    file: str, broker: str, *options: str, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process that somebody starts as a replica, by hand."""
    command = [sys.executable, "-m", "trimtab", "broker", broker, file, "--replica", "synchronous", "--quiet", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment or dict(os.environ)
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(WITHIN_S)
        assert process.stderr is not None
        process.stderr.close()


def test_a_broker_that_is_started_again_is_let_in_at_once_as_a_later_incarnation(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, Network.of(*LINE, log=log) as network:
        for epoch in (2, 3):
            network.kill_broker("B2")  # it calls B3, and B1 calls it
            network.start_broker("B2")
            wait_for(lambda: status_at(network.address("B2")) is not None, "started")
            began_s = time.monotonic()
            wait_for(lambda: is_linked(network.address("B2"), epoch), "linked")  # noqa: B023
            assert time.monotonic() - began_s < 4.0  # B1 may have waited for two seconds before it called again
            check_delivery(network, "B1", "B3", epoch)
    assert (tmp_path / "log").read_bytes() == b""  # nothing to warn of


def test_a_replica_greets_with_the_epoch_that_it_was_ordered_with() -> None:
    settings = ReplicationSettings(look_every_s=0.1, suspect_after_s=0.3, crash_after_s=0.3, provisioner="process")
    with Network.of(*LINE, replication=settings) as network:
        for epoch in (2, 3):
            network.kill_broker("B2")
            wait_for(lambda: is_linked(network.address("B2"), epoch), "replaced")  # noqa: B023
            assert [name for name, _ in network.look_for_replicas(network.status())] == ["B2"]
            check_delivery(network, "B1", "B3", epoch)


def test_a_replica_that_stood_by_has_its_epoch_too() -> None:
    settings = ReplicationSettings(look_every_s=0.1, suspect_after_s=0.3, crash_after_s=0.3, provisioner="standby")
    with Network.of(*LINE, replication=settings, standbys_count=1) as network:
        network.kill_broker("B2")
        wait_for(lambda: is_linked(network.address("B2"), 2), "replaced")
        network.look_for_replicas(network.status())


def test_a_disk_knows_the_last_epoch(tmp_path: Path) -> None:
    options = NetworkOptions(acknowledges="durable", disk=str(tmp_path))
    with Network.of(["B1"], options=options) as network:
        for epoch in (1, 2, 3):
            status = network.status()["B1"]
            assert status is not None
            assert status.epoch == epoch
            network.kill_broker("B1")
            network.start_broker("B1")
            network.wait_until_ready()


@pytest.mark.parametrize("links", [LINE[1], [("B1", "B2"), ("B3", "B2")]], ids=["it calls", "it calls nobody"])
def test_an_incarnation_that_was_replaced_meanwhile_ends(tmp_path: Path, links: list[tuple[str, str]]) -> None:
    with Network.of(LINE[0], links, replication=BY_HAND) as network:
        elsewhere = f"127.0.0.1:{free_ports(1)[0]}"
        pid = network.pid("B2")
        os.kill(pid, signal.SIGSTOP)  # it hangs, and nobody ends it
        wait_for_verdict(network, "hang")
        with replica(file_of(network, tmp_path), "B2", "--listen", elsewhere):
            wait_for(lambda: is_linked(elsewhere, 2), "replaced")
            os.kill(pid, signal.SIGCONT)
            wait_for(lambda: network.dead() == [("B2", 1)], "over")
            assert is_linked(elsewhere, 2)
            check_delivery(network, "B1", "B3", 5)


@pytest.mark.parametrize("links", [LINE[1], [("B1", "B2"), ("B3", "B2")]], ids=["it calls", "it calls nobody"])
def test_a_broker_that_was_replaced_sends_its_clients_to_its_replica_and_nothing_safe_is_lost(
    tmp_path: Path, links: list[tuple[str, str]]
) -> None:
    elsewhere = f"127.0.0.1:{free_ports(1)[0]}"
    numbers: dict[str, list[object]] = {"B2": [], "B3": []}

    def take(taken: list[object], delivery: Delivery) -> None:
        taken.append(delivery.publication["a"])

    async def say(publishers: dict[str, Client], value: int) -> None:
        for number, publisher in enumerate(publishers.values()):
            await publisher.publish({"a": 2 * value + number})

    async def work(network: Network, stack: ExitStack) -> None:
        publishers = {name: await Client.connect(network.address(name), f"P{name}") for name in ("B1", "B2")}
        subscribers = {name: await Client.connect(network.address(name), f"S{name}") for name in ("B2", "B3")}
        for publisher in publishers.values():
            await publisher.advertise(Filter.parse("a > 0"))
        for name, subscriber in subscribers.items():
            await subscriber.subscribe(Filter.parse("a > 0"), callback=partial(take, numbers[name]))
        await say(publishers, 1)
        pid = network.pid("B2")
        os.kill(pid, signal.SIGSTOP)
        await say(publishers, 2)
        await asyncio.to_thread(wait_for_verdict, network, "hang")
        stack.enter_context(replica(file_of(network, tmp_path), "B2", "--listen", elsewhere))
        await asyncio.to_thread(wait_for, lambda: is_linked(elsewhere, 2), "replaced")
        await say(publishers, 3)
        os.kill(pid, signal.SIGCONT)
        await asyncio.to_thread(wait_for, lambda: network.dead() == [("B2", 1)], "over", 5.0)
        await say(publishers, 4)
        for publisher in publishers.values():
            await publisher.drain()
        while any(len(each) < 8 for each in numbers.values()):
            await asyncio.sleep(0.02)
        assert {client.broker for client in (publishers["B2"], subscribers["B2"])} == {"B2"}
        for client in (*publishers.values(), *subscribers.values()):
            await client.close()

    options = NetworkOptions(acknowledges="safe")
    with (
        (tmp_path / "log").open("wb") as log,
        Network.of(LINE[0], links, options, replication=BY_HAND, log=log) as network,
        ExitStack() as stack,
    ):
        run_loop(asyncio.wait_for(work(network, stack), 2 * WITHIN_S))
    for taken in numbers.values():
        for kind in (0, 1):
            assert [each for each in taken if int(str(each)) % 2 == kind] == [
                2 * value + kind for value in (1, 2, 3, 4)
            ]
    assert "B2 was replaced already by another process\n" in (tmp_path / "log").read_text(encoding="utf-8")


def test_links_return_after_replacements_although_the_clock_is_set_back(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "real, back_s = time.time, float(os.environ['CLOCK_SET_BACK_S'])\n"
        "time.time = lambda: real() - back_s\n",
        encoding="utf-8",
    )

    def environment(back_s: float) -> dict[str, str]:
        paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CLOCK_SET_BACK_S": str(back_s)}

    with Network.of(*LINE, replication=BY_HAND) as network, ExitStack() as stack:
        file, last = file_of(network, tmp_path), dict[str, subprocess.Popen[str]]()
        for turn, broker in enumerate(("B2", "B3", "B2", "B3", "B2")):
            if broker in last:
                last[broker].kill()
                last[broker].wait(WITHIN_S)
            else:
                network.kill_broker(broker)
            wait_for(lambda: not is_up(network, "B1" if broker == "B2" else "B2", broker), "gone")  # noqa: B023
            listen = ("--listen", network.address(broker))
            last[broker] = stack.enter_context(replica(file, broker, *listen, environment=environment(3_600.0 * turn)))
            for name in ("B2", "B3"):
                wait_for(lambda: is_linked(network.address(name), 2 + (turn - (name == "B3")) // 2), "linked")  # noqa: B023
            check_delivery(network, "B1", "B3", 1 + turn)


def is_up(network: Network, broker: str, neighbour: str) -> bool:
    """Whether a broker has a connection to a neighbour."""
    status = network.status()[broker]
    return status is None or any(peer.name == neighbour and peer.connected for peer in status.peers)


@pytest.mark.parametrize("host", ["node3", "node-3"])
def test_of_two_incarnations_the_lower_nonce_yields_whenever_they_began(host: str) -> None:
    lower, higher = f"900-999999-0a@{host}", f"100-1-0b@{host}"
    assert yields_to(lower, higher)
    assert not yields_to(higher, lower)
    assert not yields_to(lower, f"100-1-0a@{host}")


def wait_for_verdict(network: Network, verdict: str) -> None:
    """Wait until both neighbours of B2 say this of it."""

    def verdict_of(broker: str) -> str:
        status = network.status()[broker]
        return next((peer.verdict for peer in (status.peers if status else ()) if peer.name == "B2"), "")

    wait_for(lambda: {verdict_of("B1"), verdict_of("B3")} == {verdict}, verdict)


@pytest.mark.parametrize("attempt", range(3))
def test_of_two_replicas_with_the_same_epoch_one_stays(tmp_path: Path, attempt: int) -> None:
    with Network.of(*LINE, replication=BY_HAND) as network:
        file = file_of(network, tmp_path)
        network.kill_broker("B2")
        wait_for_verdict(network, "crash")
        addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        with (
            replica(file, "B2", "--epoch", "2", "--listen", addresses[0]) as one,
            replica(file, "B2", "--epoch", "2", "--listen", addresses[1]) as other,
        ):
            wait_for(lambda: one.poll() is not None or other.poll() is not None, "decided")
            over, left = (one, other) if one.poll() is not None else (other, one)
            assert over.stderr is not None
            assert (over.returncode, over.stderr.read()) == (1, "B2 was replaced already by another process\n")
            where = addresses[0] if left is one else addresses[1]
            wait_for(lambda: (found := status_at(where)) is not None and not found.links_missing, "linked")
            assert left.poll() is None
            check_delivery(network, "B1", "B3", 6)


def test_two_adjacent_brokers_that_fail_together_are_both_replaced() -> None:
    settings = ReplicationSettings(look_every_s=0.1, suspect_after_s=0.3, crash_after_s=0.3, provisioner="process")
    names = ["B1", "B2", "B3", "B4"]
    with Network.of(names, [("B1", "B2"), ("B2", "B3"), ("B3", "B4")], replication=settings) as network:
        for broker in ("B2", "B3"):
            network.kill_broker(broker)
        for broker in ("B2", "B3"):
            wait_for(lambda: is_linked(network.address(broker), 2), f"{broker} replaced")  # noqa: B023
        check_delivery(network, "B1", "B4", 8)
        network.look_for_replicas(network.status())


def test_a_leaf_that_fails_together_with_its_only_neighbour_is_replaced_too() -> None:
    settings = ReplicationSettings(
        look_every_s=0.1, suspect_after_s=0.3, crash_after_s=0.3, ask_again_s=0.5, provisioner="process"
    )
    with Network.of(*LINE, replication=settings) as network:
        pids = {network.pid(broker) for broker in ("B2", "B3")}
        for broker in ("B2", "B3"):
            network.kill_broker(broker)
        wait_for(lambda: is_linked(network.address("B2"), 2), "B2 replaced")
        found = network.status()["B3"]
        assert found is not None
        assert found.replica == "synchronous"
        assert found.pid not in pids
        check_delivery(network, "B1", "B3", 8)
        network.look_for_replicas(network.status())


def test_a_broker_is_called_again_when_its_replica_is_gone(tmp_path: Path) -> None:
    with Network.of(*LINE, replication=BY_HAND) as network:
        elsewhere = f"127.0.0.1:{free_ports(1)[0]}"
        network.kill_broker("B2")
        with replica(file_of(network, tmp_path), "B2", "--listen", elsewhere):
            wait_for(lambda: is_linked(elsewhere, 2), "replaced")
        network.start_broker("B2")
        wait_for(lambda: is_linked(network.address("B2"), 3), "there again")
        check_delivery(network, "B1", "B3", 9)
