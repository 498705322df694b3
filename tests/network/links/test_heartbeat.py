"""Silent peers are noticed on both sides, come back, and lose nothing; peers that are only slow are left alone."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.network.link_proxy import LinkProxy
from tests.network.test_delivery import numbers, run, take
from trimtab import Client, Filter, Network, Publication
from trimtab.network.admin.local_network import free_ports
from trimtab.network.admin.status import ask_status
from trimtab.network.client import attached_client as client_module
from trimtab.network.client import reconnecting_connection as client_line
from trimtab.network.client.reconnecting_connection import ReconnectingConnection
from trimtab.network.links.address import Address
from trimtab.network.links.connection import Connection
from trimtab.network.links.heartbeat import Finding, Heartbeat, HeartbeatConfig, Silence
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan
from trimtab.protocol.frames import Frame

SHORT = HeartbeatConfig(silent_after_s=0.2, answer_within_s=0.3)
"""Peers are given up soon; one that is given up wrongly on a busy machine comes back."""

PATIENT = HeartbeatConfig(silent_after_s=0.2, answer_within_s=2.0)
"""Peers are asked soon, and no busy machine has them given up wrongly."""

NOTICED_WITHIN_S = 5.0
"""Much more than the short times, for busy machines, and much less than what TCP needs."""

ALL = Filter.parse("a >= 0")


async def until(is_so: Callable[[], Awaitable[bool]], within_s: float = NOTICED_WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while not await is_so():
            await asyncio.sleep(0.01)


async def connect(address: str, name: str, heartbeat: HeartbeatConfig) -> Client:
    return await Client.connect(
        address, name, silent_after_s=heartbeat.silent_after_s, answer_within_s=heartbeat.answer_within_s
    )


def options(heartbeat: HeartbeatConfig, window_frames_count: int = 4_096) -> NetworkOptions:
    return NetworkOptions(
        silent_after_s=heartbeat.silent_after_s,
        answer_within_s=heartbeat.answer_within_s,
        window_frames_count=window_frames_count,
    )


async def connected_clients(network: Network, broker: str = "B1") -> list[str]:
    status = await ask_status(network.plan.broker(broker).listen)
    return [peer.name for peer in status.peers if peer.role == "client" and peer.connected]


# ---- connections that stand and carry nothing ----


def test_both_ends_notice_a_silent_path_between_client_and_broker() -> None:
    async def work(network: Network, proxy: LinkProxy) -> None:
        near = await connect(network.address("B1"), "near", SHORT)
        far = await connect(f"127.0.0.1:{proxy.port}", "far", SHORT)
        for client in (near, far):
            await client.advertise(ALL)
        from_far, from_near = await near.subscribe(ALL), await far.subscribe(ALL)
        await far.publish(Publication(a=0))
        await far.drain()
        proxy.silence(also_new=True)

        async def both_noticed() -> bool:
            return not far.is_connected and "far" not in await connected_clients(network)

        await until(both_noticed)
        for value in range(1, 300):
            await far.publish(Publication(a=value))
            await near.publish(Publication(a=1_000 + value))
        await near.drain()
        proxy.heal()
        await far.drain()
        for subscription in (from_far, from_near):
            got = await take(subscription, 300 + 299)
            assert numbers([each for each in got if each.publisher == "far"]) == list(range(300))
            assert numbers([each for each in got if each.publisher == "near"]) == list(range(1_001, 1_300))
        await near.close()
        await far.close()

    with Network.of(["B1"], options=options(SHORT)) as network:
        proxy = LinkProxy(network.plan.broker("B1").listen.port)
        run(work(network, proxy))
        proxy.close()


def test_a_client_comes_back_over_another_connection_while_the_old_one_stays_silent() -> None:
    """The broker has been left with the usual times, and has not noticed anything when the client is there again."""

    async def work(network: Network, proxy: LinkProxy) -> None:
        publisher = await connect(network.address("B1"), "p", SHORT)
        subscriber = await connect(f"127.0.0.1:{proxy.port}", "s", SHORT)
        await publisher.advertise(ALL)
        subscription = await subscriber.subscribe(ALL)
        first = subscriber._line.connection
        proxy.silence()
        for value in range(500):
            await publisher.publish(Publication(a=value))
            await asyncio.sleep(0.001)
        await publisher.drain()
        async with asyncio.timeout(NOTICED_WITHIN_S):
            assert numbers(await take(subscription, 500)) == list(range(500))
        assert subscriber._line.connection is not first
        await publisher.close()
        await subscriber.close()

    with Network.of(["B1"]) as network:
        proxy = LinkProxy(network.plan.broker("B1").listen.port)
        run(work(network, proxy))
        proxy.close()


def test_both_ends_notice_a_silent_path_between_brokers() -> None:
    ports = free_ports(2)
    proxy = LinkProxy(ports[1])
    plan = NetworkPlan(
        tuple(BrokerEntry(name, Address("127.0.0.1", port)) for name, port in zip(("B1", "B2"), ports, strict=True)),
        (LinkEntry("B1", "B2", via=Address("127.0.0.1", proxy.port)),),
        options(SHORT),
    )

    async def work(network: Network) -> None:
        publisher = await Client.connect(network.address("B1"))
        subscriber = await Client.connect(network.address("B2"))
        await publisher.advertise(ALL)
        subscription = await subscriber.subscribe(ALL)
        await publisher.publish(Publication(a=0))
        await publisher.drain()
        proxy.silence(also_new=True)

        async def both_noticed() -> bool:
            statuses = [await ask_status(entry.listen) for entry in plan.brokers]
            return [status.links_missing for status in statuses] == [("B2",), ("B1",)]

        await until(both_noticed)
        for value in range(1, 300):
            await publisher.publish(Publication(a=value))
        await publisher.drain()
        proxy.heal()
        assert numbers(await take(subscription, 300)) == list(range(300))
        await publisher.close()
        await subscriber.close()

    with Network(plan) as network:
        run(work(network))
    proxy.close()


def test_clients_notice_a_broker_that_is_stopped_and_come_back_when_it_goes_on() -> None:
    async def work(network: Network) -> None:
        publisher = await connect(network.address("B1"), "p", SHORT)
        here = await connect(network.address("B1"), "here", SHORT)
        there = await connect(network.address("B2"), "there", SHORT)
        await publisher.advertise(ALL)
        subscriptions = [await client.subscribe(ALL) for client in (here, there)]
        for value in range(100):
            await publisher.publish(Publication(a=value))
        os.kill(network.pid("B1"), signal.SIGSTOP)
        try:

            async def noticed() -> bool:
                link_is_down = (await ask_status(network.plan.broker("B2").listen)).links_missing == ("B1",)
                return link_is_down and not publisher.is_connected and not here.is_connected

            await until(noticed)
            assert there.is_connected
            for value in range(100, 300):
                await publisher.publish(Publication(a=value))
        finally:
            os.kill(network.pid("B1"), signal.SIGCONT)
        await publisher.drain()
        for subscription in subscriptions:
            assert numbers(await take(subscription, 300)) == list(range(300))
        for client in (publisher, here, there):
            await client.close()

    with Network.of(["B1", "B2"], [("B1", "B2")], options(SHORT)) as network:
        run(work(network))


def test_calls_that_were_given_up_and_arrive_late_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several greetings of a client wait on a silent path, arrive at once, and take each other's place."""

    async def work(network: Network, proxy: LinkProxy) -> None:
        publisher = await Client.connect(network.address("B1"))
        await publisher.advertise(ALL)
        subscribers = [await connect(f"127.0.0.1:{proxy.port}", f"s{number}", SHORT) for number in range(10)]
        subscriptions = [await subscriber.subscribe(ALL) for subscriber in subscribers]
        proxy.silence(also_new=True)
        monkeypatch.setattr(client_module, "CONNECT_WITHIN_S", 0.3)
        await asyncio.sleep(2.0)
        monkeypatch.undo()
        for value in range(100):
            await publisher.publish(Publication(a=value))
        proxy.heal()
        for subscription in subscriptions:
            assert numbers(await take(subscription, 100)) == list(range(100))
        for client in (publisher, *subscribers):
            await client.close()

    with Network.of(["B1"], options=options(SHORT)) as network:
        proxy = LinkProxy(network.plan.broker("B1").listen.port)
        run(work(network, proxy))
        proxy.close()


