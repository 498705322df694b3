"""Words that detection, planning and mediation share: what may be balanced, and why nothing is done."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class LoadIndex(StrEnum):
    """Which of the three load indices is to be balanced."""

    INPUT = "input"
    MATCH = "match"
    OUTPUT = "output"


class Status(StrEnum):
    """Whether a broker or a cluster takes part in balancing (thesis, section 3.3.1)."""

    OK = "OK"
    """Ready to start a session or to accept one."""

    BUSY = "BUSY"
    """In a session."""

    NOT_AVAILABLE = "N/A"
    """Overloaded: accepts nothing, may give load away."""

    STABILIZING = "STABILIZING"
    """A session is just over, and its effect has not fully shown yet."""


class Reason(StrEnum):
    """Why nothing is done."""

    BALANCED = "no other broker differs enough"
    BUSY = "a session is under way"
    INERT = "too loaded to accept, not loaded enough to give at once"
    STABILIZING = "the effect of the last session has not settled"
    OVERLOADED_FIRST = "an overloaded broker goes first"
    NOBODY_KNOWN = "no other broker is known"
    NOBODY_AVAILABLE = "no other broker can accept load"
    NOTHING_HELPS = "no move would bring the two brokers closer together"
    NO_CLIENTS = "there are no clients to move"
    NO_SAMPLE = "no publication arrived while sampling"
    REFUSED = "every broker that was asked refused"
    NO_ANSWER = "the other broker did not answer in time"
    CANCELLED = "the other broker ended the session"


class NoAction(msgspec.Struct, frozen=True):
    """Nothing is done, for a reason."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        """The reason, for people."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value
