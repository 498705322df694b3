"""How far a publisher is: evidence is used once, and each move lately makes the next one harder."""

from __future__ import annotations

from itertools import pairwise

from trimtab.policies.api import Note, RelocatePublisher
from trimtab.policies.relocation.config import RelocationConfig
from trimtab.policies.relocation.decisions import Placement, Reason, Stay
from trimtab.policies.relocation.standing import Account, Phase, Standing
from trimtab.protocol.records import RelocationRecord

CONFIG = RelocationConfig(rest_s=30.0, move_memory_s=600.0)


def test_a_move_is_asked_for_with_its_evidence_and_its_number() -> None:
    standing = Standing("P", 0.0, cause="trace/grape/B0/P/1#1", came_s=100.0)
    standing.trace("trace/grape/B1/P/212")
    standing.select(200.0)
    note, move = Account("B1", CONFIG).decide(standing, Placement("B2", 0.3, "less"), 201.0)
    assert move == RelocatePublisher("P", "B2", "trace/grape/B1/P/212#2")
    assert standing.phase == Phase.MOVING
    assert isinstance(note, Note)
    assert isinstance(note.record, RelocationRecord)
    assert note.record.evidence == move.cause, "people find the decision by the move's cause"


def test_after_a_decision_to_stay_the_publisher_rests_and_its_evidence_is_gone() -> None:
    standing = Standing("P", 0.0)
    standing.trace("trace/grape/B1/P/212")
    standing.select(200.0)
    Account("B1", CONFIG).decide(standing, Stay(Reason.BEST_HERE), 201.0)
    assert (standing.phase, standing.evidence, standing.rests_until_s) == (Phase.RESTING, "", 231.0)


def test_moves_are_remembered_for_a_while() -> None:
    standing = Standing("P", 0.0, cause="pop/B0/P/1#3", came_s=100.0)
    assert standing.moves_count(CONFIG, 699.0) == 3
    assert standing.moves_count(CONFIG, 700.0) == 0


def test_each_move_lately_doubles_what_the_next_one_must_save() -> None:
    wanted = [CONFIG.gain_wanted_ratio(count) for count in range(5)]
    assert all(later == 2 * earlier for earlier, later in pairwise(wanted))
