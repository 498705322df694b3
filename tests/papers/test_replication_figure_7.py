"""Figure 7 of the replication paper: incremental replacement resumes deliveries sooner than synchronous."""

from random import Random

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Deliver
from trimtab.replication.config import Protocol, ReplicationConfig
from trimtab.simulation.capacity import Capacity
from trimtab.simulation.failures import StandByPool
from trimtab.simulation.world import World

SUBSCRIPTIONS_COUNT = 1_000
ZIPF = [1 / value**0.5 for value in range(1, 21)]


def resumption_delay_s(protocol: Protocol) -> float:
    """The mean time from the replica's begin to the first publication for a subscription, with 100 that wait."""
    rng, world = Random(1), World(1)
    world.keeps_order = False
    replication = ReplicationConfig(protocol=protocol, look_every_s=0.1, crash_after_s=0.2, hang_after_s=1000.0)
    for name, neighbours in (("P", ("F",)), ("F", ("P", "S")), ("S", ("F",))):
        config = BrokerConfig(name, neighbours=neighbours, replication=replication, subscription_covering=False)
        world.add_broker(config, Capacity(bandwidth_mbps=10.0))
    world.add_link("P", "F")
    world.add_link("F", "S")
    world.run(0.5)
    world.add_client("p", "P")
    world.add_client("s", "S")
    world.run(1.0)
    world.advertise("p", Filter.parse("[x,isPresent,0]"))
    world.run(1.5)
    for value in rng.choices(range(1, 21), ZIPF, k=SUBSCRIPTIONS_COUNT):
        world.subscribe("s", Filter.parse(f"x > {value}"))
    world.run(30.0)
    world.failures.provisioner = StandByPool(world, start_after_s=0.1, machines_count=1)
    first_s: dict[str, float] = {}

    def note(_: str, deliver: Deliver) -> None:
        for id in deliver.subscriptions:
            first_s.setdefault(id, world.now_s)

    world.on_delivery = note
    world.failures.kill("F")
    for value in rng.choices(range(1, 21), ZIPF, k=100):
        world.publish("p", {"x": value})
    world.run(60.0)
    began_s = world.failures.requests[0][0] + 0.1
    return sum(time_s - began_s for time_s in first_s.values()) / len(first_s)


def test_incremental_resumes_at_least_47_percent_sooner() -> None:
    synchronous_s, incremental_s = resumption_delay_s("synchronous"), resumption_delay_s("incremental")
    assert synchronous_s == pytest.approx(0.11, abs=0.03)
    assert incremental_s <= 0.53 * synchronous_s
