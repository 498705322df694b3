"""Broker processes with POP and GRAPE: a publisher is moved to where it is wanted, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trimtab import Client, Filter, Network, Publication
from trimtab.network.admin.local_network import ask_all, free_ports
from trimtab.network.links.address import Address
from trimtab.network.links.round_trips import measure_round_trips
from trimtab.network.loops import run as run_loop
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkPlan
from trimtab.policies.registry import PolicyChoice
from trimtab.policies.relocation.config import RelocationConfig
from trimtab.records.files import read_records

Result = TypeVar("Result")

QUICK = RelocationConfig(
    pop_threshold_count=20,
    grape_threshold_count=20,
    pop_window_count=50,
    rest_s=0.5,
    joint_wait_s=0.1,
    answer_timeout_s=3.0,
)
PUBLICATIONS_COUNT = 2_000


def run(work: Coroutine[Any, Any, Result], within_s: float = 50.0) -> Result:
    return run_loop(asyncio.wait_for(work, within_s))


def line(policy: str) -> NetworkPlan:
    """B1 - B2 - B3 - B4."""
    names = ("B1", "B2", "B3", "B4")
    ports = free_ports(len(names))
    brokers = [BrokerEntry(name, Address("127.0.0.1", port)) for name, port in zip(names, ports, strict=True)]
    links = [LinkEntry(first, second) for first, second in pairwise(names)]
    return NetworkPlan(tuple(brokers), tuple(links), policy=PolicyChoice.of(policy, relocation=QUICK))


async def published_and_heard(network: Network, publishes_at: str, listens_at: str) -> tuple[Client, Client]:
    """A publisher and a subscriber, after all publications were heard once and in order."""
    publisher = await Client.connect(network.address(publishes_at), "publisher")
    await publisher.advertise(Filter.parse("a > 0"))
    subscriber = await Client.connect(network.address(listens_at), "subscriber")
    got: list[int] = []
    await subscriber.subscribe(Filter.parse("a > 0"), callback=lambda delivery: got.append(delivery.sequence))
    for number in range(1, PUBLICATIONS_COUNT + 1):
        await publisher.publish(Publication(a=number))
        if number % 5 == 0:
            await asyncio.sleep(0.005)
    await publisher.drain()
    while len(got) < PUBLICATIONS_COUNT:
        await asyncio.sleep(0.01)
    assert got == list(range(1, PUBLICATIONS_COUNT + 1))
    return publisher, subscriber


@pytest.mark.parametrize("policy", ["pop", "grape-load100", "grape-joint"])
def test_a_publisher_moves_by_itself_and_is_heard_once_and_in_order(policy: str, tmp_path: Path) -> None:
    async def work(network: Network) -> None:
        publisher, subscriber = await published_and_heard(network, "B1", "B4")
        assert publisher.broker == "B4"
        assert publisher.moves_count >= 1
        statuses = await ask_all(network.plan)
        first = statuses["B1"]
        assert first is not None
        assert first.agents[0].role == "relocation of publishers"
        assert "publisher moves to B4" in first.agents[0].decision
        await subscriber.close()
        await publisher.close()

    with Network(line(policy), records=tmp_path) as network:
        run(work(network))
    decisions = read_records(tmp_path, "relocations").to_pylist()
    assert (decisions[0]["broker"], decisions[0]["to_broker"]) == ("B1", "B4")


def test_round_trips_to_brokers_are_measured_and_those_that_nobody_answers_are_left_out() -> None:
    async def work(network: Network) -> None:
        addresses = {name: str(network.address(name)) for name in ("B1", "B2")}
        times_s = await measure_round_trips({**addresses, "gone": "127.0.0.1:1", "nowhere": ""})
        assert list(times_s) == ["B1", "B2"]
        assert all(0 < time_s < 1 for time_s in times_s.values())

    with Network.of(("B1", "B2"), (("B1", "B2"),)) as network:
        run(work(network))


def test_a_publisher_is_asked_for_round_trips_where_delay_counts() -> None:
    """On one machine all brokers are about as far: whatever is decided, the publisher's answer was needed for it."""

    async def work(network: Network) -> None:
        publisher = await Client.connect(network.address("B1"), "publisher")
        await publisher.advertise(Filter.parse("a > 0"))
        subscriber = await Client.connect(network.address("B4"), "subscriber")
        got: list[int] = []
        await subscriber.subscribe(Filter.parse("a > 0"), callback=lambda delivery: got.append(delivery.sequence))
        for number in range(1, 301):
            await publisher.publish(Publication(a=number))
            await asyncio.sleep(0.005)
        while len(got) < 300:
            await asyncio.sleep(0.01)
        statuses = await ask_all(network.plan)
        decision = next(status.agents[0].decision for status in statuses.values() if status and status.agents)
        assert decision
        assert "did not come in time" not in decision
        await subscriber.close()
        await publisher.close()

    with Network(line("grape-delay100")) as network:
        run(work(network))


def test_in_clusters_a_publisher_moves_by_itself_to_the_head_whose_edge_broker_has_the_subscribers() -> None:
    """H1 with the publisher and E11, H2 with E21 and the subscriber; edge-brokers serve no publishers."""
    names, pairs = ("H1", "E11", "H2", "E21", "E22"), (("H1", "H2"), ("H1", "E11"), ("H2", "E21"), ("H2", "E22"))
    ports = free_ports(len(names))
    brokers = [BrokerEntry(name, Address("127.0.0.1", port)) for name, port in zip(names, ports, strict=True)]
    links = [LinkEntry(first, second) for first, second in pairs]
    plan = NetworkPlan(tuple(brokers), tuple(links), policy=PolicyChoice.of("padres+grape-load100", relocation=QUICK))

    async def work(network: Network) -> None:
        publisher, subscriber = await published_and_heard(network, "H1", "E21")
        assert publisher.broker == "H2"
        await subscriber.close()
        await publisher.close()

    with Network(plan) as network:
        run(work(network))
