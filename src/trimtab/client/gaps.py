"""What may be lost of what a client wanted: how marks in its streams become gap notices.

A content filter leaves holes in a publisher's numbers, so a subscriber sees no loss in them. A broker that has lost
publications puts a mark (a break) into all streams, ahead of the first publication of its new incarnation. What is lost
of a publisher lies above its last delivery before the mark and below its next one behind it. Each publisher's broker
says besides what it has accepted last, behind its publications: that closes the interval of a publisher that is silent,
and shows whose publications come through the broker of the break. Those of whom nobody says anything may be gone: their
intervals are told open, after a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.protocol.effects import GapNotice
from trimtab.protocol.messages import Gap

ANSWERS_WITHIN_S: Final = 15.0
"""So long the brokers of publishers have to say what they accepted last; then intervals are told as they are."""

BREAKS_MAX_COUNT: Final = 16
"""So many breaks are remembered, the latest."""

OPEN_TOLD_MAX_COUNT: Final = 64
"""Of so many publishers that are silent an open interval is told; of more it says too little."""

EARLY_MAX_COUNT: Final = 10_000
"""Answers to one question that are remembered before the break is known."""

Position = tuple[str, int]
"""A publisher's session, and a number in it."""

Told = tuple[str, int, int]
"""A publisher's session, and the first and the last number of an interval in it."""

_NOWHERE: Final[Position] = ("", 0)


class Break:
    """A place in this client's streams before which something may be missing."""

    def __init__(self, id: str, before: Mapping[str, Position], at_s: float, reason: str = "") -> None:
        self.id = id
        self.before = dict(before)
        """The last delivery of each publisher before it."""
        self.next: dict[str, Position] = {}
        """The first delivery of each publisher behind it."""
        self.until: dict[str, Position] = {}
        """What publishers had accepted when they were asked about another break, behind this one."""
        self.at_s = at_s
        self.reason = reason
        self.answered: dict[str, Position] = {}
        """Publishers whose brokers have answered, and up to where that tells what is lost; nowhere if theirs is another
        way. One that moves has two brokers: what the old one says may count, although the new one's is another way."""
        self.settled: dict[str, None] = {}
        """Publishers of whom it was told what is known when answers had had their time."""
        self.is_wide = False
        self.is_own = False
        """Whether all publishers are concerned, whatever way their publications take."""
        self.has_moved = False
        """Whether this client has moved since: an answer may come straight to it, whose publisher's publications went
        through the broker of the break to where this client was."""
        self.is_over = False
        """Whether answers have had their time."""


