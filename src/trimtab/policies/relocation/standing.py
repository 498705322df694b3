"""How far a publisher of this broker is: traced, decided about, moving, or left alone for a while."""

from __future__ import annotations

from enum import StrEnum

from trimtab.policies.api import AgentAction, Note, RelocatePublisher
from trimtab.policies.relocation.config import RelocationConfig
from trimtab.policies.relocation.decisions import Placement, Stay
from trimtab.protocol.records import RelocationRecord


class Phase(StrEnum):
    """What is done about a publisher."""

    RESTING = "resting"
    TRACING = "tracing"
    SELECTING = "selecting"
    MOVING = "moving"


class Standing:
    """One publisher of this broker, from one decision to the next: evidence is used once."""

    def __init__(self, publisher: str, rests_until_s: float, cause: str = "", came_s: float = 0.0) -> None:
        self.publisher = publisher
        self._moves_count = moves_counted_in(cause)
        self._came_s = came_s
        self.phase = Phase.RESTING
        self.rests_until_s = rests_until_s
        self.evidence = ""
        """The trace session or walk at hand; it is the cause of the move that it leads to."""
        self.traced_count = 0
        self.candidates_count = 0
        self.complete_s = 0.0
        """When enough was traced."""

    def trace(self, evidence: str) -> None:
        """Begin to gather evidence."""
        self.phase = Phase.TRACING
        self.evidence = evidence
        self.traced_count = 0
        self.candidates_count = 0

    def select(self, now_s: float) -> None:
        """Enough is traced."""
        self.phase = Phase.SELECTING
        self.complete_s = now_s

    def moves_count(self, config: RelocationConfig, now_s: float) -> int:
        """How often the publisher has moved lately, each time within memory of the last."""
        return self._moves_count if now_s < self._came_s + config.move_memory_s else 0

    def rest(self, config: RelocationConfig, now_s: float) -> None:
        """Leave the publisher alone for a while."""
        self.phase = Phase.RESTING
        self.evidence = ""
        self.rests_until_s = now_s + config.rest_s


def move_cause(evidence: str, moves_count: int) -> str:
    """The cause of a move: what it follows from, and which move of the publisher's lately it is.

    >>> move_cause("trace/grape/B1/P/212", 2)
    'trace/grape/B1/P/212#2'
    """
    return f"{evidence}#{moves_count}"


def moves_counted_in(cause: str) -> int:
    """Which move a cause says it is; 0 if it says nothing of that kind.

    >>> moves_counted_in("trace/grape/B1/P/212#2"), moves_counted_in("redirect")
    (2, 0)
    """
    number = cause.rpartition("#")[2] if "#" in cause else ""
    return int(number) if number.isascii() and number.isdigit() and len(number) <= 9 else 0


class Account:
    """What one broker has decided about its publishers, in words and in numbers."""

    def __init__(self, broker: str, config: RelocationConfig) -> None:
        self.decision = ""
        self.decided_s: float | None = None
        self._broker = broker
        self._config = config

    def decide(self, standing: Standing, found: Placement | Stay, now_s: float) -> list[AgentAction]:
        """Act on a decision: ask for the move, or leave the publisher alone for a while."""
        is_move = isinstance(found, Placement)
        if is_move:
            standing.evidence = move_cause(standing.evidence, standing.moves_count(self._config, now_s) + 1)
        record = RelocationRecord(
            begin_s=standing.complete_s,
            end_s=now_s,
            broker=self._broker,
            publisher=standing.publisher,
            algorithm=self._config.algorithm,
            evidence=standing.evidence,
            traced_count=standing.traced_count,
            candidates_count=standing.candidates_count,
            to_broker=found.to_broker if isinstance(found, Placement) else "",
            gain_ratio=found.gain_ratio if isinstance(found, Placement) else 0.0,
            reason=found.why if isinstance(found, Placement) else str(found),
        )
        where = f"moves to {record.to_broker}" if is_move else "stays"
        self.decision = f"{standing.publisher} {where}: {record.reason}"
        self.decided_s = now_s
        actions: list[AgentAction] = [Note(record)]
        if isinstance(found, Placement):
            standing.phase = Phase.MOVING
            actions.append(RelocatePublisher(standing.publisher, found.to_broker, standing.evidence))
        else:
            standing.rest(self._config, now_s)
        return actions
