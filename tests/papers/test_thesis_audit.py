"""Rules of the thesis (2006) that are easily missed, one test for each, with the section that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

import trimtab
from tests.policies.padres.hosts import FakeHost
from tests.policies.padres.loads import broker as load_of
from tests.policies.padres.test_edge import tells
from tests.policies.padres.test_messages import OFFER
from tests.policies.padres.test_offload import ALL, IBM, YAHOO, broker, plan, sample, steps
from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter, Value
from trimtab.load.estimation import LoadChange, after_change, with_matching_delay_like
from trimtab.load.indices import LoadIndices, smoothed_indices
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    Announce,
    Heard,
    Listen,
    Tell,
    TrafficTotals,
    Woken,
)
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex as Index
from trimtab.policies.padres.decisions import Status
from trimtab.policies.padres.edge import EdgePart
from trimtab.policies.padres.messages import OffloadReply, control_from_values, control_to_values
from trimtab.policies.padres.snapshot import LOCAL_PIE, broker_load, broker_load_from_values, broker_load_to_values
from trimtab.simulation.scenarios.scenario import read_scenario
from trimtab.simulation.world.capacity import PUBLICATION_BYTES, SUBSCRIPTION_BYTES, SimulatedCapacity
from trimtab.simulation.world.world import World

# ---- 3.3.1 and 3.4: control messages have priority over others ----

QUESTION = Filter.parse("[class,eq,'QUESTION'],[n,isPresent,0]")
BANDWIDTH_MBPS = 0.5
FRAME_S = PUBLICATION_BYTES * 8 / BANDWIDTH_MBPS / 1e6


class Asker:
    """Asks a question every second, and notes when it heard each one."""

    name = "asker"
    observes = False

    def __init__(self, *, asks: bool) -> None:
        self.heard_s: dict[int, float] = {}
        self._asks = asks
        self._asked_count = 0
        self._next_s = 20.0

    def start(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        return [Announce(QUESTION), Listen("questions", QUESTION)]

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        if isinstance(event, Heard):
            self.heard_s[int(event.values["n"])] = now_s
        if not isinstance(event, Woken) or now_s < self._next_s:
            return []
        self._next_s, self._asked_count = now_s + 1.0, self._asked_count + 1
        return [Tell({"class": "QUESTION", "n": round(1_000 * now_s)})]

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        return []

    def wake_at_s(self) -> float | None:
        return self._next_s if self._asks and self._asked_count < 10 else None


def test_control_messages_do_not_wait_behind_the_backlogs_of_clients() -> None:
    """One frame of each of 300 clients would be 1.5 s on this uplink; with control first it is a frame and what was
    committed."""
    committed_s = 0.025
    world = World(1, bundle_s=committed_s)
    asks, hears = Asker(asks=True), Asker(asks=False)
    world.add_broker(BrokerConfig("B0", neighbours=("B1",)), SimulatedCapacity(bandwidth_mbps=10.0), [hears])
    world.add_broker(BrokerConfig("B1", neighbours=("B0",)), SimulatedCapacity(bandwidth_mbps=BANDWIDTH_MBPS), [asks])
    world.add_link("B0", "B1")
    world.add_client("p", "B0")
    for number in range(300):
        world.add_client(f"c{number}", "B1")
    world.run(2.0)
    world.advertise("p", Filter.parse("[class,eq,'STOCK'],[n,>=,0]"))
    world.run(3.0)
    for number in range(300):
        world.subscribe(f"c{number}", Filter.parse("[class,eq,'STOCK']"))
    for number in range(60):
        world.at(15.0 + number / 3, world.publish, "p", {"class": "STOCK", "n": number})
    world.run(35.0)
    assert world.brokers["B1"].broker.output_count > 2_000, "the uplink is saturated"
    waits_s = [heard_s - n / 1_000 for n, heard_s in hears.heard_s.items()]
    assert len(waits_s) == 10
    assert max(waits_s) < committed_s + 2 * FRAME_S + 0.001


def test_every_scenario_that_balances_by_the_thesis_has_such_an_uplink() -> None:
    for name in ("padres-local", "padres-global"):
        assert read_scenario(name).network.uplink in ("turns", "deadlines"), name
    files = sorted(Path(trimtab.__file__).parent.glob("simulation/**/padres*.toml"))
    assert len(files) >= 11
    assert [each.name for each in files if 'uplink = "fifo"' in each.read_text("utf-8")] == []


# ---- 4.1.5, equation 4.15: the memory of the matching engine ----


def test_memory_is_what_subscriptions_and_queues_take() -> None:
    world = World(1)
    world.add_broker(BrokerConfig("B1"), SimulatedCapacity(cpu_mhz=100.0, memory_mb=16.0, bandwidth_mbps=1.0))
    assert world.load("B1").memory_bytes == 0
    for number in range(10):
        world.add_client(f"c{number}", "B1")
    world.run(1.0)
    for number in range(10):
        world.subscribe(f"c{number}", Filter.parse(f"[class,eq,'STOCK'],[n,>,{number}]"))
    world.run(2.0)
    assert world.load("B1").memory_bytes == 10 * SUBSCRIPTION_BYTES


def test_a_broker_without_subscriptions_expects_them_to_take_what_they_take_elsewhere() -> None:
    full = broker(0.5, 0.5, subscription_count=100, matching_memory_bytes=200_000.0)
    empty = with_matching_delay_like(broker(0.0, 0.0, subscription_count=0, memory_bytes=1e6), full)
    assert after_change(empty, LoadChange(subscription_count=50)).memory_utilization_ratio == pytest.approx(0.1)


# ---- 4.2.1: a chosen subscription leaves the poset ----


def test_what_a_partly_moved_subscription_covered_becomes_eligible() -> None:
    """Of ten clients that want everything some move; then those who want one stock are looked at too, but as long as
    others stay who want everything their leaving spares no input."""
    everything = [(f"all{number}", ALL, "1" * 10) for number in range(10)]
    profile = sample(*everything, ("yahoo", YAHOO, "0000011111"), ("ibm", IBM, "1111100000"), accepted="0")
    ours = broker(0.8, 0.5, subscription_count=12)
    theirs = broker(0.2, 0.3, subscription_count=12, input_rate_per_s=0.0)
    found = plan(Index.INPUT, ours, theirs, profile, "[class,eq,'OTHER']")
    assert steps(found)
    assert {card.interest.clients[0] for card in found.cards} >= {"all0", "yahoo", "ibm"}  # type: ignore[union-attr]
    singles = [card for card in found.cards if card.interest.clients in (("yahoo",), ("ibm",))]  # type: ignore[union-attr]
    taken = next(card for card in found.cards if card.interest.clients[0] == "all0")  # type: ignore[union-attr]
    if len(taken.clients) < 10:
        assert all(card.reducible_rate_per_s == 0.0 for card in singles)


# ---- 4.1.1: the rate is measured during the sampling period ----


def rate_that_is_planned_with(ratio: float) -> float:
    host = FakeHost("B1", {"alice": [Filter.parse(ALL)], "bob": [Filter.parse(YAHOO)]}, ratio=ratio)
    host.totals = TrafficTotals(1_000, 50_000.0)
    part = EdgePart(host, "B0", PadresConfig(press_sample_count=4), Random(1), 0.0)
    (request,) = tells(part, load_of("B2", 0.1), 50.0)
    reply = OffloadReply(session=request.session, sender="B2", status=Status.OK, offer=OFFER)
    part.handle(Heard(control_to_values(reply, "B1")), 100.0)
    for number in range(4):
        host.totals = TrafficTotals(1_000 + 5 * (number + 1), 50_000.0)
        part.matched(("p", number), {"class": "STOCK"}, ["alice"], 101.0 + number)
    assert part.planned_load is not None
    return part.planned_load.input_rate_per_s


def test_an_overloaded_broker_plans_with_the_rate_of_the_sampling_period() -> None:
    """20 publications arrived in 4 s, whatever was matched of them; the mean over the window is 10 a second."""
    assert rate_that_is_planned_with(1.2) == pytest.approx(5.0)
    assert rate_that_is_planned_with(0.5) == pytest.approx(10.0)


# ---- 3.3.2, equation 3.4 ----


def test_the_ratio_itself_is_smoothed() -> None:
    def indices(rate_per_s: float, delay_s: float) -> LoadIndices:
        ratio = rate_per_s * delay_s
        return LoadIndices(rate_per_s, delay_s, 100.0, ratio, 0.1, ratio, 0, 0.0, 0, 0.0, 0)

    smoothed = smoothed_indices(indices(40.0, 0.02), indices(10.0, 0.01), 0.75)
    told = broker_load("B1", "B0", Status.OK, broker(0.5, 0.5), smoothed)
    assert told.input_utilization_ratio == pytest.approx(0.75 * 0.8 + 0.25 * 0.1)
    assert broker_load_from_values(broker_load_to_values(told)) == told


# ---- 3.4.1 ----


def test_an_answer_tells_what_subscriptions_take_and_not_what_the_program_takes() -> None:
    resources = msgspec.structs.replace(OFFER.resources, matching_memory_slope_bytes=2_000.0)
    reply = OffloadReply(
        session="s", sender="B2", status=Status.OK, offer=msgspec.structs.replace(OFFER, resources=resources)
    )
    assert control_from_values(control_to_values(reply, "B1")) == reply


# ---- 3.3.1: the matching delay of a broker


def test_a_broker_to_which_nothing_comes_any_more_does_not_tell_the_delay_of_clients_that_have_left() -> None:
    """Otherwise an empty broker seems the most loaded one in matching, and nobody gives it clients."""
    host = FakeHost("B4", {f"c{number}": [Filter.parse(YAHOO)] for number in range(100)}, ratio=0.4)
    host.matching_s_per_subscription = 0.0004
    part = EdgePart(host, "B0", PadresConfig(), Random(1), 0.0)
    host.served = {"last": [Filter.parse(YAHOO)]}
    host.rate_per_s = 0.0
    told = next(
        broker_load_from_values(each.values)
        for each in part.handle(Woken(), 50.0)
        if isinstance(each, Tell) and each.values["class"] == LOCAL_PIE
    )
    assert told.matching_delay_s == pytest.approx(0.0004)
