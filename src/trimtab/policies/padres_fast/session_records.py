"""What is told of a session in which many brokers exchanged clients: one record for each pair of brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from trimtab.load.estimation import BrokerResources
from trimtab.policies.padres.decisions import LoadIndex
from trimtab.policies.padres.snapshot import BrokerLoad
from trimtab.policies.padres_fast.joint_plan import ClusterMove
from trimtab.protocol.records import SessionRecord

_INDEX: Final[dict[LoadIndex, Literal["input", "matching", "output"]]] = {
    LoadIndex.INPUT: "input",
    LoadIndex.MATCH: "matching",
    LoadIndex.OUTPUT: "output",
}


class FastSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session: what was planned and ordered, and the loads of all brokers before and as estimated."""

    session: str
    index: LoadIndex
    begin_s: float
    end_s: float
    moves: tuple[ClusterMove, ...]
    clusters: dict[str, str]
    before: dict[str, BrokerResources]
    estimated: dict[str, BrokerResources]
    stopped: str

    def without(self, from_broker: str, clients: tuple[str, ...]) -> FastSession:
        """The session without the moves of clients that stayed."""
        if not clients:
            return self
        moves = tuple(each for each in self.moves if each.from_broker != from_broker or each.client not in clients)
        return msgspec.structs.replace(self, moves=moves)


def records_of(session: FastSession, observed: Mapping[str, BrokerLoad]) -> list[SessionRecord]:
    """A record for each broker that gave and each broker that it gave to."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for move in session.moves:
        pairs.setdefault((move.from_broker, move.to_broker), []).append(move.client)
    return [
        SessionRecord(
            session=session.session,
            kind="local" if session.clusters.get(giver) == session.clusters.get(taker) else "global",
            index=_INDEX[session.index],
            begin_s=session.begin_s,
            end_s=session.end_s,
            initiator=giver,
            acceptor=taker,
            reason="one plan for all brokers",
            outcome=session.stopped,
            subscribers_moved_count=len(clients),
            candidates_json="[]",
            offload_json=msgspec.json.encode({"moves": [{"client": client} for client in clients]}).decode(),
            **_columns("initiator_before", session.before.get(giver)),
            **_columns("initiator_estimated", session.estimated.get(giver)),
            **_columns("initiator_observed", observed.get(giver)),
            **_columns("acceptor_before", session.before.get(taker)),
            **_columns("acceptor_estimated", session.estimated.get(taker)),
            **_columns("acceptor_observed", observed.get(taker)),
        )
        for (giver, taker), clients in pairs.items()
    ]


def _columns(prefix: str, load: BrokerLoad | BrokerResources | None) -> dict[str, Any]:
    return {
        f"{prefix}_input_utilization_ratio": load.input_utilization_ratio if load is not None else None,
        f"{prefix}_matching_delay_s": load.matching_delay_s if load is not None else None,
        f"{prefix}_output_utilization_ratio": load.output_utilization_ratio if load is not None else None,
    }
