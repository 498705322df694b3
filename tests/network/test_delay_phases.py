"""Broker processes with the policy "delay": an edge whose queues grow gives subscribers away, and nothing is lost."""

from __future__ import annotations

import asyncio

from trimtab import Client, Filter, Network, Publication
from trimtab.network.admin.local_network import ask_all, free_ports
from trimtab.network.client.subscription import Delivery
from trimtab.network.links.address import Address
from trimtab.network.loops import run
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan
from trimtab.policies.registry import PolicyChoice
from trimtab.protocol.frames import BrokerStatus
from trimtab.protocol.records import MoveRecord

BANDWIDTHS_MBPS = {"Bh": 20.0, "b0": 0.6, "b1": 0.6}
WITHIN_S = {1: 60.0, 2: 1.5}
SUBSCRIBERS_COUNT = 2
RATE_PER_S = 20.0
BURST_FACTOR = 3.5
TEXT = "x" * 400
"""With what surrounds it a publication is some 500 bytes: the burst is more than an edge can send."""


def cluster() -> NetworkPlan:
    ports = free_ports(len(BANDWIDTHS_MBPS))
    brokers = [
        BrokerEntry(name, Address("127.0.0.1", port), cpu_mhz=2_000.0, bandwidth_mbps=bandwidth_mbps)
        for (name, bandwidth_mbps), port in zip(BANDWIDTHS_MBPS.items(), ports, strict=True)
    ]
    links = (LinkEntry("Bh", "b0"), LinkEntry("Bh", "b1"))
    options = NetworkOptions(enforce_capacities=True, meter_window_s=1.0)
    return NetworkPlan(tuple(brokers), links, options, PolicyChoice("delay"))


class Warnings:
    """Two topics with subscribers at b1, of which the urgent one bursts."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.clients: dict[str, Client] = {}
        self.numbers: dict[str, list[int]] = {}
        self.moves: list[MoveRecord] = []
        self.published: dict[int, int] = dict.fromkeys(WITHIN_S, 0)
        self.has_burst = False

    async def join(self) -> None:
        for topic, within_s in WITHIN_S.items():
            publisher = self.clients[f"P{topic}"] = await Client.connect(self._network.address("Bh"), f"P{topic}")
            await publisher.advertise(Filter.parse(f"[topic,=,{topic}],[number,isPresent,0],[text,isPresent,'']"))
            for number in range(SUBSCRIBERS_COUNT):
                await self._subscribe(f"S{topic}.{number}", topic, within_s)

    async def _subscribe(self, name: str, topic: int, within_s: float) -> None:
        numbers = self.numbers[name] = []
        client = self.clients[name] = await Client.connect(self._network.address("b1"), name)
        client.on_move = self.moves.append

        def deliver(delivery: Delivery) -> None:
            numbers.append(int(delivery.publication["number"]))

        await client.subscribe(Filter.parse(f"[topic,=,{topic}]"), callback=deliver, within_s=within_s)

    async def publish(self, topic: int, until: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while not until.is_set():
            self.published[topic] += 1
            number = self.published[topic]
            await self.clients[f"P{topic}"].publish(Publication(topic=topic, number=number, text=TEXT))
            next_s += 1 / RATE_PER_S / (BURST_FACTOR if self.has_burst and topic == 2 else 1.0)
            await asyncio.sleep(max(0.0, next_s - loop.time()))

    def is_complete(self) -> bool:
        return all(len(numbers) == self.published[int(name[1])] for name, numbers in self.numbers.items())


def has_balanced(head: BrokerStatus | None) -> bool:
    return head is not None and head.agents[0].decision.startswith("b1 was balanced within")


async def work(network: Network) -> None:
    warnings = Warnings(network)
    await warnings.join()
    until = asyncio.Event()
    publishing = [asyncio.create_task(warnings.publish(topic, until)) for topic in WITHIN_S]
    await asyncio.sleep(4.0)
    assert warnings.moves == []
    warnings.has_burst = True
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + 40.0
    statuses = await ask_all(network.plan)
    while not (warnings.moves and has_balanced(statuses["Bh"])) and loop.time() < ends_s:
        await asyncio.sleep(0.1)
        statuses = await ask_all(network.plan)
    until.set()
    await asyncio.gather(*publishing)
    ends_s = loop.time() + 40.0
    while not warnings.is_complete() and loop.time() < ends_s:
        await asyncio.sleep(0.05)
    for client in warnings.clients.values():
        await client.close()

    edge, head = statuses["b1"], statuses["Bh"]
    assert has_balanced(head)
    first = [move for move in warnings.moves if move.cause == warnings.moves[0].cause]
    assert any(move.outcome == "moved" for move in first)
    assert {(move.from_broker, move.to_broker) for move in first} == {("b1", "b0")}
    assert first[0].cause.startswith("b1/")
    assert edge is not None
    assert head is not None
    assert edge.agents[0].decision.startswith("overloaded in ")
    assert head.agents[0].role == "cluster-head"
    for name, numbers in warnings.numbers.items():
        assert numbers == list(range(numbers[0], warnings.published[int(name[1])] + 1)), "all, once, in order"


def test_an_edge_with_a_queue_that_grows_gives_subscribers_to_another() -> None:
    with Network(cluster()) as network:
        run(asyncio.wait_for(work(network), 120))
