"""Snapshots of running brokers: complete, bounded, and without any effect on the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.language import Filter, Publication
from trimtab.network.admin.local_network import Network, free_ports
from trimtab.network.admin.status import ask_snapshot
from trimtab.network.client.client import Client
from trimtab.network.client.subscription import Delivery
from trimtab.network.links.address import Address
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan
from trimtab.network.server.snapshots import KEPT_PER_PUBLISHER_MAX_COUNT, Sampling, Snapshots
from trimtab.operations.plan.plan import make_plan
from trimtab.operations.plan.present import Present, take_present
from trimtab.protocol.frames import BrokerStatus
from trimtab.protocol.messages import Publish
from trimtab.protocol.snapshots import SnapshotRequest

WITHIN_S = 120.0
ADVERTISED = Filter.parse("[class,eq,'STOCK'],[number,isPresent,0],[parity,isPresent,0]")
SUBSCRIBERS_COUNT = 20


def small_network() -> Network:
    """A head and two unequal edge-brokers that keep to their capacities."""
    addresses = [Address("127.0.0.1", port) for port in free_ports(3)]
    plan = NetworkPlan(
        (
            BrokerEntry("B0", addresses[0], 2000.0, None, 10.0),
            BrokerEntry("B1", addresses[1], 50.0, None, 0.5),
            BrokerEntry("B2", addresses[2], 200.0, None, 2.0),
        ),
        (LinkEntry("B1", "B0"), LinkEntry("B2", "B0")),
        NetworkOptions(enforce_capacities=True, meter_window_s=2.0),
    )
    return Network(plan)


def filter_of(number: int) -> Filter:
    return Filter.parse(f"class = 'STOCK' AND parity = {number % 2}")


class Traffic:
    """Subscribers at B1 and a publisher at B0 that publishes until it is stopped; what arrives is compared exactly."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._got: list[list[int]] = [[] for _ in range(SUBSCRIBERS_COUNT)]
        self._published = 0
        self._task: asyncio.Task[None] | None = None
        self._clients: list[Client] = []

    async def begin(self) -> None:
        publisher = await Client.connect(self._network.address("B0"), "P")
        self._clients.append(publisher)
        await publisher.advertise(ADVERTISED)
        for number, got in enumerate(self._got):
            client = await Client.connect(self._network.address("B1"), f"S{number}")
            self._clients.append(client)
            await client.subscribe(
                filter_of(number),
                callback=self._note(got),
                within_s=5.0 if number == 0 else None,
            )
        self._task = asyncio.create_task(self._publish(publisher))

    @staticmethod
    def _note(got: list[int]) -> Callable[[Delivery], None]:
        return lambda delivery: got.append(int(delivery.publication["number"]))

    async def _publish(self, publisher: Client) -> None:
        while True:
            number = self._published
            await publisher.publish(Publication({"class": "STOCK", "number": number, "parity": number % 2}))
            self._published += 1
            await asyncio.sleep(0.05)

    async def end(self) -> None:
        """Stop, wait for what is under way, and demand all of it in order."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._clients[0].drain()
        wanted = [list(range(each % 2, self._published, 2)) for each in range(SUBSCRIBERS_COUNT)]
        async with asyncio.timeout(WITHIN_S):
            while [len(got) for got in self._got] != [len(want) for want in wanted]:
                await asyncio.sleep(0.02)
        assert self._got == wanted
        assert {client.broker for client in self._clients[1:]} == {"B1"}
        await asyncio.gather(*(client.close() for client in self._clients))


async def plan_while_it_runs(network: Network) -> Present:
    traffic = Traffic(network)
    await traffic.begin()
    present = await take_present(network.plan, 2.0)
    plan = await asyncio.to_thread(make_plan, present, policy="padres", minutes=1, changes=["traffic=2"])
    assert plan.planned.violations == ()
    assert sum(each.end.clients_count for each in plan.planned.brokers.values()) == SUBSCRIBERS_COUNT + 1
    await traffic.end()
    return present


def test_a_plan_of_a_running_network_knows_everybody_and_touches_nothing() -> None:
    with small_network() as network:
        before = statuses(network)
        present = asyncio.run(asyncio.wait_for(plan_while_it_runs(network), WITHIN_S))
        after = statuses(network)
    subscribers = {each.name: each for each in present.clients if each.subscriptions}
    assert {name: one.subscriptions[0].filter for name, one in subscribers.items()} == {
        f"S{number}": filter_of(number) for number in range(SUBSCRIBERS_COUNT)
    }
    assert {each.broker for each in subscribers.values()} == {"B1"}
    assert subscribers["S0"].subscriptions[0].within_s == 5.0
    publisher = next(each for each in present.clients if each.name == "P")
    assert (publisher.broker, publisher.advertisements) == ("B0", (ADVERTISED,))
    assert publisher.publishes and 0 < publisher.rate_per_s <= 25
    assert all(ADVERTISED.announces(Publication(each)) for each in publisher.publications)
    assert [(each.name, each.cpu_mhz, each.bandwidth_mbps) for each in present.brokers] == [
        ("B0", 2000, 10),
        ("B1", 50, 0.5),
        ("B2", 200, 2),
    ]
    for name, status in after.items():
        assert status.moved_in_count == status.moved_out_count == 0
        assert status.session == before[name].session
        assert (status.dropped_count, status.refused_count) == (0, 0)


def statuses(network: Network) -> dict[str, BrokerStatus]:
    return {name: status for name, status in network.status().items() if status is not None}


async def ask_a_quiet_broker(network: Network) -> tuple[BrokerStatus, BrokerStatus]:
    client = await Client.connect(network.address("B1"), "c")
    await client.subscribe(filter_of(1))
    first = (await asyncio.to_thread(network.status))["B1"]
    snapshots = [await ask_snapshot(network.plan.broker("B1").listen, 0.0) for _ in range(3)]
    assert [len(each.subscriptions) for each in snapshots] == [1, 1, 1]
    second = (await asyncio.to_thread(network.status))["B1"]
    await client.close()
    assert first is not None and second is not None
    return first, second


def test_counters_and_tables_of_a_broker_are_the_same_after_a_snapshot() -> None:
    with Network.of(["B1"]) as network:
        before, after = asyncio.run(asyncio.wait_for(ask_a_quiet_broker(network), WITHIN_S))
    names = [name for name in before.__struct_fields__ if name.endswith("_count") or name == "peers"]
    assert {name: getattr(after, name) for name in names} == {name: getattr(before, name) for name in names}


async def take_often(snapshots: Snapshots, count: int) -> list[str]:
    async def take() -> str:
        return [part.problem async for part in snapshots.take(SnapshotRequest(0.05))][-1]

    problems = await asyncio.gather(*(take() for _ in range(count)))
    assert await take() == ""  # there is room again
    return [each for each in problems if each]


def test_many_who_ask_at_once_are_refused_with_the_reason() -> None:
    refused = asyncio.run(take_often(Snapshots(Broker(BrokerConfig("B1"))), 6))
    assert refused == ["4 others take a snapshot of this broker"] * 2


async def ask_of_many_filters(network: Network, count: int) -> int:
    client = await Client.connect(network.address("B1"), "c")
    text = "x" * 900
    await client.subscribe(*(Filter.parse(f"class = '{text}' AND number = {number}") for number in range(count)))
    snapshot = await ask_snapshot(network.plan.broker("B1").listen, 0.0)
    await client.close()
    return len({str(each.filter) for each in snapshot.subscriptions})


def test_more_filters_than_fit_into_one_frame_are_all_told() -> None:
    count = 2500  # more than 2 MB
    with Network.of(["B1"]) as network:
        assert asyncio.run(asyncio.wait_for(ask_of_many_filters(network, count), WITHIN_S)) == count


# ---- sampling ----


def publication(sequence: int, text: str = "") -> Publish:
    return Publish(publisher="P", sequence=sequence, values={"number": sequence, "text": text}, origin_s=0.0)


def test_all_publications_are_counted_and_a_bounded_number_is_kept() -> None:
    sampling = Sampling(Random(1))
    for sequence in range(1, 2001):
        sampling.saw(publication(sequence))
    assert sampling.publishers()[0].published_count == 2000
    kept = [int(each.values["number"]) for each in sampling.publications()]
    assert len(set(kept)) == len(kept) == KEPT_PER_PUBLISHER_MAX_COUNT
    assert sampling.left_out_count == 2000 - KEPT_PER_PUBLISHER_MAX_COUNT
    assert sum(kept) / len(kept) == pytest.approx(1000, abs=150)  # none is preferred


def test_what_is_sent_again_counts_once() -> None:
    sampling = Sampling(Random(1))
    for sequence in (1, 2, 1, 2, 3):
        sampling.saw(publication(sequence))
    assert sampling.publishers()[0].published_count == 3


def test_a_very_large_publication_is_counted_but_not_kept() -> None:
    sampling = Sampling(Random(1))
    sampling.saw(publication(1, "x" * 1_100_000))
    assert (sampling.publishers()[0].published_count, sampling.publications(), sampling.left_out_count) == (1, [], 1)
