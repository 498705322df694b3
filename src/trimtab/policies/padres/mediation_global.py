"""The mediation protocol between two cluster-heads, as a state machine.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 3.4.3,
and for calls for help section 3.3.2.2.

    IDLE -> ASKING -> BALANCING -> IDLE         the head that asks
    IDLE -> BALANCING -> IDLE                   the head that agrees

Two heads agree that their clusters balance; each tells its edge-brokers to listen to the other cluster's load
information, and the edge-brokers then balance with each other as they do within a cluster. When every edge-broker of
both clusters tells that it is balanced with all others, the session is over.

Deviations:
- Waiting for an answer and the session itself have time limits. A session also ends when for a while no broker of the
  two clusters gave or took clients, sessions that found nothing to move aside: output is balanced only as far as input
  allows (section 4.2.3), so that some balanced set may never fill, and meanwhile neither cluster could help a third.
  Neither limit holds while a member is overloaded: then the session goes on until the balanced sets are full, or until
  the calls for help of section 3.3.2.2 end it.
- The members of a session are those edge-brokers of both clusters that were known at its beginning; one that is
  forgotten meanwhile (`MemberGone`) is no longer waited for.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec

from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import Reason, Status
from trimtab.policies.padres.detection_global import HelpAnswer, answer_call_for_help, is_complete, is_overloaded
from trimtab.policies.padres.mediation_events import ControlReceived, Send, StatusChanged, Wake
from trimtab.policies.padres.messages import (
    AnyControl,
    CallForHelp,
    ExchangeEnd,
    ExchangeStart,
    GlobalDone,
    GlobalReply,
    GlobalRequest,
)
from trimtab.policies.padres.snapshot import BrokerLoad


class GlobalTriggered(msgspec.Struct, frozen=True):
    """Global detection wants a session: the heads of the clusters to ask, in order."""

    heads: tuple[str, ...]


class ClusterDetected(msgspec.Struct, frozen=True):
    """The cluster's status, OK or N/A, and its edge-brokers as they are known."""

    status: Status
    edge_brokers: tuple[str, ...]


class LoadTold(msgspec.Struct, frozen=True):
    """An edge-broker of either cluster has told its load."""

    load: BrokerLoad


class MemberGone(msgspec.Struct, frozen=True):
    """Nothing was heard of an edge-broker for too long."""

    broker: str


GlobalEvent: TypeAlias = GlobalTriggered | ClusterDetected | LoadTold | MemberGone | ControlReceived | Wake


class Listen(msgspec.Struct, frozen=True):
    """Subscribe to a cluster's load information."""

    cluster: str


class StopListening(msgspec.Struct, frozen=True):
    """End that subscription."""

    cluster: str


class DetectNow(msgspec.Struct, frozen=True):
    """Run global detection, because a broker of the cluster called for help."""

    instead_of: str = ""
    """The cluster that could not help: another one is wanted."""


class Saturated(msgspec.Struct, frozen=True):
    """Our cluster could not take what an overloaded broker of another one has to give."""


class GlobalSessionEnded(msgspec.Struct, frozen=True):
    """A session between clusters is over, for the story."""

    session: str
    cluster: str
    reason: str


GlobalAction: TypeAlias = Send | StatusChanged | Listen | StopListening | DetectNow | Saturated | GlobalSessionEnded


class GlobalPhase(Enum):
    """Where a cluster-head stands."""

    IDLE = "idle"
    ASKING = "asking"
    BALANCING = "balancing"


