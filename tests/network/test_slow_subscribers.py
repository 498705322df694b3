"""A subscriber that does not keep up is dealt with by the network's policy; the others get everything."""

from __future__ import annotations

import asyncio
import time
from itertools import islice

import pytest

from tests.network.test_bad_input import HELLO, Raw
from trimtab import BlockingClient, Client, Filter, Network, Publication
from trimtab.broker.config import SlowPolicy
from trimtab.network.admin.status import ask_status
from trimtab.network.loops import run
from trimtab.network.network_file import NetworkOptions
from trimtab.protocol.frames import BrokerStatus, Payload
from trimtab.protocol.messages import Confirmed, Subscribe


def publish_to_a_slow_and_a_good_subscriber(policy: SlowPolicy) -> tuple[str, BrokerStatus]:
    """300 publications; the slow one acknowledges nothing, its window holds 64 and its queue 100."""
    options = NetworkOptions(slow_policy=policy, window_frames_count=64, client_queue_max_count=100)
    with Network.of(["B1"], options=options) as network:
        slow = Raw(network)
        slow.send(HELLO, Payload(1, 0, [Subscribe(id="slow/s", filter=Filter.parse("a >= 0"))]))
        while not (isinstance(frame := slow.receive(), Payload) and isinstance(frame.messages[0], Confirmed)):
            pass
        with BlockingClient(network.address("B1")) as client:
            client.advertise(Filter.parse("a >= 0"))
            subscription = client.subscribe(Filter.parse("a >= 0"))
            deliveries = client.deliveries(subscription, 5)
            for start in range(0, 300, 20):
                for value in range(start, start + 20):
                    client.publish(Publication(a=value))
                got = [delivery.publication["a"] for delivery in islice(deliveries, 20)]
                assert got == list(range(start, start + 20))
            client.drain()
        reason = slow.goodbye() if policy == "disconnect" else ""
        status = network.status()["B1"]
        slow.close()
        assert status is not None
        return reason, status


def test_disconnect_tells_the_reason() -> None:
    reason, status = publish_to_a_slow_and_a_good_subscriber("disconnect")
    assert reason == "too slow: 101 publications waited; read faster or ask for less"
    assert [peer.name for peer in status.peers if peer.role == "client"] == []


def test_drop_oldest_keeps_the_newest() -> None:
    _, status = publish_to_a_slow_and_a_good_subscriber("drop-oldest")
    (slow,) = [peer for peer in status.peers if peer.name == "mallory"]
    assert (slow.queued_count, slow.unacknowledged_count) == (100, 64)
    assert status.dropped_count == pytest.approx(300 - 100 - 63, abs=1)


def test_the_delay_of_a_queue_that_nobody_reads_is_told() -> None:
    with Network.of(["B1"], options=NetworkOptions(window_frames_count=64)) as network:
        slow = Raw(network)
        slow.send(HELLO, Payload(1, 0, [Subscribe(id="slow/s", filter=Filter.parse("a >= 0"))]))
        while not (isinstance(frame := slow.receive(), Payload) and isinstance(frame.messages[0], Confirmed)):
            pass
        with BlockingClient(network.address("B1")) as client:
            client.advertise(Filter.parse("a >= 0"))
            for value in range(100):
                client.publish(Publication(a=value))
            client.drain()
            ends_s = time.monotonic() + 10
            delay_s = 0.0
            while delay_s < 0.5 and time.monotonic() < ends_s:
                status = network.status()["B1"]
                assert status is not None
                delay_s = status.load["output_queue_delay_s"]
                time.sleep(0.05)
        slow.close()
    assert delay_s >= 0.5


def test_a_small_queue_does_not_hurt_a_subscriber_that_keeps_up() -> None:
    """More publications than the queue holds come at once; whoever reads loses none."""
    options = NetworkOptions(slow_policy="drop-oldest", client_queue_max_count=10)
    with Network.of(["B1"], options=options) as network, BlockingClient(network.address("B1")) as client:
        client.advertise(Filter.parse("a >= 0"))
        subscription = client.subscribe(Filter.parse("a >= 0"))
        for value in range(2_000):
            client.publish(Publication(a=value))
        client.drain()
        got = [delivery.publication["a"] for delivery in islice(client.deliveries(subscription, 5), 2_000)]
        status = network.status()["B1"]
    assert got == list(range(2_000))
    assert status is not None and status.dropped_count == 0


def test_block_holds_the_publisher_back_until_the_subscriber_reads_on() -> None:
    """An application that takes nothing: its window and its queue fill, then the publisher's window."""
    options = NetworkOptions(slow_policy="block", window_frames_count=64, client_queue_max_count=100)

    async def work(network: Network) -> None:
        publisher = await Client.connect(network.address("B1"), publish_window_count=200)
        reader = await Client.connect(network.address("B2"))
        await publisher.advertise(Filter.parse("a >= 0"))
        subscription = await reader.subscribe(Filter.parse("a >= 0"))
        published = 0

        async def publish() -> None:
            nonlocal published
            while published < 10_000:
                await publisher.publish(Publication(a=published))
                published += 1

        publishing = asyncio.create_task(publish())
        before = -1
        while published > before:
            before = published
            await asyncio.sleep(0.5)
        in_queues_count = 64 + 101 + 4_097 + 2 * 64
        assert 0 < published <= in_queues_count + 200
        status = await ask_status(network.plan.broker("B2").listen)
        assert [peer.queued_count for peer in status.peers if peer.role == "client"] == [101]
        got = [(await anext(subscription)).publication["a"] for _ in range(10_000)]
        await publishing
        assert got == list(range(10_000))
        await publisher.close()
        await reader.close()

    with Network.of(["B1", "B2"], [("B1", "B2")], options) as network:
        run(asyncio.wait_for(work(network), 60))
