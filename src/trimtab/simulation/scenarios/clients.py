"""What the clients of a scenario do, and when: they join, publish steadily, change their rates, subscribe and move.

The same plan is carried out on every stage: in the simulated world, and by clients of broker processes. What is drawn
follows from the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

from trimtab.language import Filter, Publication
from trimtab.simulation.scenarios.documents import ScenarioError
from trimtab.simulation.scenarios.messages import (
    PublisherPart,
    PublishersPart,
    RatePart,
    Scenario,
    SubscriberPart,
    SubscribersPart,
)
from trimtab.simulation.workloads.quotes import Quote, generate_quotes, load_quotes
from trimtab.simulation.workloads.stock import StockWorkload, publication_of


class Stage(Protocol):
    """Where clients are: a world, simulated or not."""

    @property
    def now_s(self) -> float:
        """The scenario's time."""
        ...

    def at(self, time_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time."""
        ...

    def add_client(self, name: str, broker: str, latency_s: float = ...) -> object:
        """A client comes."""
        ...

    def advertise(self, client: str, filter: Filter) -> object:
        """A client announces what it will publish."""
        ...

    def subscribe(self, client: str, filter: Filter, within_s: float | None = None) -> str:
        """A client asks for what a filter matches; returns the subscription's id."""
        ...

    def unsubscribe(self, client: str, id: str) -> None:
        """A client ends a subscription."""
        ...

    def publish(self, client: str, publication: Publication) -> None:
        """A client publishes."""
        ...

    def move(self, client: str, broker: str) -> None:
        """A client is asked to go on at another broker."""
        ...


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


class ScenarioClients:
    """The clients of a scenario on a stage."""

    def __init__(self, scenario: Scenario, seed: int, stage: Stage, quotes: Sequence[Quote] | None = None) -> None:
        self._scenario = scenario
        self._seed = seed
        self._stage = stage
        self._rng = Random(f"trimtab scenario {seed}")
        if quotes is None and scenario.quotes:
            quotes = load_quotes(Path(scenario.quotes))
        self._quotes = quotes
        self._workload: StockWorkload | None = None
        self._by_symbol: dict[str, list[Quote]] = {}
        self._publishers: dict[str, _Publisher] = {}

    def plan_publishers(self) -> None:
        """Put the coming of publishers into the stage's calendar."""
        scenario, stage = self._scenario, self._stage
        for publisher in scenario.publisher:
            stage.at(publisher.at_s, self._join_publisher, publisher)
        symbols = self._symbols_for(scenario.publishers)
        for publishers in scenario.publishers:
            for number in range(publishers.count):
                at_s = publishers.from_s + number * publishers.every_s
                stage.at(at_s, self._join_publisher, self._draw_publisher(publishers, number, symbols.pop(0)))

    def plan_others(self) -> None:
        """And everything else that clients do."""
        scenario, stage = self._scenario, self._stage
        for subscriber in scenario.subscriber:
            stage.at(subscriber.at_s, self._join_subscriber, subscriber)
        for subscribers in scenario.subscribers:
            self._plan_subscribers(subscribers)
        for rate in scenario.rate:
            stage.at(rate.at_s, self._change_rates, rate)
        for publish in scenario.publish:
            for number, text in enumerate(publish.publications):
                publication = Publication.parse(text)
                stage.at(publish.at_s + number * publish.every_s, stage.publish, publish.publisher, publication)
        for move in scenario.move:
            stage.at(move.at_s, stage.move, move.subscriber, move.broker)

    @property
    def _stock(self) -> StockWorkload:
        """The stock workload, made when it is first needed."""
        if self._workload is None:
            quotes = self._quotes or generate_quotes(Random(f"quotes {self._seed}"), self._scenario.symbols_count + 20)
            try:
                self._workload = StockWorkload(quotes, self._rng, symbols_count=self._scenario.symbols_count)
            except ValueError as error:
                raise ScenarioError(f"{self._scenario.name}: {error}") from None
            for quote in quotes:
                self._by_symbol.setdefault(quote.symbol, []).append(quote)
        return self._workload

    def _symbols_for(self, groups: Sequence[PublishersPart]) -> list[str]:
        wanted_count = sum(group.count for group in groups)
        if not wanted_count:
            return []
        taken = {publisher.symbol for publisher in self._scenario.publisher}
        free = [symbol for symbol in self._stock.symbols if symbol not in taken]
        if wanted_count > len(free):
            raise ScenarioError(
                f"{self._scenario.name}: {wanted_count} publishers want a stock each, but there are {len(free)}; "
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
        workload = self._stock
        for number in range(group.count):
            silent = self._rng.random() < group.zero_traffic_ratio
            make = workload.silent_subscription if silent else workload.subscription
            filters = [str(make()) for _ in range(group.subscriptions_per_client)]
            part = SubscriberPart(name=f"{group.prefix}{number + 1}", broker=self._pick(group.broker), filters=filters)
            self._stage.at(self._rng.uniform(*group.join_s), self._join_subscriber, part)

    def _pick(self, broker: str | list[str]) -> str:
        return broker if isinstance(broker, str) else self._rng.choice(broker)

    def _join_publisher(self, part: PublisherPart) -> None:
        stage = self._stage
        stage.add_client(part.name, part.broker, self._scenario.network.latency_s)
        if part.advertise is not None:
            stage.advertise(part.name, Filter.parse(part.advertise))
            return
        symbol = part.symbol or ""
        workload = self._stock
        if symbol not in self._by_symbol:
            raise ScenarioError(f"{self._scenario.name}: publisher {part.name}: the quotes have no stock {symbol}")
        stage.advertise(part.name, workload.advertisement(symbol))
        publisher = self._publishers[part.name] = _Publisher(part.name, self._by_symbol[symbol], part.rate_per_min)
        self._plan_publication(publisher, first=True)

    def _join_subscriber(self, part: SubscriberPart) -> None:
        self._stage.add_client(part.name, part.broker, self._scenario.network.latency_s)
        ids = [self._stage.subscribe(part.name, Filter.parse(text), part.within_s) for text in part.filters]
        if part.until_s is not None:
            for id in ids:
                self._stage.at(part.until_s, self._stage.unsubscribe, part.name, id)

    def _plan_publication(self, publisher: _Publisher, *, first: bool = False) -> None:
        """Publish at a steady pace; each begins at a random place of its period, so that they do not go in step."""
        if publisher.rate_per_min <= 0:
            return
        period_s = 60.0 / publisher.rate_per_min
        time_s = self._stage.now_s + (self._rng.uniform(0.0, period_s) if first else period_s)
        if time_s < self._scenario.duration_s:
            self._stage.at(time_s, self._publish, publisher, publisher.plan_number)

    def _publish(self, publisher: _Publisher, plan_number: int) -> None:
        if plan_number == publisher.plan_number:
            self._stage.publish(publisher.name, publisher.next_publication())
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
