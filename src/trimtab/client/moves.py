"""A client's moves: the rows of the table in `move_transitions.py`, with what they change in its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.client.move_transitions import Move
from trimtab.matching.announcements import Announcements
from trimtab.protocol.effects import Effect, Moved, NotMoved, Open, Shut
from trimtab.protocol.events import MoveTo
from trimtab.protocol.frames import Hello
from trimtab.protocol.link import Link
from trimtab.protocol.messages import (
    AnyMessage,
    End,
    KnownAdvertisement,
    KnownSubscription,
    Refused,
    Resume,
    Stay,
    Stayed,
    Stranded,
    Swept,
)
from trimtab.protocol.records import MoveRecord

if TYPE_CHECKING:
    from trimtab.client.session import ClientSession


class ClientMoves:
    """The move that is under way, if one is, and the numbers of stays."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self.current: Move | None = None
        self._stays_count = 1
        """The highest number that a stay has had."""
        self.burned = 0
        """Stays elsewhere up to this one, above the present one, did not happen."""

    @property
    def is_leaving(self) -> bool:
        """Whether the present broker is not to be told of new filters: another will be."""
        return self.current is not None and self.current.is_under_way

    @property
    def holds_back(self) -> bool:
        """Whether publications wait for a move."""
        return self.current is not None and self.current.holds_back

    def begin(self, target: MoveTo, asked_over: Link, now_s: float) -> list[Effect]:
        """Set out for another broker, or tell the one that asked why not: it may be the one that we are moving to."""
        session = self._session
        reason = ""
        if self.current is not None or not session.broker or target.broker == session.broker:
            reason = "the client is already there, or on its way, or has no broker yet"
        elif session.config.stores:
            reason = "a client that stores what it is told does not move"
        if reason:
            if target.cause:
                asked_over.enqueue(Refused(about=target.cause, reason=reason, cause=target.cause), now_s)
            return [NotMoved(target.broker, reason)]
        self.current = Move(self.next_stay(), session.name, target, Link(session.config.link), now_s)
        self.current.old_away_s = None if session.link.connected else now_s
        return [Open(target.broker, target.address, target.cause)]

    @property
    def coming_stay(self) -> int:
        """The number that the next stay will have."""
        return self._stays_count + 1

    def next_stay(self) -> int:
        """The number of a stay that begins."""
        self._stays_count += 1
        return self._stays_count

    def connected(self, move: Move, hello: Hello, now_s: float) -> None:
        """The broker that we are moving to greets, for the first time or again."""
        session = self._session
        is_remembered = move.broker_session == hello.session and hello.resumes == session.config.session
        if is_remembered and move.link.fits(hello.expects):
            move.link.connect(hello.expects, now_s)
            return
        move.link = Link(session.config.link)
        move.link.connect(1, now_s)
        move.broker_session = hello.session
        if move.was_asked:
            self.ask(move, now_s)
            move.link.enqueue(Swept(), now_s)
        else:
            self.ask_when_ready(move, now_s)

    def ask_when_ready(self, move: Move, now_s: float) -> None:
        """Ask the new broker to take the client in, once nothing is left to be done at the old one."""
        session = self._session
        if move.phase == "reaching" and move.broker_session:
            advertised = [id for id in session.advertisements if id in session.told]
            if all(id in session.confirmed for id in advertised):
                move.phase, move.held_back_s = "holding", now_s
                move.publishes = session.has_published or bool(advertised)
                session.announced = Announcements()
        if move.phase == "holding" and not session.unaccepted:
            move.phase, move.old_broker = "asked", session.broker
            self.ask(move, now_s)

    def ask(self, move: Move, now_s: float) -> None:
        session = self._session
        requirements = session.deliveries.requirements
        wanted = [KnownSubscription(id, filter, requirements.of(id)) for id, filter in session.subscriptions.items()]
        announced = [KnownAdvertisement(id, filter) for id, filter in session.advertisements.items()]
        move.ask(wanted, announced, now_s, session.accepted_until, session.known_brokers.version_of(move.broker))

    def ask_to_stay(self, move: Move, reason: str, now_s: float) -> None:
        """Ask the old broker to burn the stay; it knows whether that is too late."""
        session = self._session
        if move.phase == "asked":
            move.phase, move.reason = "staying", reason
            session.link.enqueue(Stay(stay=move.stay, cause=move.cause), now_s)

    def _end_stay(self, move: Move, now_s: float) -> list[Effect]:
        """The old broker has sent all that it alone had; go on with the new one."""
        session = self._session
        old_broker = session.broker
        move.phase = "settling"
        session.deliveries.gaps.moved()
        session.link, session.broker = move.link, move.broker
        session.broker_session, session.stay = move.broker_session, move.stay
        session.told = move.told
        session.confirmed = {each.id: None for each in move.confirmed if each.id in session.advertisements}
        effects: list[Effect] = [Shut(old_broker)]
        for confirmed in move.confirmed:
            effects.extend(session.take_message(confirmed, now_s))
        session.tell(now_s)
        session.enqueue_all(session.channels.request_all(), now_s)
        effects += session.deliveries.deliver_all(move.in_order(), now_s)
        if move.is_refused:
            effects += self._settle_without_way(move, now_s)
        elif move.answered_s is not None or not move.publishes:
            effects += self._settle(move, now_s)
        return effects

    def _settle(self, move: Move, now_s: float) -> list[Effect]:
        """The move is over: go on publishing."""
        session = self._session
        self.current, session.has_published = None, False
        session.announce()
        session.release(now_s)
        return [Moved(session.broker, move.waited_s(now_s))]

    def _settle_without_way(self, move: Move, now_s: float) -> list[Effect]:
        """The new broker, asked again, has taken nothing: tell it what there is, and wait for nobody."""
        session = self._session
        session.told.clear()
        session.tell_present(now_s)
        return self._settle(move, now_s)

    def _undo(self, move: Move, reason: str, now_s: float) -> list[Effect]:
        """The client never left its broker; one that asked for the move is told."""
        session = self._session
        self.current = None
        if move.was_asked:
            self.burned = move.stay
        session.announce()
        if move.asked_by_broker:
            session.link.enqueue(Refused(about=move.cause, reason=reason, cause=move.cause), now_s)
        session.tell(now_s)
        session.enqueue_all(session.channels.catch_up(), now_s)
        session.release(now_s)
        return [NotMoved(move.broker, reason), Shut(move.broker), *session.deliveries.deliver_all(move.late, now_s)]

    def heard(self, move: Move, message: AnyMessage, now_s: float) -> list[Effect] | None:
        """What a broker says of a move; None if it is about something else."""
        match message:
            case End(stay=stay) if stay == move.stay and move.was_asked:
                return self._end_stay(move, now_s)
            case Stayed(stay=stay) if stay == move.stay and move.phase == "staying":
                return self._end_stay(move, now_s) if move.goes_on else self._undo(move, move.reason, now_s)
            case Resume(stay=stay) | Stranded(stay=stay) if stay == move.stay:
                return self._answered(move, now_s, goes_on=isinstance(message, Resume))
            case Refused(about=about, reason=reason) if move.is_about(about):
                if move.phase == "asked" and move.asked_count == 1:
                    return self._undo(move, reason, now_s)
                move.is_refused = True
                self.ask_to_stay(move, reason, now_s)
                return self._settle_without_way(move, now_s) if move.phase == "settling" else []
            case End() | Stayed() | Resume() | Stranded():
                return []  # of an earlier move
            case _:
                return None

    def _answered(self, move: Move, now_s: float, *, goes_on: bool) -> list[Effect]:
        """The new broker says that the old stream has passed, or that no way leads to the old broker."""
        move.answered_s, move.goes_on = now_s, goes_on
        if move.phase == "settling":
            return self._settle(move, now_s)
        if not goes_on or move.old_forgot:
            self.ask_to_stay(move, f"no way leads from {move.broker} to {move.old_broker}", now_s)
        return []

    def wake(self, now_s: float) -> list[Effect]:
        session = self._session
        move = self.current
        if move is None or not move.is_under_way:
            return []
        move.link.wake(now_s)
        too_long_s, without_old_s = move.too_long_s(session.config), move.without_old_s(session.config)
        if without_old_s is not None and now_s >= without_old_s:
            reason = f"{session.broker} was away for too long, with what waited there"
            lost = session.deliveries.gaps.given_up(reason, now_s) if session.deliveries.is_owed else []
            return [*lost, *self._end_stay(move, now_s)]
        if too_long_s is not None and now_s >= too_long_s:
            if not move.was_asked:
                problem = "took too long to begin" if move.broker_session else "cannot be reached"
                return self._undo(move, f"{move.broker} {problem}", now_s)
            self.ask_to_stay(move, f"the move to {move.broker} took too long", now_s)
        return []


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
