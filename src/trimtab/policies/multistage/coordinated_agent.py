"""The coordination server's hand in a broker: tells who is here and wants what, and asks clients to move.

Back-end subscriptions are the channels that its clients want, and their filters: what several clients want alike
reaches the broker once. How much each brings (lambda_k) is counted as publications are matched and results appear, in
means over some reports.

Nothing is said while no coordinator is there, and nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import Final, TypeAlias

from trimtab.language import Filter, Value
from trimtab.policies.api import (
    Agent,
    AgentAction,
    AgentEvent,
    AgentHost,
    AgentPlace,
    AgentReport,
    Announce,
    ClientLeft,
    ClientStayed,
    Heard,
    Listen,
    MoveClient,
    Tell,
    Woken,
)
from trimtab.policies.multistage.config import COORDINATOR_NAME, CoordinatorConfig
from trimtab.policies.multistage.coordinator import ClientTold, Site
from trimtab.policies.multistage.messages import (
    COORDINATED,
    COORDINATOR,
    EVERYBODY,
    PART_NAMES_COUNT,
    MalformedError,
    MoveResult,
    Moves,
    Present,
    Report,
    from_coordinator,
    to_values,
)

_ANNOUNCED: Final = Filter.parse(f"[class,eq,'{COORDINATED}'],[brokerID,isPresent,'']")
_NEWS_RATIO: Final = 0.3
"""The weight of the last report's time in the mean of a rate."""

_SILENT_PERIODS: Final = 3.5
"""A coordinator that has said nothing for so many reports is not told any more."""

_TELL_RATIO: Final = 0.01
"""A rate is told again when it has changed by more than this share."""


_Wish: TypeAlias = Filter | str
"""A filter, or the name of a channel's stream."""


