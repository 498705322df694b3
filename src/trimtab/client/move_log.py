"""Records of a client's moves, made from what its session tells its world."""

from __future__ import annotations

from trimtab.client.session import ClientSession
from trimtab.protocol.effects import Moved, NotMoved, Open
from trimtab.protocol.records import MoveRecord


class MoveLog:
    """Turns the effects of one session into records, one for each move that has ended or could not begin."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._began: tuple[float, str, str] | None = None
        """Of the move under way: since when, from where, and why."""

    def note(self, effect: Open | Moved | NotMoved, now_s: float) -> MoveRecord | None:
        """Take in an effect at the moment when it is carried out; returns the record that is complete now."""
        session = self._session
        if isinstance(effect, Open):
            self._began = (now_s, session.broker, effect.cause)
            return None
        begin_s, from_broker, cause = now_s, session.broker, ""
        if self._began is not None and not session.is_moving:
            (begin_s, from_broker, cause), self._began = self._began, None
        way = (session.name, from_broker, effect.broker)
        if isinstance(effect, Moved):
            return MoveRecord(begin_s, now_s, *way, cause, "moved", "", effect.waited_s)
        return MoveRecord(begin_s, now_s, *way, cause, "stayed", effect.reason)
