"""An edge-broker's part where cluster-heads plan for all brokers at once: it tells its load and its clients, and sends
clients where it is told to.

This goes beyond A. Cheung's thesis (2006); load is told as in section 3.3.1.1, orders travel as in section 3.4. The
broker answers one head at a time. It tells each head only of clients that came or left since it was last asked.
"""

from __future__ import annotations

from random import Random
from typing import Final

from trimtab.language import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.load.slope import SlopeMeter
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    ClientCame,
    ClientLeft,
    ClientStayed,
    ClientSubscribed,
    Heard,
    Listen,
    MoveClient,
    Tell,
    Unlisten,
    WithoutSamples,
    Woken,
)
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import Status
from trimtab.policies.padres.detection import overload_action
from trimtab.policies.padres.load_report import LoadReporter
from trimtab.policies.padres.measured_load import resources_of
from trimtab.policies.padres.messages import (
    LB_CONTROL,
    AnyControl,
    ClientTold,
    MoveOrder,
    MoveReport,
    OffloadCancel,
    ProfileReply,
    ProfileRequest,
    control_filter,
    control_from_values,
    control_to_values,
)

READINGS_PER_WINDOW_COUNT: Final = 6
"""How often a broker looks, while its meters' window passes, whether its load is worth telling."""

READ_MIN_S, READ_MAX_S = 0.5, 5.0
"""But no more often, and no less: subscribers that join may fill a broker in a minute."""

REFRESH_PERIOD_S: Final = 60.0
"""A broker without news repeats its load after two of these, and is forgotten after three."""

HELD_MAX_S: Final = 60.0
"""A broker that told its load to a head waits so long for orders; an order renews it."""


FILTERS_PER_REPLY_COUNT: Final = 4_000
"""Filters of clients that one answer tells of; more are told in the next one, so that a message stays below the limits
of a publication."""


