"""Deliberate mistakes in the moves of publishers, to show that the fuzzer would find them; see `bugs`."""

from __future__ import annotations

from typing import Any, Final

from trimtab.broker.moves import Moves
from trimtab.broker.routing import RoutingTables
from trimtab.client.moving import Move
from trimtab.client.session import ClientSession
from trimtab.protocol.messages import Subscribe
from trimtab.relocation.migration import Migrations, Path

Patch = tuple[Any, str, Any]
"""An object, the name of an attribute, and what replaces it."""


def _turn_when_the_update_passes() -> list[Patch]:
    original = Migrations.prepare

    def prepare(self: Migrations, path: Path, now_s: float) -> None:
        original(self, path, now_s)
        moves = self._routes
        assert isinstance(moves, Moves)
        tables = moves._broker.tables
        for each in path.advertisements:
            entry = tables.advertisements.get(each.id)
            if entry is not None and entry.hop == path.towards_old:
                moves.turn(path, each, path.towards_old, now_s)

    return [(Migrations, "prepare", prepare)]


def _forget_to_lead() -> list[Patch]:
    original = RoutingTables.turn

    def turn(self: RoutingTables, *arguments: Any) -> list[Any]:
        return [say for say in original(self, *arguments) if not isinstance(say.message, Subscribe)]

    def lead(self: RoutingTables, entry: Any) -> list[Any]:
        self.advertisements[entry.id] = entry
        self._led[entry.id] = None
        return []

    return [(RoutingTables, "turn", turn), (RoutingTables, "lead", lead)]


def _leave_the_old_routes() -> list[Patch]:
    original = RoutingTables.turn

    def turn(self: RoutingTables, entry: Any, came_from: str, led_id: str) -> list[Any]:
        return original(self, entry, "", led_id)

    return [(RoutingTables, "turn", turn)]


def _resume_too_early() -> list[Patch]:
    original = ClientSession._end_move

    def end_move(self: ClientSession, move: Move, now_s: float) -> list[Any]:
        move.may_publish = True
        return original(self, move, now_s)

    return [(ClientSession, "_end_move", end_move)]


def _move_before_acceptance() -> list[Patch]:
    original = ClientSession._ask_to_move_in

    def ask_to_move_in(self: ClientSession, move: Move, now_s: float) -> None:
        unaccepted, self._unaccepted = self._unaccepted, type(self._unaccepted)()
        original(self, move, now_s)
        self._unaccepted = unaccepted

    return [(ClientSession, "_ask_to_move_in", ask_to_move_in)]


def _forget_to_cancel() -> list[Patch]:
    return [(Moves, "_pass_on", lambda self, message, now_s: None)]


MOVE_BUGS: Final = (
    (
        "turn-when-the-update-passes",
        "a publisher's routes are turned before its old publications have passed",
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
    ("forget-to-cancel", "what was prepared for a move that is undone stays", _forget_to_cancel),
)
"""Their names, what they do, and what they replace."""