# ---- connections that rest, and peers that are slow ----


def test_connections_that_rest_stay_and_cost_little() -> None:
    """Ten intervals without traffic: a question and an answer for each."""

    async def work(network: Network, proxy: LinkProxy) -> None:
        client = await connect(f"127.0.0.1:{proxy.port}", "c", PATIENT)
        await client.subscribe(ALL)
        await asyncio.sleep(0.1)
        connection, before_bytes = client._line.connection, proxy.passed_bytes
        await asyncio.sleep(10 * PATIENT.silent_after_s)
        assert client._line.connection is connection
        assert 3 * 20 <= proxy.passed_bytes - before_bytes <= 2 * 10 * 60
        assert (await ask_status(network.plan.broker("B1").listen)).links_missing == ()
        await client.close()

    with Network.of(["B1", "B2"], [("B1", "B2")], options(PATIENT)) as network:
        proxy = LinkProxy(network.plan.broker("B1").listen.port)
        run(work(network, proxy))
        proxy.close()


def test_an_application_that_takes_nothing_keeps_its_connection() -> None:
    """Its window is full, publications wait at the broker, and both ends hear of each other all the same."""

    async def work(network: Network) -> None:
        publisher = await connect(network.address("B1"), "p", PATIENT)
        subscriber = await connect(network.address("B1"), "s", PATIENT)
        await publisher.advertise(ALL)
        subscription = await subscriber.subscribe(ALL)
        connection = subscriber._line.connection
        for value in range(500):
            await publisher.publish(Publication(a=value))
        await publisher.drain()
        await asyncio.sleep(PATIENT.silent_after_s + PATIENT.answer_within_s + 0.5)
        assert 0 < subscription.waiting_count < 500
        assert subscriber._line.connection is connection
        assert numbers(await take(subscription, 500)) == list(range(500))
        assert subscriber._line.connection is connection
        await publisher.close()
        await subscriber.close()

    with Network.of(["B1"], options=options(PATIENT, window_frames_count=64)) as network:
        run(work(network))


