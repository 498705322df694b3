"""The coordination server as a state machine: brokers tell it who is where, it says where clients go.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing, the slides on the broker network (broker
coordination server) and on the framework.

It owns nothing: all that it knows brokers have told, and can tell again. While it is away clients stay where they are
and are served; when it returns it asks for whole reports, places by what it has heard so far, and balances a round's
time later, when all brokers that live have answered. Moves are orders to brokers, who ask their clients; a client may
refuse or be gone.

One round at a time: a plan's moves are ordered so many at once, and the next plan is made when all have ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from trimtab.policies.multistage.config import CoordinatorConfig

if TYPE_CHECKING:
    from trimtab.policies.multistage.view import Population

Site: TypeAlias = tuple[float, float]
"""Where a broker stands or a client is: two coordinates in the same unit for all."""

# ---- what it is told ----


class ClientTold(msgspec.Struct, frozen=True, array_like=True):
    """A client of a broker and the names of its back-end subscriptions."""

    client: str
    subscriptions: tuple[str, ...]


class BrokerTold(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's report: everything, or what has changed since the last one."""

    broker: str
    is_whole: bool
    """Whether clients that are not mentioned are not there."""

    clients: tuple[ClientTold, ...] = ()
    gone: tuple[str, ...] = ()
    rates_bytes_per_s: Mapping[str, float] = {}
    """Of back-end subscriptions, as the broker has measured them."""

    site: Site | None = None
    address: str = ""


class ClientAsks(msgspec.Struct, frozen=True):
    """A client wants to know where to connect."""

    client: str
    site: Site | None = None


class MoveEnded(msgspec.Struct, frozen=True):
    """A client that was asked to move has left its broker, or stays there."""

    client: str
    cause: str
    is_moved: bool


class Woken(msgspec.Struct, frozen=True):
    """The time that `wake_at_s` told has come."""


Event: TypeAlias = BrokerTold | ClientAsks | MoveEnded | Woken

# ---- what it wants done ----


class AskForReports(msgspec.Struct, frozen=True):
    """All brokers are to tell everything."""


class Placed(msgspec.Struct, frozen=True):
    """The client is to connect to this broker; if there is none, why."""

    client: str
    broker: str | None
    address: str = ""
    reason: str = ""


class OrderMove(msgspec.Struct, frozen=True):
    """A broker is to ask a client of its to move."""

    client: str
    from_broker: str
    to_broker: str
    cause: str


Effect: TypeAlias = AskForReports | Placed | OrderMove


class _Move(msgspec.Struct, frozen=True):
    client: str
    from_broker: str
    to_broker: str


class RoundTold(msgspec.Struct, frozen=True, kw_only=True):
    """What a round saw and decided, for people."""

    number: int
    time_s: float
    brokers_count: int
    clients_count: int
    max_load_bytes_per_s: float
    mean_load_bytes_per_s: float
    cov: float
    moves_count: int
    reason: str = ""
    """Why nothing was planned, if that is so."""


