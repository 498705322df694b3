"""Lets topics happen in a simulated world: their clients join, publish steadily, and burst at one moment."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

from trimtab.language import Filter, Publication
from trimtab.simulation.scenarios.crisis_watch import CrisisWatch
from trimtab.simulation.scenarios.topics import TopicPart, drawn_topics, topic_filter_text
from trimtab.simulation.world.world import World

if TYPE_CHECKING:
    from trimtab.simulation.scenarios.messages import Scenario


class Crisis:
    """The clients of all topics of a scenario."""

    def __init__(self, world: World, scenario: Scenario, seed: int) -> None:
        assert scenario.crisis is not None
        self._world = world
        self._part = scenario.crisis
        self._latency_s = scenario.network.latency_s
        self._until_s = scenario.duration_s
        self._rng = Random(f"trimtab crisis {seed}")
        allocates = "delay" in scenario.policy.parts
        self._join_at = self._part.allocated_broker if allocates else self._part.subscribers_broker
        places = {} if allocates else self._part.placement
        self._placement = {topic: broker for broker, topics in places.items() for topic in topics}
        self.topics = scenario.topic
        if scenario.topics == "drawn":
            edges = [broker for broker in scenario.broker if broker.name != self._part.publishers_broker]
            bandwidth_bytes_per_s = sum((broker.bandwidth_mbps or 0.0) * 1e6 / 8 for broker in edges)
            rng = Random(f"trimtab topics {seed}")
            self.topics = drawn_topics(self.topics, bandwidth_bytes_per_s, self._part.burst_factor, rng)
        coarseness = self._part.coarseness
        self.topics = [
            msgspec.structs.replace(
                topic, message_bytes=topic.message_bytes * coarseness, rate_per_s=topic.rate_per_s / coarseness
            )
            for topic in self.topics
        ]
        self.watch = CrisisWatch(self._part, self.topics)

    def plan(self) -> None:
        """Put everything into the world's calendar."""
        part, world = self._part, self._world
        for topic in self.topics:
            for number in range(1, topic.publishers + 1):
                world.at(part.publishers_at_s, self._join_publisher, f"P{topic.id}.{number}", topic)
            second_s = topic.id * part.join_every_s
            for number in range(1, topic.subscribers + 1):
                world.at(second_s, self._join_subscriber, f"S{topic.id}.{number}", topic)

    def _join_publisher(self, name: str, topic: TopicPart) -> None:
        world, part = self._world, self._part
        world.set_publication_bytes(name, topic.message_bytes)
        world.add_client(name, part.publishers_broker, part.publishers_latency_s)
        world.advertise(name, Filter.parse(topic_filter_text(topic.id) + ",[number,isPresent,0]"))
        period_s = 1 / topic.rate_per_s
        world.at(world.now_s + self._rng.uniform(0.0, period_s), self._publish, name, topic, 1)

    def _join_subscriber(self, name: str, topic: TopicPart) -> None:
        broker = self._placement.get(topic.id, self._join_at)
        self._world.add_client(name, broker, self._part.subscribers_latency_s)
        self._world.subscribe(name, Filter.parse(topic_filter_text(topic.id)), topic.within_s)

    def _publish(self, name: str, topic: TopicPart, number: int) -> None:
        world = self._world
        world.publish(name, Publication.trusted({"class": "EWS", "topic": topic.id, "number": number}))
        burst = topic.bursts and world.now_s >= self._part.burst_s
        period_s = 1 / topic.rate_per_s / (self._part.burst_factor if burst else 1.0)
        if world.now_s + period_s < self._until_s:
            world.at(world.now_s + period_s, self._publish, name, topic, number + 1)
