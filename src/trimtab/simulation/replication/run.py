"""One run of a replication scenario, and the metrics of the paper.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, section 5.

Deviations: times are taken where subscribers get publications, one link of 1 ms behind the paper's neighbour brokers.
"""

from __future__ import annotations

from bisect import bisect_left
from random import Random
from typing import Final, TypeAlias

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Assist, Deliver, Replace
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.records import Recorder
from trimtab.simulation.checkers.properties import ordering_degree_ratio
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.replication.scenario import ReplicationScenario
from trimtab.simulation.scenarios.summary import Summary, counted
from trimtab.simulation.world.capacity import SimulatedCapacity, matching_delay_s
from trimtab.simulation.world.world import World

FAULTY: Final = "F"
PUBLISHERS: Final = "P"
_STEP_S: Final = 0.001
_CONGESTED_MHZ: Final = 100.0
_BACKLOG_RATIO: Final = 0.1
"""An assistant begins when this part of the publications has come: a backlog is what shows congestion."""
_SILENCE_S: Final = 20.0
"""A run is over when all is delivered, or when nothing has been for so long."""


class ReplicationDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a run with a broker that fails showed of its own."""

    variant: str
    """The protocol, as the paper's table names it."""
    subscriptions_count: int
    pending_count: int
    neighbours_count: int
    zipf_degree: float
    popular: bool
    congestion: float
    resumption_delay_s: float
    """From a neighbour's connection to the replica to the first publication for a subscription, the mean (PDRD)."""

    resumed_count: int
    """Subscriptions that got a publication, of which the means are."""

    last_processed_s: float
    """From the first to the last publication of a subscription, the mean (LMPT)."""

    replication_s: float | None
    """From the replica's begin until it has all subscriptions; None where there is none."""

    ordering_degree_ratio: float
    """The mean over subscribers; 1 is the publisher's order."""

    missing_ratio: float
    """Deliveries that were due and did not happen, of all."""

    throughput_per_s: float
    """Publications delivered to a neighbour's subscriber in a second, from the begin of the replica to the last."""

    unwanted_count: int
    """Publications that the replica sent to neighbours behind which nobody wants them."""

    fan_out_mean: float
    """Subscriptions that a publication matches."""


ReplicationSummary: TypeAlias = Summary[ReplicationDetails]