class FastEdge(WithoutSamples):
    """What an edge-broker does."""

    def __init__(self, host: AgentHost, cluster: str, config: PadresConfig, rng: Random, now_s: float) -> None:
        self.cluster = cluster
        self._host = host
        self._config = config
        self._slope = SlopeMeter(host.meter_window_s(), host.capacity().matching_s_per_subscription)
        self._telling = LoadReporter(host, cluster, config, REFRESH_PERIOD_S, now_s, self._slope)
        self._every_s = min(max(host.meter_window_s() / READINGS_PER_WINDOW_COUNT, READ_MIN_S), READ_MAX_S)
        self._next_read_s = now_s + rng.uniform(0.0, self._every_s)
        self._held_by: tuple[str, str] | None = None
        """The head and session that this broker waits for."""
        self._held_until_s = 0.0
        self._waiting: dict[str, None] = {}
        self._stayed: list[str] = []
        self._told: dict[str, tuple[int, dict[str, tuple[Filter, ...]]]] = {}
        """For each head the number of the last answer, and the clients that it knows of after it."""

    def begin(self) -> list[AgentAction]:
        """Listen to what is said to this broker."""
        return [Listen("control", control_filter(self._host.name))]

    def end(self) -> list[AgentAction]:
        """The broker's role changes: listen no more."""
        return [Unlisten("control")]

    def wake_at_s(self) -> float:
        """When something is to be done next."""
        return self._next_read_s

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        """Something has happened."""
        match event:
            case Heard(values=values) if values.get("class") == LB_CONTROL:
                return self._received(control_from_values(values), now_s)
            case Woken():
                return self._woken(now_s)
            case ClientSubscribed() | ClientCame():
                self._slope.saw(self._host.subscription_count(), now_s)
                return []
            case ClientLeft(client=client, cause=cause):
                self._slope.saw(self._host.subscription_count(), now_s)
                return self._move_ended(client, cause, stayed=False)
            case ClientStayed(client=client, cause=cause):
                return self._move_ended(client, cause, stayed=True)
            case _:
                return []

    def _woken(self, now_s: float) -> list[AgentAction]:
        if now_s < self._next_read_s:
            return []
        self._next_read_s = now_s + self._every_s
        self._slope.saw(self._host.subscription_count(), now_s)
        overloaded = overload_action(self._telling.read(now_s), self._config.lower_overload_ratio) is not None
        self._telling.status = Status.NOT_AVAILABLE if overloaded else Status.OK
        return self._telling.tell(now_s)

    # ---- what a head asks for ----

    def _received(self, message: AnyControl, now_s: float) -> list[AgentAction]:
        match message:
            case ProfileRequest():
                return self._asked(message, now_s)
            case MoveOrder(session=session, sender=sender, moves=moves) if self._held_by == (sender, session):
                self._held_until_s = now_s + HELD_MAX_S + self._config.migration_deadline_s(len(moves))
                self._waiting = dict.fromkeys(client for client, _ in moves)
                self._stayed = []
                return [MoveClient(client, to_broker, session) for client, to_broker in moves]
            case MoveOrder(session=session, sender=sender, moves=moves):  # the session was given up: nobody moves
                report = MoveReport(session=session, sender=self._host.name, stayed=tuple(name for name, _ in moves))
                return [_say(sender, report)]
            case OffloadCancel(session=session, sender=sender) if self._held_by == (sender, session):
                self._held_by = None
                return []
            case _:  # late, repeated, or not for this part
                return []

    def _asked(self, request: ProfileRequest, now_s: float) -> list[AgentAction]:
        asking = (request.sender, request.session)
        if self._held_by not in (None, asking) and now_s < self._held_until_s:
            busy = ProfileReply(session=request.session, sender=self._host.name, status=Status.BUSY)
            return [_say(request.sender, busy)]
        self._held_by, self._held_until_s = asking, now_s + HELD_MAX_S
        return [_say(request.sender, self._profile(request, now_s))]

    def _profile(self, request: ProfileRequest, now_s: float) -> ProfileReply:
        number, told = self._told.get(request.sender, (0, {}))
        if request.heard != number:
            told = {}
        clients = {client: tuple(self._host.filters_of(client)) for client in self._host.clients()}
        came = _as_many_as_fit({name: filters for name, filters in clients.items() if told.get(name) != filters})
        left = tuple(name for name in told if name not in clients)
        kept = {name: filters for name, filters in told.items() if name in clients}
        self._told[request.sender] = (number + 1, {**kept, **came})
        return ProfileReply(
            session=request.session,
            sender=self._host.name,
            status=Status.OK,
            resources=self._resources(now_s),
            number=number + 1,
            since=number if request.heard == number else 0,
            came=tuple(ClientTold(name, filters) for name, filters in came.items()),
            left=left,
        )

    def _resources(self, now_s: float) -> BrokerResources:
        """The load, with the matching delay that the present number of subscriptions means."""
        return self._slope.with_slope(resources_of(self._host, self._host.load(now_s)), now_s)

    def _move_ended(self, client: str, cause: str, *, stayed: bool) -> list[AgentAction]:
        held = self._held_by
        if held is None or cause != held[1] or client not in self._waiting:
            return []
        del self._waiting[client]
        if stayed:
            self._stayed.append(client)
        if self._waiting:
            return []
        return [_say(held[0], MoveReport(session=cause, sender=self._host.name, stayed=tuple(self._stayed)))]


def _as_many_as_fit(clients: dict[str, tuple[Filter, ...]]) -> dict[str, tuple[Filter, ...]]:
    fitting: dict[str, tuple[Filter, ...]] = {}
    filters_count = 0
    for name, filters in clients.items():
        filters_count += len(filters)
        if filters_count > FILTERS_PER_REPLY_COUNT and fitting:
            break
        fitting[name] = filters
    return fitting


def _say(to: str, message: AnyControl) -> Tell:
    return Tell(control_to_values(message, to), cause=message.session)
