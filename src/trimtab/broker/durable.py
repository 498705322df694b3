"""The acknowledgement level `durable`: what is acknowledged is on the disk of the first broker, so that all may die.

The first broker has a publication put onto its disk and acknowledges it when it is there. Each broker has done a
publication when all to whom it handed it on have done it, clients included, so that the first learns when all who want
it have it; then its disk forgets it. After a start what is on the disk goes on when clients have had the time to come
back, or at a replica when its publisher has, before anything that the publisher has to say; subscribers drop what they
have seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.broker.peers import Peer
from trimtab.broker.safe import SafeDelivery
from trimtab.protocol.effects import Append, Effect, Forget
from trimtab.protocol.messages import Complete, Publish
from trimtab.replication.safe_link import SafeLink

if TYPE_CHECKING:
    from trimtab.broker.core import Broker

_DISK: Final = "#disk "
"""Before the name of a publisher whose publications come from the disk; no peer can have such a name."""


class DurableDelivery(SafeDelivery):
    """What one broker has handed on, what is on its disk, and what it answers for."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._number = 0
        self._unstored: deque[tuple[int, str, int]] = deque()
        """What is being stored: its number, its publisher and its sequence number."""
        self._sessions: dict[str, str] = {}
        self._forgotten_until: dict[tuple[str, str], int] = {}
        self._recovered: tuple[Publish, ...] = ()
        self._recovers_at_s: float | None = None
        self._disk_until: dict[str, int] = {}
        """The last of each publisher's publications from the disk that has gone on."""
        self._departed: dict[str, None] = {}
        """Publishers that have left before their publications from the disk have gone on."""
        self._held: list[tuple[str, Publish]] = []
        self._answers: list[tuple[str, Complete]] = []
        """What neighbours are told behind what comes from the disk."""
        self._effects: list[Effect] = []
        self._now_s = 0.0

    def new_link(self) -> SafeLink:
        """A link to a peer, which tells what has reached its ends."""
        return SafeLink(self._broker.config.link, self._handed_on.note, self._settle_all, is_end_to_end=True)

    def _publication(self, source: str, message: Publish, now_s: float) -> list[Effect]:
        broker = self._broker
        self._now_s = now_s
        peer = broker.peers.get(source)
        is_from_client = peer is not None and peer.role == "client"
        if is_from_client and self._recovers_at_s is not None:
            if not broker.config.replica:
                self._held.append((source, message))
                return []
            self._go_on(source)  # a replica's publisher has been told that its routes are there
        before_count = broker.counters.publications_in_count
        effects = super()._publication(source, message, now_s)
        if is_from_client and broker.counters.publications_in_count > before_count:
            self._number += 1
            self._unstored.append((self._number, source, message.sequence))
            self._sessions[source] = message.session
            effects.append(Append(self._number, message))
        return effects

    def _handed_on_without_link(self, source: str, message: Publish) -> None:
        if source.startswith(_DISK):
            self._handed_on.end(source, 0, message.sequence)
            self._disk_until[source] = message.sequence
            self.settle(source)

    def settle(self, source: str) -> None:
        """Tell a source what is done; of a client's publications that are the disk forgets them."""
        peer = self._broker.peers.get(source)
        first = self._handed_on.first_waiting(source)
        if source.startswith(_DISK):
            publisher, _, session = source.removeprefix(_DISK).partition(" ")
            self._forget(publisher, session, self._disk_until[source] if first is None else first.sequence - 1)
            return
        if peer is None or not isinstance(peer.link, SafeLink):
            self._handed_on.forget(source)
            return
        if peer.link.tell_done(peer.link.stepped_count if first is None else first.index - 1):
            self._broker.touch(source)
        if peer.role == "client" and source in self._sessions:
            self._forget(source, self._sessions[source], peer.last_sequence if first is None else first.sequence - 1)

    def _forget(self, publisher: str, session: str, sequence: int) -> None:
        key = (publisher, session)
        if sequence > self._forgotten_until.get(key, 0):
            self._forgotten_until[key] = sequence
            self._effects.append(Forget(publisher, session, sequence))

    def stored(self, number: int) -> None:
        """The disk has everything up to a number: it is acknowledged."""
        while self._unstored and self._unstored[0][0] <= number:
            _, source, sequence = self._unstored.popleft()
            peer = self._broker.peers.get(source)
            if peer is not None and sequence > peer.safe_sequence:
                peer.safe_sequence = sequence
                peer.accepted_owed = True
                self._broker.touch(source)

    # ---- after a start ----

    def came(self, peer: Peer, now_s: float) -> None:
        """A publisher that had left is there again: what it said before goes on first."""
        if peer.name in self._departed:
            self._now_s = now_s
            self._go_on(peer.name)
            self._end_departed(peer.name, now_s)

    def gone(self, peer: Peer, now_s: float) -> None:
        """A peer has left for good; what it has advertised stays while publications of it wait for their routes."""
        super().gone(peer, now_s)
        if peer.role == "client" and any(message.publisher == peer.name for message in self._recovered):
            self._departed[peer.name] = None
            tables = self._broker.tables
            for entry in [each for each in tables.advertisements.values() if each.hop == peer.name]:
                stays = msgspec.structs.replace(entry, hop=_DISK + peer.name)
                self._broker.interests.say(tables.turn(stays, peer.name, ""), now_s)

    def answer(self, publisher: str, neighbour: str, message: Complete, now_s: float) -> None:
        """Say behind all that a publisher has said here; what is on the disk has yet to go on."""
        if any(each.publisher == publisher for each in self._recovered):
            self._answers.append((neighbour, message))
        else:
            super().answer(publisher, neighbour, message, now_s)

    def _end_departed(self, publisher: str, now_s: float) -> None:
        del self._departed[publisher]
        self._broker.interests.end_all_from(_DISK + publisher, now_s)

    def recovered(self, publications: Sequence[Publish], now_s: float) -> None:
        """An earlier life has left publications on the disk: they wait until routes are known."""
        self._now_s = now_s
        self._recovered = tuple(publications)
        if publications:
            self._recovers_at_s = now_s + self._broker.config.recovers_after_s

    def _go_on(self, publisher: str | None = None) -> None:
        """Let what is on the disk go on, of one publisher or of all."""
        recovered, self._recovered = self._recovered, ()
        self._recovered = tuple(each for each in recovered if publisher not in (None, each.publisher))
        for message in recovered:
            if publisher in (None, message.publisher):
                source = f"{_DISK}{message.publisher} {message.session}"
                self._effects += self._broker.on_publication(source, message, self._now_s)

    def wake_at_s(self) -> float | None:
        """When what is on the disk goes on, or something is to be done."""
        return self._now_s if self._effects else self._recovers_at_s

    def wake(self, now_s: float) -> list[Effect]:
        """Let what is on the disk go on when its time has come, and then what publishers have said meanwhile."""
        self._now_s = now_s
        if self._recovers_at_s is not None and now_s >= self._recovers_at_s:
            self._recovers_at_s = None
            self._go_on()
            for publisher in list(self._departed):
                self._end_departed(publisher, now_s)
            held, self._held = self._held, []
            for name, message in held:
                self._effects += self._broker.on_publication(name, message, now_s)
            answers, self._answers = self._answers, []
            for name, answer in answers:
                self._broker.send(name, answer, now_s)
        effects, self._effects = self._effects, []
        return effects
