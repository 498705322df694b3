"""Goes on with a network that runs somewhere else: the same brokers, clients and filters, in virtual time.

Clients join the brokers where they are, at once and before anything is published. From `publish_from_s` on each
publisher publishes at its measured rate what it was seen to publish: its sampled publications in a random order, all
of them before any comes again, so that the overlaps between filters are those of the real network. At first no policy
is at work, until meters have seen enough and queues have filled up to what waits in the real ones; then the policy is
switched on, as `trimtab policy` does it. Brokers, agents and checkers are those of every scenario (`run.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from trimtab.language import Filter, Publication
from trimtab.policies.registry import PolicyChoice, agents_of
from trimtab.protocol.events import LoadMeasured
from trimtab.protocol.messages import WireValue, Within
from trimtab.protocol.records import Recorder
from trimtab.simulation.scenarios.messages import Scenario
from trimtab.simulation.scenarios.run import MessagesSummary, ScenarioRun
from trimtab.simulation.world.world import World

JOIN_S: Final = 0.1
"""When clients join; links stand then."""

LOOK_EVERY_S: Final = 5.0
GROWS_WITHIN_S: Final = 30.0
"""While queues fill up they are looked at so often; one that has not grown for so long will not grow."""

FILL_WITHIN_S: Final = 900.0
"""Queues are given up to fill for this long at most."""

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
        publish_from_s: float,
        switch_s: float | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Publications begin then, and end with the scenario; its policy is switched on later, or never."""
        self._scenario = scenario
        self._publish_from_s = publish_from_s
        self._clients = clients
        self._run = ScenarioRun(msgspec.structs.replace(scenario, policy=PolicyChoice()), recorder=recorder)
        world = self._run.world
        for client in clients:
            if client.size_bytes:
                world.set_publication_bytes(client.name, client.size_bytes)
        world.at(JOIN_S, self._join)
        if switch_s is not None and scenario.policy.name != "none":
            world.at(switch_s, self._switch_on)

    @property
    def world(self) -> World:
        """Where it happens."""
        return self._run.world

    def run(self) -> MessagesSummary:
        """Let it happen, check it and sum it up."""
        return self._run.run()

    def _switch_on(self) -> None:
        scenario, world = self._scenario, self._run.world
        sites = {broker.name: broker.site for broker in scenario.broker}
        for name, host in world.brokers.items():
            agents = agents_of(scenario.policy, name, self._run.seed, sites[name])
            host.change_agents(agents)

    def _join(self) -> None:
        world, latency_s = self._run.world, self._scenario.network.latency_s
        usual_bytes = _usual_bytes(self._clients)
        for host in world.brokers.values():
            host.tell(LoadMeasured(publication_bytes=usual_bytes or None))
        for client in self._clients:
            world.add_client(client.name, client.broker, latency_s)
            for filter in client.advertisements:
                world.advertise(client.name, filter)
        for client in self._clients:
            for wanted in client.subscriptions:
                world.subscribe(client.name, wanted.filter, wanted.within_s)
            if client.publishes:
                source = _Source(client, Random(f"{self._run.seed} {client.name}"))
                world.at(self._publish_from_s + source.rng.uniform(0.0, 1.0 / client.rate_per_s), self._publish, source)

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


def filled_after_s(
    scenario: Scenario,
    clients: Sequence[ContinuedClient],
    publish_from_s: float,
    seen_from_s: float,
    waiting_counts: Mapping[str, int],
) -> tuple[float, list[str]]:
    """When meters have seen enough and so much waits in each broker's queues, and the brokers where it never does.

    It is tried out: the same seed gives the same history.
    """
    world = Continuation(scenario, clients, publish_from_s).world
    time_s, ends_s = seen_from_s, seen_from_s + FILL_WITHIN_S
    world.run(time_s)
    left = {name: (0, time_s) for name, count in waiting_counts.items() if count > 0}
    """Brokers whose queues are too short: the most that has waited there, and since when that is so."""
    never: list[str] = []
    while True:
        for name, (most_count, since_s) in list(left.items()):
            broker = world.brokers[name].broker
            count = broker.data_count + broker.output_count
            if count >= waiting_counts[name]:
                del left[name]
            elif count > most_count:
                left[name] = (count, time_s)
            elif time_s - since_s >= GROWS_WITHIN_S:
                del left[name]
                never.append(name)
        if not left or time_s >= ends_s:
            return time_s, [*never, *left]
        time_s += LOOK_EVERY_S
        world.run(time_s)
