"""Delay-sensitive load management, section IV.B: ways per publisher and topic, with other clusters, and two links."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policies.padres.hosts import FakeHost
from trimtab.language import Filter
from trimtab.load.indices import LoadIndices
from trimtab.policies.api import AgentAction, BrokerCapacity, Heard, RoundTripsTold, Tell, Woken
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.edge import DelayEdge
from trimtab.policies.delay.head import DelayHead
from trimtab.policies.delay.messages import (
    HEADS,
    EdgeLoad,
    HeadLoad,
    Ping,
    Pong,
    PublisherWay,
    cluster_address,
    from_values,
    to_values,
)
from trimtab.policies.delay.metrics import EdgeMetrics, HeadMetrics, State
from trimtab.policies.delay.queues import Queues, Ways

FLOOD, WIND = Filter.parse("[topic,eq,'flood']"), Filter.parse("[topic,eq,'wind']")
CAPACITY = BrokerCapacity(1_000.0, 1e9)


def load(output_queue_s: float = 0.0) -> LoadIndices:
    return LoadIndices(100.0, 0.001, 1_000.0, 0.1, 0.5, 0.1, 0, 0, 0, output_queue_s, 0)


class Host(FakeHost):
    """A head with the publishers P1 and P2, or an edge with clients."""

    def __init__(self, name: str, clients: dict[str, list[Filter]] | None = None) -> None:
        super().__init__(name, clients)
        self.requirements: dict[str, list[float | None]] = {}
        self.its_capacity = CAPACITY

    def requirements_of(self, client: str) -> list[float | None]:
        return self.requirements.get(client, [])

    def publishers(self) -> list[str]:
        return ["P1", "P2"]

    def load(self, now_s: float) -> LoadIndices:
        return load()

    def capacity(self) -> BrokerCapacity:
        return self.its_capacity


def said(actions: list[AgentAction]) -> list[Any]:
    told = [from_values(each.values) for each in actions if isinstance(each, Tell)]
    return [each.content for each in told if each is not None]


def hear(part: Any, sender: str, to: str, content: Any, now_s: float) -> list[Any]:
    return said(part.handle(Heard(to_values(content, sender, to)), now_s))


def test_each_topic_has_the_ways_of_its_own_publishers() -> None:
    """t_trans-sel is the longest way of all publishers on the topic, and not of all publishers."""
    ways = Ways(head_edge_s=0.1, subscriber_round_trips_s={"S": 0.2})
    ways.publishers = {"near": PublisherWay(0.05, 0.01), "far": PublisherWay(0.7, 0.03)}
    ways.heard(FLOOD, "near")
    ways.heard(WIND, "near")
    ways.heard(WIND, "far")
    host = Host("b1", {"S": [FLOOD, WIND]})
    queues = Queues(host, DelayConfig())
    host.requirements = {"S": [1.0, None]}
    queues.read(load(), ways, 0.5, 0.0, 0.0)
    assert queues.waits_s["S"] == pytest.approx(1.0 - 0.05 - 0.1 - 0.1 - 0.01 - 0.001)
    host.requirements = {"S": [1.0, 1.2]}
    queues.read(load(), ways, 0.5, 0.0, 1.0)
    assert queues.waits_s["S"] == pytest.approx(1.2 - 0.7 - 0.1 - 0.1 - 0.03 - 0.001), "the filter that may wait least"


def test_a_topic_whose_publishers_are_not_known_has_the_longest_way_of_the_cluster() -> None:
    ways = Ways(publisher_head_s=0.3, head_s=0.02, publishers={"near": PublisherWay(0.05, 0.01)})
    assert ways.before_edge(FLOOD) == PublisherWay(0.3, 0.02)


def test_an_edge_learns_who_publishes_what_from_what_it_matches() -> None:
    host = Host("b1", {"S": [FLOOD, WIND]})
    edge = DelayEdge(host, "H1", DelayConfig(), 0.0)
    assert edge.observes
    edge.matched(("P1", 1), {"topic": "flood"}, ["S"], 1.0)
    edge.matched(("P2", 1), {"topic": "wind"}, ["S"], 1.0)
    assert {filter: list(names) for filter, names in edge.ways.heard_by_filter.items()} == {
        FLOOD: ["P1"],
        WIND: ["P2"],
    }


def test_a_publisher_of_another_cluster_has_the_way_between_the_heads_and_through_both() -> None:
    """t_h-h is half of a round trip between heads, t_remote-h what the subscribers' head takes."""
    head = DelayHead(Host("H1"), DelayConfig(), 0.0)
    head.handle(RoundTripsTold("P1", {"H1": 0.2}, "ways"), 0.5)
    hear(head, "H2", HEADS, HeadLoad(metrics=HeadMetrics(0.1, 0.1), state=State.LOW, capacity=CAPACITY), 1.0)
    pings = [each for each in said(head.handle(Woken(), 1.0)) if isinstance(each, Ping)]
    assert len(pings) == 1
    answer = Pong(number=pings[0].number, publisher_head_s=0.4, ways={"P9": PublisherWay(0.4, 0.05)})
    hear(head, "H2", "H1", answer, 1.6)
    metrics = EdgeMetrics(0.1, 0.1, 0.1)
    idle = EdgeLoad(metrics=metrics, state=State.LOW, capacity=CAPACITY, matching_delay_s=0.0, input_rate_per_s=0.0)
    hear(head, "b1", cluster_address("H1"), idle, 1.7)
    (to_edge,) = hear(head, "b1", "H1", Ping(number=3), 2.0)
    assert to_edge.ways["P1"] == PublisherWay(0.1, 0.001)
    assert to_edge.ways["P9"].links_s == pytest.approx(0.4 + 0.3)
    assert to_edge.ways["P9"].heads_s == pytest.approx(0.05 + 0.001)
    (to_head,) = hear(head, "H2", "H1", Ping(number=1), 2.0)
    assert list(to_head.ways) == ["P1"], "a head tells heads of its own publishers only"


def test_uplink_and_downlink_have_bandwidths_of_their_own() -> None:
    host = Host("H1")
    host.its_capacity = BrokerCapacity(1_000.0, 1e9, downlink_bytes_per_s=4_000.0)
    head = DelayHead(host, DelayConfig(), 0.0)
    assert head.metrics(1.0) == HeadMetrics(downlink_ratio=100 * 10 / 4_000, uplink_ratio=0.5)
    assert CAPACITY.receivable_bytes_per_s == 1_000.0
