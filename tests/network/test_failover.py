"""Broker processes that die, hang or cannot be reached, and what replaces them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.network.link_proxy import LinkProxy
from tests.network.running import check_delivery, file_of, trimtab, wait_for
from trimtab import Client, Filter, Network
from trimtab.network.admin.local_network import free_ports, plan_text
from trimtab.network.admin.status import ask_link, ask_status, ask_where
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan
from trimtab.protocol.frames import BrokerStatus, FailureStatus, LinkRequest

WITHIN_S = 40.0
QUICK = ReplicationSettings(
    look_every_s=0.1,
    suspect_after_s=0.3,
    crash_after_s=0.3,
    hang_after_s=2.0,
    ask_again_s=2.0,
)
LINE = ["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")]


def settings(**changes: object) -> ReplicationSettings:
    return msgspec.structs.replace(QUICK, **changes)


def status_of(network: Network, broker: str) -> BrokerStatus | None:
    return network.status()[broker]


def failures(network: Network, broker: str) -> tuple[FailureStatus, ...]:
    status = status_of(network, broker)
    return () if status is None else status.failures


def is_replaced(network: Network, broker: str, seen_by: str) -> bool:
    return any(each.broker == broker and each.replaced_s is not None for each in failures(network, seen_by))


def test_a_broker_that_dies_is_replaced_by_a_process_at_its_address_and_its_clients_go_on() -> None:
    with Network.of(*LINE, replication=settings(provisioner="process")) as network:
        before = status_of(network, "B2")
        assert before is not None
        numbers: list[object] = []

        async def work() -> None:
            publisher = await Client.connect(network.address("B2"), "P")
            subscriber = await Client.connect(network.address("B2"), "S")
            far = await Client.connect(network.address("B3"), "F")
            await publisher.advertise(Filter.parse("a > 0"))
            await subscriber.subscribe(
                Filter.parse("a > 0"), callback=lambda each: numbers.append(each.publication["a"])
            )
            subscription = await far.subscribe(Filter.parse("a > 0"))
            network.kill_broker("B2")
            await publisher.publish({"a": 1})
            await publisher.publish({"a": 2})
            await publisher.drain()
            assert [(await anext(subscription)).publication["a"] for _ in range(2)] == [1, 2]
            while len(numbers) < 2:
                await asyncio.sleep(0.02)
            for client in (publisher, subscriber, far):
                await client.close()

        run_loop(asyncio.wait_for(work(), WITHIN_S))
        assert numbers == [1, 2]
        wait_for(lambda: is_replaced(network, "B2", seen_by="B1"), "replaced")
        after = status_of(network, "B2")
        assert after is not None
        assert (after.replica, after.links_missing) == ("synchronous", ())
        assert after.pid != before.pid
        assert after.session != before.session
        [failure] = failures(network, "B1")
        assert (failure.broker, failure.why, failure.outcome) == ("B2", "crash", "replaced")
        check_delivery(network, "B1", "B3", 7)


def test_a_broker_that_hangs_is_killed_and_replaced() -> None:
    with Network.of(*LINE, replication=settings(provisioner="process")) as network:
        pid = network.pid("B2")
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: is_replaced(network, "B2", seen_by="B1"), "replaced")
        assert [(each.broker, each.why) for each in failures(network, "B1")] == [("B2", "hang")]
        assert network.dead() == [("B2", -signal.SIGKILL)]
        check_delivery(network, "B1", "B3", 1)


def test_a_broker_of_which_a_replica_was_not_told_may_be_linked_to_it(tmp_path: Path) -> None:
    brokers, links = LINE
    with Network.of([*brokers, "B4"], links, replication=settings(provisioner="process")) as network:
        network.kill_broker("B2")
        wait_for(lambda: is_replaced(network, "B2", seen_by="B1"), "replaced")
        result = trimtab("link", "add", "B4", "B2", file_of(network, tmp_path))
        assert (result.exit_code, result.stderr) == (0, "")
        check_delivery(network, "B4", "B3", 1)


def test_a_broker_that_is_asked_to_end_is_not_replaced() -> None:
    with Network.of(*LINE, replication=settings(provisioner="process")) as network:
        assert network.stop_broker("B2") == 0
        time.sleep(1.5)  # nothing is to happen
        assert status_of(network, "B2") is None
        assert failures(network, "B1") == failures(network, "B3") == ()


def test_a_broker_that_runs_is_not_replaced_when_only_a_link_to_it_is_broken() -> None:
    ports = free_ports(2)
    proxy = LinkProxy(ports[1])
    plan = NetworkPlan(
        tuple(BrokerEntry(name, Address("127.0.0.1", port)) for name, port in zip(("B1", "B2"), ports, strict=True)),
        (LinkEntry("B1", "B2", via=Address("127.0.0.1", proxy.port)),),
        replication=settings(provisioner="process"),
    )
    try:
        with Network(plan) as network:
            pid = network.pid("B2")
            proxy.cut()
            wait_for(lambda: bool(failures(network, "B1")), "noticed")
            wait_for(lambda: failures(network, "B1")[0].outcome != "is being replaced", "decided")
            assert failures(network, "B1")[0].outcome == "B2 runs and answers; only the link to it is broken"
            proxy.heal()
            check_delivery(network, "B1", "B2", 5)
            status = status_of(network, "B2")
            assert status is not None
            assert (status.pid, status.replica) == (pid, "")
    finally:
        proxy.close()


def test_processes_that_stand_by_take_over_one_after_the_other() -> None:
    chosen = settings(provisioner="standby", protocol="incremental")
    with Network.of(*LINE, replication=chosen, standbys_count=2) as network:
        for broker, seen_by in (("B2", "B1"), ("B1", "B2")):
            network.kill_broker(broker)
            wait_for(lambda: is_replaced(network, broker, seen_by), f"{broker} replaced")  # noqa: B023
            assert [name for name, _ in network.look_for_replicas(network.status())] == [broker]
        check_delivery(network, "B1", "B3", 3)
        network.kill_broker("B3")
        wait_for(lambda: any("nobody stands by" in each.outcome for each in failures(network, "B2")), "given up")
        network.refill_standbys()
        wait_for(lambda: is_replaced(network, "B3", seen_by="B2"), "replaced after all")
        network.look_for_replicas(network.status())


def test_the_operators_command_starts_a_replica(tmp_path: Path) -> None:
    note = tmp_path / "order.txt"
    file = tmp_path / "network.toml"
    script = tmp_path / "start.py"
    script.write_text(
        "import subprocess, sys, pathlib\n"
        f"pathlib.Path({str(note)!r}).write_text(' '.join(sys.argv[1:]))\n"
        "broker, protocol, neighbours, listen = sys.argv[1:5]\n"
        f"order = ['broker', broker, {str(file)!r}, '--replica', protocol, '--neighbours', neighbours, '--quiet']\n"
        f"order += ['--listen', listen, '--stop-with', '{os.getpid()}']\n"
        "subprocess.Popen([sys.executable, '-m', 'trimtab', *order], start_new_session=True)\n",
        encoding="utf-8",
    )
    words = (sys.executable, str(script), "{broker}", "{protocol}", "{neighbours}", "{listen}", "{why}")
    network = Network.of(*LINE, replication=settings(provisioner="command", command=words, protocol="basic"))
    file.write_text(plan_text(network.plan), encoding="utf-8")
    with network:
        network.kill_broker("B2")
        wait_for(lambda: is_replaced(network, "B2", seen_by="B1"), "replaced")
        neighbours = f"B1={network.address('B1')},B3={network.address('B3')}"
        assert note.read_text(encoding="utf-8") == f"B2 basic {neighbours} {network.address('B2')} crash"
        check_delivery(network, "B1", "B3", 4)
        network.look_for_replicas(network.status())


def test_clients_find_a_replica_at_another_address(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    elsewhere = f"127.0.0.1:{free_ports(1)[0]}"
    words = [sys.executable, "-m", "trimtab", "broker", "{broker}", str(file), "--replica", "{protocol}", "--quiet"]
    words += ["--neighbours", "{neighbours}", "--listen", elsewhere, "--stop-with", str(os.getpid())]
    network = Network.of(*LINE, replication=settings(provisioner="command", command=tuple(words)))
    file.write_text(plan_text(network.plan), encoding="utf-8")

    async def work() -> list[object]:
        publisher = await Client.connect(network.address("B1"), "P")
        subscriber = await Client.connect(network.address("B2"), "S")
        await publisher.advertise(Filter.parse("a > 0"))
        subscription = await subscriber.subscribe(Filter.parse("a > 0"))
        network.kill_broker("B2")
        await publisher.publish({"a": 1})
        numbers: list[object] = [(await anext(subscription)).publication["a"]]
        await publisher.publish({"a": 2})
        numbers.append((await anext(subscription)).publication["a"])
        assert subscriber.broker == "B2"
        for client in (publisher, subscriber):
            await client.close()
        return numbers

    with network:
        assert run_loop(asyncio.wait_for(work(), WITHIN_S)) == [1, 2]
        replica = asyncio.run(ask_status(Address.parse(elsewhere)))
        assert (replica.name, replica.replica) == ("B2", "synchronous")
        assert asyncio.run(ask_where(Address.parse(network.address("B3")), "B2")) == elsewhere
        os.kill(replica.pid, signal.SIGTERM)


def test_of_two_replicas_the_later_one_ends(tmp_path: Path) -> None:
    with Network.of(*LINE, replication=settings(replaces="by-hand")) as network:
        file = file_of(network, tmp_path)
        network.kill_broker("B2")
        wait_for(lambda: bool(failures(network, "B1")), "noticed")  # a replica that comes before is not counted as one
        command = [sys.executable, "-m", "trimtab", "broker", "B2", file, "--replica", "synchronous", "--quiet"]
        first = subprocess.Popen([*command, "--listen", network.address("B2")])
        try:
            wait_for(lambda: is_replaced(network, "B2", seen_by="B1"), "replaced")
            second = subprocess.run(
                [*command, "--listen", f"127.0.0.1:{free_ports(1)[0]}"],
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
            )
            assert (second.returncode, second.stderr) == (1, "B2 was replaced already by another process\n")
            status = status_of(network, "B2")
            assert status is not None
            assert (status.pid, status.links_missing) == (first.pid, ())
            check_delivery(network, "B1", "B3", 6)
        finally:
            first.kill()
            first.wait()


def test_clients_of_a_broker_that_nobody_replaces_go_to_a_neighbour_and_on_when_its_links_are_removed() -> None:
    async def work() -> tuple[object, str, str]:
        publisher = await Client.connect(network.address("B2"), "P", reattach_after_s=1.5)
        subscriber = await Client.connect(network.address("B2"), "S", reattach_after_s=1.5)
        await publisher.advertise(Filter.parse("a > 0"))
        subscription = await subscriber.subscribe(Filter.parse("a > 0"))
        network.kill_broker("B2")
        while {publisher.broker, subscriber.broker} != {"B1"}:
            await asyncio.sleep(0.05)
        assert (await ask_link(Address.parse(network.address("B1")), LinkRequest("remove", "B2"))).done
        again = await subscriber.subscribe(Filter.parse("a > 10"))
        await publisher.publish({"a": 12})
        delivery = await anext(subscription)
        assert (await anext(again)).publication == delivery.publication
        for client in (publisher, subscriber):
            await client.close()
        return delivery.publication["a"], publisher.broker, subscriber.broker

    with Network.of(["B1", "B2"], [("B1", "B2")], replication=QUICK) as network:
        assert run_loop(asyncio.wait_for(work(), WITHIN_S)) == (12, "B1", "B1")


def test_a_command_that_fails_is_told_of() -> None:
    chosen = settings(provisioner="command", command=("false",), start_within_s=0.5)
    with Network.of(["B1", "B2"], [("B1", "B2")], replication=chosen) as network:
        network.kill_broker("B2")
        wait_for(lambda: any("exit code 1" in each.outcome for each in failures(network, "B1")), "told of")
        [failure] = failures(network, "B1")
        assert failure.outcome == "the operator's command ended with exit code 1"


def test_a_broker_is_replaced_by_hand_by_another_protocol(tmp_path: Path) -> None:
    chosen = settings(provisioner="process", replaces="by-hand")
    with Network.of(*LINE, replication=chosen) as network:
        file = file_of(network, tmp_path)
        alive = trimtab("replace", "B2", file)
        assert (alive.exit_code, alive.stderr) == (
            1,
            f"B2 lives: it answers at {network.address('B2')}; only a broker that has failed is replaced\n",
        )
        network.kill_broker("B2")
        wait_for(lambda: bool(failures(network, "B1")), "noticed")
        assert failures(network, "B1")[0].outcome == "waits for trimtab replace"
        assert trimtab("status", file).exit_code == 1
        disorderly = trimtab("replace", "B2", file, "--protocol", "incremental")
        assert disorderly.exit_code == 1
        assert "incremental does not keep each publisher's order" in disorderly.stderr
        result = trimtab("replace", "B2", file, "--protocol", "incremental-ordered")
        assert (result.exit_code, result.stdout) == (0, "B2 is replaced\n"), result.stderr
        status = status_of(network, "B2")
        assert status is not None
        assert status.replica == "incremental-ordered"
        shown = trimtab("status", file)
        assert shown.exit_code == 0
        assert "incremental" in shown.stdout
        network.look_for_replicas(network.status())


def test_a_broker_whose_neighbours_are_gone_cannot_be_replaced(tmp_path: Path) -> None:
    network = Network.of(["B1", "B2"], [("B1", "B2")], replication=settings(provisioner="process"))
    result = trimtab("replace", "B2", file_of(network, tmp_path))
    assert result.exit_code == 1
    assert result.stderr == "no neighbour of B2 answers (B1), so nobody can tell a replica\n"


@pytest.mark.parametrize(
    ("replication", "arguments", "expected"),
    [
        (QUICK, ["B9"], "{file}: no broker is named B9; there are B1, B2\n"),
        (None, ["B2"], "{file} has no section [replication]: nobody watches its brokers, and nobody could tell a repl"),
        (
            QUICK,
            ["B2"],
            "{file} configures no provisioner (provisioner in [replication]); to start a replica by hand: ",
        ),
        (QUICK, ["B2", "--protocol", "fast"], "--protocol: no protocol of replication is called fast; there are basic"),
    ],
)
def test_what_cannot_be_replaced_is_told(
    tmp_path: Path, replication: ReplicationSettings | None, arguments: list[str], expected: str
) -> None:
    file = file_of(Network.of(["B1", "B2"], [("B1", "B2")], replication=replication), tmp_path)
    broker, *options = arguments
    result = trimtab("replace", broker, file, *options)
    assert result.exit_code == 2
    assert result.stderr.startswith(expected.format(file=file))


@pytest.mark.parametrize(
    ("acknowledges", "replication", "options", "expected"),
    [
        ("received", None, ["--replica", "basic"], "--replica: the network file has no section [replication]"),
        ("received", QUICK, ["--replica", "fast"], "--replica: no protocol of replication is called fast; there are"),
        ("safe", QUICK, ["--replica", "basic"], "--replica basic: what is safe stays so only with the protocol sync"),
        (
            "received",
            QUICK,
            ["--listen", "127.0.0.1:1"],
            "--neighbours, --listen, --assist, --reorder and --epoch are for",
        ),
        (
            "received",
            QUICK,
            ["--replica", "basic", "--neighbours", "B1"],
            "--neighbours: 'B1': expected NAME=",
        ),
        ("received", QUICK, ["--replica", "basic", "--listen", "here"], "--listen: 'here' is not an address"),
    ],
)
def test_a_replica_with_wrong_options_is_told_why(
    tmp_path: Path, acknowledges: str, replication: ReplicationSettings | None, options: list[str], expected: str
) -> None:
    chosen = NetworkOptions(acknowledges="safe") if acknowledges == "safe" else None
    file = file_of(Network.of(["B1", "B2"], [("B1", "B2")], chosen, replication=replication), tmp_path)
    result = trimtab("broker", "B2", file, *options)
    assert result.exit_code == 2
    assert result.stderr.startswith(expected)