class ReplicationRun:
    """A world with a broker F, a neighbour with the publisher, and neighbours with subscribers."""

    def __init__(self, scenario: ReplicationScenario, seed: int, recorder: Recorder | None = None) -> None:
        self._scenario = scenario
        self._seed = seed
        self._rng = Random(f"replication {seed}")
        self._neighbours = [f"S{number}" for number in range(1, scenario.neighbours_count + 1)]
        self._lowest: dict[str, int] = {}
        """The lowest value that a neighbour's subscribers ask for: it wants all publications above."""
        self._asked_for: list[int] = []
        """The values above which subscriptions ask for publications."""
        self._first_s: dict[str, float] = {}
        self._last_s: dict[str, float] = {}
        self._came: dict[str, list[int]] = {}
        self._times_s: list[float] = []
        # as in the paper, routes that are told take no precedence over publications
        self._world = World(seed, link=LinkConfig(), uplink="fifo")
        self._cpu_mhz = scenario.cpu_mhz
        if scenario.failure == "transient" and self._cpu_mhz is None:
            self._cpu_mhz = _CONGESTED_MHZ
        self._links = [(FAULTY, name) for name in (PUBLISHERS, *self._neighbours)]

    def run(self) -> ReplicationSummary:
        """Run to rest."""
        scenario, world = self._scenario, self._world
        self._build()
        self._subscribe()
        world.on_delivery = self._note
        values = self._draw(scenario.pending_count, towards_low=not scenario.popular)
        began_s, replication_s = self._replace(values) if scenario.failure == "permanent" else self._congest(values)
        checker, progress_s = world.checker, world.now_s
        while checker.accepted_count < len(values) or checker.undelivered_count:
            progress_s = max([progress_s, *self._times_s[-1:]])
            if world.now_s - progress_s > _SILENCE_S:
                break
            world.run(world.now_s + 1.0)
        world.retire_agents()
        world.run(world.now_s + 3_600.0)
        due_count = max(0, self._wanted_count(values) - checker.deliveries_count)
        check_rest(world, self._links)
        return self._summary(values, began_s, replication_s, due_count)

    # ---- the network ----

    def _build(self) -> None:
        scenario, world = self._scenario, self._world
        replication = ReplicationConfig(
            protocol=scenario.protocol,
            assisting="never",  # when the assistant begins is part of the experiment
            crash_after_s=1e6,
            hang_after_s=1e6,
        )
        for name in (FAULTY, PUBLISHERS, *self._neighbours):
            neighbours = tuple(end for link in self._links if name in link for end in link if end != name)
            config = BrokerConfig(
                name,
                neighbours=neighbours,
                replication=replication,
                subscription_covering=False,  # as in the paper all are forwarded
                broker_queue_high_count=1_000_000,
            )
            world.add_broker(config, SimulatedCapacity(cpu_mhz=self._cpu_mhz, bandwidth_mbps=scenario.bandwidth_mbps))
        for first, second in self._links:
            world.add_link(first, second, scenario.latency_s)
        world.run(1.0)
        world.add_client("p", PUBLISHERS)
        for name in self._neighbours:
            world.add_client(f"s@{name}", name, order="any")
        world.run(2.0)
        world.advertise("p", Filter.parse("[x,isPresent,0]"))
        world.run(3.0)

    def _subscribe(self) -> None:
        scenario, world = self._scenario, self._world
        for number, value in enumerate(self._draw(scenario.all_subscriptions_count, towards_low=scenario.popular)):
            name = self._neighbours[number % len(self._neighbours)]
            world.subscribe(f"s@{name}", Filter.parse(f"x > {value}"))
            self._lowest[name] = min(value, self._lowest.get(name, value))
            self._asked_for.append(value)
        while not all(subscription.in_force for subscription in world.checker.subscriptions.values()):
            world.run(world.now_s + 1.0)

    def _draw(self, count: int, *, towards_low: bool) -> list[int]:
        """Values, Zipf distributed from one end of their range."""
        scenario = self._scenario
        weights = [1 / rank**scenario.zipf_degree for rank in range(1, scenario.values_count + 1)]
        ranks = self._rng.choices(range(1, scenario.values_count + 1), weights, k=count)
        return ranks if towards_low else [scenario.values_count + 1 - rank for rank in ranks]

    # ---- what happens ----

    def _replace(self, values: list[int]) -> tuple[float, float | None]:
        """The broker dies, publications pile up, and a replica begins; returns when, and how long it learnt."""
        world = self._world
        world.failures.kill(FAULTY)
        for value in values:
            world.publish("p", {"x": value})
        world.run(world.now_s + 1.0 + len(values) * 0.01)
        began_s = world.now_s
        names = tuple((name, "") for name in (PUBLISHERS, *self._neighbours))
        world.failures.replace(Replace(FAULTY, "1", "crash", self._scenario.protocol, names, epoch=1))
        return began_s + self._scenario.latency_s, self._wait_for(FAULTY)

    def _congest(self, values: list[int]) -> tuple[float, float | None]:
        """Publications come faster than the broker matches them, and it may get an assistant."""
        scenario, world = self._scenario, self._world
        host = world.brokers[FAULTY]
        assert self._cpu_mhz is not None
        delay_s = matching_delay_s(len(host.broker.tables.subscriptions), self._cpu_mhz)
        for name in (PUBLISHERS, *self._neighbours):
            world.brokers[name].capacity = msgspec.structs.replace(world.brokers[name].capacity, cpu_mhz=None)
        for number, value in enumerate(values):
            world.at(world.now_s + number * delay_s / scenario.congestion, world.publish, "p", {"x": value})
        world.run(world.now_s + _BACKLOG_RATIO * len(values) * delay_s / scenario.congestion)
        began_s = world.now_s
        for seen in (self._times_s, self._first_s, self._last_s):
            seen.clear()
        if scenario.assisting == "never":
            return began_s, None
        names = tuple((name, "") for name in (PUBLISHERS, *self._neighbours))
        world.failures.assist(Assist(FAULTY, "1", scenario.protocol, scenario.assisting == "reordering", names))
        return began_s, self._wait_for(f"{FAULTY}~")

    def _wait_for(self, name: str) -> float:
        world = self._world
        began_s = world.now_s
        takeover = world.brokers[name].broker.takeover
        while takeover.is_learning:
            world.run(world.now_s + _STEP_S)
        return world.now_s - began_s

    # ---- what is seen ----

    def _note(self, client: str, deliver: Deliver, now_s: float) -> None:
        self._times_s.append(now_s)
        self._came.setdefault(client, []).append(deliver.sequence)
        for id in deliver.subscriptions:
            self._first_s.setdefault(id, now_s)
            self._last_s[id] = now_s

    def _wanted_count(self, values: list[int]) -> int:
        """Deliveries that subscriptions ask for, whether the protocol may lose them or not."""
        asked_for = sorted(self._asked_for)
        return sum(bisect_left(asked_for, value) for value in values)

    def _unwanted_count(self, values: list[int]) -> int:
        """What neighbours have got and nobody behind them wanted."""
        count = 0
        for name, low in self._lowest.items():
            got_count = self._world.brokers[name].broker.counters.publications_in_count
            count += max(0, got_count - sum(value > low for value in values))
        return count

    def _summary(
        self, values: list[int], began_s: float, replication_s: float | None, due_count: int
    ) -> ReplicationSummary:
        scenario, checker = self._scenario, self._world.checker
        resumed = list(self._first_s)
        delays_s = [self._first_s[id] - began_s for id in resumed]
        spans_s = [self._last_s[id] - self._first_s[id] for id in resumed]
        degrees = [ordering_degree_ratio(came) for came in self._came.values()]
        allowed = {"missing", "out of order", "delivered twice"}
        span_s = max(self._times_s, default=0.0) - began_s
        delivered_count = len(self._times_s) / len(self._neighbours)
        details = ReplicationDetails(
            variant=scenario.variant,
            subscriptions_count=scenario.all_subscriptions_count,
            pending_count=scenario.pending_count,
            neighbours_count=scenario.neighbours_count,
            zipf_degree=scenario.zipf_degree,
            popular=scenario.popular,
            congestion=scenario.congestion,
            resumption_delay_s=_mean(delays_s),
            resumed_count=len(resumed),
            last_processed_s=_mean(spans_s),
            replication_s=replication_s,
            ordering_degree_ratio=_mean(degrees),
            missing_ratio=due_count / max(1, due_count + checker.deliveries_count),
            throughput_per_s=delivered_count / span_s if span_s > 0 else 0.0,
            unwanted_count=self._unwanted_count(values),
            fan_out_mean=(checker.deliveries_count + due_count) / len(values),
        )
        return Summary(
            scenario=scenario.name,
            kind=scenario.kind,
            seed=self._seed,
            policy="none",
            simulated_s=self._world.now_s,
            brokers=len(self._world.brokers),
            clients=len(self._world.clients),
            moves=self._world.moves_count,
            violations=[each for each in checker.violations if each.kind not in allowed],
            trace_hash=self._world.trace.hexdigest(),
            details=details,
            **counted(checker),
        )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
