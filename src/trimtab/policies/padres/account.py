"""What a broker has decided lately and why, in its own words, for people who watch it."""

from __future__ import annotations

from typing import Final

from trimtab.policies.padres.decisions import NoAction
from trimtab.policies.padres.detection import Detection
from trimtab.policies.padres.mediation import Mediator, Phase
from trimtab.policies.padres.mediation_events import SessionEnded

_DOING: Final = {
    Phase.ASKING: "asking {partner} to take clients",
    Phase.PLANNING: "sampling publications to plan what {partner} takes",
    Phase.MOVING: "clients are moving to {partner}",
    Phase.OFFERED: "waiting for the plan of {partner}",
    Phase.RECEIVING: "clients are coming from {partner}",
}


class Account:
    """The last decision, and why nothing is done while nothing is done."""

    def __init__(self) -> None:
        self.decision = ""
        self.decided_s: float | None = None
        self._idle = "no look at the load yet"
        self._why: dict[str, str] = {}
        """By broker that may be asked: what detection saw."""

    def detected(self, detection: Detection, now_s: float) -> None:
        """Detection has looked at the load."""
        outcome = detection.outcome
        if isinstance(outcome, NoAction):
            self._idle = str(outcome)
            return
        self._why = {card.broker: card.why for card in outcome.cards}
        first = outcome.ask[0].broker
        self._idle = f"wanting to give clients to {', '.join(each.broker for each in outcome.ask)}"
        self.decide(f"asked {first} to take clients: {self._why[first]}", now_s)

    def ended(self, ended: SessionEnded, now_s: float) -> None:
        """A session is over."""
        count, partner = len(ended.moved), ended.partner
        if not ended.gave:
            if count:
                self.decide(f"took {counted(count, 'client')} from {partner}", now_s)
        elif count:
            self.decide(
                f"gave {counted(count, 'client')} to {partner}: {self._why.get(partner, 'our clusters differ')}", now_s
            )
        else:
            self.decide(f"gave nothing to {partner}: {ended.reason}", now_s)

    def doing(self, mediator: Mediator) -> str:
        """What is done at present, or why nothing is."""
        if mediator.phase == Phase.IDLE:
            return self._idle
        return _DOING[mediator.phase].format(partner=mediator.partner)

    def decide(self, decision: str, now_s: float) -> None:
        """Something was decided."""
        self.decision = decision
        self.decided_s = now_s


def counted(count: int, what: str) -> str:
    """A number of things in words.

    >>> counted(1, "client"), counted(2, "client")
    ('1 client', '2 clients')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
