"""Runs a scenario: brokers and links appear, clients join, publish and move, rates change, faults happen."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.meters import MeterConfig, bucket_of_s
from trimtab.language import Filter, Publication
from trimtab.policies.api import Agent
from trimtab.policies.registry import agents_of
from trimtab.protocol.events import KeepClients
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.records import Recorder
from trimtab.simulation.checkers.deliveries import Violation
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.attacks import Attack, AttackPart, AttackSummary, compared
from trimtab.simulation.faults.faults import FrameFault
from trimtab.simulation.scenarios.balance import BalanceSummary, BalanceWatch
from trimtab.simulation.scenarios.crisis import Crisis
from trimtab.simulation.scenarios.crisis_watch import CrisisSummary, MovedSession
from trimtab.simulation.scenarios.scenario import (
    PublisherPart,
    PublishersPart,
    RatePart,
    Scenario,
    ScenarioError,
    SubscriberPart,
    SubscribersPart,
)
from trimtab.simulation.workloads.quotes import Quote, generate_quotes, load_quotes
from trimtab.simulation.workloads.stock import StockWorkload, publication_of
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


class Summary(msgspec.Struct, frozen=True):
    """What a scenario showed."""

    scenario: str
    seed: int
    simulated_s: float
    brokers_count: int
    clients_count: int
    publications_count: int
    deliveries_count: int
    delay_mean_s: float
    delay_percentiles_s: dict[str, float]
    lost_count: int
    duplicated_count: int
    reordered_count: int
    moves_count: int
    frames_count: int
    faults_count: dict[str, int]
    violations: list[Violation]
    trace_hash: str
    late_count: int = 0
    """Deliveries that came later than their subscriptions wanted."""
    crisis: CrisisSummary | None = None
    """How topics with latency requirements fared, for scenarios that have them."""
    attack: AttackSummary | None = None
    """What an attack did to others, for scenarios that have one."""
    balance: BalanceSummary | None = None
    """How level the load was, for scenarios that ask for it."""


class _Publisher:
    """A publisher of one stock, whose rate may change."""

    def __init__(self, name: str, quotes: Sequence[Quote], rate_per_min: float) -> None:
        self.name = name
        self.rate_per_min = rate_per_min
        self.plan_number = 0
        self._publications = [publication_of(quote) for quote in quotes]
        self._next = 0

    def next_publication(self) -> Publication:
        """The next day's quote; after the last the first again."""
        publication = self._publications[self._next % len(self._publications)]
        self._next += 1
        return publication


