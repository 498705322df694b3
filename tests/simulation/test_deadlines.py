"""An uplink that is too small for a while: who has a requirement is served in time, and everybody in the end."""

from __future__ import annotations

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.flow.uplink import Uplink
from trimtab.language import Filter
from trimtab.protocol.effects import Deliver
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.world.capacity import PUBLICATION_BYTES, SimulatedCapacity
from trimtab.simulation.world.world import World

URGENT_S = 0.25
FRAMES_PER_S = 100


def latest_s(uplink: Uplink, urgent_per_s: int) -> tuple[dict[str, float], int]:
    """Two seconds of twice what the uplink carries: the largest delays by subscriber, and late deliveries."""
    world = World(1, uplink=uplink)
    world.add_broker(BrokerConfig("B1"), SimulatedCapacity(bandwidth_mbps=FRAMES_PER_S * PUBLICATION_BYTES * 8 / 1e6))
    delays_s: dict[str, float] = {}
    late: list[str] = []

    def delivered(client: str, deliver: Deliver, at_s: float) -> None:
        delays_s[client] = max(deliver.delay_s, delays_s.get(client, 0.0))
        late.extend(deliver.late_for)

    world.on_delivery = delivered
    rates_per_s = {"urgent": urgent_per_s, "relaxed": 200 - urgent_per_s - 20, "any": 20}
    for name in rates_per_s:
        for client in (f"p-{name}", name):
            world.add_client(client, "B1")
    world.run()
    for name, within_s in (("urgent", URGENT_S), ("relaxed", 30.0), ("any", None)):
        world.advertise(f"p-{name}", Filter.parse(f"[kind,eq,'{name}']"))
        world.subscribe(name, Filter.parse(f"[kind,eq,'{name}']"), within_s)
    world.run()
    begun_s = world.now_s + 1.0
    for name, rate_per_s in rates_per_s.items():
        for number in range(2 * rate_per_s):
            world.at(begun_s + number / rate_per_s, world.publish, f"p-{name}", {"kind": name})
    world.run()
    check_rest(world, [])
    assert world.checker.violations == []
    assert world.checker.deliveries_count == 400
    return delays_s, len(late)


def test_requirements_are_kept_while_others_wait() -> None:
    delays_s, late_count = latest_s("deadlines", urgent_per_s=60)
    assert late_count == 0
    assert delays_s["urgent"] <= URGENT_S
    assert delays_s["relaxed"] > 1.0


@pytest.mark.parametrize("uplink", ["turns", "fifo"])
def test_without_deadlines_the_same_load_makes_them_late(uplink: Uplink) -> None:
    delays_s, late_count = latest_s(uplink, urgent_per_s=60)
    assert late_count > 0
    assert delays_s["urgent"] > URGENT_S


def test_urgent_messages_that_do_not_fit_do_not_starve_those_without_a_requirement() -> None:
    """170 urgent messages per second on an uplink for 100: one frame in four is for others all the same."""
    delays_s, late_count = latest_s("deadlines", urgent_per_s=170)
    assert late_count > 0
    assert delays_s["any"] < 1.0
