"""Runs a scenario: brokers and links appear, clients join, publish and move, rates change, faults happen."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.meters import MeterConfig, bucket_of_s
from trimtab.policies.api import Agent
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.registry import agents_of
from trimtab.protocol.events import KeepClients
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.records import Recorder
from trimtab.simulation.checkers.deliveries import DeliveryChecker
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.attacks import Attack, AttackSummary, compared
from trimtab.simulation.faults.faults import FrameFault
from trimtab.simulation.scenarios.balance import BalanceSummary, BalanceWatch
from trimtab.simulation.scenarios.clients import ScenarioClients
from trimtab.simulation.scenarios.crisis import Crisis
from trimtab.simulation.scenarios.crisis_watch import CrisisSummary, MovedSession
from trimtab.simulation.scenarios.messages import (
    Scenario,
)
from trimtab.simulation.scenarios.summary import Summary, counted
from trimtab.simulation.workloads.quotes import Quote
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.recording import LoadWatch, WorldRecords
from trimtab.simulation.world.world import World

REST_WITHIN_S: Final = 36_000.0
"""After the scenario's duration what is under way has this time to arrive; an overloaded broker may need hours."""

RETRANSMIT_AFTER_S: Final = 30.0
"""When links send again what was not acknowledged, in scenarios where no frame is lost on a living connection."""

ACKNOWLEDGE_AFTER_RATIO: Final = 0.13
"""How long an acknowledgement of a broker may wait, as a share of the time after which a link sends again."""

CLIENTS_ACKNOWLEDGE_AFTER_RATIO: Final = 1 / 3
"""The same for clients, which acknowledge earlier if they have got a quarter of a window."""

BUNDLE_S: Final = 0.025
"""Frames to clients are handed over together for so long, each with its own time; some ten frames at 1 Mbps."""

_PERCENTILES: Final = (50, 95, 99, 100)


class MessagesDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a scenario with messages showed of its own."""

    frames: int | None = None
    """Handed over by links; null for a run in processes."""
    faults: dict[str, int] = {}
    """Faults that happened, by kind."""
    delay_mean_s: float
    """From acceptance to delivery."""
    delay_percentiles_s: dict[str, float]
    """The same by percentile; 100 is the longest."""
    late: int = 0
    """Deliveries that came later than their subscriptions wanted."""
    crisis: CrisisSummary | None = None
    """How topics with latency requirements fared, for scenarios that have them."""
    attack: AttackSummary | None = None
    """What an attack did to others, for scenarios that have one."""
    balance: BalanceSummary | None = None
    """How level the load was, for scenarios that ask for it."""


MessagesSummary: TypeAlias = Summary[MessagesDetails]


class ScenarioRun:
    """A scenario in a world; `run` lets it happen."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int | None = None,
        recorder: Recorder | None = None,
        *,
        quotes: Sequence[Quote] | None = None,
        keeps_clients_from_s: Mapping[str, float] | None = None,
        is_spared: bool = False,
        metrics: LoadWatch | None = None,
    ) -> None:
        """A run; of the brokers named none gives clients away from a time on, and one that is spared has no attack.

        `metrics` hears of all but deliveries, which are many.
        """
        self._is_spared = is_spared
        self.scenario = scenario
        self._quotes_given = quotes
        self._keeps_clients_from_s = keeps_clients_from_s or {}
        self.seed = scenario.seed if seed is None else seed
        options = scenario.network
        self.link_config = LinkConfig(
            window_frames_count=options.window_frames_count, data_window_count=options.window_frames_count
        )
        if not any(isinstance(fault, FrameFault) for fault in scenario.fault):
            self.link_config = msgspec.structs.replace(self.link_config, retransmit_after_s=RETRANSMIT_AFTER_S)
        retransmit_after_s = self.link_config.retransmit_after_s
        self.world = World(
            self.seed,
            link=self.link_config,
            acknowledge_after_s=ACKNOWLEDGE_AFTER_RATIO * retransmit_after_s,
            clients_acknowledge_after_s=CLIENTS_ACKNOWLEDGE_AFTER_RATIO * retransmit_after_s,
            bundle_s=BUNDLE_S,
            uplink=options.uplink,
        )
        self._clients = ScenarioClients(scenario, self.seed, self.world, quotes)
        self._watch = None
        if scenario.balance is not None:
            padres = scenario.policy.config(PadresConfig)
            self._watch = BalanceWatch(scenario.balance, padres.lower_overload_ratio, padres.higher_overload_ratio)
        self._crisis = Crisis(self.world, scenario, self.seed) if scenario.crisis is not None else None
        attack = scenario.attack
        self._attack = None
        if attack is not None:
            part = None if is_spared else attack
            self._attack = Attack(self.world, part, attack.begin_s, scenario.duration_s)
        if self._crisis is not None:
            self.world.keep_records(WorldRecords(recorder, self._crisis.watch, self._crisis.watch.delivered, metrics))
        elif recorder is not None or self._watch is not None or metrics is not None:
            self.world.keep_records(WorldRecords(recorder, self._watch, metrics=metrics))
        self._plan()

    def run(self) -> MessagesSummary:
        """Let everything happen and come to rest, check it, and sum it up."""
        world, scenario = self.world, self.scenario
        with few_collections():
            if world.records is not None:
                world.records.run(world, scenario.record_every_s, scenario.duration_s)
            world.run(scenario.duration_s)
            world.retire_agents()
            world.run(scenario.duration_s + REST_WITHIN_S)
        if world.records is not None:
            world.records.read_load(world)
        check_rest(self.world, [link.between for link in self.scenario.link])
        summary = self._summary()
        found = summary.details
        if scenario.attack is not None:
            if self._is_spared or found.attack is None or not scenario.attack.measures:
                return summary
            return _with_details(summary, attack=self._measured(found.attack))
        if found.crisis is None or self._keeps_clients_from_s:
            return summary
        needless = self._needless_moves(found.crisis)
        return _with_details(summary, crisis=msgspec.structs.replace(found.crisis, unnecessary_moves=needless))

    def _measured(self, attack: AttackSummary) -> AttackSummary:
        """What the attack did, beside the same seed without it."""
        spared = ScenarioRun(self.scenario, self.seed, quotes=self._quotes_given, is_spared=True).run()
        calm = spared.details.attack
        return attack if calm is None else compared(attack, calm)

    def _needless_moves(self, crisis: CrisisSummary) -> list[str] | None:
        """The moves after the burst without which nothing would have been late: the run again, without them."""
        part = self.scenario.crisis
        if part is None or not part.checked_moves_max_count:
            return None
        firsts: dict[str, MovedSession] = {}
        for move in crisis.moves:
            firsts.setdefault(move.from_broker, move)
        needless: list[str] = []
        for broker, move in list(firsts.items())[: part.checked_moves_max_count]:
            kept = {broker: move.at_s - 1.0}
            again = ScenarioRun(self.scenario, self.seed, quotes=self._quotes_given, keeps_clients_from_s=kept)
            without = again.run().details.crisis
            if without is not None and without.late_total <= crisis.late_total:
                needless.append(move.cause)
        return needless

    # ---- planning ----

    def _plan(self) -> None:
        scenario, world = self.scenario, self.world
        latency_s = scenario.network.latency_s
        world.agents_for = self._agents_of
        for broker in scenario.broker:
            capacity = SimulatedCapacity(broker.cpu_mhz, broker.memory_mb, broker.bandwidth_mbps)
            agents = self._agents_of(broker.name)
            world.at(broker.at_s, world.add_broker, self._config(broker.name), capacity, agents)
        for name, from_s in self._keeps_clients_from_s.items():
            world.at(from_s, self._keep_clients, name)
        for link in scenario.link:
            own_latency_s = latency_s if link.latency_s is None else link.latency_s
            world.at(link.at_s, world.add_link, *link.between, own_latency_s)
        self._clients.plan_publishers()
        if self._crisis is not None:
            self._crisis.plan()
        if self._attack is not None:
            self._attack.plan(latency_s)
        self._clients.plan_others()
        for drain in scenario.drain:
            world.at(drain.at_s, self._drain, drain.broker)
        for fault in scenario.fault:
            world.add_fault(fault)

    def _drain(self, name: str) -> None:
        """Send a broker's subscribers to the other edge-brokers, in turn."""
        world = self.world
        neighbours = {
            each: [peer for peer in host.broker.peers.values() if peer.role == "broker"]
            for each, host in world.brokers.items()
        }
        others = [each for each, known in neighbours.items() if len(known) == 1 and each != name]
        served = [
            peer.name
            for peer in world.brokers[name].broker.peers.values()
            if peer.role == "client" and peer.subscriptions
        ]
        for number, client in enumerate(served if others else ()):
            world.move(client, others[number % len(others)])

    def _agents_of(self, name: str) -> Sequence[Agent]:
        scenario = self.scenario
        site = next(broker.site for broker in scenario.broker if broker.name == name)
        return agents_of(scenario.policy, name, self.seed, site)

    def _config(self, name: str) -> BrokerConfig:
        """The broker's configuration; a link that comes later than both its brokers is not part of it."""
        options, window_s = self.scenario.network, self.scenario.network.meter_window_s
        begins_s = {broker.name: broker.at_s for broker in self.scenario.broker}
        links = [
            link.between
            for link in self.scenario.link
            if name in link.between and link.at_s <= max(begins_s[end] for end in link.between)
        ]
        return BrokerConfig(
            name,
            neighbours=tuple(second if first == name else first for first, second in links),
            subscription_covering=options.covering in (True, "on"),
            advertisement_covering=options.advertisement_covering in (True, "on"),
            link=self.link_config,
            meters=MeterConfig(window_s=window_s, bucket_s=bucket_of_s(window_s)),
            protection=self.scenario.protection if self.scenario.protection != "off" else None,
            client_queue_max_count=options.client_queue_max_count,
            slow_policy=options.slow_policy,
            filters_per_client_max_count=options.filters_per_client_max_count,
            client_lease_s=options.client_lease_s,
            clients_max_count=options.clients_max_count,
        )

    # ---- happening ----

    def _keep_clients(self, broker: str) -> None:
        self.world.brokers[broker].tell(KeepClients())

    # ---- summing up ----

    def _summary(self) -> MessagesSummary:
        world, checker = self.world, self.world.checker
        details = MessagesDetails(
            frames=world.frames_count,
            faults={kind: world.faults_count[kind] for kind in sorted(world.faults_count)},
            delay_mean_s=checker.delays.mean_s,
            delay_percentiles_s=percentiles_s(checker),
            late=sum(sum(host.session.late_counts.values()) for host in world.clients.values()),
            crisis=self._crisis.watch.summary() if self._crisis is not None else None,
            attack=self._attack.summary(self.scenario.attack.kind) if self._attack and self.scenario.attack else None,
            balance=self._watch.summary() if self._watch is not None else None,
        )
        return Summary(
            scenario=self.scenario.name,
            kind=self.scenario.kind,
            seed=self.seed,
            policy=self.scenario.policy.name,
            simulated_s=world.now_s,
            brokers=len(world.brokers),
            clients=len(world.clients),
            moves=world.moves_count,
            violations=checker.violations,
            trace_hash=world.trace.hexdigest(),
            details=details,
            **counted(checker),
        )


def percentiles_s(checker: DeliveryChecker) -> dict[str, float]:
    """The delays of deliveries by percentile."""
    return {str(percent): checker.delays.percentile_s(percent) for percent in _PERCENTILES}


def _with_details(summary: MessagesSummary, **details: Any) -> MessagesSummary:
    return msgspec.structs.replace(summary, details=msgspec.structs.replace(summary.details, **details))


@contextmanager
def few_collections() -> Iterator[None]:
    """Look for cycles of garbage seldom: a run makes many objects that live a while, and next to no cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
