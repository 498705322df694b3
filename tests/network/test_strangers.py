"""Strangers that greet as brokers: they have nobody killed, run nothing and take nobody's place."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.network.raw_peer import RawPeer
from tests.network.running import check_delivery, wait_for
from trimtab import Network
from trimtab.network.admin.local_network import free_ports, plan_text
from trimtab.network.admin.status import ask_status
from trimtab.network.failover.process_identity import ProcessIdentity, new_session, this_host
from trimtab.network.failover.process_proof import proved
from trimtab.network.failover.replication_settings import ReplicationSettings
from trimtab.network.links.address import Address
from trimtab.network.server.greetings import PLACE_IS_TAKEN, REPLACED_ALREADY
from trimtab.protocol.frames import BrokerStatus, Goodbye, Hello
from trimtab.protocol.messages import VERSION, Members, Neighbours

WITHIN_S = 30.0
QUICK = ReplicationSettings(look_every_s=0.1, suspect_after_s=0.3, crash_after_s=1.0, hang_after_s=2.0, ask_again_s=1.0)
LINE = ["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")]


def settings(**changes: object) -> ReplicationSettings:
    return msgspec.structs.replace(QUICK, **changes)


def status_of(network: Network, broker: str) -> BrokerStatus:
    status = network.status()[broker]
    assert status is not None
    return status


def outcome(network: Network, seen_by: str, broker: str) -> str:
    """What has come of a broker's failure, as a neighbour tells."""
    return next((each.outcome for each in status_of(network, seen_by).failures if each.broker == broker), "")


# ---- processes ----