class Owner:
    """Whoever has a connection, and does nothing with it."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    def connection_opened(self, connection: Connection) -> None:
        self.connections.append(connection)

    def frame_received(self, connection: Connection, frame: Frame) -> None: ...

    def bytes_handled(self, connection: Connection) -> None: ...

    def connection_broken(self, connection: Connection, reason: str) -> None: ...

    def connection_writable(self, connection: Connection) -> None: ...

    def connection_closed(self, connection: Connection) -> None:
        self.connections.remove(connection)


def test_a_question_behind_megabytes_has_time_to_arrive() -> None:
    """A peer that reads slowly and says nothing is given up only when it has what came before the question."""
    size_bytes, part_bytes, rest_s = 8 * 1024 * 1024, 128 * 1024, 0.02
    heartbeat = HeartbeatConfig(silent_after_s=0.1, answer_within_s=0.4)

    def read_slowly(peer: socket.socket) -> int:
        count = 0
        while count < size_bytes and (data := peer.recv(part_bytes)):
            count += len(data)
            time.sleep(rest_s)
        return count

    async def work(listener: socket.socket) -> None:
        loop, owner = asyncio.get_running_loop(), Owner()
        gone = asyncio.Event()

        def give_up(connection: Connection) -> None:
            connection.give_up()
            gone.set()

        _, connection = await loop.create_connection(lambda: Connection(owner), *listener.getsockname())
        peer, _ = listener.accept()
        connection.write(bytes(size_bytes))
        beating = Heartbeat(heartbeat, lambda: list(owner.connections), lambda each: None, give_up)
        beating.begin()
        read_bytes = await asyncio.to_thread(read_slowly, peer)
        assert read_bytes == connection.written_bytes == size_bytes
        await gone.wait()
        beating.end()
        peer.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        run(work(listener))


# ---- calls to hosts that say nothing ----


def test_a_call_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_line, "CALL_WITHIN_S", 0.2)

    async def work(address: Address) -> None:
        line = ReconnectingConnection(Owner(), address)
        with pytest.raises(TimeoutError):
            await line.dial()
        line.keep()
        await asyncio.sleep(0.1)
        async with asyncio.timeout(NOTICED_WITHIN_S):
            await line.close()

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:  # the system takes one or two, and leaves all others without an answer
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        run(work(Address(*listener.getsockname())))
        for each in waiting:
            each.close()


# ---- the silence of one peer ----


class FakeWay:
    def __init__(self) -> None:
        self.is_paused = False
        self.written_bytes = 0
        self.arrived = 0

    def arrived_bytes(self) -> int:
        return self.arrived


CONFIG = HeartbeatConfig(silent_after_s=4.0, answer_within_s=2.0)


def findings(silence: Silence, way: FakeWay, count: int) -> list[Finding]:
    """What so many looks find, one each second."""
    return [silence.look(way, 1.0, CONFIG) for _ in range(count)]


def test_a_silent_peer_is_asked_once_and_given_up() -> None:
    silence, way = Silence(), FakeWay()
    assert findings(silence, way, 8) == ["alive", "alive", "alive", "alive", "ask", "alive", "alive", "dead"]


def test_whatever_comes_ends_the_silence() -> None:
    silence, way = Silence(), FakeWay()
    assert findings(silence, way, 7)[-3:] == ["ask", "alive", "alive"]
    silence.is_heard = True
    assert findings(silence, way, 5) == ["alive", "alive", "alive", "alive", "ask"]


def test_what_was_written_before_the_question_may_arrive_first() -> None:
    silence, way = Silence(), FakeWay()
    way.written_bytes = 100
    assert findings(silence, way, 5)[-1] == "ask"
    for arrived in range(10, 101, 10):
        way.arrived = arrived
        assert findings(silence, way, 2) == ["alive", "alive"]
    way.written_bytes = way.arrived = 200  # behind the question: the peer's host lives, but that is not enough
    assert findings(silence, way, 2) == ["alive", "dead"]


def test_a_backlog_that_does_not_get_on_is_no_sign_of_life() -> None:
    silence, way = Silence(), FakeWay()
    way.written_bytes = 100
    assert findings(silence, way, 8)[-1] == "dead"


def test_a_peer_of_whom_nothing_is_read_is_asked_again_and_again_and_not_given_up() -> None:
    silence, way = Silence(), FakeWay()
    way.is_paused = True
    assert findings(silence, way, 13) == [
        *("alive", "alive", "alive", "alive", "ask"),
        *("alive", "alive", "alive", "ask"),
        *("alive", "alive", "alive", "ask"),
    ]
    way.is_paused = False
    silence.is_heard = True
    assert findings(silence, way, 5)[-1] == "ask"


def test_an_answer_that_came_while_this_process_was_stopped_counts() -> None:
    """The first look after a stop may come before what has arrived meanwhile is read."""
    silence, way = Silence(), FakeWay()
    assert findings(silence, way, 5)[-1] == "ask"
    assert silence.look(way, 60.0, CONFIG) == "alive"
    silence.is_heard = True
    assert findings(silence, way, 1) == ["alive"]
