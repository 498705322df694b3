"""The book of sessions: why each was begun, what was planned, what came of it; kept by the side that gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from trimtab.balancing.padres.decisions import Action, NoAction, Status
from trimtab.balancing.padres.detection import CandidateCard, Trigger
from trimtab.balancing.padres.mediation_events import SessionEnded, StartSampling
from trimtab.balancing.padres.offload import OffloadPlan, ReportCard
from trimtab.balancing.padres.snapshot import BrokerLoad, KnownBroker
from trimtab.load.estimation import BrokerResources
from trimtab.protocol.records import SessionRecord

_INDEX: Final[dict[Action, Literal["input", "matching", "output"]]] = {
    Action.INPUT: "input",
    Action.MATCH: "matching",
    Action.OUTPUT: "output",
}

CARDS_MAX_COUNT: Final = 50
"""Candidates told in a record beside those that were taken."""


class _Session:
    def __init__(self, request: StartSampling, ours: BrokerLoad, cards: tuple[CandidateCard, ...], now_s: float):
        self.request = request
        self.ours = ours
        self.cards = cards
        self.begin_s = now_s
        self.end_s = now_s
        self.plan: OffloadPlan | NoAction | None = None
        self.ended: SessionEnded | None = None
        self.observed_ours: BrokerLoad | None = None


class SessionBook:
    """What one broker notes of the sessions in which it gives clients away."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._cards: tuple[CandidateCard, ...] = ()
        self._session: _Session | None = None

    def triggered(self, trigger: Trigger, ours: BrokerLoad) -> None:
        """Detection wants a session."""
        self._cards = trigger.cards

    def began(self, request: StartSampling, ours: BrokerLoad, now_s: float) -> list[SessionRecord]:
        """Another broker agreed to take clients."""
        records = self.interrupted()
        self._session = _Session(request, ours, self._cards, now_s)
        return records

    def planned(self, plan: OffloadPlan | NoAction) -> None:
        """A plan was made, or none."""
        if self._session is not None:
            self._session.plan = plan

    def ended(self, ended: SessionEnded, now_s: float) -> list[SessionRecord]:
        """A session is over; its record waits for the load to settle if clients moved."""
        session = self._session
        if not ended.gave or session is None or session.request.session != ended.session:
            return []
        session.ended, session.end_s = ended, now_s
        if ended.moved:
            return []
        self._session = None
        return [self._record(session, None, None)]

    def settled(self, ours: BrokerLoad, known: Mapping[str, KnownBroker], settle_s: float) -> list[SessionRecord]:
        """Our load has settled: what the session did can be told, as soon as the other's has settled too.

        The other's load counts once it has told it, settled, at least `settle_s` after the end. If it has gone on to
        another session, or is not heard of any more, its part stays unknown.
        """
        session = self._session
        if session is None or session.ended is None:
            return []
        if session.observed_ours is None:
            session.observed_ours = ours
        partner = known.get(session.request.partner)
        if partner is not None and partner.load.status == Status.STABILIZING:
            return []
        if partner is not None and partner.load.status != Status.BUSY and partner.heard_s < session.end_s + settle_s:
            return []
        self._session = None
        is_known = partner is not None and partner.load.status != Status.BUSY
        return [self._record(session, session.observed_ours, partner.load if is_known and partner else None)]

    def interrupted(self) -> list[SessionRecord]:
        """Another session begins here before the last one's effect was known."""
        session, self._session = self._session, None
        if session is None or session.ended is None:
            return []
        return [self._record(session, session.observed_ours, None)]

    def _record(self, session: _Session, ours: BrokerLoad | None, theirs: BrokerLoad | None) -> SessionRecord:
        request, ended = session.request, session.ended
        assert ended is not None
        plan = session.plan if isinstance(session.plan, OffloadPlan) else None
        card = next((card for card in session.cards if card.broker == request.partner), None)
        estimated_ours = plan.ours_after if plan is not None else None
        estimated_theirs = plan.theirs_after if plan is not None else None
        is_local = card is not None
        return SessionRecord(
            session=request.session,
            kind="local" if is_local else "global",
            index=_INDEX[request.action],
            begin_s=session.begin_s,
            end_s=session.end_s,
            initiator=self._broker,
            acceptor=request.partner,
            reason=card.why if card is not None else "",
            outcome=ended.reason,
            subscribers_moved_count=len(ended.moved),
            candidates_json=msgspec.json.encode(session.cards).decode(),
            offload_json=_offload_json(session.plan),
            **_columns("initiator_before", session.ours),
            **_columns("initiator_estimated", estimated_ours or session.ours),
            **_columns("initiator_observed", ours),
            **_columns("acceptor_before", request.offer.resources),
            **_columns("acceptor_estimated", estimated_theirs or request.offer.resources),
            **_columns("acceptor_observed", theirs),
        )


def _columns(prefix: str, load: BrokerLoad | BrokerResources | None) -> dict[str, Any]:
    return {
        f"{prefix}_input_utilization_ratio": load.input_utilization_ratio if load is not None else None,
        f"{prefix}_matching_delay_s": load.matching_delay_s if load is not None else None,
        f"{prefix}_output_utilization_ratio": load.output_utilization_ratio if load is not None else None,
    }


def _offload_json(plan: OffloadPlan | NoAction | None) -> str:
    if plan is None or isinstance(plan, NoAction):
        return msgspec.json.encode({"moves": [], "stopped": str(plan) if plan is not None else "no plan"}).decode()
    taken = [card for card in plan.cards if card.taken]
    left = [card for card in plan.cards if not card.taken][:CARDS_MAX_COUNT]
    return msgspec.json.encode(
        {
            "moves": [{"client": move.client, "step": move.step} for move in plan.moves],
            "stopped": plan.stopped,
            "cards": [_told(card) for card in (*taken, *left)],
            "cards_count": len(plan.cards),
        }
    ).decode()


def _told(card: ReportCard) -> dict[str, object]:
    return {
        "filters": str(card.interest),
        "clients": list(card.clients),
        "taken": card.taken,
        "why": card.why,
        "difference": card.difference,
        "covered": card.covered,
        "reduced_rate_per_s": card.reduced_rate_per_s,
        "output_rate_bytes_per_s": card.output_rate_bytes_per_s,
        "extra_input_rate_per_s": card.extra_input_rate_per_s,
    }