class CoordinatedAgent:
    """What a broker does for the coordinator.

    >>> CoordinatedAgent().report().doing
    'no coordinator is there'
    """

    def __init__(self, site: Site | None = None) -> None:
        self.name = "coordinated"
        self._site = site
        self._host: AgentHost
        self._life = ""
        self._report_every_s = 0.0
        self._heard_s = 0.0
        self._next_report_s: float | None = None
        self._reported_s = 0.0
        self._told: dict[str, tuple[str, ...]] = {}
        """What the coordinator knows of our clients."""
        self._filters: dict[str, list[Filter]] = {}
        self._names: dict[_Wish, str] = {}
        self._counted_bytes: dict[_Wish, float] = {}
        self._results_bytes: dict[str, int] = {}
        """Of all results of each channel, as counted last."""
        self._rates_bytes_per_s: dict[_Wish, float] = {}
        self._told_rates: dict[str, float] = {}
        self._last = ""
        self._last_s: float | None = None

    @property
    def observes(self) -> bool:
        """Rates are counted while somebody wants to know."""
        return self._next_report_s is not None

    def start(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        """Listen to the coordinator, should there be one."""
        self._host = host
        return [
            Announce(_ANNOUNCED),
            Listen("everybody", Filter.where({"class": COORDINATOR, "brokerID": EVERYBODY})),
            Listen("orders", Filter.where({"class": COORDINATOR, "brokerID": host.name})),
        ]

    def wake_at_s(self) -> float | None:
        """When the next report is due."""
        return self._next_report_s

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        """Count a publication once for each distinct filter of clients that wants it."""
        wanting: dict[Filter, None] = {}
        for hop in hops:
            filters = self._filters.get(hop)
            if filters is None:
                continue
            if len(filters) == 1:
                wanting[filters[0]] = None
            else:
                wanting.update(dict.fromkeys(each for each in filters if each not in wanting and each.matches(values)))
        size_bytes = self._host.publication_bytes()
        for each in wanting:
            self._counted_bytes[each] = self._counted_bytes.get(each, 0.0) + size_bytes
        return []

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values):
                return self._hear(values, now_s)
            case Woken():
                return self._woken(now_s)
            case ClientLeft(client=client, cause=cause):
                return self._ended(client, cause, now_s, is_moved=True)
            case ClientStayed(client=client, cause=cause, reason=reason):
                return self._ended(client, cause, now_s, is_moved=False, reason=reason)
            case _:
                return []  # the next report tells who came and who subscribed

    def report(self) -> AgentReport:
        """What this broker does for the coordinator."""
        is_there = self._next_report_s is not None
        return AgentReport(
            role="coordinated",
            status="OK",
            doing=f"tells {len(self._told):,} clients" if is_there else "no coordinator is there",
            decision=self._last,
            decided_s=self._last_s,
        )

    # ---- orders ----

    def _hear(self, values: Mapping[str, Value], now_s: float) -> list[AgentAction]:
        try:
            message = from_coordinator(values)
        except MalformedError:
            return []  # another version's; what we do not understand is not for us
        self._heard_s = now_s
        match message:
            case Present(life=life, report_every_s=report_every_s):
                self._report_every_s = report_every_s
                if life != self._life or self._next_report_s is None:
                    self._life = life
                    self._told = {}
                    return self._tell(now_s, is_whole=True)
                return []
            case Moves(life=life, cause=cause, moves=moves):
                if life != self._life:
                    return []  # of a life that is over
                self._last, self._last_s = f"{len(moves):,} clients are asked to move", now_s
                return [MoveClient(client, to_broker, cause) for client, to_broker in moves]

    def _ended(self, client: str, cause: str, now_s: float, *, is_moved: bool, reason: str = "") -> list[AgentAction]:
        if not self._life or not cause.startswith(f"{self._life}/"):
            return []  # somebody else's, or of a former life
        ended = MoveResult(
            life=self._life, broker=self._host.name, client=client, cause=cause, is_moved=is_moved, reason=reason
        )
        if is_moved:
            self._told.pop(client, None)  # the coordinator takes it as told
        return [Tell(to_values(ended, self._host.name), cause)]

    # ---- reports ----

    def _woken(self, now_s: float) -> list[AgentAction]:
        if now_s - self._heard_s > _SILENT_PERIODS * self._report_every_s:
            self._next_report_s = None
            self._counted_bytes.clear()
            return []
        return self._tell(now_s, is_whole=False)

    def _tell(self, now_s: float, *, is_whole: bool) -> list[AgentAction]:
        self._measure(now_s)
        present = self._present()
        changed = {client: names for client, names in present.items() if self._told.get(client) != names}
        gone = tuple(client for client in self._told if client not in present)
        self._told = present
        self._reported_s = now_s
        self._next_report_s = now_s + self._report_every_s
        rates = self._rates_to_tell(is_whole=is_whole)
        parts = _parts([ClientTold(client, names) for client, names in changed.items()], rates)
        return [
            Tell(
                to_values(
                    Report(
                        life=self._life,
                        broker=self._host.name,
                        is_whole=is_whole and not number,  # those who are in no part are forgotten with the first
                        clients=tuple(clients),
                        gone=() if number else gone,
                        rates_bytes_per_s=some_rates,
                        site=self._site,
                        address=self._host.address_of(self._host.name),
                    ),
                    self._host.name,
                )
            )
            for number, (clients, some_rates) in enumerate(parts)
        ]

    def _rates_to_tell(self, *, is_whole: bool) -> dict[str, float]:
        """Those that have changed by enough to matter."""
        now = {self._names[each]: rate for each, rate in self._rates_bytes_per_s.items()}
        before = {} if is_whole else self._told_rates
        news = {name: rate for name, rate in now.items() if abs(rate - before.get(name, -1.0)) > _TELL_RATIO * rate}
        self._told_rates = {name: news.get(name, before.get(name, 0.0)) for name in now}
        return news

    def _present(self) -> dict[str, tuple[str, ...]]:
        host = self._host
        clients = list(dict.fromkeys([*host.clients(), *host.channel_clients()]))
        self._filters = {client: host.filters_of(client) for client in clients}
        streams = {client: host.streams_of(client) for client in clients}
        self._results_bytes = {name: at for each in streams.values() for name, at in each.items()}
        wishes: dict[str, list[_Wish]] = {client: [*self._filters[client], *streams[client]] for client in clients}
        wanted = {each: None for some in wishes.values() for each in some}
        self._names = {each: self._names.get(each) or _name_of(each) for each in wanted}
        self._rates_bytes_per_s = {each: self._rates_bytes_per_s.get(each, 0.0) for each in wanted}
        return {client: tuple(sorted({self._names[each] for each in some})) for client, some in wishes.items()}

    def _measure(self, now_s: float) -> None:
        """Rates since the last report, mixed with those before."""
        over_s = now_s - self._reported_s
        for client in self._host.channel_clients():
            for name, at in self._host.streams_of(client).items():
                self._counted_bytes[name] = float(max(0, at - self._results_bytes.get(name, at)))
        if self._next_report_s is not None and over_s > 0:
            for each in self._rates_bytes_per_s:
                seen = self._counted_bytes.get(each, 0.0) / over_s
                before = self._rates_bytes_per_s[each]
                is_first = before == 0.0
                self._rates_bytes_per_s[each] = seen if is_first else before + _NEWS_RATIO * (seen - before)
        self._counted_bytes.clear()


def _name_of(wish: _Wish) -> str:
    """A short name, the same at all brokers."""
    return blake2b(str(wish).encode(), digest_size=8).hexdigest()


def _parts(clients: list[ClientTold], rates: dict[str, float]) -> list[tuple[list[ClientTold], dict[str, float]]]:
    """A report in parts that each fit a publication; at least one."""
    parts: list[tuple[list[ClientTold], dict[str, float]]] = [([], {})]
    room_count = PART_NAMES_COUNT

    def make_room(count: int) -> None:
        nonlocal room_count
        if room_count < count and room_count < PART_NAMES_COUNT:
            parts.append(([], {}))
            room_count = PART_NAMES_COUNT
        room_count -= count

    for client in clients:
        make_room(1 + len(client.subscriptions))
        parts[-1][0].append(client)
    for name, rate in rates.items():
        make_room(2)
        parts[-1][1][name] = rate
    return parts


def agent_of(config: CoordinatorConfig, place: AgentPlace) -> Agent:
    """The agent of one broker: the coordinator itself, where a broker has its name."""
    if place.broker != COORDINATOR_NAME:
        return CoordinatedAgent(place.site)
    from trimtab.policies.multistage.coordinator_agent import CoordinatorAgent  # needs numpy

    return CoordinatorAgent(config, Random(f"coordinator {place.seed}"), f"coordinator-{place.seed}")
