"""The mediation protocol between two brokers of which one gives clients to the other, as a state machine.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), sections
3.4.1 and 3.4.2, Figure 3.3a.

    the one that gives:    IDLE -> ASKING -> PLANNING -> MOVING -> IDLE
    the one that accepts:  IDLE -> OFFERED -> RECEIVING -> IDLE

A broker asks the candidates that detection found, one after the other, until one says OK and tells its load. It then
samples, plans and tells its clients to move. The accepting broker counts them as they arrive, and says DONE when all
are there or N times the migration timeout has passed. Both then wait for their load to settle.

Deviations:
- Every step has a time limit, so that a broker that dies does not keep its partner busy for ever.
- If no plan comes out, the next candidate is asked; the thesis forgets the list as soon as somebody agrees.
- While a broker waits for an answer it refuses requests of others: it could not keep both promises.
- If no client moved there is nothing to settle, and the broker is as it was before.
- The thesis lets clients stay with the old broker until its queues have drained. Here the handover of the network does
  that, and loses nothing; `ClientMoved` says that it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason, Status
from trimtab.policies.padres.detection import BrokerAction
from trimtab.policies.padres.mediation_events import (
    CallHead,
    ClientMoved,
    ClientStayed,
    ControlReceived,
    Detected,
    MediationAction,
    MediationEvent,
    MoveClient,
    NobodyAgreed,
    Planned,
    Refused,
    Send,
    SendOffer,
    SessionEnded,
    StartSampling,
    StatusChanged,
    StopSampling,
    Triggered,
    Wake,
)
from trimtab.policies.padres.messages import (
    AnyControl,
    OffloadCancel,
    OffloadDone,
    OffloadReply,
    OffloadRequest,
    OffloadStart,
)
from trimtab.policies.padres.offload import OffloadPlan


class Phase(Enum):
    """Where a broker stands in a session."""

    IDLE = "idle"
    ASKING = "asking"
    PLANNING = "planning"
    MOVING = "moving"
    OFFERED = "offered"
    RECEIVING = "receiving"


class Mediator:
    """One broker's side of the protocol."""

    def __init__(self, broker: str, config: PadresConfig, life: str = "1") -> None:
        self.broker = broker
        self.config = config
        self.phase = Phase.IDLE
        self.status = Status.OK
        self.session = ""
        self.partner = ""
        self._life = life
        self._calm_status = Status.OK
        self._action = LoadIndex.INPUT
        self._candidates: list[BrokerAction] = []
        self._overloaded = False
        self._deadline_s: float | None = None
        self._sessions_count = 0
        self._expected: dict[str, None] = {}
        self._moved: dict[str, None] = {}

    def wake_at_s(self) -> float | None:
        """When the machine wants a `Wake`."""
        return self._deadline_s

    def handle(self, event: MediationEvent, now_s: float) -> list[MediationAction]:
        """Everything that can happen, in every phase."""
        match event:
            case Triggered(trigger) if self.phase == Phase.IDLE:
                self._candidates = list(trigger.ask)
                self._overloaded = trigger.overloaded
                return self._ask_next(now_s)
            case Triggered():  # a session is under way; detection will look again after it
                return []
            case Detected(status):
                return self._detected(status)
            case ControlReceived(message):
                return self._received(message, now_s)
            case Planned(session, plan) if self.phase == Phase.PLANNING and session == self.session:
                return self._planned(plan, now_s)
            case Planned():  # of a session that has ended meanwhile
                return []
            case ClientMoved(client, session) if session == self.session:
                return self._client_moved(client, now_s)
            case ClientStayed(client, session) if session == self.session and self.phase == Phase.MOVING:
                return self._client_stayed(client, now_s)
            case ClientMoved() | ClientStayed():  # after the session's end: the move counts for the next detection
                return []
            case Wake():
                return self._woken(now_s)

    def _received(self, message: AnyControl, now_s: float) -> list[MediationAction]:
        match message:
            case OffloadRequest():
                return self._requested(message, now_s)
            case OffloadReply() if self._is_from_partner(message, Phase.ASKING):
                return self._answered(message, now_s)
            case OffloadReply(status=Status.OK) if not self._is_from_partner(message, Phase.PLANNING, Phase.MOVING):
                return [self._cancel(message.sender, message.session, "the answer came too late")]
            case OffloadStart() if self._is_from_partner(message, Phase.OFFERED, Phase.RECEIVING):
                return self._started(message, now_s)
            case OffloadStart():
                return [self._cancel(message.sender, message.session, "no such session")]
            case OffloadDone() if self._is_from_partner(message, Phase.MOVING):
                self._moved.update(dict.fromkeys(message.arrived))
                return self._end("done", now_s)
            case OffloadCancel() if self._is_from_partner(message, Phase.ASKING, Phase.PLANNING):
                stop: list[MediationAction] = [StopSampling(self.session)] if self.phase == Phase.PLANNING else []
                return [*stop, *self._end(f"{Reason.CANCELLED.value}: {message.reason}", now_s), *self._ask_next(now_s)]
            case OffloadCancel() if self._is_from_partner(message, Phase.MOVING, Phase.OFFERED, Phase.RECEIVING):
                fruitless = message.fruitless and self.phase == Phase.OFFERED
                return self._end(f"{Reason.CANCELLED.value}: {message.reason}", now_s, fruitless=fruitless)
            case _:  # late, repeated, or not for this machine
                return []

    def _is_from_partner(self, message: AnyControl, *phases: Phase) -> bool:
        return self.phase in phases and (message.sender, message.session) == (self.partner, self.session)

    # The broker that gives

    def _ask_next(self, now_s: float) -> list[MediationAction]:
        if not self._candidates:
            self.phase = Phase.IDLE
            self._deadline_s = None
            return [NobodyAgreed(), *([CallHead()] if self._overloaded else [])]
        candidate = self._candidates.pop(0)
        self._sessions_count += 1
        self._begin(
            Phase.ASKING,
            f"{self.broker}/{self._life}/{self._sessions_count}",
            candidate.broker,
            candidate.action,
        )
        self._deadline_s = now_s + self.config.reply_timeout_s
        return [
            Send(
                candidate.broker,
                OffloadRequest(session=self.session, sender=self.broker, action=candidate.action),
            )
        ]

    def _answered(self, reply: OffloadReply, now_s: float) -> list[MediationAction]:
        if reply.status != Status.OK or reply.offer is None:
            return [Refused(self.partner, f"its status is {reply.status.value}"), *self._ask_next(now_s)]
        self.phase = Phase.PLANNING
        self._deadline_s = now_s + self.config.planning_timeout_s
        return [
            *self._become(Status.BUSY),
            StartSampling(self.session, self.partner, self._action, reply.offer),
        ]

    def _planned(self, plan: OffloadPlan | NoAction, now_s: float) -> list[MediationAction]:
        if isinstance(plan, NoAction):
            partner, session = self.partner, self.session
            return [
                self._cancel(partner, session, str(plan), fruitless=True),
                *self._end(str(plan), now_s, fruitless=True),
                *self._ask_next(now_s),
            ]
        clients = tuple(move.client for move in plan.moves)
        self.phase = Phase.MOVING
        self._expected = dict.fromkeys(clients)
        self._deadline_s = now_s + self.config.migration_deadline_s(len(clients)) + self.config.reply_timeout_s
        return [
            self._start_message(),
            *(MoveClient(client, self.partner, self.session) for client in clients),
        ]

    def _client_stayed(self, client: str, now_s: float) -> list[MediationAction]:
        if client not in self._expected:
            return []
        del self._expected[client]
        if self._expected:
            return [self._start_message()]
        return [self._cancel(self.partner, self.session, "no client moves"), *self._end("no client moves", now_s)]

    def _start_message(self) -> Send:
        return Send(
            self.partner,
            OffloadStart(session=self.session, sender=self.broker, clients=tuple(self._expected)),
        )

    # The broker that accepts

    def _requested(self, request: OffloadRequest, now_s: float) -> list[MediationAction]:
        if self._is_from_partner(request, Phase.OFFERED):
            return [SendOffer(request.sender, request.session)]
        if self.phase != Phase.IDLE or self.status != Status.OK:
            status = self.status if self.status != Status.OK else Status.BUSY
            return [Send(request.sender, OffloadReply(session=request.session, sender=self.broker, status=status))]
        self._begin(Phase.OFFERED, request.session, request.sender, request.action)
        self._deadline_s = now_s + self.config.planning_timeout_s + self.config.reply_timeout_s
        return [*self._become(Status.BUSY), SendOffer(request.sender, request.session)]

    def _started(self, start: OffloadStart, now_s: float) -> list[MediationAction]:
        if self.phase == Phase.OFFERED:
            self.phase = Phase.RECEIVING
            self._deadline_s = now_s + self.config.migration_deadline_s(len(start.clients))
        self._expected = dict.fromkeys(start.clients)
        return self._done_if_complete(now_s)

    def _client_moved(self, client: str, now_s: float) -> list[MediationAction]:
        self._moved[client] = None
        return self._done_if_complete(now_s) if self.phase == Phase.RECEIVING else []

    def _done_if_complete(self, now_s: float) -> list[MediationAction]:
        if any(client not in self._moved for client in self._expected):
            return []
        return self._done("done", now_s)

    def _done(self, reason: str, now_s: float) -> list[MediationAction]:
        arrived = tuple(client for client in self._expected if client in self._moved)
        done = OffloadDone(session=self.session, sender=self.broker, arrived=arrived)
        return [Send(self.partner, done), *self._end(reason, now_s)]

    # Both

    def _detected(self, status: Status) -> list[MediationAction]:
        if status == Status.BUSY:  # detection saw the session itself, not how the broker is without it
            return []
        self._calm_status = status
        return self._become(status) if self.phase in (Phase.IDLE, Phase.ASKING) else []

    def _woken(self, now_s: float) -> list[MediationAction]:
        if self._deadline_s is None or now_s < self._deadline_s:
            return []
        match self.phase:
            case Phase.IDLE:
                return []
            case Phase.ASKING:
                late = self._cancel(self.partner, self.session, Reason.NO_ANSWER.value)
                refused = Refused(self.partner, Reason.NO_ANSWER.value)
                return [late, refused, *self._ask_next(now_s)]
            case Phase.PLANNING:
                late = self._cancel(self.partner, self.session, "the plan took too long")
                return [late, StopSampling(self.session), *self._end("the plan took too long", now_s)]
            case Phase.MOVING:
                late = self._cancel(self.partner, self.session, Reason.NO_ANSWER.value)
                return [late, *self._end(Reason.NO_ANSWER.value, now_s)]
            case Phase.OFFERED:
                return self._end(Reason.NO_ANSWER.value, now_s)
            case Phase.RECEIVING:
                return self._done("some clients did not come in time", now_s)

    def _begin(self, phase: Phase, session: str, partner: str, action: LoadIndex) -> None:
        self.phase, self.session, self.partner, self._action = phase, session, partner, action
        self._expected, self._moved = {}, {}

    def _end(self, reason: str, now_s: float, *, fruitless: bool = False) -> list[MediationAction]:
        ended = SessionEnded(
            session=self.session,
            partner=self.partner,
            gave=self.phase in (Phase.ASKING, Phase.PLANNING, Phase.MOVING),
            action=self._action,
            moved=tuple(self._moved),
            missing=_without(self._expected, self._moved),
            reason=reason,
            fruitless=fruitless,
        )
        self.phase = Phase.IDLE
        self.session = self.partner = ""
        self._deadline_s = None
        return [ended, *self._become(Status.STABILIZING if self._moved else self._calm_status)]

    def _become(self, status: Status) -> list[MediationAction]:
        if status == self.status:
            return []
        self.status = status
        return [StatusChanged(status)]

    def _cancel(self, to: str, session: str, reason: str, *, fruitless: bool = False) -> Send:
        return Send(to, OffloadCancel(session=session, sender=self.broker, reason=reason, fruitless=fruitless))


def _without(names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    left_out = set(others)
    return tuple(name for name in names if name not in left_out)
