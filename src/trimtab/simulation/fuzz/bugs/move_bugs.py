"""Deliberate mistakes in the moves of clients, to show that the fuzzer would find them; see `bugs`."""

from __future__ import annotations

from typing import Any, Final

from trimtab.broker.moves.transitions import Moves
from trimtab.broker.peers import Peer
from trimtab.broker.routing.tables import Route, RoutingTables
from trimtab.client.move_transitions import Move
from trimtab.client.moves import ClientMoves
from trimtab.protocol.messages import Handover, Stay, Stayed

Patch = tuple[Any, str, Any]
"""An object, the name of an attribute, and what replaces it."""


def _turn_when_the_update_passes() -> list[Patch]:
    original = Moves.handover

    def handover(self: Moves, source: Peer, message: Handover, now_s: float) -> None:
        original(self, source, message, now_s)
        broker = self._broker
        towards = broker.topology.towards(message.old_broker)
        if message.old_broker == broker.name or towards is None:
            return
        for id in broker.tables.ids_from(broker.tables.advertisements, towards):
            if id.startswith(f"{message.client}/") and source.name in broker.tables.advertisements[id].hops:
                broker.interests.end_advertisement(broker.peers[towards], id, now_s)

    return [(Moves, "handover", handover)]


def _forget_to_lead() -> list[Patch]:
    original = RoutingTables._pull

    def pull(self: RoutingTables, route: Route, hop: str) -> list[Any]:
        return [] if route.comes_from_other_than(hop) else original(self, route, hop)

    return [(RoutingTables, "_pull", pull)]


def _leave_the_old_routes() -> list[Patch]:
    return [(RoutingTables, "_push_back", lambda self, hop: [])]


def _resume_too_early() -> list[Patch]:
    original = ClientMoves._end_stay

    def end_stay(self: ClientMoves, move: Move, now_s: float) -> list[Any]:
        move.answered_s = now_s
        return original(self, move, now_s)

    return [(ClientMoves, "_end_stay", end_stay)]


def _move_before_acceptance() -> list[Patch]:
    original = ClientMoves.ask_when_ready

    def ask_when_ready(self: ClientMoves, move: Move, now_s: float) -> None:
        waiting = [*self._session.unaccepted]
        self._session.unaccepted.clear()
        original(self, move, now_s)
        self._session.unaccepted.extend(waiting)

    return [(ClientMoves, "ask_when_ready", ask_when_ready)]


def _forget_to_cancel() -> list[Patch]:
    original = Moves.stay

    def stay(self: Moves, peer: Peer, message: Stay, now_s: float) -> None:
        if peer.role == "client" and not peer.is_leaving and message.stay > peer.leaving_for:
            self._broker.send(peer.name, Stayed(stay=message.stay), now_s)
        else:
            original(self, peer, message, now_s)

    return [(Moves, "stay", stay)]


MOVE_BUGS: Final = (
    (
        "turn-when-the-update-passes",
        "a publisher's old routes end before its old publications have passed",
        _turn_when_the_update_passes,
    ),
    ("forget-to-lead", "subscriptions are not led to where a publisher moves", _forget_to_lead),
    ("leave-the-old-routes", "subscriptions still lead to where a publisher was", _leave_the_old_routes),
    ("resume-too-early", "a publisher goes on before its old publications have passed", _resume_too_early),
    (
        "move-before-acceptance",
        "a publisher moves before its old broker has accepted what it published",
        _move_before_acceptance,
    ),
    ("forget-to-cancel", "a stay that the client has given up is not burned", _forget_to_cancel),
)
"""Their names, what they do, and what they replace."""