@pytest.mark.parametrize("victim", ["another program", "another broker"])
def test_a_stranger_that_greets_with_a_made_up_session_has_nobody_killed(victim: str) -> None:
    with (
        Network.of(["B1", "B2", "B9"], [("B2", "B1")], replication=settings(provisioner="process")) as network,
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as program,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        try:
            life = ProcessIdentity.of_process(program.pid)
            session = f"{life.pid}-{life.started_ticks}-ab12@{this_host()}"
            if victim == "another broker":
                session = status_of(network, "B9").session
            network.kill_broker("B2")
            with RawPeer(network.address("B1")) as stranger:
                assert isinstance(stranger.greet("B2", session, replica="synchronous", epoch=2), Hello)
                where = f"127.0.0.1:{silent.getsockname()[1]}"
                stranger.say(Members(names=("B2",), addresses=(where,)), Neighbours(names=()))
                pid = network.pid("B9") if victim == "another broker" else program.pid
                reason = f"process {pid} does not prove to be B2, and is not killed"
                expected = f"nobody can say whether B2 runs: {reason}"
                wait_for(lambda: outcome(network, "B1", "B2") == expected, "decided")
            assert program.poll() is None
            assert [name for name, _ in network.dead()] == ["B2"]
        finally:
            program.kill()


def test_a_process_that_does_not_prove_who_it_is_is_left_alone_where_replacing_is_allowed() -> None:
    chosen = settings(provisioner="process", unreachable="replace")
    with (
        Network.of(["B1", "B2", "B9"], [("B2", "B1")], replication=chosen) as network,
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as program,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        try:
            life = ProcessIdentity.of_process(program.pid)
            network.kill_broker("B2")
            with RawPeer(network.address("B1")) as stranger:
                stranger.greet("B2", f"{life.pid}-{life.started_ticks}-ab12@{this_host()}", epoch=2)
                where = f"127.0.0.1:{silent.getsockname()[1]}"
                stranger.say(Members(names=("B2",), addresses=(where,)), Neighbours(names=()))
                wait_for(lambda: bool(outcome(network, "B1", "B2")), "noticed")
                silent.close()  # the replica listens there
                wait_for(lambda: outcome(network, "B1", "B2") == "replaced", "replaced")
            assert program.poll() is None
        finally:
            program.kill()


def test_only_the_process_itself_proves_which_broker_it_is() -> None:
    with Network.of(["B1", "B2"]) as network:
        session, address = status_of(network, "B1").session, network.address("B1")
        found = proved("B1", address, session)
        assert found is not None
        assert found.pid == network.pid("B1")
        os.kill(found.pid, signal.SIGSTOP)
        assert proved("B1", address, session) == found  # one that hangs, too
        for broker, where, named in (
            ("B2", address, session),  # not this broker
            ("B1", network.address("B2"), session),  # not of this network
            ("B1", address, new_session()),  # a process that is no broker
            ("B1", address, session.replace(f"{found.pid}-", f"{os.getpid()}-", 1)),
            ("B1", address, session.replace(f"-{found.started_ticks}-", "-0-")),
        ):
            assert proved(broker, where, named) is None
        os.kill(found.pid, signal.SIGCONT)


# ---- names ----


def test_no_text_of_a_stranger_reaches_a_shell_or_a_provisioner(tmp_path: Path) -> None:
    note, pwned = tmp_path / "note", tmp_path / "pwned"
    words = f"echo {{broker}} {{protocol}} {{neighbours}} {{listen}} {{session}} {{epoch}} {{why}} >> {note}"
    chosen = settings(provisioner="command", command=("sh", "-c", words), start_within_s=0.5)
    attacks = [f"x; touch {pwned}", f"$(touch {pwned})", f"`touch {pwned}`", f"B2\ntouch {pwned}"]
    with Network.of(["B1", "B2"], [("B2", "B1")], replication=chosen) as network:
        for attack in attacks:
            with RawPeer(network.address("B1")) as stranger:
                assert isinstance(stranger.greet(attack, "s"), Hello)
                stranger.say(Members(names=(attack,), addresses=("127.0.0.1:1",)), Neighbours(names=()))
        for attack in attacks:
            wait_for(lambda: bool(outcome(network, "B1", attack)), "noticed")  # noqa: B023
            assert outcome(network, "B1", attack) == f"no broker of the network file is named {attack!r}"
        assert not note.exists()
        network.kill_broker("B2")
        with RawPeer(network.address("B1")) as stranger:  # and in the name of a broker of the file
            assert isinstance(stranger.greet("B2", f"1-2-ab@$(touch {pwned})", epoch=7), Hello)
            where = f"$(touch${{IFS}}{pwned}):80"
            stranger.say(
                Members(names=("B2",), addresses=(where,)),
                Neighbours(names=(*attacks, "B7", "B8"), addresses=(*["127.0.0.1:1"] * 4, where, "127.0.0.1:8")),
            )
        wait_for(note.exists, "ordered")
        expected = f"B2 synchronous B1={network.address('B1')},B8=127.0.0.1:8 {network.address('B2')} 8 crash\n"
        assert note.read_text(encoding="utf-8").startswith(expected)
        assert not pwned.exists()


# ---- places ----


@pytest.mark.parametrize("replication", [None, QUICK], ids=["nobody watches", "neighbours are watched"])
@pytest.mark.parametrize(
    "greeting",
    [
        {"replica": "synchronous", "epoch": 99},
        {"epoch": 99},
        {"replica": "synchronous", "epoch": 99, "resumes": "somebody", "granted": 99},
        {"session": ""},
    ],
    ids=["a replica", "started again", "one that says that B1 was replaced", "with the session of B2"],
)
def test_a_stranger_does_not_take_the_place_of_a_broker_that_lives(
    replication: ReplicationSettings | None, greeting: dict[str, object]
) -> None:
    with Network.of(*LINE, replication=replication) as network:
        before = network.status()
        session = status_of(network, "B2").session if "session" in greeting else "7-7-ff@elsewhere"
        keys = {key: value for key, value in greeting.items() if key != "session"}
        for _ in range(2):
            with RawPeer(network.address("B1")) as stranger:
                assert stranger.greet("B2", session, **keys) == Goodbye(PLACE_IS_TAKEN)
        after = network.status()
        for broker in LINE[0]:
            one, other = before[broker], after[broker]
            assert one is not None
            assert other is not None
            assert (one.session, one.epoch, one.links_missing) == (other.session, other.epoch, other.links_missing)
        assert network.dead() == []
        check_delivery(network, "B1", "B3", 1)


@pytest.mark.parametrize("role", ["nobody", "client"])
def test_nobody_but_a_neighbour_can_say_that_a_broker_was_replaced(role: str) -> None:
    with Network.of(*LINE) as network:
        with RawPeer(network.address("B1")) as stranger:
            if role == "client":
                stranger.send(Hello(VERSION, "client", "mallory", "m1", 1))
                assert isinstance(stranger.receive(), Hello)
            stranger.send(Goodbye(REPLACED_ALREADY))
            stranger.wait_closed()
        check_delivery(network, "B1", "B3", 1)
        assert network.dead() == []


def test_greetings_that_wait_are_answered_when_the_broker_dies() -> None:
    with Network.of(*LINE, replication=settings(hang_after_s=60.0, suspect_after_s=30.0)) as network:
        os.kill(network.pid("B2"), signal.SIGSTOP)
        with RawPeer(network.address("B1")) as one:
            one.send(Hello(VERSION, "broker", "B2", "7-7-ff@elsewhere", 1, epoch=2))
            network.kill_broker("B2")
            assert isinstance(one.receive(), Hello)


def test_a_replica_is_let_in_where_nobody_has_noticed_yet_that_the_broker_hangs(tmp_path: Path) -> None:
    unhurried = settings(hang_after_s=60.0, suspect_after_s=30.0, replaces="by-hand")
    with Network.of(*LINE, replication=unhurried) as network:
        elsewhere = f"127.0.0.1:{free_ports(1)[0]}"
        os.kill(network.pid("B2"), signal.SIGSTOP)  # its connections stand
        with replica(network, tmp_path, "B2", "--epoch", "2", "--listen", elsewhere):
            wait_for(lambda: is_linked(elsewhere), "let in")
            check_delivery(network, "B1", "B3", 2)
        network.kill_broker("B2")


def test_a_replica_of_a_broker_that_lives_ends_and_says_why(tmp_path: Path) -> None:
    with Network.of(*LINE, replication=settings(replaces="by-hand")) as network:
        elsewhere = f"127.0.0.1:{free_ports(1)[0]}"
        with replica(network, tmp_path, "B2", "--epoch", "5", "--listen", elsewhere) as process:
            wait_for(lambda: process.poll() is not None, "ended")
            assert process.returncode == 1
            assert process.stderr is not None
            said = process.stderr.read()
        assert re.search(
            "^B2 lives, as B[13] says: this replica of it is not needed, and ends\n\\Z", said, re.MULTILINE
        )
        assert network.dead() == []
        check_delivery(network, "B1", "B3", 3)


def is_linked(address: str) -> bool:
    try:
        return not asyncio.run(ask_status(Address.parse(address))).links_missing
    except (OSError, TimeoutError):
        return False


@contextmanager
def replica(network: Network, folder: Path, broker: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process that somebody starts as a replica, by hand."""
    file = folder / "network.toml"
    file.write_text(plan_text(network.plan), encoding="utf-8")
    words = ["broker", broker, str(file), "--replica", "synchronous", "--quiet", *options]
    process = subprocess.Popen([sys.executable, "-m", "trimtab", *words], stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(WITHIN_S)
        assert process.stderr is not None
        process.stderr.close()
