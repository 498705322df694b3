"""Goes on with a network that runs somewhere else: the same brokers, clients and filters, in virtual time.

Clients join the brokers where they are, at once and before anything is published. From `begin_s` on each publisher
publishes at its measured rate what it was seen to publish: its sampled publications in a random order, all of them
before any comes again, so that the overlaps between filters are those of the real network. The brokers, their agents
and the checkers are those of every scenario (`run.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from trimtab.language import Filter, Publication
from trimtab.protocol.messages import WireValue, Within
from trimtab.protocol.records import Recorder
from trimtab.simulation.run import ScenarioRun, Summary
from trimtab.simulation.scenario import Scenario
from trimtab.simulation.world import World

JOIN_S: Final = 0.1
"""When clients join; links stand then."""

FILTER_BYTES: Final = 300
"""What telling a neighbour of a filter and its confirmation take on a wire, generously."""


class Wanted(msgspec.Struct, frozen=True):
    """A subscription, and within which time its publications are wanted, if that was said."""

    filter: Filter
    within_s: Within = None


class ContinuedClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client as it was found."""

    name: str
    broker: str
    subscriptions: tuple[Wanted, ...] = ()
    advertisements: tuple[Filter, ...] = ()
    rate_per_s: float = 0.0
    size_bytes: int = 0
    """One of its publications on the wire."""
    publications: tuple[dict[str, WireValue], ...] = ()
    """What it was seen to publish."""

    @property
    def publishes(self) -> bool:
        """Whether there is something to publish for it."""
        return self.rate_per_s > 0 and bool(self.publications)


class Continuation:
    """A scenario without clients of its own, with those that were found elsewhere."""

    def __init__(
        self,
        scenario: Scenario,
        clients: Sequence[ContinuedClient],
        begin_s: float,
        recorder: Recorder | None = None,
    ) -> None:
        """Publications begin then, and end with the scenario."""
        self._scenario = scenario
        self._begin_s = begin_s
        self._clients = clients
        self._run = ScenarioRun(scenario, recorder=recorder)
        world = self._run.world
        world.sizes_bytes.update({each.name: each.size_bytes for each in clients if each.size_bytes})
        world.at(JOIN_S, self._join)

    @property
    def world(self) -> World:
        """Where it happens."""
        return self._run.world

    def run(self) -> Summary:
        """Let it happen, check it and sum it up."""
        return self._run.run()

    def _join(self) -> None:
        world, latency_s = self._run.world, self._scenario.network.latency_s
        usual_bytes = _usual_bytes(self._clients)
        for host in world.brokers.values():
            host.broker.publication_bytes = usual_bytes or host.broker.publication_bytes
        for client in self._clients:
            world.add_client(client.name, client.broker, latency_s)
            for filter in client.advertisements:
                world.advertise(client.name, filter)
        for client in self._clients:
            for wanted in client.subscriptions:
                world.subscribe(client.name, wanted.filter, wanted.within_s)
            if client.publishes:
                source = _Source(client, Random(f"{self._run.seed} {client.name}"))
                world.at(self._begin_s + source.rng.uniform(0.0, 1.0 / client.rate_per_s), self._publish, source)

    def _publish(self, source: _Source) -> None:
        world = self._run.world
        if world.now_s >= self._scenario.duration_s:
            return
        world.publish(source.client.name, source.next_publication())
        world.at(world.now_s + 1.0 / source.client.rate_per_s, self._publish, source)


class _Source:
    """What a publisher has still to say before it begins anew."""

    def __init__(self, client: ContinuedClient, rng: Random) -> None:
        self.client = client
        self.rng = rng
        self._publications = [Publication(values) for values in client.publications]
        self._left: list[Publication] = []

    def next_publication(self) -> Publication:
        """One of the sampled publications."""
        if not self._left:
            self._left = self.rng.sample(self._publications, len(self._publications))
        return self._left.pop()


def _usual_bytes(clients: Sequence[ContinuedClient]) -> float:
    """The mean size of a publication, 0 if nothing is published."""
    rate_per_s = sum(each.rate_per_s for each in clients)
    return sum(each.rate_per_s * each.size_bytes for each in clients) / rate_per_s if rate_per_s else 0.0


def begin_after_s(clients: Sequence[ContinuedClient], bandwidths_mbps: Sequence[float | None]) -> float:
    """By when all filters of these clients are known wherever they must be, over the slowest of these uplinks.

    >>> begin_after_s([], [None, 1.0])
    1.0
    """
    filters_count = sum(len(each.subscriptions) + len(each.advertisements) for each in clients)
    slowest_mbps = min((each for each in bandwidths_mbps if each is not None), default=None)
    sending_s = 0.0 if slowest_mbps is None else filters_count * FILTER_BYTES * 8 / slowest_mbps / 1e6
    return 1.0 + sending_s
