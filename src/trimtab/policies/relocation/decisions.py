"""Words that POP, GRAPE and joint placement share: where a publisher is to move, and why it is not."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """Why a publisher stays where it is."""

    BEST_HERE = "it is at the best broker already"
    GAIN_TOO_SMALL = "the best broker promises too little"
    NO_ROOM = "no broker that promises enough has room"
    NO_DELIVERIES = "nothing that was traced was delivered to anybody"
    NO_ANSWER = "the trace's answers did not come in time"
    GONE = "the publisher has left"
    REFUSED = "the move was refused"


class Stay(msgspec.Struct, frozen=True):
    """A publisher stays, for a reason."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        """The reason, for people."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


class Placement(msgspec.Struct, frozen=True):
    """A publisher is to move to a broker, which promises this gain."""

    to_broker: str
    gain_ratio: float
    why: str
