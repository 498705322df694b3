"""A city of subscribers in virtual time, by its load, with the coordination server that networks run.

Each subscriber is a walker who connects where the coordinator says, wants what it wants, leaves now and then and comes
again. Brokers tell the coordinator what has changed, and carry out its moves after a moment. Rates wander. What is not
simulated is each notification: the load of a broker is the sum of rates (F = I + O), which is what the coordinator
decides on; messages, queues and the lossless move are the subject of the other simulator (`simulation/world.py`).

The coordinator is the very state machine that networks run. What it knows comes from reports, and is late by up to a
report's time; the summary is made from what is true.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from statistics import fmean
from typing import Final, TypeAlias

import msgspec
import numpy as np

from trimtab.policies.multistage.coordinator import (
    BrokerTold,
    ClientAsks,
    ClientTold,
    Coordinator,
    Effect,
    MoveEnded,
    OrderMove,
    Placed,
    Woken,
)
from trimtab.policies.multistage.instance import Floats, Instance, Names, Places
from trimtab.policies.multistage.load import broker_loads, cov, incoming_loads
from trimtab.policies.multistage.lower_bound import LowerBound, lower_bound
from trimtab.simulation.coordination.scenario import CoordinationScenario
from trimtab.simulation.scenarios.summary import Summary
from trimtab.simulation.workloads.channels import Wish, emergency_wishes, scale_channels, scale_wishes
from trimtab.simulation.workloads.city import Point, Walker, broker_sites, make_city

MEASURED_S: Final = 300.0
"""The summary's loads are means over so long at the end: between two rounds the load drifts."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The loads at one moment, in bytes/s."""

    time_s: float
    connected_count: int
    loads: list[float]
    """Of each broker."""

    incoming_load: float
    """What all brokers fetch together."""

    cov: float
    lower_bounds: LowerBound
    moves: int
    """Made so far."""


class CoordinationDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a city showed of its own; loads in bytes/s, means over the last five minutes."""

    placement: str
    connected_count: int
    front_end_count: int
    back_end_count: int
    """Distinct subscriptions of those who are connected."""

    max_load: float
    cov: float
    moves_refused: int
    """Ordered, but the client was gone."""

    total_load: float
    incoming_load: float
    lower_bound: float
    ratio: float
    """The largest load in relation to the lower bound."""

    linear_program_bound: float
    rounds_count: int
    series: list[Reading]


CoordinationSummary: TypeAlias = Summary[CoordinationDetails]


class _Subscriber:
    def __init__(self, name: str, rng: Random, walker: Walker, wishes: list[Wish]) -> None:
        self.name = name
        self.rng = rng
        self.walker = walker
        self.wishes = wishes
        self.numbers: Names = np.empty(0, dtype=np.int32)
        self.broker: str | None = None
        self.connection = 0
        """Counts connections; what was meant for a former one is void."""


class CoordinationWorld:
    """A scenario that can be run once."""

    def __init__(self, scenario: CoordinationScenario, seed: int | None = None, recorder: object = None) -> None:
        self.scenario = scenario
        self.seed = scenario.seed if seed is None else seed
        self.now_s = 0.0
        self._rng = Random(f"moves {self.seed}")
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._events_count = 0
        self._trace = hashlib.sha256()
        map_rng = Random(f"city {self.seed}")
        city = make_city(map_rng, side_m=scenario.city_side_m, districts_count=scenario.districts_count)
        sites = broker_sites(map_rng, city, scenario.brokers_count)
        self._sites: dict[str, Point] = {f"B{number}": site for number, site in enumerate(sites)}
        self._changed: dict[str, dict[str, None]] = {broker: {} for broker in self._sites}
        """Clients of each broker that came or left since its last report."""
        self._rates: list[float] = []
        self._numbers: dict[str, int] = {}
        self._wander = np.empty(0)
        self._walked_s = 0.0
        self._subscribers: dict[str, _Subscriber] = {}
        channels = scale_channels(map_rng)
        for number in range(scenario.subscribers_count):
            rng = Random(f"subscriber {self.seed} {number}")
            name = f"S{number}"
            walker = Walker(city, rng, scenario.walk)
            if scenario.workload == "scale":
                wishes = scale_wishes(city, channels, walker, rng)
            else:
                wishes = emergency_wishes(city, walker, name, rng)
            self._subscribers[name] = subscriber = _Subscriber(
                name, Random(f"comings {self.seed} {number}"), walker, wishes
            )
            for wish in wishes:
                if wish.name not in self._numbers:
                    self._numbers[wish.name] = len(self._rates)
                    self._rates.append(wish.rate_bytes_per_s)
            subscriber.numbers = np.array([self._numbers[wish.name] for wish in wishes], dtype=np.int32)
        self._nature = np.random.default_rng([self.seed, 17])
        self._wander = self._nature.normal(0.0, 1.0, len(self._rates))
        self._names = list(self._numbers)
        self.coordinator = Coordinator(scenario.coordinator(), Random(f"coordinator {self.seed}"))
        self.moves_count = 0
        self.refused_count = 0
        self._series: list[Reading] = []
        self._plan()

    # ---- running ----

    def run(self, on_reading: Callable[[Reading], None] | None = None) -> CoordinationSummary:
        """Let everything happen, and sum it up."""
        self._carry_out(self.coordinator.start(0.0))
        self._wake_coordinator()
        while self._events and self._events[0][0] <= self.scenario.duration_s:
            self.now_s, _, action = heappop(self._events)
            readings_count = len(self._series)
            action()
            if on_reading is not None and len(self._series) > readings_count:
                on_reading(self._series[-1])
        self.now_s = self.scenario.duration_s
        return self._summary()

    def _at(self, time_s: float, action: Callable[..., None], *arguments: object) -> None:
        def act() -> None:
            action(*arguments)

        self._events_count += 1
        heappush(self._events, (time_s, self._events_count, act))

    def _plan(self) -> None:
        scenario = self.scenario
        for subscriber in self._subscribers.values():
            self._at(subscriber.rng.uniform(*scenario.join_s), self._connect, subscriber)
        for number, broker in enumerate(self._sites):
            first_s = scenario.report_every_s * number / len(self._sites)
            self._at(0.0, self._report, broker, True)
            self._at(first_s + scenario.report_every_s, self._report_again, broker)
        self._at(scenario.record_every_s, self._read)

    # ---- subscribers ----

    def _connect(self, subscriber: _Subscriber) -> None:
        asks = ClientAsks(subscriber.name, subscriber.walker.at(self.now_s))
        (placed,) = self.coordinator.handle(asks, self.now_s)
        assert isinstance(placed, Placed) and placed.broker is not None
        self._put(subscriber, placed.broker)
        stays_s = subscriber.rng.expovariate(1 / self.scenario.connected_mean_s)
        self._at(self.now_s + stays_s, self._disconnect, subscriber, subscriber.connection)

    def _disconnect(self, subscriber: _Subscriber, connection: int) -> None:
        assert connection == subscriber.connection
        self._put(subscriber, None)
        away_s = subscriber.rng.expovariate(1 / self.scenario.away_mean_s)
        self._at(self.now_s + away_s, self._connect, subscriber)

    def _put(self, subscriber: _Subscriber, broker: str | None) -> None:
        if broker is None or subscriber.broker is None:
            subscriber.connection += 1
        for each in (subscriber.broker, broker):
            if each is not None:
                self._changed[each][subscriber.name] = None
        subscriber.broker = broker
        self._trace.update(f"{self.now_s:.6f} {subscriber.name} {broker}\n".encode())

    # ---- brokers ----

    def _report_again(self, broker: str) -> None:
        self._report(broker, False)
        self._at(self.now_s + self.scenario.report_every_s, self._report_again, broker)

    def _report(self, broker: str, is_whole: bool) -> None:
        changed = [self._subscribers[name] for name in self._changed[broker]]
        self._changed[broker] = {}
        rates = self._rates_now()
        here = [each for each in changed if each.broker == broker]
        told = BrokerTold(
            broker=broker,
            is_whole=is_whole,
            clients=tuple(ClientTold(each.name, tuple(wish.name for wish in each.wishes)) for each in here),
            gone=tuple(each.name for each in changed if each.broker != broker),
            rates_bytes_per_s=dict(zip(self._names, rates.tolist(), strict=True)),
            site=self._sites[broker],
        )
        self._carry_out(self.coordinator.handle(told, self.now_s))

    def _rates_now(self) -> Floats:
        """The rates of this moment: around their means, each on a way of its own (Ornstein and Uhlenbeck)."""
        scenario = self.scenario
        kept = math.exp(-(self.now_s - self._walked_s) / scenario.rate_memory_s)
        if self.now_s > self._walked_s:
            news = self._nature.normal(0.0, 1.0, len(self._wander))
            self._wander = kept * self._wander + math.sqrt(1 - kept**2) * news
            self._walked_s = self.now_s
        deviation = scenario.rate_deviation
        factors = np.exp(deviation * self._wander - deviation**2 / 2)
        rates: Floats = np.array(self._rates) * factors
        return rates

    # ---- the coordinator ----

    def _wake_coordinator(self) -> None:
        if self.coordinator.wake_at_s() <= self.now_s:
            self._carry_out(self.coordinator.handle(Woken(), self.now_s))
        self._at(max(self.coordinator.wake_at_s(), self.now_s + 0.1), self._wake_coordinator)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, OrderMove):
                subscriber = self._subscribers[effect.client]
                takes_s = self._rng.uniform(*self.scenario.move_s)
                self._at(self.now_s + takes_s, self._move, effect, subscriber.connection)

    def _move(self, order: OrderMove, connection: int) -> None:
        subscriber = self._subscribers[order.client]
        is_there = subscriber.connection == connection and subscriber.broker == order.from_broker
        if is_there:
            self.moves_count += 1
            self._put(subscriber, order.to_broker)
        else:
            self.refused_count += 1
        self._carry_out(self.coordinator.handle(MoveEnded(order.client, order.cause, is_there), self.now_s))

    # ---- looking ----

    def _truth(self) -> tuple[Instance, Places]:
        connected = [each for each in self._subscribers.values() if each.broker is not None]
        places = {broker: place for place, broker in enumerate(self._sites)}
        assignment = np.array([places[each.broker or ""] for each in connected], dtype=np.int64)
        starts = np.zeros(len(connected) + 1, dtype=np.int64)
        np.cumsum([len(each.numbers) for each in connected], out=starts[1:])
        rows = [np.empty(0, dtype=np.int32), *(each.numbers for each in connected)]
        return Instance(starts, np.concatenate(rows), self._rates_now()), assignment

    def _read(self) -> None:
        instance, assignment = self._truth()
        brokers_count = len(self._sites)
        loads = broker_loads(instance, assignment, brokers_count)
        reading = Reading(
            time_s=self.now_s,
            connected_count=instance.subscribers_count,
            loads=loads.tolist(),
            incoming_load=float(incoming_loads(instance, assignment, brokers_count).sum()),
            cov=cov(loads),
            lower_bounds=lower_bound(instance, brokers_count),
            moves=self.moves_count,
        )
        self._series.append(reading)
        self._at(self.now_s + self.scenario.record_every_s, self._read)

    def _summary(self) -> CoordinationSummary:
        instance, _ = self._truth()
        last_round = self.coordinator.last_round
        last = [each for each in self._series if each.time_s > self.now_s - MEASURED_S] or self._series[-1:]
        details = CoordinationDetails(
            placement=self.scenario.placement,
            connected_count=instance.subscribers_count,
            front_end_count=instance.front_end_count,
            back_end_count=int(np.count_nonzero(instance.subscribers_by_subscription_count)),
            max_load=fmean(max(each.loads) for each in last),
            cov=fmean(each.cov for each in last),
            moves_refused=self.refused_count,
            total_load=fmean(sum(each.loads) for each in last),
            incoming_load=fmean(each.incoming_load for each in last),
            lower_bound=fmean(each.lower_bounds.best for each in last),
            ratio=fmean(max(each.loads) / max(each.lower_bounds.best, 1e-9) for each in last),
            linear_program_bound=fmean(each.lower_bounds.linear_program for each in last),
            rounds_count=0 if last_round is None else last_round.number,
            series=self._series,
        )
        return Summary(
            scenario=self.scenario.name,
            kind=self.scenario.kind,
            seed=self.seed,
            policy=self.scenario.policy.name,
            simulated_s=self.now_s,
            brokers=len(self._sites),
            clients=instance.subscribers_count,
            moves=self.moves_count,
            trace_hash=self._trace.hexdigest(),
            details=details,
        )
