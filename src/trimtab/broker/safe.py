"""The acknowledgement level `safe`: what is acknowledged is held by two, so that one broker may die.

A broker answers for a publication when all to whom it handed it on have it, and keeps it until they have handed it on
in turn. If a neighbour dies, what it had not handed on goes to its replica; subscribers drop what they have seen. A
replica has not handed on what a client wants that has yet to come back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trimtab.broker.peers import Peer
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import Complete, Publish
from trimtab.replication.absent import AbsentClients
from trimtab.replication.handed_on import HandedOn
from trimtab.replication.safe_link import SafeLink

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class SafeDelivery:
    """What one broker has handed on, and what it answers for."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._handed_on = HandedOn()
        self._absent: AbsentClients | None = None
        """A replica's clients that have yet to come back."""
        broker.on_publication = self._publication

    def stored(self, number: int) -> None:
        """Nothing is on any disk."""

    def recovered(self, publications: Sequence[Publish], now_s: float) -> None:
        """Nothing was on any disk."""

    def wake_at_s(self) -> float | None:
        """Nothing is ever due."""
        return None

    def wake(self, now_s: float) -> list[Effect]:
        """Nothing is ever due."""
        return []

    def answer(self, publisher: str, neighbour: str, message: Complete, now_s: float) -> None:
        """Say behind all that a publisher has said here, which has been passed on."""
        self._broker.send(neighbour, message, now_s)

    def new_link(self) -> SafeLink:
        """A link to a peer."""
        return SafeLink(self._broker.config.link, self._handed_on.note, self._settle_all)

    def _publication(self, source: str, message: Publish, now_s: float) -> list[Effect]:
        broker = self._broker
        before_count = broker.counters.publications_in_count
        self._handed_on.begin()
        effects = broker.route(source, message, now_s)
        is_accepted = broker.counters.publications_in_count > before_count
        if is_accepted and self._absent is not None:
            self._absent.hand_on(message)
        peer = broker.peers.get(source)
        if peer is None or not isinstance(peer.link, SafeLink):
            self._handed_on_without_link(source, message)
            return effects
        if is_accepted:
            peer.accepted_owed = False  # said when it is safe
            self._handed_on.end(source, peer.link.stepped_count, message.sequence)
        self.settle(source)
        return effects

    def _handed_on_without_link(self, source: str, message: Publish) -> None:
        """A publication came from somebody who is gone: nobody waits for an answer."""

    def settle(self, source: str) -> None:
        """Tell a source what has been handed on to all."""
        peer = self._broker.peers.get(source)
        if peer is None or not isinstance(peer.link, SafeLink):
            self._handed_on.forget(source)
            return
        first = self._handed_on.first_waiting(source)
        if peer.link.tell_done(peer.link.stepped_count if first is None else first.index - 1):
            self._broker.touch(source)
        if peer.role == "client":
            sequence = peer.last_sequence if first is None else first.sequence - 1
            if sequence > peer.safe_sequence:
                peer.safe_sequence = sequence
                peer.accepted_owed = True
                self._broker.touch(source)

    def _settle_all(self) -> None:
        for source in self._handed_on.sources():
            self.settle(source)

    def came(self, peer: Peer, now_s: float) -> None:
        """A peer is new; nothing waits for it."""

    def gone(self, peer: Peer, now_s: float) -> None:
        """A peer has left for good: nobody waits for it."""
        self._handed_on.forget(peer.name)
        if isinstance(peer.link, SafeLink):
            peer.link.is_gone = True
            self._settle_all()

    def replaced(self, name: str, old: SafeLink, new: SafeLink, unprocessed_count: int) -> None:
        """A neighbour has begun another life; so many messages of the earlier one have not had their turn."""
        self._handed_on.forget(name)
        self._handed_on.relink(old, new)
        if self._absent is not None:
            self._absent.relink(old, new)
        new.stepped_count = -unprocessed_count

    # ---- clients of the broker before, at a replica ----

    def expect(self, is_wanted: Callable[[Publish], bool]) -> None:
        """Clients may come back; what one of them wants that is absent waits for it."""
        self._absent = AbsentClients(self._handed_on.note, is_wanted)

    def give(self, peer: Peer, messages: Sequence[Publish]) -> None:
        """A peer that had been taken for absent is about to be sent what has passed meanwhile."""
        if self._absent is not None and isinstance(peer.link, SafeLink):
            self._absent.give(peer.link, messages)

    def absent_changed(self) -> None:
        """Others are absent than before, or want something else: what nobody of them wants waits no more."""
        if self._absent is not None:
            self._absent.look_again()
            self._settle_all()
