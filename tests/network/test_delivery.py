"""Real broker processes and real clients: who gets what, while connections break and heal."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tests.network.link_proxy import LinkProxy
from trimtab import BlockingClient, Client, Filter, Network, Publication
from trimtab.network.admin.status import ask_status
from trimtab.network.client.client import ClientError, RefusedError
from trimtab.network.client.subscription import Delivery, Subscription
from trimtab.network.loops import run as run_loop

Result = TypeVar("Result")

FIGURE_2_2 = (("B1", "B2"), ("B2", "B3"), ("B2", "B4"))


def run(work: Coroutine[Any, Any, Result], within_s: float = 20.0) -> Result:
    return run_loop(asyncio.wait_for(work, within_s))


async def take(subscription: Subscription, count: int) -> list[Delivery]:
    return [await anext(subscription) for _ in range(count)]


def numbers(deliveries: list[Delivery]) -> list[object]:
    return [delivery.publication["a"] for delivery in deliveries]


@pytest.mark.parametrize("covering", ["on", "off"])
def test_figure_2_2(covering: str) -> None:
    """Thesis, section 2.1.3: sub1 at B4 wants a > 5, sub2 at B3 wants a > 9, the publisher at B1 announces a > 1."""
    from trimtab.network.network_file import NetworkOptions

    async def work(network: Network) -> None:
        publisher = await Client.connect(network.address("B1"), "publisher")
        await publisher.advertise(Filter.parse("a > 1"))
        first = await Client.connect(network.address("B4"), "sub1")
        second = await Client.connect(network.address("B3"), "sub2")
        wants_5 = await first.subscribe(Filter.parse("a > 5"))
        wants_9 = await second.subscribe(Filter.parse("a > 9"))
        for value in (2, 6, 10, 7):
            await publisher.publish(Publication(a=value))
        await publisher.drain()
        got = await take(wants_5, 3)
        assert numbers(got) == [6, 10, 7]
        assert [(each.publisher, each.sequence, each.hops) for each in got] == [
            ("publisher", 2, 3),
            ("publisher", 3, 3),
            ("publisher", 4, 3),
        ]
        assert all(0 <= each.delay_s < 5 for each in got)
        assert numbers(await take(wants_9, 1)) == [10]
        status = await _statuses(network)
        # Covered at B2: what sub2 wants is not told to B1.
        assert status["B1"] == (1 if covering == "on" else 2)
        for client in (publisher, first, second):
            await client.close()

    options = NetworkOptions(covering=covering == "on")
    with Network.of(["B1", "B2", "B3", "B4"], FIGURE_2_2, options) as network:
        run(work(network))


async def _statuses(network: Network) -> dict[str, int]:
    from trimtab.network.admin.local_network import ask_all

    found = await ask_all(network.plan)
    return {name: each.subscriptions_count for name, each in found.items() if each is not None}


def test_a_broken_client_connection_loses_nothing() -> None:
    async def work(network: Network, proxy: LinkProxy) -> None:
        address = f"127.0.0.1:{proxy.port}"
        publisher, subscriber = await Client.connect(address), await Client.connect(address)
        await publisher.advertise(Filter.parse("a IS NOT NULL"))
        subscription = await subscriber.subscribe(Filter.parse("a >= 0"), Filter.parse("a <= 1000000"))

        async def cut() -> None:
            for _ in range(3):
                await asyncio.sleep(0.15)
                proxy.cut()
                await asyncio.sleep(0.1)
                proxy.heal()

        cutting = asyncio.create_task(cut())
        for value in range(3_000):
            await publisher.publish(Publication(a=value))
            if value % 10 == 0:
                await asyncio.sleep(0.001)
        await publisher.drain()
        assert numbers(await take(subscription, 3_000)) == list(range(3_000))
        await cutting
        assert proxy.cut_count == 3
        await publisher.close()
        await subscriber.close()

    with Network.of(["B1"]) as network:
        proxy = LinkProxy(network.plan.broker("B1").listen.port)
        run(work(network, proxy))
        proxy.close()


def test_a_broker_that_is_started_again_is_found_again() -> None:
    async def work(network: Network) -> None:
        publisher = await Client.connect(network.address("B1"), "p")
        subscriber = await Client.connect(network.address("B2"), "s")
        await publisher.advertise(Filter.parse("a IS NOT NULL"))
        subscription = await subscriber.subscribe(Filter.parse("a > 0"))
        await publisher.publish(Publication(a=1))
        assert numbers(await take(subscription, 1)) == [1]
        assert await asyncio.to_thread(network.stop_broker, "B2") == 0
        network.start_broker("B2")
        await asyncio.to_thread(network.wait_until_ready)
        while not subscriber.is_connected or (await _statuses(network))["B1"] == 0:
            await asyncio.sleep(0.02)
        await publisher.publish(Publication(a=2))
        assert numbers(await take(subscription, 1)) == [2]
        await publisher.close()
        await subscriber.close()

    with Network.of(["B1", "B2"], [("B1", "B2")]) as network:
        run(work(network))


def test_a_client_that_was_forgotten_begins_again() -> None:
    from trimtab.network.network_file import NetworkOptions

    async def work(network: Network, proxy: LinkProxy) -> None:
        publisher = await Client.connect(network.address("B1"), "p")
        subscriber = await Client.connect(f"127.0.0.1:{proxy.port}", "s")
        await publisher.advertise(Filter.parse("a IS NOT NULL"))
        subscription = await subscriber.subscribe(Filter.parse("a > 0"))
        await publisher.publish(Publication(a=1))
        assert numbers(await take(subscription, 1)) == [1]
        proxy.cut()
        while (await _statuses(network))["B1"] > 0:
            await asyncio.sleep(0.02)
        proxy.heal()
        while (await _statuses(network))["B1"] == 0:
            await asyncio.sleep(0.02)
        await publisher.publish(Publication(a=2))
        assert numbers(await take(subscription, 1)) == [2]
        await publisher.close()
        await subscriber.close()

    with Network.of(["B1"], options=NetworkOptions(client_lease_s=0.3)) as network:
        proxy = LinkProxy(network.plan.broker("B1").listen.port)
        run(work(network, proxy))
        proxy.close()


def test_a_publisher_that_is_started_again_under_its_name_is_heard() -> None:
    async def work(network: Network) -> None:
        subscriber = await Client.connect(network.address("B1"))
        subscription = await subscriber.subscribe(Filter.parse("a > 0"))
        for life in (1, 2):
            async with await Client.connect(network.address("B1"), "quotes") as publisher:
                await publisher.advertise(Filter.parse("a IS NOT NULL"))
                await publisher.publish(Publication(a=life))
                await publisher.drain()
        assert numbers(await take(subscription, 2)) == [1, 2]
        await subscriber.close()

    with Network.of(["B1"]) as network:
        run(work(network))


def test_the_blocking_client_publishes_and_subscribes() -> None:
    with (
        Network.of(["B1", "B2"], [("B1", "B2")]) as network,
        BlockingClient(network.address("B1")) as publisher,
        BlockingClient(network.address("B2")) as subscriber,
    ):
        publisher.advertise(Filter.parse("a IS NOT NULL"))
        subscription = subscriber.subscribe(Filter.parse("a > 1"))
        for value in range(4):
            publisher.publish(Publication(a=value))
        publisher.drain()
        assert numbers(list(subscriber.deliveries(subscription, timeout_s=0.5))) == [2, 3]


def test_an_application_that_takes_its_time_gets_everything() -> None:
    """More deliveries wait than a client holds: it stops reading and goes on when there is room."""
    count = 25_000

    async def work(network: Network) -> None:
        publisher = await Client.connect(network.address("B1"))
        subscriber = await Client.connect(network.address("B1"))
        await publisher.advertise(Filter.parse("a IS NOT NULL"))
        subscription = await subscriber.subscribe(Filter.parse("a >= 0"))
        for value in range(count):
            await publisher.publish(Publication(a=value))
        await publisher.drain()
        await asyncio.sleep(0.3)
        assert subscription.waiting_count < count
        assert numbers(await take(subscription, count)) == list(range(count))
        await publisher.close()
        await subscriber.close()

    with Network.of(["B1"]) as network:
        run(work(network))


def test_refusals_are_errors_of_the_client() -> None:
    async def work(network: Network) -> None:
        with pytest.raises(ClientError, match=r"no broker at 127\.0\.0\.1:1: Connection refused"):
            await Client.connect("127.0.0.1:1")
        client = await Client.connect(network.address("B1"), "same")
        with pytest.raises(ClientError, match="the name same is already in use"):
            await Client.connect(network.address("B1"), "same")
        with pytest.raises(ClientError, match="B1 is this broker's own name"):
            await Client.connect(network.address("B1"), "B1")
        await client.subscribe(Filter.parse("a > 1"))
        await client.subscribe(Filter.parse("a > 2"))
        with pytest.raises(RefusedError, match="a client may have at most 2 filters"):
            await client.subscribe(Filter.parse("a > 3"))
        await client.close()

    from trimtab.network.network_file import NetworkOptions

    with Network.of(["B1"], options=NetworkOptions(filters_per_client_max_count=2)) as network:
        run(work(network))


def test_sigterm_lets_what_was_accepted_leave() -> None:
    async def work(network: Network) -> None:
        publisher = await Client.connect(network.address("B1"))
        subscriber = await Client.connect(network.address("B1"))
        await publisher.advertise(Filter.parse("a IS NOT NULL"))
        subscription = await subscriber.subscribe(Filter.parse("a >= 0"))
        for value in range(500):
            await publisher.publish(Publication(a=value))
        await publisher.drain()
        assert await asyncio.to_thread(network.stop_broker, "B1") == 0
        assert numbers(await take(subscription, 500)) == list(range(500))
        await publisher.close()
        await subscriber.close()

    with Network.of(["B1"]) as network:
        run(work(network))


def test_a_configured_processor_is_enforced() -> None:
    """50 publications against 100 subscriptions at 165 MHz take 0.01 s each by the calibrated formula."""
    from trimtab.network.admin.local_network import free_ports
    from trimtab.network.network_file import parse_network

    text = f"""
        [network]
        enforce_capacities = true
        [[broker]]
        name = "B1"
        listen = "127.0.0.1:{free_ports(1)[0]}"
        cpu_mhz = 165
    """

    async def work(network: Network) -> float:
        client = await Client.connect(network.address("B1"))
        await client.advertise(Filter.parse("a IS NOT NULL"))
        await client.subscribe(*(Filter.parse(f"a > {1000 + n}") for n in range(100)))
        started_s = asyncio.get_running_loop().time()
        for value in range(50):
            await client.publish(Publication(a=value))
        await client.drain()
        took_s = asyncio.get_running_loop().time() - started_s
        load = (await ask_status(network.plan.broker("B1").listen)).load
        assert abs(load["matching_delay_s"] - 0.01) < 0.0005
        assert load["input_utilization_ratio"] > 0.1
        await client.close()
        return took_s

    with Network(parse_network(text)) as network:
        assert 0.4 < run(work(network)) < 2.0
