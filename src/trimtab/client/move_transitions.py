"""A client's move to another broker, as a table.

A client stays at one broker after the other; its stays are numbered, and the numbers only grow. It begins the next stay
while the old broker still serves it, and the old broker decides whether the stay happens: it ends its own (`End`), or
burns the number of the next (`Stayed`). What comes from the new broker before that is kept until it is known.

    phase      what happens                        what the client does                          next phase
    ---------  ----------------------------------  --------------------------------------------  ----------
    (none)     it is asked to move                 open a connection                             reaching
    reaching   the new broker greets, and all      hold publications back                        holding
               advertisements are in force
    reaching   too long                            undo                                          (none)
    holding    all publications are accepted       ask the new broker (`MoveIn`)                 asked
    holding    the old broker has forgotten        tell it everything, publications last         holding
    holding    too long                            undo                                          (none)
    asked      End of the old broker               go on at the new one                          settling
    asked      the new broker refuses, first ask   undo: it has told nobody                      (none)
    asked      it refuses what was asked again,    ask the old broker to stay (`Stay`)           staying
               or knows no way; or too long
    asked      the new broker has forgotten        ask it again                                  asked
    asked      the old broker has forgotten        tell it everything, and keep what it sends;   asked, or
                                                   if the new one has said that the stay goes    staying
                                                   on: ask to stay
    staying    End of the old broker               go on at the new one; if it has refused,      settling
                                                   tell it everything
    staying    Stayed, and the new broker has      undo                                          (none)
               not said that the stay goes on
    staying    Stayed, although it has             the old broker has forgotten that it ended    settling
                                                   the stay: go on at the new one
    asked,     the new broker has said how it      go on at the new one                          settling
    staying    went, and the old one is away for
               longer than a lease
    settling   nothing was published before, or    publish again                                 (none)
               the new broker says that the old
               stream has passed, or that no way
               leads to it
    settling   the new broker has forgotten        ask it again                                  settling
    settling,  the new broker refuses what was     tell it everything                            (none)
    (none)     asked again
    settling   no connection, one elsewhere        tell everything there                         (none)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trimtab.client.config import ClientConfig
from trimtab.protocol.events import MoveTo
from trimtab.protocol.link import Link
from trimtab.protocol.messages import VERSION, Confirmed, Gap, KnownAdvertisement, KnownSubscription, MoveIn, Publish
from trimtab.protocol.versions import spoken

Phase = Literal["reaching", "holding", "asked", "staying", "settling"]


class Move:
    """A move under way: its phase, the link to the new broker, and what came over it."""

    def __init__(self, stay: int, client: str, target: MoveTo, link: Link, now_s: float) -> None:
        self.phase: Phase = "reaching"
        self.stay = stay
        """The number of the stay at the new broker."""
        self.broker = target.broker
        self.cause = target.cause or f"{client}/m{stay - 1}"
        self.asked_by_broker = bool(target.cause)
        self.began_s = self.held_back_s = now_s
        self.link = link
        self.broker_session = ""
        """The incarnation of the new broker that has greeted; empty until then."""
        self.old_broker = ""
        self.publishes = False
        """Whether the client has advertisements, or has published at the old broker."""
        self.asked_count = 0
        """How often the new broker was asked."""
        self.is_refused = False
        """Whether it has refused what it was asked last: it knows nothing of this client."""
        self.told: dict[str, None] = {}
        """The filters that it was told."""
        self.early: list[Publish | Gap] = []
        self.confirmed: list[Confirmed] = []
        """What the new broker sent and confirmed; it counts once the old stay has ended."""
        self.late: list[Publish | Gap] = []
        """What the old broker sent since it has lost its memory."""
        self.answered_s: float | None = None
        """Since when the new broker has said how it went."""
        self.goes_on = False
        """Whether it said that the stay goes on, so the old broker has ended its own."""
        self.old_away_s: float | None = None
        """Since when there is no connection to the old broker."""
        self.old_forgot = False
        """Whether the old broker has lost its memory since the new one was asked."""
        self.reason = ""
        """Why it is to be undone."""

    @property
    def is_under_way(self) -> bool:
        """Whether the old broker serves the client still."""
        return self.phase != "settling"

    @property
    def holds_back(self) -> bool:
        """Whether publications wait for it."""
        return self.phase != "reaching"

    @property
    def was_asked(self) -> bool:
        """Whether the new broker may have begun to hand the client over."""
        return self.phase in ("asked", "staying")

    def waited_s(self, now_s: float) -> float:
        """How long publications have waited, if there are any to be expected."""
        return now_s - self.held_back_s if self.publishes else 0.0

    def ask(
        self,
        subscriptions: Sequence[KnownSubscription],
        advertisements: Sequence[KnownAdvertisement],
        now_s: float,
        accepted: int = 0,
        version: int = VERSION,
    ) -> None:
        """Ask the new broker, which speaks a version, to take the client in, with all its filters; perhaps again."""
        self.asked_count += 1
        self.is_refused = False
        self.told = dict.fromkeys([each.id for each in subscriptions] + [each.id for each in advertisements])
        self.confirmed.clear()
        request = MoveIn(
            stay=self.stay,
            old_broker=self.old_broker,
            subscriptions=tuple(subscriptions),
            advertisements=tuple(advertisements),
            publishes=self.publishes,
            accepted=accepted,
            cause=self.cause,
        )
        said = spoken(request, version)
        assert said is not None
        self.link.enqueue(said, now_s)

    @property
    def holds_old(self) -> bool:
        """Whether what the old broker sends is kept as well: it has forgotten whether it has ended the stay.

        If it has, it lacks what went to the new broker alone before it was started again.
        """
        return self.old_forgot and self.is_under_way

    def in_order(self) -> list[Publish | Gap]:
        """What both brokers sent; one that was started again meanwhile may have said earlier numbers later."""
        if self.asked_count == 1 and not self.old_forgot:
            return self.early
        streams: dict[tuple[str, str], list[Publish]] = {}
        gaps: list[Publish | Gap] = []
        for message in (*self.late, *self.early):
            if isinstance(message, Gap):
                gaps.append(message)
            else:
                streams.setdefault((message.publisher, message.session), []).append(message)
        ordered = (sorted(stream, key=lambda each: each.sequence) for stream in streams.values())
        return [*gaps, *(message for stream in ordered for message in stream)]

    def is_about(self, about: str) -> bool:
        """Whether a refusal is about this stay."""
        return about == f"stay {self.stay}"

    def too_long_s(self, config: ClientConfig) -> float | None:
        """When the move has taken too long; None if somebody else decides."""
        if self.phase in ("staying", "settling"):
            return None
        if self.holds_back and self.publishes:
            return min(self.began_s + config.move_within_s, self.held_back_s + config.hold_back_within_s)
        return self.began_s + (config.move_within_s if self.broker_session else config.reach_within_s)

    def without_old_s(self, config: ClientConfig) -> float | None:
        """When the client goes on without the old broker's word; None if that answers, or is all that can be known."""
        if self.answered_s is None or self.old_away_s is None or not self.is_under_way:
            return None
        return max(self.answered_s, self.old_away_s) + config.lease_s
