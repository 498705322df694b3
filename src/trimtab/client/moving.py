"""A client's move under way: the link to the new broker, what came over it, and what is still awaited.

A publisher publishes at its old broker until the new one has greeted and all it has advertised is in force. Then it
holds back, asks the new broker to take it in once all it has published is accepted, and goes on when two things have
come: the old broker's end of the move, and the new broker's word that the old stream has passed everywhere. If a broker
dies between the two, that word does not come: the publisher tells its new broker everything anew and asks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.client.config import ClientConfig
from trimtab.protocol.events import MoveTo
from trimtab.protocol.link import Link
from trimtab.protocol.messages import FIRST_LIFE, Confirmed, MovedAdvertisement, MovedSubscription, MoveIn, Publish


class Move:
    """A move to another broker."""

    def __init__(self, id: str, target: MoveTo, link: Link, wire_ids: dict[str, str], now_s: float) -> None:
        self.id = id
        self.broker = target.broker
        self.old_broker = ""
        """Where the client comes from, once the new broker was asked."""
        self.cause = target.cause or id
        self.asked_by_broker = bool(target.cause)
        self.began_s = now_s
        self.broker_session = ""
        """The life of the new broker that has greeted; empty until then."""
        self.holds_back = False
        """Whether publications wait: the new broker answers, and the old one gets no more."""
        self.holds_back_s = now_s
        """Since when they do."""
        self.link = link
        self.wire_ids = wire_ids
        """What brokers will call the subscriptions."""
        self.early: list[Publish] = []
        self.confirmed: list[Confirmed] = []
        """What the new broker confirmed; it counts once the move has happened."""
        self.has_asked = False
        """Whether the new broker was asked to take the client in."""
        self.asked_ids: dict[str, None] = {}
        """The new ids of the subscriptions that the new broker was asked to take over."""
        self.advertisements: dict[str, None] = {}
        """The advertisements that the old broker knows, of which those move that do not end before."""
        self.publishes = False
        """Whether the client has advertisements, or has published at the old broker."""
        self.asked_to_stay = False
        self.may_publish = True
        """Whether publications may be sent to the new broker as soon as the old one has ended the move."""
        self.is_stranded = False
        """Whether the path between the brokers broke."""
        self.told_s: float | None = None
        """Since when the new broker has said how the publisher's move went; the old one's word may be lost with it."""
        self.old_away_s: float | None = None
        """Since when there is no connection to the old broker."""
        self.is_forgotten = False
        """Whether the new broker has forgotten, or was started again, after it was asked."""
        self.asks_again = False
        """Whether the move has happened and its answer is lost: the new broker is to be asked, or was, what became of
        the old stream."""

    def waited_s(self, now_s: float) -> float:
        """How long publications have waited, if there are any to be expected."""
        return now_s - self.holds_back_s if self.publishes else 0.0

    def ask(
        self,
        old_broker: str,
        old_session: str,
        subscriptions: Sequence[MovedSubscription],
        advertisements: Sequence[MovedAdvertisement],
        now_s: float,
    ) -> None:
        """Ask the new broker to take the client in, with what moves."""
        self.has_asked = True
        self.old_broker = old_broker
        self.may_publish = not self.publishes
        self.asked_ids = {each.new_id: None for each in subscriptions}
        request = MoveIn(
            move=self.id,
            old_broker=old_broker,
            subscriptions=tuple(subscriptions),
            advertisements=tuple(advertisements),
            publishes=self.publishes,
            old_session=old_session if self.publishes or old_session != FIRST_LIFE else "",
            cause=self.cause,
        )
        self.link.enqueue(request, now_s)

    def begin_to_ask_again(self) -> None:
        """The answer is lost: ask once more, under another id, for the path may know the one before."""
        self.id += "+"
        self.asks_again, self.has_asked = True, False
        self.is_stranded = False

    def ask_again(self, link: Link, now_s: float) -> None:
        """Ask the new broker when all that was published at the old one has passed."""
        self.has_asked = True
        request = MoveIn(
            move=self.id,
            old_broker=self.old_broker,
            subscriptions=(),
            publishes=True,
            has_moved=True,
            cause=self.cause,
        )
        link.enqueue(request, now_s)

    def too_long_s(self, config: ClientConfig) -> float | None:
        """When the move has taken too long; None if the old broker has been asked what became of it."""
        if self.asked_to_stay:
            return None
        if self.holds_back and self.publishes:
            return min(self.began_s + config.move_within_s, self.holds_back_s + config.hold_back_within_s)
        return self.began_s + (config.move_within_s if self.broker_session else config.reach_within_s)

    def without_old_s(self, config: ClientConfig) -> float | None:
        """When the client goes on without the old broker's word; None if that answers, or is all that can be known."""
        if self.told_s is None or self.old_away_s is None:
            return None
        return max(self.told_s, self.old_away_s) + config.lease_s