class ScenarioRun:
    """A scenario in a world; `run` lets it happen."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int | None = None,
        quotes: Sequence[Quote] | None = None,
        recorder: Recorder | None = None,
        keeps_clients_from_s: Mapping[str, float] | None = None,
        *,
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
        self._rng = Random(f"trimtab scenario {self.seed}")
        if quotes is None and scenario.quotes:
            quotes = load_quotes(Path(scenario.quotes))
        self._quotes = quotes
        self._workload: StockWorkload | None = None
        self._by_symbol: dict[str, list[Quote]] = {}
        self._publishers: dict[str, _Publisher] = {}
        self._watch = None
        if scenario.balance is not None:
            padres = scenario.padres
            self._watch = BalanceWatch(
                scenario.balance, scenario.policy, padres.lower_overload_ratio, padres.higher_overload_ratio
            )
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

    def run(self) -> Summary:
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
        if scenario.attack is not None:
            return summary if self._is_spared else self._with_attack(summary, scenario.attack)
        if summary.crisis is None or self._keeps_clients_from_s:
            return summary
        needless = self._needless_moves(summary.crisis)
        crisis = msgspec.structs.replace(summary.crisis, unnecessary_moves=needless)
        return msgspec.structs.replace(summary, crisis=crisis)

    def _with_attack(self, summary: Summary, part: AttackPart) -> Summary:
        """What the attack did, beside the same seed without it."""
        if summary.attack is None or not part.measures:
            return summary
        calm = ScenarioRun(self.scenario, self.seed, self._quotes_given, is_spared=True).run().attack
        attack = summary.attack if calm is None else compared(summary.attack, calm)
        return msgspec.structs.replace(summary, attack=attack)

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
            again = ScenarioRun(self.scenario, self.seed, self._quotes_given, None, {broker: move.at_s - 1.0})
            without = again.run().crisis
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
            self._at(broker.at_s, world.add_broker, self._config(broker.name), capacity, agents)
        for name, from_s in self._keeps_clients_from_s.items():
            self._at(from_s, self._keep_clients, name)
        for link in scenario.link:
            own_latency_s = latency_s if link.latency_s is None else link.latency_s
            self._at(link.at_s, world.add_link, *link.between, own_latency_s)
        for publisher in scenario.publisher:
            self._at(publisher.at_s, self._join_publisher, publisher)
        symbols = self._symbols_for(scenario.publishers)
        for publishers in scenario.publishers:
            for number in range(publishers.count):
                self._at(
                    publishers.from_s + number * publishers.every_s,
                    self._join_publisher,
                    self._draw_publisher(publishers, number, symbols.pop(0)),
                )
        if self._crisis is not None:
            self._crisis.plan()
        if self._attack is not None:
            self._attack.plan(latency_s)
        for subscriber in scenario.subscriber:
            self._at(subscriber.at_s, self._join_subscriber, subscriber)
        for subscribers in scenario.subscribers:
            self._plan_subscribers(subscribers)
        for rate in scenario.rate:
            self._at(rate.at_s, self._change_rates, rate)
        for publish in scenario.publish:
            for number, text in enumerate(publish.publications):
                publication = Publication.parse(text)
                self._at(publish.at_s + number * publish.every_s, world.publish, publish.publisher, publication)
        for move in scenario.move:
            self._at(move.at_s, world.move, move.subscriber, move.broker)
        for drain in scenario.drain:
            self._at(drain.at_s, self._drain, drain.broker)
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
        return agents_of(
            scenario.policy,
            name,
            self.seed,
            scenario.padres,
            coordination=scenario.coordination,
            site=next(broker.site for broker in scenario.broker if broker.name == name),
            relocation=scenario.relocation,
            delay=scenario.delay,
        )

    def _at(self, time_s: float, action: Callable[..., object], *arguments: object) -> None:
        def act() -> None:
            action(*arguments)

        self.world.at(time_s, act)

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

    @property
    def stock(self) -> StockWorkload:
        """The stock workload, made when it is first needed."""
        if self._workload is None:
            quotes = self._quotes or generate_quotes(Random(f"quotes {self.seed}"), self.scenario.symbols_count + 20)
            try:
                self._workload = StockWorkload(quotes, self._rng, symbols_count=self.scenario.symbols_count)
            except ValueError as error:
                raise ScenarioError(f"{self.scenario.name}: {error}") from None
            for quote in quotes:
                self._by_symbol.setdefault(quote.symbol, []).append(quote)
        return self._workload

    def _symbols_for(self, groups: Sequence[PublishersPart]) -> list[str]:
        wanted_count = sum(group.count for group in groups)
        if not wanted_count:
            return []
        taken = {publisher.symbol for publisher in self.scenario.publisher}
        free = [symbol for symbol in self.stock.symbols if symbol not in taken]
        if wanted_count > len(free):
            raise ScenarioError(
                f"{self.scenario.name}: {wanted_count} publishers want a stock each, but there are {len(free)}; "
                "raise symbols_count"
            )
        return self._rng.sample(free, wanted_count)

    def _draw_publisher(self, group: PublishersPart, number: int, symbol: str) -> PublisherPart:
        rate = group.rate_per_min
        return PublisherPart(
            name=f"{group.prefix}{number + 1}",
            broker=self._pick(group.broker),
            symbol=symbol,
            rate_per_min=self._rng.uniform(*rate) if isinstance(rate, tuple) else rate,
        )

    def _plan_subscribers(self, group: SubscribersPart) -> None:
        workload = self.stock
        for number in range(group.count):
            silent = self._rng.random() < group.zero_traffic_ratio
            make = workload.silent_subscription if silent else workload.subscription
            filters = [str(make()) for _ in range(group.subscriptions_per_client)]
            part = SubscriberPart(name=f"{group.prefix}{number + 1}", broker=self._pick(group.broker), filters=filters)
            self._at(self._rng.uniform(*group.join_s), self._join_subscriber, part)

    def _pick(self, broker: str | list[str]) -> str:
        return broker if isinstance(broker, str) else self._rng.choice(broker)

    # ---- happening ----

    def _keep_clients(self, broker: str) -> None:
        self.world.brokers[broker].tell(KeepClients())

    def _join_publisher(self, part: PublisherPart) -> None:
        world = self.world
        world.add_client(part.name, part.broker, self.scenario.network.latency_s)
        if part.advertise is not None:
            world.advertise(part.name, Filter.parse(part.advertise))
            return
        symbol = part.symbol or ""
        workload = self.stock
        if symbol not in self._by_symbol:
            raise ScenarioError(f"{self.scenario.name}: publisher {part.name}: the quotes have no stock {symbol}")
        world.advertise(part.name, workload.advertisement(symbol))
        publisher = self._publishers[part.name] = _Publisher(part.name, self._by_symbol[symbol], part.rate_per_min)
        self._plan_publication(publisher, first=True)

    def _join_subscriber(self, part: SubscriberPart) -> None:
        self.world.add_client(part.name, part.broker, self.scenario.network.latency_s)
        ids = [self.world.subscribe(part.name, Filter.parse(text), part.within_s) for text in part.filters]
        if part.until_s is not None:
            for id in ids:
                self._at(part.until_s, self.world.unsubscribe, part.name, id)

    def _plan_publication(self, publisher: _Publisher, *, first: bool = False) -> None:
        """Publish at a steady pace; each begins at a random place of its period, so that they do not go in step."""
        if publisher.rate_per_min <= 0:
            return
        period_s = 60.0 / publisher.rate_per_min
        time_s = self.world.now_s + (self._rng.uniform(0.0, period_s) if first else period_s)
        if time_s < self.scenario.duration_s:
            self.world.at(time_s, self._publish, publisher, publisher.plan_number)

    def _publish(self, publisher: _Publisher, plan_number: int) -> None:
        if plan_number == publisher.plan_number:
            self.world.publish(publisher.name, publisher.next_publication())
            self._plan_publication(publisher)

    def _change_rates(self, change: RatePart) -> None:
        if change.publisher is not None:
            chosen = [self._publishers[change.publisher]] if change.publisher in self._publishers else []
        else:
            everyone = list(self._publishers.values())
            chosen = self._rng.sample(everyone, round(len(everyone) * change.share_ratio))
        for publisher in chosen:
            if change.rate_per_min is not None:
                publisher.rate_per_min = change.rate_per_min
            elif change.factor is not None:
                publisher.rate_per_min *= change.factor
            publisher.plan_number += 1
            self._plan_publication(publisher, first=True)

    # ---- summing up ----

    def _summary(self) -> Summary:
        world, checker = self.world, self.world.checker
        kinds = [violation.kind for violation in checker.violations]
        return Summary(
            scenario=self.scenario.name,
            seed=self.seed,
            simulated_s=world.now_s,
            brokers_count=len(world.brokers),
            clients_count=len(world.clients),
            publications_count=checker.accepted_count,
            deliveries_count=checker.deliveries_count,
            delay_mean_s=checker.delays.mean_s,
            delay_percentiles_s={str(percent): checker.delays.percentile_s(percent) for percent in _PERCENTILES},
            lost_count=kinds.count("missing"),
            duplicated_count=kinds.count("delivered twice"),
            reordered_count=kinds.count("out of order"),
            moves_count=world.moves_count,
            frames_count=world.frames_count,
            faults_count={kind: world.faults_count[kind] for kind in sorted(world.faults_count)},
            violations=checker.violations,
            trace_hash=world.trace.hexdigest(),
            late_count=sum(sum(host.session.late_counts.values()) for host in world.clients.values()),
            crisis=self._crisis.watch.summary() if self._crisis is not None else None,
            attack=self._attack.summary(self.scenario.attack.kind) if self._attack and self.scenario.attack else None,
            balance=self._watch.summary() if self._watch is not None else None,
        )


@contextmanager
def few_collections() -> Iterator[None]:
    """Look for cycles of garbage seldom: a run makes many objects that live a while, and next to no cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
