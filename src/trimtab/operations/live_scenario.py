"""Runs a scenario on broker processes of this machine, in real time, and sums it up as the simulator does.

What clients do is the same plan as in the simulated world (`trimtab.simulation.scenarios.clients`), and the same
checker is told of every publication and delivery. All brokers and links are there from the beginning, and latencies are
those of this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from typing import Any, Final

from trimtab.language import Filter, Publication
from trimtab.network.admin.local_network import Network, free_ports
from trimtab.network.client.client import Client, ClientError
from trimtab.network.client.subscription import Delivery, Subscription
from trimtab.network.clock import now_s
from trimtab.network.links.address import Address
from trimtab.network.loops import run
from trimtab.network.network_plan import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan
from trimtab.simulation.checkers.deliveries import DeliveryChecker
from trimtab.simulation.scenarios.clients import ScenarioClients
from trimtab.simulation.scenarios.documents import ScenarioError
from trimtab.simulation.scenarios.messages import Scenario
from trimtab.simulation.scenarios.run import MessagesDetails, MessagesSummary, percentiles_s
from trimtab.simulation.scenarios.summary import Summary, counted

QUIET_FOR_S: Final = 10.0
"""After the scenario's duration what is under way is awaited until nothing has come for so long."""

Job = Callable[[Client], Awaitable[None]]
OnDelivery = Callable[[str, Delivery, float], None]

LOOK_AGAIN_AFTER_S: Final = 0.02

_SIMULATED_ONLY: Final = ("crisis", "attack", "drain", "fault")
"""Tables of a scenario for which there must be a simulated world."""


def run_live(scenario: Scenario, seed: int, on_delivery: OnDelivery | None = None) -> MessagesSummary:
    """Start the brokers, let everything happen, end them and sum up; a ScenarioError says if that cannot be done.

    `on_delivery` hears of each delivery, with the client's name and the time.
    """
    plan = network_of(scenario)
    try:
        with Network(plan) as network:
            return run(_LiveRun(scenario, seed, network, on_delivery).run())
    except ClientError as error:
        raise ScenarioError(f"{scenario.name}: {error}") from None


def network_of(scenario: Scenario) -> NetworkPlan:
    """The brokers of a scenario on free ports of this machine."""
    for key in _SIMULATED_ONLY:
        if getattr(scenario, key):
            raise ScenarioError(f"{scenario.name}: [{key}] happens in the simulator only, not with --world tcp")
    options = scenario.network
    if options.uplink == "fifo":
        raise ScenarioError(f'{scenario.name}: network.uplink = "fifo" is known to the simulator only')
    entries = tuple(
        BrokerEntry(
            broker.name,
            Address("127.0.0.1", port),
            broker.cpu_mhz,
            broker.memory_mb,
            broker.bandwidth_mbps,
            broker.site,
        )
        for broker, port in zip(scenario.broker, free_ports(len(scenario.broker)), strict=True)
    )
    return NetworkPlan(
        entries,
        tuple(LinkEntry(*link.between) for link in scenario.link),
        NetworkOptions(
            covering=options.covering in (True, "on"),
            advertisement_covering=options.advertisement_covering in (True, "on"),
            slow_policy=options.slow_policy,
            client_queue_max_count=options.client_queue_max_count,
            client_lease_s=options.client_lease_s,
            filters_per_client_max_count=options.filters_per_client_max_count,
            clients_max_count=options.clients_max_count,
            enforce_capacities=options.enforce_capacities,
            uplink=options.uplink,
            meter_window_s=options.meter_window_s,
        ),
        scenario.policy,
        protection=None if scenario.protection == "off" else scenario.protection,
    )


class _LiveClient:
    """A client, which does what it is told in order, each thing when the one before is in force."""

    def __init__(self, checker: DeliveryChecker) -> None:
        self.jobs: asyncio.Queue[Job | None] = asyncio.Queue()
        self.client: Client | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self._checker = checker
        self._held: list[tuple[float, Delivery]] | None = None
        """What comes while a subscription is not known to the checker yet."""
        self._last: Delivery | None = None

    async def work(self, name: str, address: Address) -> None:
        """Connect, and do all jobs until there are no more."""
        client = self.client = await Client.connect(address, name)
        while (job := await self.jobs.get()) is not None:
            await job(client)
        await client.drain()
        for refused in client.refused:
            self._checker.rejected(name, refused.about, refused.reason, now_s())

    async def subscribe(self, client: Client, key: str, filter: Filter, within_s: float | None) -> None:
        """Subscribe, and tell the checker what comes, in order."""
        self._held = []
        subscription = await client.subscribe(filter, callback=self._delivered, within_s=within_s)
        self.subscriptions[key] = subscription
        (id,) = subscription.ids
        self._checker.subscribed(id, client.name, filter)
        held, self._held = self._held, None
        for time_s, delivery in held:
            self._checker.delivered(client.name, delivery, time_s)
        self._checker.in_force(id, now_s())

    def _delivered(self, delivery: Delivery) -> None:
        if delivery is self._last:
            return  # it matches several subscriptions, and the checker has been told of all
        self._last = delivery
        if self._held is not None:
            self._held.append((now_s(), delivery))
        elif self.client is not None:
            self._checker.delivered(self.client.name, delivery, now_s())


