"""Deliberate mistakes in voices, fences and votes, to show that they would be found; see `bugs`."""

from __future__ import annotations

from typing import Final

from trimtab.broker.core import Broker
from trimtab.broker.replication.membership import Candidacy, Claim, Voter
from trimtab.simulation.faults import separation
from trimtab.simulation.fuzz.bugs.move_bugs import Patch


def _acknowledge_while_fenced() -> list[Patch]:
    return [(Broker, "_fence_changed", lambda self, problem, now_s: None)]


def _replace_without_a_majority() -> list[Patch]:
    return [(separation, "vote_problem", lambda broker, voters, gone_for: "")]


def _grant_twice() -> list[Patch]:
    def ask(self: Voter, broker: str, claim: Claim, now_s: float) -> bool:
        self.known[broker] = max(claim.epoch, self.known.get(broker, 0))
        return True

    return [(Voter, "ask", ask)]


def _serve_after_being_replaced() -> list[Patch]:
    return [(Candidacy, "is_taken", lambda self, epoch: False)]


FENCING_BUGS: Final = (
    (
        "acknowledge-while-fenced",
        "a broker that hears no majority acknowledges and confirms",
        _acknowledge_while_fenced,
    ),
    (
        "replace-without-a-majority",
        "whoever misses a broker has it replaced, whatever others find",
        _replace_without_a_majority,
    ),
    ("grant-twice", "a voter gives its voice to two incarnations of a broker at a time", _grant_twice),
    (
        "serve-after-being-replaced",
        "a broker that hears from a majority that it was replaced goes on",
        _serve_after_being_replaced,
    ),
)
"""Their names, what they do, and what they replace."""
