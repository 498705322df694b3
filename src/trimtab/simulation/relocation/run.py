"""Runs a scenario of publisher relocation: a tree of brokers, publishers of stocks, and their subscribers.

The workload follows from the seed alone, so that all policies meet the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter, Publication
from trimtab.policies.api import Agent
from trimtab.policies.registry import agents_of
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.records import Recorder
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.relocation.scenario import RelocationScenario, broker_names, links_of
from trimtab.simulation.relocation.summary import RelocationSummary, RelocationWatch
from trimtab.simulation.scenarios.run import (
    ACKNOWLEDGE_AFTER_RATIO,
    BUNDLE_S,
    CLIENTS_ACKNOWLEDGE_AFTER_RATIO,
    REST_WITHIN_S,
    RETRANSMIT_AFTER_S,
    few_collections,
)
from trimtab.simulation.workloads.quotes import generate_quotes
from trimtab.simulation.workloads.rated import rated_advertisement, rated_publication, rated_subscribers
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.recording import WorldRecords
from trimtab.simulation.world.world import World


class RelocationRun:
    """A scenario in a world; `run` lets it happen."""

    def __init__(self, scenario: RelocationScenario, seed: int | None = None, recorder: Recorder | None = None) -> None:
        self.scenario = scenario
        self.seed = scenario.seed if seed is None else seed
        self._link = LinkConfig(retransmit_after_s=RETRANSMIT_AFTER_S)
        self.world = World(
            self.seed,
            link=self._link,
            acknowledge_after_s=ACKNOWLEDGE_AFTER_RATIO * RETRANSMIT_AFTER_S,
            clients_acknowledge_after_s=CLIENTS_ACKNOWLEDGE_AFTER_RATIO * RETRANSMIT_AFTER_S,
            bundle_s=BUNDLE_S,
        )
        self._rng = Random(f"trimtab relocation {self.seed}")
        self.agents: dict[str, list[Agent]] = {}
        self._add_brokers()
        self._watch = RelocationWatch(scenario, self.agents)
        self.world.keep_records(WorldRecords(recorder, self._watch, self._watch.delivered))
        self._plan_clients()

    def run(self) -> RelocationSummary:
        """Let everything happen and come to rest, check it, and sum it up."""
        world, scenario, records = self.world, self.scenario, self.world.records
        assert records is not None
        with few_collections():
            records.run(world, scenario.record_every_s, scenario.duration_s)
            world.run(scenario.duration_s)
            summary = self._watch
            world.retire_agents()
            world.run(scenario.duration_s + REST_WITHIN_S)
        check_rest(world, links_of(scenario))
        return summary.summary(world, self.seed)

    def _add_brokers(self) -> None:
        scenario = self.scenario
        links = links_of(scenario)
        capacity = SimulatedCapacity(scenario.cpu_mhz, scenario.memory_mb, scenario.bandwidth_mbps)
        for name in broker_names(scenario):
            neighbours = tuple(second if first == name else first for first, second in links if name in {first, second})
            self.agents[name] = agents_of(scenario.choice, name, self.seed)
            config = BrokerConfig(name, neighbours=neighbours, link=self._link, subscription_covering=scenario.covering)
            self.world.add_broker(config, capacity, self.agents[name])
        for first, second in links:
            self.world.add_link(first, second, scenario.latency_s)

    def _plan_clients(self) -> None:
        """Draw publishers and subscribers; all join before the first publication."""
        scenario, rng, world = self.scenario, self._rng, self.world
        quotes = generate_quotes(Random(f"quotes {self.seed}"), scenario.publishers_count)
        by_symbol: dict[str, list[Publication]] = {}
        for quote in quotes:
            by_symbol.setdefault(quote.symbol, []).append(rated_publication(quote))
        names = broker_names(scenario)
        period_s = 60.0 / scenario.rate_per_min
        for number, (symbol, publications) in enumerate(by_symbol.items(), 1):
            publisher = f"P{number}"
            world.at(rng.uniform(1.0, scenario.join_s / 3), self._join_publisher, publisher, rng.choice(names), symbol)
            begins_s = scenario.publish_from_s + rng.uniform(0.0, period_s)
            world.at(begins_s, self._publish, publisher, publications, 0, begins_s)
            brokers = rng.sample(names, scenario.spread)
            chosen = rated_subscribers(scenario.workload, scenario.subscribers_count, brokers, publications, rng)
            for place, subscriber in enumerate(chosen, 1):
                name = f"{publisher}-{subscriber.rating}{place}"
                joins_s = rng.uniform(scenario.join_s / 3, scenario.join_s)
                world.at(joins_s, self._join_subscriber, name, subscriber.broker, subscriber.filter)

    def _join_publisher(self, name: str, broker: str, symbol: str) -> None:
        self.world.add_client(name, broker, self.scenario.latency_s)
        self.world.advertise(name, rated_advertisement(symbol))

    def _join_subscriber(self, name: str, broker: str, filter: Filter) -> None:
        self.world.add_client(name, broker, self.scenario.latency_s)
        self.world.subscribe(name, filter)

    def _publish(self, name: str, publications: Sequence[Publication], number: int, begins_s: float) -> None:
        self.world.publish(name, publications[number % len(publications)])
        next_s = begins_s + (number + 1) * 60.0 / self.scenario.rate_per_min
        if next_s < self.scenario.duration_s:
            self.world.at(next_s, self._publish, name, publications, number + 1, begins_s)
