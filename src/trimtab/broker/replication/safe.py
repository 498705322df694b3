"""The acknowledgement level `safe`: what is acknowledged is held by two, so that one broker may die.

A broker answers for a publication when all to whom it handed it on have it, and retains it until they have handed it on
in turn. If a neighbour dies, what it had not done goes to its successor; subscribers drop what they have seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.broker.moves.streams import Held
from trimtab.broker.peers import Peer
from trimtab.broker.replication.retention import Item, RetainingLink, Retention
from trimtab.protocol.messages import AnyMessage, ClientRecord, KnownAdvertisement, Passing, Publish

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class SafeDelivery:
    """What one broker has handed on, and what it answers for."""

    def __init__(self, broker: Broker, *, is_end_to_end: bool = False) -> None:
        self._broker = broker
        self.retention = Retention(is_end_to_end=is_end_to_end)

    def new_link(self) -> RetainingLink:
        """A link to a peer."""
        return RetainingLink(self._broker.config.link, self.retention)

    # ---- one item's way ----

    def begin(self, source: str, message: AnyMessage, *, is_stale: bool) -> Item | None:
        """The turn of an item has come; None if its source waits for no answer."""
        peer = self._broker.peers.get(source)
        if is_stale or peer is None or not isinstance(peer.link, RetainingLink):
            self.retention.clear()
            return None
        if isinstance(message, Publish):
            return self.retention.begin(source, peer.link.stepped_count, message.sequence)
        return self.retention.begin(source, peer.link.stepped_count, peer.last_sequence + 1, is_marker=True)

    def end(self, source: str, message: AnyMessage, item: Item | None) -> None:
        """An item has been processed."""
        if item is not None:
            self.retention.end(item)
            peer = self._broker.peers.get(source)
            if peer is not None and peer.role == "client" and isinstance(message, Publish):
                peer.accepted_owed = peer.accepted_owed and message.sequence <= peer.safe_sequence
        self.settle(source)

    def settle(self, source: str) -> None:
        """Tell a source what is done."""
        peer = self._broker.peers.get(source)
        if peer is None or not isinstance(peer.link, RetainingLink):
            self.retention.forget(source)
            return
        first = self.retention.first_waiting(source)
        if peer.link.tell_done(peer.link.stepped_count if first is None else first.index - 1):
            self._broker.output.touch(source)
        if peer.role == "client":
            self._settled(peer, peer.last_sequence if first is None else first.sequence - 1)

    def _settled(self, peer: Peer, sequence: int) -> None:
        """A client's publications up to a number are held by two."""
        self._answer(peer, sequence)

    def _answer(self, peer: Peer, sequence: int) -> None:
        if sequence > peer.safe_sequence:
            peer.safe_sequence = sequence
            peer.accepted_owed = True
            self._broker.output.touch(peer.name)

    def settle_news(self) -> None:
        """Something has arrived somewhere: tell all sources what is done by that."""
        if self.retention.has_news:
            self.retention.has_news = False
            for source in self.retention.sources():
                self.settle(source)

    # ---- peers ----

    def advertisement_ended(self, peer: Peer, known: KnownAdvertisement, now_s: float) -> None:
        """What it announced is on no disk."""

    def gone(self, peer: Peer, now_s: float) -> None:
        """A peer has left for good: nobody waits for it."""
        self.retention.forget(peer.name)
        if isinstance(peer.link, RetainingLink):
            peer.link.is_gone = True
            self.retention.something_reached()
            self.settle_news()

    def epoch_began(self, name: str, old: RetainingLink, new: RetainingLink) -> None:
        """A neighbour has lost its memory: it is owed no answer, and what it had not done waits for its successor."""
        self.retention.forget(name)
        self.retention.relink(old, new)

    # ---- the disk ----

    def to_disk(self, entry: Publish | AnyMessage) -> int:
        """Nothing is on any disk."""
        raise AssertionError(f"{self._broker.name} has no disk")

    def stored(self, number: int, now_s: float) -> None:
        """Nothing is on any disk."""

    def recovered(self, publications: tuple[Publish, ...], records: tuple[ClientRecord, ...], now_s: float) -> None:
        """Nothing was on any disk."""

    def learned(self, now_s: float) -> None:
        """Nothing waits for routes."""

    def stored_until(self, client: str, session: str) -> int:
        """Nothing of any client is on any disk."""
        return 0

    def departed(self) -> list[Passing]:
        """Publishers that have moved on while publications of them were on the disk."""
        return []

    @property
    def holds_on_disk(self) -> bool:
        """Nothing is on any disk."""
        return False

    @property
    def has_more_on_disk(self) -> bool:
        """Nothing comes from any disk."""
        return False

    def must_wait_for_disk(self, client: str) -> bool:
        """Nothing comes from any disk."""
        return False

    def hold_behind_disk(self, client: str, held: Held) -> None:
        """Nothing comes from any disk."""
        raise AssertionError(f"{self._broker.name} has no disk")
