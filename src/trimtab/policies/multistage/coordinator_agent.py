"""The coordination server in a network: a broker without clients of its own whose agent coordinates all others.

It joins the tree as a leaf, hears reports and gives orders as control publications, like any agent. So nothing in
routing knows of it, and if it dies the network loses a leaf through which nothing runs. `coordinator.py` decides; this
file translates.

Clients ask it where to connect (`place`); one that connects here and subscribes is sent on by a move like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from trimtab.language import Filter, Value
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentReport,
    Announce,
    ClientPlacement,
    ClientSubscribed,
    Heard,
    Listen,
    MoveClient,
    NeighboursChanged,
    Tell,
    WithoutSamples,
    Woken,
)
from trimtab.policies.multistage.config import CoordinatorConfig
from trimtab.policies.multistage.coordinator import (
    AskForReports,
    BrokerTold,
    ClientAsks,
    Coordinator,
    Effect,
    MoveEnded,
    Placed,
    Site,
    orders_by_broker,
)
from trimtab.policies.multistage.coordinator import Woken as CoordinatorWoken
from trimtab.policies.multistage.messages import (
    COORDINATED,
    COORDINATOR,
    EVERYBODY,
    PART_MOVES_COUNT,
    MalformedError,
    MoveResult,
    Moves,
    Present,
    Report,
    from_broker,
    to_values,
)

_ANNOUNCED: Final = Filter.parse(f"[class,eq,'{COORDINATOR}'],[brokerID,isPresent,'']")


class CoordinatorAgent(WithoutSamples):
    """Lets a coordinator hear and speak.

    `life` distinguishes this life from those before: brokers tell everything to a life that is new to them.
    """

    def __init__(self, config: CoordinatorConfig, rng: Random, life: str) -> None:
        self.name = "coordinator"
        self.coordinator = Coordinator(config, rng, life)
        self._life = life
        self._host: AgentHost
        self._next_present_s = 0.0

    def start(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        """Listen to all brokers, and ask them."""
        self._host = host
        listening: list[AgentAction] = [Announce(_ANNOUNCED), Listen("reports", Filter.where({"class": COORDINATED}))]
        return [*listening, *self._carry_out(self.coordinator.start(now_s), now_s)]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        return min(self._next_present_s, self.coordinator.wake_at_s())

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values):
                return self._hear(values, now_s)
            case Woken():
                actions = self._present(now_s) if now_s >= self._next_present_s else []
                if now_s >= self.coordinator.wake_at_s():
                    actions += self._carry_out(self.coordinator.handle(CoordinatorWoken(), now_s), now_s)
                return actions
            case NeighboursChanged():
                return self._present(now_s)  # a broker that was not there has not heard of us
            case ClientSubscribed(client=client):
                place = self.place(client, None, now_s)
                return [MoveClient(client, place.broker, f"{self._life}/placed")] if place.broker else []
            case _:
                return []

    def place(self, client: str, site: Site | None, now_s: float) -> ClientPlacement:
        """Where a client is to connect."""
        (placed,) = self.coordinator.handle(ClientAsks(client, site), now_s)
        assert isinstance(placed, Placed)
        return ClientPlacement(placed.broker or "", placed.address, placed.reason)

    def report(self) -> AgentReport:
        """What it does, and what the last round decided."""
        population, last = self.coordinator.population, self.coordinator.last_round
        decision = ""
        if last is not None:
            outcome = f"{last.moves_count:,} moves" if last.moves_count else last.reason
            decision = f"round {last.number}: cov {last.cov:.3f} over {last.brokers_count} brokers: {outcome}"
        return AgentReport(
            role="coordinator",
            status="OK",
            doing=f"knows {population.clients_count:,} clients of {len(population.brokers()):,} brokers",
            decision=decision,
            decided_s=None if last is None else last.time_s,
        )

    def _present(self, now_s: float) -> list[AgentAction]:
        every_s = self.coordinator.config.report_every_s
        self._next_present_s = now_s + every_s
        return [Tell(to_values(Present(life=self._life, report_every_s=every_s), EVERYBODY))]

    def _hear(self, values: Mapping[str, Value], now_s: float) -> list[AgentAction]:
        try:
            message = from_broker(values)
        except MalformedError:
            return []  # another version's
        if message.life != self._life:
            return []  # meant for a life that is over
        match message:
            case Report():
                told = BrokerTold(
                    broker=message.broker,
                    is_whole=message.is_whole,
                    clients=message.clients,
                    gone=message.gone,
                    rates_bytes_per_s=message.rates_bytes_per_s,
                    site=message.site,
                    address=message.address,
                )
                return self._carry_out(self.coordinator.handle(told, now_s), now_s)
            case MoveResult(client=client, cause=cause, is_moved=is_moved):
                return self._carry_out(self.coordinator.handle(MoveEnded(client, cause, is_moved), now_s), now_s)

    def _carry_out(self, effects: list[Effect], now_s: float) -> list[AgentAction]:
        actions: list[AgentAction] = []
        if any(isinstance(effect, AskForReports) for effect in effects):
            actions += self._present(now_s)
        for broker, orders in orders_by_broker(effects).items():
            for at in range(0, len(orders), PART_MOVES_COUNT):
                part = orders[at : at + PART_MOVES_COUNT]
                moves = tuple((order.client, order.to_broker) for order in part)
                message = Moves(life=self._life, cause=part[0].cause, moves=moves)
                actions.append(Tell(to_values(message, broker), part[0].cause))
        return actions