class _LiveRun:
    """The stage on which a scenario's clients are clients of processes."""

    def __init__(self, scenario: Scenario, seed: int, network: Network, on_delivery: OnDelivery | None) -> None:
        self.now_s = 0.0
        self._scenario = scenario
        self._seed = seed
        self._network = network
        self._checker = DeliveryChecker()
        self._checker.on_delivery = on_delivery
        self._clients: dict[str, _LiveClient] = {}
        self._calendar: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned_count = 0
        self._working: asyncio.TaskGroup

    async def run(self) -> MessagesSummary:
        """Everything, from the first client to the last delivery."""
        clients = ScenarioClients(self._scenario, self._seed, self)
        clients.plan_publishers()
        clients.plan_others()
        began_s, duration_s = now_s(), self._scenario.duration_s
        try:
            async with asyncio.TaskGroup() as self._working:
                while self._calendar:
                    self.now_s, _, action, arguments = heappop(self._calendar)
                    await asyncio.sleep(max(0.0, began_s + self.now_s - now_s()))
                    action(*arguments)
                await asyncio.sleep(max(0.0, began_s + duration_s - now_s()))
                for each in self._clients.values():
                    each.jobs.put_nowait(None)
            await self._settle()
        except ExceptionGroup as errors:
            raise _first_of(errors) from None
        finally:
            found = [each.client for each in self._clients.values() if each.client is not None]
            await asyncio.gather(*(client.close() for client in found))
        return self._summary(now_s() - began_s)

    async def _settle(self) -> None:
        """Wait for what must still arrive, as long as anything does."""
        checker = self._checker
        seen_count, quiet_since_s = -1, now_s()
        while checker.undelivered_count and now_s() < quiet_since_s + QUIET_FOR_S:
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
            if checker.deliveries_count != seen_count:
                seen_count, quiet_since_s = checker.deliveries_count, now_s()
        checker.check_at_rest()

    def _summary(self, took_s: float) -> MessagesSummary:
        scenario, checker = self._scenario, self._checker
        clients = [each.client for each in self._clients.values() if each.client is not None]
        return Summary(
            scenario=scenario.name,
            kind=scenario.kind,
            world="tcp",
            seed=self._seed,
            policy=scenario.policy.name,
            simulated_s=took_s,
            brokers=len(scenario.broker),
            clients=len(clients),
            moves=sum(client.moves_count for client in clients),
            violations=checker.violations,
            details=MessagesDetails(
                delay_mean_s=checker.delays.mean_s,
                delay_percentiles_s=percentiles_s(checker),
                late=sum(client.late_count for client in clients),
            ),
            **counted(checker),
        )

    # ---- what the plan asks for ----

    def at(self, time_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time of the scenario."""
        self._planned_count += 1
        heappush(self._calendar, (time_s, self._planned_count, action, arguments))

    def add_client(self, name: str, broker: str, latency_s: float = 0.0) -> None:
        """A client comes."""
        client = self._clients[name] = _LiveClient(self._checker)
        self._working.create_task(client.work(name, self._network.plan.broker(broker).listen))

    def advertise(self, client: str, filter: Filter) -> None:
        """A client announces what it will publish."""

        async def job(connected: Client) -> None:
            id = await connected.advertise(filter)
            self._checker.advertised(id, client, filter)
            self._checker.in_force(id, now_s())

        self._clients[client].jobs.put_nowait(job)

    def subscribe(self, client: str, filter: Filter, within_s: float | None = None) -> str:
        """A client asks for what a filter matches."""
        self._planned_count += 1
        key, asks = f"{client}/{self._planned_count}", self._clients[client]
        asks.jobs.put_nowait(lambda connected: asks.subscribe(connected, key, filter, within_s))
        return key

    def unsubscribe(self, client: str, id: str) -> None:
        """A client ends a subscription."""
        asks = self._clients[client]

        async def job(connected: Client) -> None:
            subscription = asks.subscriptions.pop(id)
            self._checker.unsubscribed(subscription.ids[0])
            await connected.unsubscribe(subscription)

        asks.jobs.put_nowait(job)

    def publish(self, client: str, publication: Publication) -> None:
        """A client publishes."""

        async def job(connected: Client) -> None:
            sequence = await connected.publish(publication)
            self._checker.published(client, sequence)
            self._checker.accepted(client, sequence, publication.values_by_name, now_s())

        self._clients[client].jobs.put_nowait(job)

    def move(self, client: str, broker: str) -> None:
        """A client is asked to go on at another broker."""

        async def job(connected: Client) -> None:
            await connected.move(broker, self._network.address(broker))

        self._clients[client].jobs.put_nowait(job)


def _first_of(errors: ExceptionGroup[Exception]) -> Exception:
    """The first error of a group, which may hold groups."""
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first