class Gaps:
    """The breaks of a client session.

    >>> delivered = {"p": ("1", 4)}
    >>> gaps = Gaps(delivered)
    >>> [notice.publisher for notice in gaps.heard(Gap(id="B2 x 1", reason="B2 died"), 0.0)]
    ['']
    >>> gaps.delivered("p", "1", 8)
    >>> answer = Gap(id="B2 x 1", publisher="p", session="1", last=9, has_crossed=True)
    >>> [(notice.first, notice.last) for notice in gaps.heard(answer, 0.1)]
    [(5, 7)]
    """

    def __init__(self, last_delivered: Mapping[str, Position]) -> None:
        self._last = last_delivered
        self._breaks: dict[str, Break] = {}
        self._early: dict[str, dict[str, Gap]] = {}
        """By breaks that have not come yet: the answers about publishers that came before."""
        self._told: dict[str, Told] = {}
        """What was told last to be lost of publishers."""
        self._open_told: dict[str, Position] = {}
        """Publishers of whom an open interval was told, and their last delivery before it."""
        self._unsure: Break | None = None
        """The last time that a broker did not go on with the link: it may say that it has forgotten this client."""
        self.is_open = False
        """Whether deliveries must be told."""
        self.any_order = False
        """Whether the network promises no order, so that places in streams tell little."""

    # ---- what happens ----

    def delivered(self, publisher: str, session: str, sequence: int) -> None:
        """A publication is delivered while a break is open."""
        if self._unsure is not None:
            self._unsure.next.setdefault(publisher, (session, sequence))
        for each in self._breaks.values():
            if not each.is_over:
                each.next.setdefault(publisher, (session, sequence))

    def link_ended(self, now_s: float) -> None:
        """The broker does not go on with the link: it was started again, or has forgotten this client."""
        self._unsure = Break("", self._last, now_s)
        self.is_open = True

    def moved(self) -> None:
        """This client's stay at a broker is over, and what comes next comes from another one."""
        for each in self._breaks.values():
            each.has_moved = True

    def given_up(self, reason: str, now_s: float) -> list[GapNotice]:
        """What waits for this client at a broker is given up."""
        return self._begin(Break(f"own {now_s}", self._last, now_s, reason))

    def heard(self, message: Gap, now_s: float, before: Mapping[str, Position] | None = None) -> list[GapNotice]:
        """A broker says that something may be lost; `before` is what was delivered before a move, if one has ended."""
        if message.publisher and message.first:
            return [GapNotice(message.publisher, message.first, message.last, message.reason, message.session)]
        known = self._breaks.get(message.id)
        if message.publisher and message.last:
            for each in self._breaks.values():
                if not each.is_over and each is not known:
                    each.until[message.publisher] = (message.session, message.last)
        if message.publisher and known is None:
            self._came_early(message)
            return []
        if message.publisher and known is not None:
            return self._answered(known, message)
        if known is not None:
            return []
        begun = Break(message.id, self._last if before is None else before, now_s, message.reason)
        if message.is_own and self._unsure is not None:
            begun.before, begun.next = self._unsure.before, self._unsure.next
        if message.is_own:
            self._unsure = None
        begun.is_wide, begun.is_own, begun.has_moved = message.is_wide, message.is_own, before is not None
        told = self._begin(begun)
        for answer in self._early.pop(message.id, {}).values():
            told += self._answered(begun, answer)
        return told

    def _begin(self, begun: Break) -> list[GapNotice]:
        begun.is_wide |= self.any_order
        self._breaks[begun.id] = begun
        self.is_open = True
        if len(self._breaks) > BREAKS_MAX_COUNT:
            oldest = next(iter(self._breaks))
            return [*self._end(self._breaks.pop(oldest)), GapNotice("", reason=begun.reason)]
        return [GapNotice("", reason=begun.reason)]

    def _came_early(self, answer: Gap) -> None:
        """An answer of which the break has not come yet, or never will: questions overtake it."""
        answers = self._early.setdefault(answer.id, {})
        if answer.publisher in answers or len(answers) < EARLY_MAX_COUNT:
            if answer.has_crossed or answer.publisher not in answers:
                answers[answer.publisher] = answer
        if len(self._early) > BREAKS_MAX_COUNT:
            del self._early[next(iter(self._early))]

    # ---- what is told ----

    def _answered(self, known: Break, message: Gap) -> list[GapNotice]:
        publisher = message.publisher
        if publisher in known.settled or (known.is_over and publisher in known.answered):
            return []
        if not (message.has_crossed or known.is_own or known.has_moved):
            known.answered.setdefault(publisher, _NOWHERE)
            return []
        last = message.last or None
        if last is None and not known.is_over:
            return []  # its next publication, or time, will show
        if last is not None and last <= _number_in(message.session, known.answered.get(publisher)):
            return []
        session, _ = known.before.get(publisher, (message.session, 0))
        earlier = [] if session == message.session else self._interval(known, publisher, session, None)
        told = [*earlier, *self._interval(known, publisher, message.session, last)]
        known.answered[publisher] = (message.session, last or 0)
        return told

    def _interval(self, known: Break, publisher: str, session: str, last: int | None) -> list[GapNotice]:
        """What is lost of a publisher's session at a break, if anything can be."""
        before = _number_in(session, known.before.get(publisher))
        first = 1 + _number_in(session, known.answered.get(publisher))
        told_session, told_first, told_last = self._told.get(publisher, ("", 0, 0))
        if not known.is_wide:
            first = max(first, 1 + before)
            if told_session == session and told_first <= first:
                first = max(first, 1 + told_last)
        is_sure = not (known.is_wide or known.is_own)  # a client that was forgotten gets its filters back one by one
        following = _number_in(session, known.next.get(publisher)) if is_sure else 0
        if following:
            last = following - 1 if last is None else min(last, following - 1)
        if last is None:
            if self._open_told.get(publisher) == (session, before):
                return []
            self._open_told[publisher] = (session, before)
        elif last < first:
            return []
        else:
            joins = told_session == session and told_first <= first <= told_last + 1
            self._told[publisher] = (session, told_first, max(told_last, last)) if joins else (session, first, last)
        return [GapNotice(publisher, first, last, known.reason, session)]

    def _end(self, known: Break) -> list[GapNotice]:
        """Answers have had their time: tell what is known of those of whom nobody has said anything."""
        known.is_over = True
        told: list[GapNotice] = []
        silent: list[GapNotice] = []
        for publisher in [*known.before, *(each for each in known.next if each not in known.before)]:
            if publisher in known.answered:
                continue
            known.settled[publisher] = None
            session, _ = known.before.get(publisher) or known.next[publisher]
            notices = self._interval(known, publisher, session, _number_in(session, known.until.get(publisher)) or None)
            (told if notices and notices[0].last is not None else silent).extend(notices)
        known.before, known.next, known.until = {}, {}, {}
        return told + silent if len(silent) <= OPEN_TOLD_MAX_COUNT else told

    # ---- time ----

    def wake_at_s(self) -> float | None:
        """When there is something to tell, or to forget."""
        if not self.is_open:
            return None
        times_s = [each.at_s for each in self._breaks.values() if not each.is_over]
        if self._unsure is not None:
            times_s.append(self._unsure.at_s)
        return min(times_s) + ANSWERS_WITHIN_S if times_s else None

    def wake(self, now_s: float) -> list[GapNotice]:
        """Tell what is due."""
        told: list[GapNotice] = []
        for each in self._breaks.values():
            if not each.is_over and now_s >= each.at_s + ANSWERS_WITHIN_S:
                told += self._end(each)
        if self._unsure is not None and now_s >= self._unsure.at_s + ANSWERS_WITHIN_S:
            self._unsure = None
        self.is_open = self.wake_at_s() is not None
        return told


def _number_in(session: str, position: Position | None) -> int:
    """The number of a position if it is in a publisher's session, otherwise 0."""
    return position[1] if position is not None and position[0] == session else 0
