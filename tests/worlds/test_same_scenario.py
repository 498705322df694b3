"""The same scenario file gives the same deliveries in the simulated world and over TCP."""

from __future__ import annotations

import asyncio

import pytest

from trimtab.language import Filter, Publication
from trimtab.network.admin.local_network import Network
from trimtab.network.client.client import Client
from trimtab.network.client.subscription import Subscription
from trimtab.protocol.effects import Deliver
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import (
    PublisherPart,
    PublishPart,
    Scenario,
    SubscriberPart,
    parse_scenario,
    read_scenario,
)

WITHIN_S = 20.0
Deliveries = dict[str, list[tuple[str, int]]]

THREE_BROKERS = """
duration_s = 20.0

[[broker]]
name = "left"

[[broker]]
name = "middle"

[[broker]]
name = "right"

[[link]]
between = ["left", "middle"]

[[link]]
between = ["right", "middle"]

[[publisher]]
name = "quotes"
broker = "left"
at_s = 1.0
advertise = "[class,eq,'STOCK'],[symbol,isPresent,''],[volume,isPresent,0]"

[[publisher]]
name = "news"
broker = "right"
at_s = 1.0
advertise = "[class,eq,'NEWS'],[symbol,isPresent,'']"

[[subscriber]]
name = "everything"
broker = "middle"
at_s = 2.0
filters = ["class = 'STOCK'", "class = 'NEWS'"]

[[subscriber]]
name = "yahoo"
broker = "right"
at_s = 3.0
filters = ["symbol = 'YHOO'"]

[[publish]]
publisher = "quotes"
at_s = 5.0
publications = [
    "[class,'STOCK'],[symbol,'YHOO'],[volume,5]",
    "[class,'STOCK'],[symbol,'IBM'],[volume,9]",
    "[class,'STOCK'],[symbol,'YHOO'],[volume,1]",
]

[[subscriber]]
name = "large"
broker = "left"
at_s = 6.0
filters = ["class = 'STOCK' AND volume > 4"]

[[publish]]
publisher = "news"
at_s = 7.0
publications = ["[class,'NEWS'],[symbol,'YHOO']", "[class,'NEWS'],[symbol,'IBM']"]

[[publish]]
publisher = "quotes"
at_s = 8.0
publications = ["[class,'STOCK'],[symbol,'IBM'],[volume,7]", "[class,'STOCK'],[symbol,'YHOO'],[volume,2]"]
"""


def simulated(scenario: Scenario) -> Deliveries:
    run = ScenarioRun(scenario)
    found: Deliveries = {part.name: [] for part in scenario.subscriber}

    def note(client: str, deliver: Deliver, at_s: float) -> None:
        found[client].append((deliver.publisher, deliver.sequence))

    run.world.on_delivery = note
    assert run.run().violations == []
    return found


async def over_tcp(scenario: Scenario, network: Network, expected: Deliveries) -> Deliveries:
    """Do the scenario's steps in their order, each when the one before is in force, and read what is delivered."""
    clients: dict[str, Client] = {}
    subscriptions: dict[str, Subscription] = {}
    found: Deliveries = {}
    steps: list[PublisherPart | SubscriberPart | PublishPart] = [
        *scenario.publisher,
        *scenario.subscriber,
        *scenario.publish,
    ]
    for step in sorted(steps, key=lambda step: step.at_s):
        match step:
            case PublisherPart(name=name, broker=broker, advertise=advertise):
                clients[name] = await Client.connect(network.address(broker), name)
                await clients[name].advertise(Filter.parse(advertise or "*"))
            case SubscriberPart(name=name, broker=broker, filters=filters):
                clients[name] = await Client.connect(network.address(broker), name)
                subscriptions[name] = await clients[name].subscribe(*(Filter.parse(text) for text in filters))
            case PublishPart(publisher=publisher, publications=publications):
                for text in publications:
                    await clients[publisher].publish(Publication.parse(text))
                await clients[publisher].drain()
    for name, subscription in subscriptions.items():
        found[name] = []
        for _ in expected[name]:
            delivery = await anext(subscription)
            found[name].append((delivery.publisher, delivery.sequence))
    for name, subscription in subscriptions.items():
        assert subscription.waiting_count == 0, name
    for client in clients.values():
        await client.close()
    return found


@pytest.mark.parametrize(
    "scenario",
    [read_scenario("figure-2-2"), parse_scenario(THREE_BROKERS)],
    ids=["figure-2-2", "three-brokers"],
)
def test_both_worlds_deliver_the_same(scenario: Scenario) -> None:
    expected = simulated(scenario)
    with Network.of([part.name for part in scenario.broker], [part.between for part in scenario.link]) as network:
        found = asyncio.run(asyncio.wait_for(over_tcp(scenario, network, expected), WITHIN_S))
    in_publisher_order = {name: sorted(deliveries) for name, deliveries in expected.items()}
    assert {name: sorted(deliveries) for name, deliveries in found.items()} == in_publisher_order
    for deliveries in found.values():
        for publisher in {publisher for publisher, _ in deliveries}:
            numbers = [sequence for name, sequence in deliveries if name == publisher]
            assert numbers == sorted(set(numbers))


def test_figure_2_2_delivers_what_the_thesis_says() -> None:
    assert simulated(read_scenario("figure-2-2")) == {"sub1": [("P", 2), ("P", 3)], "sub2": [("P", 3)]}
