"""A broker process with a small bandwidth sends as latency requirements want."""

from __future__ import annotations

import asyncio

import pytest

from trimtab import Client, Filter, Network, Publication
from trimtab.broker.flow.uplink import Uplink
from trimtab.network.admin.local_network import free_ports
from trimtab.network.client.subscription import Delivery
from trimtab.network.links.address import Address
from trimtab.network.loops import run
from trimtab.network.network_file import BrokerEntry, NetworkOptions, NetworkPlan

WITHIN_S = 1.0
RELAXED_COUNT = 4
TEXT = "x" * 1_000


async def late_count_of(network: Network) -> tuple[int, int]:
    """Everybody is sent a burst of 3 s; returns late deliveries of the urgent one, and deliveries in all."""
    names = ["urgent", *(f"relaxed-{number}" for number in range(RELAXED_COUNT))]
    got: list[Delivery] = []
    clients: list[Client] = []
    for name in names:
        client = await Client.connect(network.address("B1"), name)
        within_s = WITHIN_S if name == "urgent" else None
        await client.subscribe(Filter.parse(f"[for,eq,'{name}']"), callback=got.append, within_s=within_s)
        clients.append(client)
    publisher = await Client.connect(network.address("B1"), "publisher")
    await publisher.advertise(Filter.parse("[for,isPresent,''],[text,isPresent,'']"))
    for _ in range(40):
        for name in names:
            copies_count = 1 if name == "urgent" else 2
            for _ in range(copies_count):
                await publisher.publish(Publication({"for": name, "text": TEXT}))
    expected_count = 40 * (1 + 2 * RELAXED_COUNT)
    ends_s = asyncio.get_running_loop().time() + 60
    while len(got) < expected_count and asyncio.get_running_loop().time() < ends_s:
        await asyncio.sleep(0.05)
    late_count = clients[0].late_count
    for client in (*clients, publisher):
        await client.close()
    return late_count, len(got)


@pytest.mark.parametrize("uplink", ["deadlines", "turns"])
def test_the_urgent_are_served_first_and_nobody_is_left_out(uplink: Uplink) -> None:
    (port,) = free_ports(1)
    plan = NetworkPlan(
        (BrokerEntry("B1", Address("127.0.0.1", port), bandwidth_mbps=1.0),),
        options=NetworkOptions(enforce_capacities=True, uplink=uplink),
    )
    with Network(plan) as network:
        late_count, delivered_count = run(asyncio.wait_for(late_count_of(network), 90))
    assert delivered_count == 40 * (1 + 2 * RELAXED_COUNT)
    assert (late_count == 0) == (uplink == "deadlines")
