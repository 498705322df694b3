"""What the coordination server knows: brokers, clients and rates, by name; as arrays when a decision is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.policies.multistage.config import Balancing, MultistageConfig
from trimtab.policies.multistage.instance import Floats, Instance, Names, Places
from trimtab.policies.multistage.load import broker_loads
from trimtab.policies.multistage.multistage import plan_round
from trimtab.policies.multistage.placement import place_least_loaded, place_nearest

if TYPE_CHECKING:
    from trimtab.policies.multistage.coordinator import BrokerTold, Site


_NAMES_SPARE_COUNT: Final = 10_000
"""So many names of subscriptions that nobody has are kept in any case."""


class _Broker:
    def __init__(self) -> None:
        self.site: Site | None = None
        self.address = ""
        self.clients: dict[str, None] = {}


class _Client:
    __slots__ = ("broker", "subscriptions")

    def __init__(self, broker: str, subscriptions: Names) -> None:
        self.broker = broker
        self.subscriptions = subscriptions


class Population:
    """Who is where and wants what, as far as brokers have told."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Broker] = {}
        self._clients: dict[str, _Client] = {}
        self._numbers: dict[str, int] = {}
        self._rates: list[float] = []
        self._loads: list[float] | None = None
        """The brokers' loads, until something changes."""

    # ---- taking in ----

    def take_in(self, told: BrokerTold) -> None:
        """A report: clients that were elsewhere are here from now on, whatever the other broker says later."""
        self._loads = None
        broker = self._brokers.setdefault(told.broker, _Broker())
        broker.site = told.site or broker.site
        broker.address = told.address or broker.address
        for name, rate in told.rates_bytes_per_s.items():
            self._rates[self._number(name)] = max(0.0, rate)
        if told.is_whole:
            here = {each.client for each in told.clients}
            self._take_out([client for client in broker.clients if client not in here], told.broker)
        for each in told.clients:
            known = self._clients.get(each.client)
            if known is not None and known.broker != told.broker:
                self._brokers[known.broker].clients.pop(each.client, None)
            numbers = sorted({self._number(name) for name in each.subscriptions})
            self._clients[each.client] = _Client(told.broker, np.array(numbers, dtype=np.int32))
            broker.clients[each.client] = None
        self._take_out(told.gone, told.broker)

    def _take_out(self, clients: list[str] | tuple[str, ...], broker: str) -> None:
        for client in clients:
            known = self._clients.get(client)
            if known is not None and known.broker == broker:
                del self._clients[client]
                del self._brokers[broker].clients[client]

    def moved(self, client: str, broker: str) -> None:
        """A client has moved to another broker."""
        known = self._clients.get(client)
        if known is not None and broker in self._brokers:
            self._loads = None
            del self._brokers[known.broker].clients[client]
            self._brokers[broker].clients[client] = None
            known.broker = broker

    def forget(self, broker: str) -> None:
        """A broker is gone, and with it its clients, until somebody tells of them again."""
        self._loads = None
        for client in self._brokers.pop(broker, _Broker()).clients:
            del self._clients[client]

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._rates)
            self._rates.append(0.0)
        return number

    # ---- asking ----

    @property
    def clients_count(self) -> int:
        """How many clients are known."""
        return len(self._clients)

    def brokers(self) -> list[str]:
        """The names of all brokers, in the order in which they were first heard of."""
        return list(self._brokers)

    def has(self, broker: str) -> bool:
        """Whether a broker is known."""
        return broker in self._brokers

    def broker_of(self, client: str) -> str | None:
        """Where a client is."""
        known = self._clients.get(client)
        return None if known is None else known.broker

    def address_of(self, broker: str) -> str:
        """Where clients find a broker."""
        return self._brokers[broker].address

    def nearest(self, site: Site) -> str | None:
        """The broker nearest to a place, of those that say where they are."""
        placed = [(name, broker.site) for name, broker in self._brokers.items() if broker.site is not None]
        if not placed:
            return None
        sites = np.array([each for _, each in placed], dtype=np.float64)
        return placed[int(place_nearest(np.array([site], dtype=np.float64), sites)[0])][0]

    def least_loaded(self, expected: list[str]) -> str:
        """The broker with the least load; clients that are still expected count as much as a client does."""
        names = self.brokers()
        places = {name: place for place, name in enumerate(names)}
        loads = np.array(self.loads())
        usual = float(loads.sum()) / self.clients_count if self.clients_count else 1.0
        for broker in expected:
            if broker in places:
                loads[places[broker]] += usual
        return names[int(place_least_loaded(1, loads, usual)[0])]

    def loads(self) -> list[float]:
        """The load of each broker, in bytes/s."""
        if self._loads is None:
            instance, assignment, _ = self._arrays()
            self._loads = broker_loads(instance, assignment, len(self._brokers)).tolist() if self._brokers else []
        return self._loads

    # ---- deciding ----

    def plan(self, policy: Balancing, config: MultistageConfig) -> list[tuple[str, str, str]]:
        """Who is to move, from where to where."""
        self._forget_names()
        instance, assignment, clients = self._arrays()
        wanted = plan_round(policy, instance, assignment, len(self._brokers), config)
        names = self.brokers()
        return [
            (clients[each], names[assignment[each]], names[wanted[each]])
            for each in np.flatnonzero(wanted != assignment).tolist()
        ]

    def _forget_names(self) -> None:
        """Number subscriptions anew once most of them belong to nobody."""
        used = np.zeros(len(self._rates), dtype=np.bool_)
        for each in self._clients.values():
            used[each.subscriptions] = True
        if len(used) <= 2 * np.count_nonzero(used) + _NAMES_SPARE_COUNT:
            return
        new_numbers = np.cumsum(used, dtype=np.int32) - 1
        for each in self._clients.values():
            each.subscriptions = new_numbers[each.subscriptions]
        kept = [(name, number) for name, number in self._numbers.items() if used[number]]
        self._rates = [self._rates[number] for _, number in kept]
        self._numbers = {name: place for place, (name, _) in enumerate(kept)}

    def _arrays(self) -> tuple[Instance, Places, list[str]]:
        places = {name: place for place, name in enumerate(self._brokers)}
        counts = np.fromiter((len(each.subscriptions) for each in self._clients.values()), np.int64, len(self._clients))
        starts = np.zeros(len(self._clients) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        rows = [each.subscriptions for each in self._clients.values()]
        subscriptions = np.concatenate(rows) if rows else np.empty(0, dtype=np.int32)
        rates: Floats = np.array(self._rates, dtype=np.float64)
        brokers = np.fromiter((places[each.broker] for each in self._clients.values()), np.int64, len(self._clients))
        return Instance(starts, subscriptions, rates), brokers, list(self._clients)
