"""Which publishers an overloaded head gives to which heads, and when it does."""

from __future__ import annotations

from tests.policies.padres.hosts import FakeHost
from trimtab.policies.api import AgentAction, BrokerCapacity, RelocatePublisher
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.messages import HeadLoad
from trimtab.policies.delay.metrics import HeadMetrics, Metric, State
from trimtab.policies.delay.priorities import Locality
from trimtab.policies.delay.publishers import HeadCandidate, PublisherLoad, PublisherOffload, plan_publishers

CONFIG = DelayConfig()


def head(name: str, downlink_ratio: float, uplink_ratio: float, bytes_per_s: float) -> HeadCandidate:
    """A head with as much bandwidth down as up."""
    return HeadCandidate(
        name=name,
        metrics=HeadMetrics(downlink_ratio, uplink_ratio),
        bandwidth_bytes_per_s=bytes_per_s,
        downlink_bytes_per_s=bytes_per_s,
    )


FREE = head("H2", 0.1, 0.1, 1_000.0)


def load(publisher: str, reach: Locality, bytes_per_s: float = 50.0) -> PublisherLoad:
    remote = bytes_per_s if reach in (Locality.REMOTE, Locality.BOTH) else 0.0
    return PublisherLoad(publisher=publisher, input_bytes_per_s=bytes_per_s, remote_bytes_per_s=remote, reach=reach)


LOADS = [
    load("local", Locality.LOCAL),
    load("both", Locality.BOTH),
    load("remote", Locality.REMOTE),
    load("none", Locality.NONE),
]


def plan(metric: Metric, ratio: float, *candidates: HeadCandidate) -> dict[str, str]:
    return plan_publishers(metric, HeadMetrics(ratio, ratio), 1_000.0, LOADS, candidates, CONFIG)


def test_for_the_uplink_those_heard_elsewhere_alone_go_first() -> None:
    assert plan(Metric.UPLINK, 0.99, FREE) == {"remote": "H2"}
    assert plan(Metric.UPLINK, 1.04, FREE) == {"remote": "H2", "both": "H2"}


def test_for_the_downlink_those_that_nobody_hears_go_first() -> None:
    assert plan(Metric.DOWNLINK, 0.99, FREE) == {"none": "H2"}
    assert plan(Metric.DOWNLINK, 1.04, FREE) == {"none": "H2", "remote": "H2"}


def test_a_publisher_that_relieves_nothing_stays() -> None:
    assert list(plan(Metric.DOWNLINK, 1.5, FREE)) == ["none", "remote"]
    assert list(plan(Metric.UPLINK, 1.5, FREE)) == ["remote", "both"]


def test_without_an_overload_nobody_goes() -> None:
    assert plan(Metric.UPLINK, 0.95, FREE) == {}


def test_nobody_is_overloaded_by_what_it_takes_and_the_least_loaded_takes_first() -> None:
    nearly_full = head("H3", 0.92, 0.1, 1_000.0)
    small = head("H4", 0.05, 0.05, 55.0)
    assert plan(Metric.UPLINK, 1.04, nearly_full, small) == {}
    assert plan(Metric.UPLINK, 1.04, nearly_full, FREE) == {"remote": "H2", "both": "H2"}


class Host(FakeHost):
    """A head with publishers, an edge and another head as neighbours."""

    def publishers(self) -> list[str]:
        return ["p", "q"]

    def neighbours(self) -> list[str]:
        return ["e1", "H2"]


def at_h2(state: State = State.LOW) -> HeadLoad:
    return HeadLoad(metrics=HeadMetrics(0.1, 0.1), state=state, capacity=BrokerCapacity(10_000.0, 1e9, None))


def moves(actions: list[AgentAction]) -> list[RelocatePublisher]:
    return [action for action in actions if isinstance(action, RelocatePublisher)]


def looks(offload: PublisherOffload) -> bool:
    return offload.observes


def offloading(head_load: HeadLoad) -> tuple[PublisherOffload, list[RelocatePublisher]]:
    offload = PublisherOffload(Host("H1"), CONFIG, 0.0)
    offload.heard("H2", head_load, 0.4)
    overloaded = HeadMetrics(0.3, 0.99)
    found = moves(offload.woken(overloaded, {}, 0.5))
    assert not looks(offload), "one reading may be chance"
    found += moves(offload.woken(overloaded, {}, 1.0))
    assert looks(offload)
    for _ in range(10):
        offload.matched("p", 10.0, ["H2"], {"e1": None})
        offload.matched("q", 10.0, ["e1"], {"e1": None})
        offload.matched("somebody else", 10.0, ["H2"], {"e1": None})
    found += moves(offload.woken(overloaded, {}, 1.0 + CONFIG.sample_timeout_s))
    assert not looks(offload)
    return offload, found


def test_an_overloaded_head_gives_a_publisher_that_is_heard_elsewhere_to_a_head_with_little_load() -> None:
    offload, found = offloading(at_h2())
    assert found == [RelocatePublisher("p", "H2", "H1/publishers1")]
    assert offload.decision == "overloaded in uplink utilization (99%); gives p to H2"


def test_heads_that_are_loaded_themselves_are_given_nothing() -> None:
    offload, found = offloading(at_h2(State.HIGH))
    assert found == []
    assert offload.decision == "overloaded in uplink utilization (99%); no other head is in a low load state"


def test_after_a_plan_a_head_waits_for_its_effect() -> None:
    offload, _ = offloading(at_h2())
    for step in range(4):
        offload.woken(HeadMetrics(0.3, 0.99), {}, 2.1 + 0.5 * step)
    assert not looks(offload)
    offload.woken(HeadMetrics(0.3, 0.99), {}, 5.0)
    assert looks(offload)


def test_what_was_heard_long_ago_is_not_believed() -> None:
    offload = PublisherOffload(Host("H1"), CONFIG, 0.0)
    offload.heard("H2", at_h2(), 0.0)
    for step in range(20):
        offload.woken(HeadMetrics(0.3, 0.99), {}, 10.0 + step)
    assert "no other head" in offload.decision
