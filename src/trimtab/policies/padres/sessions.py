"""The book of sessions: why each was begun, what was planned, what came of it; kept by the side that gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from trimtab.load.estimation import BrokerResources
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason, Status
from trimtab.policies.padres.detection import CandidateCard, Trigger
from trimtab.policies.padres.detection_global import GlobalTrigger
from trimtab.policies.padres.mediation_events import SessionEnded, StartSampling
from trimtab.policies.padres.offload import OffloadPlan, ReportCard
from trimtab.policies.padres.snapshot import BrokerLoad, ClusterLoad, KnownBroker, KnownCluster
from trimtab.protocol.records import SessionRecord

_INDEX: Final[dict[LoadIndex, Literal["input", "matching", "output"]]] = {
    LoadIndex.INPUT: "input",
    LoadIndex.MATCH: "matching",
    LoadIndex.OUTPUT: "output",
}

CARDS_MAX_COUNT: Final = 50
"""Candidates told in a record beside those that were taken."""


class _Session:
    def __init__(self, request: StartSampling, ours: BrokerLoad, cards: tuple[CandidateCard, ...], now_s: float):
        self.is_local = True
        self.request = request
        self.ours = ours
        self.cards = cards
        self.begin_s = now_s
        self.end_s = now_s
        self.plan: OffloadPlan | NoAction | None = None
        self.ended: SessionEnded | None = None
        self.ours_observed: BrokerLoad | None = None


class SessionBook:
    """What one broker notes of the sessions in which it gives clients away.

    A session that moved clients is told when both brokers' load has been seen after it, or when the next one begins:
    both no sooner than `settle_s` after its end, the other's when it is heard to have settled.
    """

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._trigger: Trigger | None = None
        self._triggered_s = 0.0
        self._triggered_load: BrokerLoad | None = None
        self._refusals: dict[str, str] = {}
        self._session: _Session | None = None

    def triggered(self, trigger: Trigger, ours: BrokerLoad, now_s: float) -> None:
        """Detection wants a session."""
        self._trigger, self._triggered_load, self._triggered_s = trigger, ours, now_s
        self._refusals = {}

    def refused(self, broker: str, reason: str) -> None:
        """A broker that was asked will not take clients."""
        self._refusals[broker] = reason

    def nobody_agreed(self, now_s: float) -> list[SessionRecord]:
        """Nobody is left to ask; told as a session without a partner if nobody agreed at all."""
        trigger, ours = self._trigger, self._triggered_load
        self._trigger = None
        if trigger is None or ours is None or len(self._refusals) < len(trigger.ask):
            return []
        first = trigger.ask[0]
        return [
            SessionRecord(
                session=f"{self._broker}/asked at {now_s:.1f} s",
                kind="local",
                index=_INDEX[first.action],
                begin_s=self._triggered_s,
                end_s=now_s,
                initiator=self._broker,
                acceptor="",
                reason=_why(trigger.cards, first.broker),
                outcome=Reason.REFUSED.value,
                subscribers_moved_count=0,
                candidates_json=self._candidates_json(trigger.cards),
                offload_json=_offload_json(None),
                **_load_columns(before=(ours, None)),
            )
        ]

    def began(
        self, request: StartSampling, ours: BrokerLoad, now_s: float, *, is_local: bool = True
    ) -> list[SessionRecord]:
        """Another broker, of our cluster or not, agreed to take clients."""
        former = self.interrupted()
        cards = self._trigger.cards if self._trigger is not None else ()
        self._session = _Session(request, ours, cards, now_s)
        self._session.is_local = is_local
        return former

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
        return [] if ended.moved else self._told(None)

    def settled(
        self, ours: BrokerLoad, known: Mapping[str, KnownBroker], now_s: float, settle_s: float
    ) -> list[SessionRecord]:
        """Our load has settled: what the session did can be told as soon as the other's has, too.

        If the other has gone on to another session, or is not heard of any more, its part stays unknown.
        """
        session = self._session
        if session is None or session.ended is None or now_s - session.end_s < settle_s:
            return []
        session.ours_observed = session.ours_observed or ours
        partner = known.get(session.request.partner)
        if partner is None or partner.load.status == Status.BUSY:
            return self._told(None)
        if partner.load.status == Status.STABILIZING or partner.heard_s < session.end_s + settle_s:
            return []
        return self._told(partner.load)

    def interrupted(self) -> list[SessionRecord]:
        """Another session changes our load before the last one's effect was known."""
        return self._told(None)

    def _told(self, theirs: BrokerLoad | None) -> list[SessionRecord]:
        """The session that has ended and is not told yet, if there is one."""
        session = self._session
        if session is None or session.ended is None:
            return []
        self._session = None
        request, ended = session.request, session.ended
        plan = session.plan if isinstance(session.plan, OffloadPlan) else None
        return [
            SessionRecord(
                session=request.session,
                kind="local" if session.is_local else "global",
                index=_INDEX[request.action],
                begin_s=session.begin_s,
                end_s=session.end_s,
                initiator=self._broker,
                acceptor=request.partner,
                reason=_why(session.cards, request.partner),
                outcome=ended.reason,
                subscribers_moved_count=len(ended.moved),
                candidates_json=self._candidates_json(session.cards),
                offload_json=_offload_json(session.plan),
                **_load_columns(
                    before=(session.ours, request.offer.resources),
                    estimated=(plan.ours_after, plan.theirs_after) if plan is not None else (None, None),
                    observed=(session.ours_observed, theirs),
                ),
            )
        ]

    def _candidates_json(self, cards: tuple[CandidateCard, ...]) -> str:
        told = [
            msgspec.structs.replace(card, why=f"{card.why}; asked, but {self._refusals[card.broker]}")
            if card.broker in self._refusals
            else card
            for card in cards
        ]
        return msgspec.json.encode(told).decode()


