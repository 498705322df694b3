"""Frames handed over in bundles have the very times that they have one by one."""

from itertools import pairwise

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Deliver
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.world.capacity import PUBLICATION_BYTES, SUBSCRIPTION_BYTES, SimulatedCapacity
from trimtab.simulation.world.world import World

CLIENTS_COUNT = 30


def deliveries(
    capacity: SimulatedCapacity, bundle_s: float, acknowledge_after_s: float = 0.0
) -> list[tuple[str, int, float]]:
    """Who got what when."""
    world = World(1, bundle_s=bundle_s, acknowledge_after_s=acknowledge_after_s)
    for name in ("B1", "B2"):
        world.add_broker(BrokerConfig(name), capacity)
    world.add_link("B1", "B2", 0.01)
    world.run()
    world.add_client("p", "B1")
    world.advertise("p", Filter.parse("a > 0"))
    for number in range(CLIENTS_COUNT):
        world.add_client(f"c{number}", "B2", 0.001 + 0.0005 * number)
        world.subscribe(f"c{number}", Filter.parse("a > 0"))
    world.run()
    found: list[tuple[str, int, float]] = []

    def note(client: str, deliver: Deliver, at_s: float) -> None:
        found.append((client, deliver.sequence, at_s - begun_s))

    world.on_delivery = note
    world.run(100.0)
    begun_s = 100.0
    for number in range(10):
        world.at(100.0 + number * 1.7, world.publish, "p", {"a": 1})
    world.run()
    check_rest(world, [("B1", "B2")])
    assert world.checker.violations == []
    return sorted(found)


@pytest.mark.parametrize(
    "capacity",
    [
        SimulatedCapacity(),
        SimulatedCapacity(cpu_mhz=50.0),
        SimulatedCapacity(bandwidth_mbps=1.0),
        SimulatedCapacity(cpu_mhz=50.0, bandwidth_mbps=0.5),
    ],
    ids=["unlimited", "cpu", "bandwidth", "both"],
)
def test_every_delivery_has_its_own_exact_time(capacity: SimulatedCapacity) -> None:
    exact, bundled = deliveries(capacity, 0.0, 0.4), deliveries(capacity, 0.025, 0.4)
    assert [each[:2] for each in exact] == [each[:2] for each in bundled]
    assert [time_s for _, _, time_s in bundled] == pytest.approx([time_s for _, _, time_s in exact], abs=1e-9)
    assert len(exact) == 10 * CLIENTS_COUNT


def test_bandwidth_puts_frames_one_behind_the_other() -> None:
    bandwidth_mbps = 0.5
    times_s = sorted(
        time_s - 0.0005 * int(client[1:])
        for client, sequence, time_s in deliveries(SimulatedCapacity(bandwidth_mbps=bandwidth_mbps), 0.025, 0.4)
        if sequence == 1
    )
    frame_s = PUBLICATION_BYTES * 8 / bandwidth_mbps / 1e6
    steps_s = [later - earlier for earlier, later in pairwise(times_s)]
    assert steps_s == pytest.approx([frame_s] * (CLIENTS_COUNT - 1))


def test_the_load_of_a_broker_can_be_read_at_any_time() -> None:
    world = World(1, bundle_s=0.025, acknowledge_after_s=0.4)
    world.add_broker(BrokerConfig("B1"), SimulatedCapacity(cpu_mhz=1.65, bandwidth_mbps=0.1))
    world.add_client("p", "B1")
    world.advertise("p", Filter.parse("a > 0"))
    for number in range(10):
        world.add_client(f"c{number}", "B1")
        world.subscribe(f"c{number}", Filter.parse("a > 0"))
    world.run()
    idle = world.load("B1")
    assert idle.input_utilization_ratio == 0.0
    begun_s = world.now_s
    for number in range(100):
        world.at(begun_s + number * 0.25, world.publish, "p", {"a": 1})
    world.run(begun_s + 20.0)
    busy = world.load("B1")
    assert busy.input_rate_per_s == pytest.approx(4.0, rel=0.1)
    assert busy.matching_delay_s == pytest.approx(0.1)
    assert busy.input_utilization_ratio == pytest.approx(0.4, rel=0.1)
    assert busy.cpu_utilization_ratio == pytest.approx(0.4, rel=0.1)
    assert busy.output_utilization_ratio == pytest.approx(4 * 10 * PUBLICATION_BYTES * 8 / 1e5, rel=0.1)
    assert busy.output_queue_count > 0
    waiting_count = busy.input_queue_count + busy.output_queue_count
    assert busy.memory_bytes - idle.memory_bytes == PUBLICATION_BYTES * waiting_count
    world.unsubscribe("c0", "c0/s1")
    world.run()
    assert idle.memory_bytes - world.load("B1").memory_bytes == SUBSCRIPTION_BYTES