class Coordinator:
    """Knows who is where, places new clients and plans moves.

    >>> coordinator = Coordinator(CoordinatorConfig(placement="round-robin"), Random(1))
    >>> coordinator.start(0.0)
    [AskForReports()]
    >>> coordinator.handle(ClientAsks("C1"), 1.0)
    [Placed(client='C1', broker=None, address='', reason='no broker has reported yet')]
    >>> coordinator.handle(BrokerTold(broker="B1", is_whole=True, address="localhost:7001"), 2.0)
    []
    >>> coordinator.handle(ClientAsks("C1"), 3.0)
    [Placed(client='C1', broker='B1', address='localhost:7001', reason='')]
    """

    def __init__(self, config: CoordinatorConfig, rng: Random, name: str = "coordinator") -> None:
        from trimtab.policies.multistage.view import Population  # needs numpy

        self.config = config
        self.population: Population = Population()
        self.last_round: RoundTold | None = None
        self.moves_count = 0
        """Moves that were made since the start."""
        self._name = name
        self._rng = rng
        self._next_in_turn = 0
        self._expected: dict[str, str] = {}
        """Clients that were placed and have not been reported, with their brokers."""
        self._heard_s: dict[str, float] = {}
        self._planned: deque[_Move] = deque()
        self._under_way: dict[str, tuple[float, str]] = {}
        """Clients that were ordered to move, with the time when they are given up, and where they go."""
        self._round_number = 0
        self._cause = ""
        self._next_round_s = 0.0

    def start(self, now_s: float) -> list[Effect]:
        """Begin, or begin again, knowing nothing."""
        self._next_round_s = now_s + self.config.round_every_s
        return [AskForReports()]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        due_s = self._next_round_s
        if self._under_way:
            due_s = min(due_s, next(iter(self._under_way.values()))[0])  # the first has waited longest
        return due_s

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Something has happened."""
        match event:
            case BrokerTold():
                self._heard_s[event.broker] = now_s
                self.population.take_in(event)
                for told in event.clients:
                    self._expected.pop(told.client, None)
                return []
            case ClientAsks(client=client, site=site):
                return [self._place(client, site, now_s)]
            case MoveEnded(client=client, cause=cause, is_moved=is_moved):
                if cause != self._cause or client not in self._under_way:
                    return []  # late, or of a life before
                _, to_broker = self._under_way.pop(client)
                if is_moved:
                    self.moves_count += 1
                    self.population.moved(client, to_broker)
                return self._order(now_s)
            case Woken():
                return self._woken(now_s)

    # ---- placing ----

    def _place(self, client: str, site: Site | None, now_s: float) -> Placed:
        self._forget_silent(now_s)
        brokers = self.population.brokers()
        if not brokers:
            return Placed(client, None, reason="no broker has reported yet")
        policy = self.config.placement
        reason = ""
        if policy == "nearest":
            nearest = self.population.nearest(site) if site is not None else None
            if nearest is None:
                policy = "least-loaded"
                who = "the client does" if site is None else "brokers do"
                reason = f"{who} not say where; the least loaded was taken"
            else:
                broker = nearest
        if policy == "random":
            broker = self._rng.choice(brokers)
        elif policy == "round-robin":
            broker = brokers[self._next_in_turn % len(brokers)]
            self._next_in_turn += 1
        elif policy == "least-loaded":
            broker = self.population.least_loaded(list(self._expected.values()))
        self._expected.pop(client, None)
        self._expected[client] = broker
        if len(self._expected) > max(1000, self.population.clients_count):
            del self._expected[next(iter(self._expected))]  # it never came
        return Placed(client, broker, self.population.address_of(broker), reason)

    # ---- balancing ----

    def _woken(self, now_s: float) -> list[Effect]:
        for client in [client for client, (until_s, _) in self._under_way.items() if until_s <= now_s]:
            del self._under_way[client]
        if now_s >= self._next_round_s:
            self._next_round_s = now_s + self.config.round_every_s
            if self._planned or self._under_way:
                self._tell_round(now_s, 0, "moves of the last round are under way")
            else:
                self._plan(now_s)
        return self._order(now_s)

    def _plan(self, now_s: float) -> None:
        self._forget_silent(now_s)
        self._round_number += 1
        self._cause = f"{self._name}/{now_s:.3f}/{self._round_number}"
        wanted = self.population.plan(self.config.policy, self.config.balancing)
        moves = [_Move(client, source, target) for client, source, target in wanted]
        self._rng.shuffle(moves)  # so that no broker gives or gets all of its own at once
        self._planned.extend(moves)
        self._tell_round(now_s, len(moves), "" if moves else "even enough, or nothing helps")

    def _order(self, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        while self._planned and len(self._under_way) < self.config.moves_at_once_count:
            move = self._planned.popleft()
            if self.population.broker_of(move.client) != move.from_broker or not self.population.has(move.to_broker):
                continue  # the client or the broker is not where it was when the plan was made
            self._under_way[move.client] = (now_s + self.config.move_within_s, move.to_broker)
            effects.append(OrderMove(move.client, move.from_broker, move.to_broker, self._cause))
        return effects

    def _forget_silent(self, now_s: float) -> None:
        silent = [each for each, heard_s in self._heard_s.items() if now_s - heard_s > self.config.broker_lifetime_s]
        for broker in silent:
            del self._heard_s[broker]
            self.population.forget(broker)

    def _tell_round(self, now_s: float, moves_count: int, reason: str) -> None:
        loads = self.population.loads()
        mean = sum(loads) / len(loads) if loads else 0.0
        variance = sum((load - mean) ** 2 for load in loads) / len(loads) if loads else 0.0
        self.last_round = RoundTold(
            number=self._round_number,
            time_s=now_s,
            brokers_count=len(loads),
            clients_count=self.population.clients_count,
            max_load_bytes_per_s=max(loads, default=0.0),
            mean_load_bytes_per_s=mean,
            cov=variance**0.5 / mean if mean > 0 else 0.0,
            moves_count=moves_count,
            reason=reason,
        )


def orders_by_broker(effects: Sequence[Effect]) -> dict[str, list[OrderMove]]:
    """The orders among some effects, by the broker that carries them out."""
    orders: dict[str, list[OrderMove]] = {}
    for effect in effects:
        if isinstance(effect, OrderMove):
            orders.setdefault(effect.from_broker, []).append(effect)
    return orders
