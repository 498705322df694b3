"""Load-balancing phases as records of sessions, for the story of a run."""

from __future__ import annotations

import msgspec

from trimtab.policies.delay.metrics import EdgeMetrics, Metric
from trimtab.policies.delay.selection import OffloadPlan
from trimtab.protocol.records import SessionRecord


class _Note(msgspec.Struct):
    metric: Metric
    reason: str
    before: EdgeMetrics
    begin_s: float
    kind: str
    plan: OffloadPlan | None = None


class PhaseNotes:
    """Notes of the phases that a broker began."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._notes: dict[str, _Note] = {}

    def began(self, phase: str, metric: Metric, reason: str, before: EdgeMetrics, now_s: float, *, kind: str) -> None:
        """A phase begins, within the cluster ("local") or with others ("global")."""
        self._notes[phase] = _Note(metric, reason, before, now_s, kind)

    def planned(self, plan: OffloadPlan) -> None:
        """The present phase has a plan."""
        *_, note = self._notes.values()
        note.plan = plan

    def ended(self, phase: str, outcome: str, after: EdgeMetrics, now_s: float) -> SessionRecord | None:
        """The record of a phase that is over."""
        note = self._notes.pop(phase, None)
        if note is None:
            return None
        plan = note.plan
        selected = () if plan is None else plan.selected
        columns: dict[str, float | None] = {
            f"{side}_{when}_{index}": None
            for side in ("initiator", "acceptor")
            for when in ("before", "estimated", "observed")
            for index in ("input_utilization_ratio", "matching_delay_s", "output_utilization_ratio")
        }
        columns["initiator_before_input_utilization_ratio"] = note.before.matching_ratio
        columns["initiator_before_matching_delay_s"] = 0.0
        columns["initiator_before_output_utilization_ratio"] = note.before.uplink_ratio
        columns["initiator_estimated_output_utilization_ratio"] = None if plan is None else plan.after.uplink_ratio
        columns["initiator_observed_output_utilization_ratio"] = after.uplink_ratio
        moves = [{"client": client, "to": each.to_broker} for each in selected for client in each.clients]
        indices = {Metric.MATCHING: "matching", Metric.DOWNLINK: "input"}
        return msgspec.convert(
            {
                "session": phase,
                "kind": note.kind,
                "index": indices.get(note.metric, "output"),
                "begin_s": note.begin_s,
                "end_s": now_s,
                "initiator": self._broker,
                "acceptor": ", ".join(dict.fromkeys(each.to_broker for each in selected)),
                "reason": note.reason,
                "outcome": outcome,
                "subscribers_moved_count": len(moves),
                "candidates_json": "[]",
                "offload_json": msgspec.json.encode({"moves": moves}).decode(),
                **columns,
            },
            SessionRecord,
        )