class GlobalMediator:
    """One cluster-head's side of the protocol."""

    def __init__(self, head: str, cluster: str, config: PadresConfig, life: str = "1") -> None:
        self.head = head
        self.cluster = cluster
        self.config = config
        self.phase = GlobalPhase.IDLE
        self.status = Status.OK
        self.session = ""
        self.partner = ""
        self.partner_cluster = ""
        self._life = life
        self._calm_status = Status.OK
        self._edge_brokers: tuple[str, ...] = ()
        self._members: dict[str, None] = {}
        self._told: dict[str, BrokerLoad] = {}
        self._candidates: list[str] = []
        self._calls_count = 0
        self._sessions_count = 0
        self._deadline_s: float | None = None
        self._quiet_at_s: float | None = None

    def wake_at_s(self) -> float | None:
        """When the machine wants a `Wake`."""
        times = [time_s for time_s in (self._deadline_s, self._quiet_at_s) if time_s is not None]
        return min(times, default=None)

    def handle(self, event: GlobalEvent, now_s: float) -> list[GlobalAction]:
        """Everything that can happen, in every phase."""
        match event:
            case GlobalTriggered(heads) if self.phase == GlobalPhase.IDLE:
                self._candidates = list(heads)
                return self._ask_next(now_s)
            case GlobalTriggered():  # a session is under way
                return []
            case ClusterDetected(status, edge_brokers):
                self._calm_status, self._edge_brokers = status, edge_brokers
                return self._become(status) if self.phase != GlobalPhase.BALANCING else []
            case LoadTold(load) if self.phase == GlobalPhase.BALANCING:
                self._told[load.broker] = load
                if load.status == Status.STABILIZING and load.broker in self._members:
                    self._quiet_at_s = now_s + self.config.global_session_quiet_s
                return self._end_if_complete()
            case MemberGone(broker) if self.phase == GlobalPhase.BALANCING and broker in self._members:
                del self._members[broker]
                return self._end_if_complete()
            case LoadTold() | MemberGone():  # matters during a session only
                return []
            case ControlReceived(message):
                return self._received(message, now_s)
            case Wake():
                return self._woken(now_s)

    def _received(self, message: AnyControl, now_s: float) -> list[GlobalAction]:
        match message:
            case GlobalRequest():
                return self._requested(message, now_s)
            case GlobalReply(status=Status.OK) if self._is_from_partner(message, GlobalPhase.ASKING):
                return self._begin(message.session, message.sender, message.cluster, message.edge_brokers, now_s=now_s)
            case GlobalReply() if self._is_from_partner(message, GlobalPhase.ASKING):
                return self._ask_next(now_s)
            case GlobalReply(status=Status.OK) if not self._is_from_partner(message, GlobalPhase.BALANCING):
                return [self._done_message(message.sender, message.session, "the answer came too late")]
            case GlobalDone() if self._is_from_partner(message, GlobalPhase.BALANCING):
                return [*self._end(message.reason, tell=False), *([Saturated()] if message.saturated else [])]
            case CallForHelp():
                return self._called_for_help()
            case _:  # late, repeated, or not for this machine
                return []

    def _is_from_partner(self, message: AnyControl, phase: GlobalPhase) -> bool:
        return self.phase == phase and (message.sender, message.session) == (self.partner, self.session)

    def _ask_next(self, now_s: float) -> list[GlobalAction]:
        if not self._candidates:
            self.phase, self._deadline_s, self.session, self.partner = GlobalPhase.IDLE, None, "", ""
            return []
        self._sessions_count += 1
        self.phase = GlobalPhase.ASKING
        self.partner = self._candidates.pop(0)
        self.session = f"{self.head}/{self._life}/g{self._sessions_count}"
        self._deadline_s = now_s + self.config.reply_timeout_s
        request = GlobalRequest(
            session=self.session, sender=self.head, cluster=self.cluster, edge_brokers=self._edge_brokers
        )
        return [Send(self.partner, request)]

    def _requested(self, request: GlobalRequest, now_s: float) -> list[GlobalAction]:
        if self._is_from_partner(request, GlobalPhase.BALANCING):
            return [self._reply(request, Status.OK)]
        if self.phase != GlobalPhase.IDLE or self.status != Status.OK:
            return [self._reply(request, self.status if self.status != Status.OK else Status.BUSY)]
        return [
            self._reply(request, Status.OK),
            *self._begin(request.session, request.sender, request.cluster, request.edge_brokers, now_s=now_s),
        ]

    def _reply(self, request: GlobalRequest, status: Status) -> Send:
        reply = GlobalReply(
            session=request.session,
            sender=self.head,
            cluster=self.cluster,
            status=status,
            edge_brokers=self._edge_brokers if status == Status.OK else (),
        )
        return Send(request.sender, reply)

    def _begin(
        self, session: str, partner: str, cluster: str, edge_brokers: tuple[str, ...], *, now_s: float
    ) -> list[GlobalAction]:
        self.phase = GlobalPhase.BALANCING
        self.session, self.partner, self.partner_cluster = session, partner, cluster
        self._members = dict.fromkeys((*self._edge_brokers, *edge_brokers))
        self._told = {}
        self._calls_count = 0
        self._deadline_s = now_s + self.config.global_session_max_s
        self._quiet_at_s = now_s + self.config.global_session_quiet_s
        return [
            *self._become(Status.BUSY),
            Listen(cluster),
            *(
                Send(name, ExchangeStart(session=session, sender=self.head, cluster=cluster))
                for name in self._edge_brokers
            ),
        ]

    def _end_if_complete(self) -> list[GlobalAction]:
        if not is_complete(self._told.values(), list(self._members)):
            return []
        return self._end("all brokers of both clusters are balanced", tell=True)

    def _called_for_help(self) -> list[GlobalAction]:
        if self.phase == GlobalPhase.ASKING:  # the answer may bring help
            return []
        self._calls_count += 1
        match answer_call_for_help(self.status, self._calls_count, self.config):
            case HelpAnswer.DETECT:
                return [DetectNow()]
            case HelpAnswer.WAIT:
                return []
            case HelpAnswer.CHANGE_CLUSTER:
                cluster = self.partner_cluster
                reason = "neither cluster can relieve an overloaded broker"
                return [*self._end(reason, tell=True, saturated=True), DetectNow(instead_of=cluster)]

    def _woken(self, now_s: float) -> list[GlobalAction]:
        if self._quiet_at_s is not None and now_s >= self._quiet_at_s:
            told = [load for load in self._told.values() if load.broker in self._members]
            if not any(load.status == Status.BUSY for load in told) and not self._has_overloaded_member():
                return self._end("nothing more was found to move", tell=True)
            self._quiet_at_s = now_s + self.config.planning_timeout_s  # what this session does is yet to be seen
        if self._deadline_s is None or now_s < self._deadline_s:
            return []
        if self.phase == GlobalPhase.BALANCING and self._has_overloaded_member():
            self._deadline_s = now_s + self.config.planning_timeout_s
            return []
        if self.phase == GlobalPhase.ASKING:
            late = self._done_message(self.partner, self.session, Reason.NO_ANSWER.value)
            return [late, *self._ask_next(now_s)]
        return self._end("the session took too long", tell=True)

    def _has_overloaded_member(self) -> bool:
        return any(is_overloaded(load, self.config) for load in self._told.values() if load.broker in self._members)

    def _end(self, reason: str, *, tell: bool, saturated: bool = False) -> list[GlobalAction]:
        session, partner, cluster = self.session, self.partner, self.partner_cluster
        self.phase, self.session, self.partner, self.partner_cluster = GlobalPhase.IDLE, "", "", ""
        self._deadline_s = self._quiet_at_s = None
        return [
            *([self._done_message(partner, session, reason, saturated=saturated)] if tell else []),
            StopListening(cluster),
            *(
                Send(name, ExchangeEnd(session=session, sender=self.head, cluster=cluster))
                for name in self._edge_brokers
            ),
            GlobalSessionEnded(session, cluster, reason),
            *self._become(self._calm_status),
        ]

    def _become(self, status: Status) -> list[GlobalAction]:
        if status == self.status:
            return []
        self.status = status
        return [StatusChanged(status)]

    def _done_message(self, to: str, session: str, reason: str, *, saturated: bool = False) -> Send:
        return Send(to, GlobalDone(session=session, sender=self.head, reason=reason, saturated=saturated))