class ClusterSessionBook:
    """What a cluster-head notes of the sessions between clusters that it asked for."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._trigger: GlobalTrigger | None = None
        self._ours: ClusterLoad | None = None
        self._theirs: ClusterLoad | None = None
        self._session = ""
        self._cluster = ""
        self._begin_s = 0.0

    def triggered(self, trigger: GlobalTrigger, ours: ClusterLoad) -> None:
        """Detection wants a session."""
        self._trigger, self._ours = trigger, ours

    def began(self, session: str, cluster: str, known: Mapping[str, KnownCluster], now_s: float) -> None:
        """Two heads agreed."""
        self._session, self._cluster, self._begin_s = session, cluster, now_s
        self._theirs = known[cluster].load if cluster in known else None

    def ended(
        self, session: str, reason: str, ours: ClusterLoad | None, known: Mapping[str, KnownCluster], now_s: float
    ) -> list[SessionRecord]:
        """The session is over; the head that asked tells it."""
        trigger, before = self._trigger, self._ours
        if session != self._session or not session.startswith(f"{self._head}/") or trigger is None or before is None:
            return []
        theirs = known[self._cluster].load if self._cluster in known else None
        action = next((card.action for card in trigger.cards if card.broker == self._cluster), LoadIndex.INPUT)
        return [
            SessionRecord(
                session=session,
                kind="global",
                index=_INDEX[action],
                begin_s=self._begin_s,
                end_s=now_s,
                initiator=self._head,
                acceptor=self._cluster,
                reason=_why(trigger.cards, self._cluster),
                outcome=reason,
                subscribers_moved_count=0,
                candidates_json=msgspec.json.encode(trigger.cards).decode(),
                offload_json=_offload_json(None),
                **_load_columns(before=(before, self._theirs), observed=(ours, theirs)),
            )
        ]


def _why(cards: tuple[CandidateCard, ...], partner: str) -> str:
    return next((card.why for card in cards if card.broker == partner), "")


_Load: TypeAlias = BrokerLoad | ClusterLoad | BrokerResources | None


def _load_columns(
    before: tuple[_Load, _Load],
    estimated: tuple[_Load, _Load] = (None, None),
    observed: tuple[_Load, _Load] = (None, None),
) -> dict[str, Any]:
    """The columns of both brokers' load at the three moments."""
    moments = {"before": before, "estimated": estimated, "observed": observed}
    return {
        name: value
        for moment, (ours, theirs) in moments.items()
        for side, load in (("initiator", ours), ("acceptor", theirs))
        for name, value in _columns(f"{side}_{moment}", load).items()
    }


def _columns(prefix: str, load: _Load) -> dict[str, Any]:
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
            "cards": [_card_told(card) for card in (*taken, *left)],
            "cards_count": len(plan.cards),
        }
    ).decode()


def _card_told(card: ReportCard) -> dict[str, object]:
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
