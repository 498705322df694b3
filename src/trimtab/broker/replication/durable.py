"""The acknowledgement level `durable`: what is acknowledged is on the disk of the first broker, so that all may die.

The first broker has a publication put onto its disk and acknowledges it when it is there. Each broker has done a
publication when all to whom it handed it on have done it, clients included, so that the first learns when all who want
it have it; then its disk forgets it. The records of clients are on the disk as well, and that of a publisher stays as
long as something that it has published: its advertisements are the routes of that. After a start what is on the disk
goes on as soon as all routes are known, before anything else; subscribers drop what they have seen.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimtab.broker.moves.streams import Held
from trimtab.broker.peers import ON_DISK, Peer
from trimtab.broker.replication.retention import Item, RetainingLink
from trimtab.broker.replication.safe import SafeDelivery
from trimtab.protocol.effects import Append, Forget
from trimtab.protocol.link import Link
from trimtab.protocol.messages import (
    AnyMessage,
    ClientRecord,
    Complete,
    Guard,
    KnownAdvertisement,
    Passing,
    Publish,
)

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class DurableDelivery(SafeDelivery):
    """What one broker has handed on, what is on its disk, and what it answers for."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, is_end_to_end=True)
        self._number = 0
        self._unstored: deque[tuple[int, str, int]] = deque()
        """What is being stored: its number, its publisher and its sequence number."""
        self._logged: dict[str, tuple[str, int]] = {}
        """By publisher: its session and the last of its publications that is on the disk, or will be."""
        self._forgotten_until: dict[tuple[str, str], int] = {}
        self._recovered: tuple[Publish, ...] = ()
        self._disk_until: dict[str, int] = {}
        """The last of each publisher's publications from the disk, by its source."""
        self._to_come: dict[str, int] = {}
        """How many of them have not passed yet, by their source."""
        self._behind: list[tuple[str, Held]] = []
        """Ends of stays that must stand behind a client's publications from the disk, each with the client."""
        self._owed: dict[str, dict[str, int]] = {}
        """By publisher: advertisements that have ended, and the last publication on the disk that may need them."""
        self._leaving_for: dict[str, int] = {}
        """By publisher of such: its later stay elsewhere that has ended its stay here, if one has."""
        self._departed: dict[tuple[str, str], int] = {}
        """Publishers, with their sessions, that have moved on to a later stay elsewhere before a start."""

    # ---- one item's way ----

    def begin(self, source: str, message: AnyMessage, *, is_stale: bool) -> Item | None:
        """The turn of an item has come, perhaps of one from the disk."""
        if source.startswith(ON_DISK) and isinstance(message, Publish):
            return self.retention.begin(source, 0, message.sequence)
        return super().begin(source, message, is_stale=is_stale)

    def end(self, source: str, message: AnyMessage, item: Item | None) -> None:
        """An item has been processed: a client's publication goes to the disk, if it was accepted."""
        if source.startswith(ON_DISK):
            self._passed_from_disk(source)
        peer = self._broker.peers.get(source)
        if peer is not None and peer.role == "client" and isinstance(message, Publish):
            if peer.accepted_sequence == message.sequence:
                self._logged[source] = (message.session, message.sequence)
                self._unstored.append((self.to_disk(message), source, message.sequence))
        super().end(source, message, item)

    def settle(self, source: str) -> None:
        """Tell a source what is done; what has reached all who want it, the disk forgets."""
        if source.startswith(ON_DISK):
            publisher, session = _origin_of(source)
            self._forget_what_is_done(publisher, session)
        else:
            super().settle(source)

    def _settled(self, peer: Peer, sequence: int) -> None:
        """Publications of a client have reached all who want them."""
        self._forget_what_is_done(peer.name, peer.session)

    def _forget_what_is_done(self, publisher: str, session: str) -> None:
        logged_session, until = self._logged.get(publisher, ("", 0))
        source = _source_of(publisher, session)
        until = until if logged_session == session else self._disk_until.get(source, 0)
        if source in self._to_come:
            return  # the earliest have yet to pass
        for each in (publisher, source):
            peer = self._broker.peers.get(each)
            first = None if peer is not None and peer.session != session else self.retention.first_waiting(each)
            if first is not None:
                until = min(until, first.sequence - 1)
        if until > self._forgotten_until.get((publisher, session), 0):
            self._forgotten_until[publisher, session] = until
            self._broker.later.append(Forget(publisher, session, until))
            self._end_owed(publisher)

    # ---- the disk ----

    def to_disk(self, entry: Publish | AnyMessage) -> int:
        """Have something written; returns its number."""
        assert isinstance(entry, Publish | Guard)
        self._number += 1
        self._broker.later.append(Append(self._number, entry))
        return self._number

    def stored(self, number: int, now_s: float) -> None:
        """The disk has everything up to a number: it is acknowledged."""
        while self._unstored and self._unstored[0][0] <= number:
            _, source, sequence = self._unstored.popleft()
            peer = self._broker.peers.get(source)
            if peer is not None:
                self._answer(peer, sequence)

    def stored_until(self, client: str, session: str) -> int:
        """The last publication of a client's session that is known to have been on the disk: all before it were."""
        logged_session, sequence = self._logged.get(client, ("", 0))
        return sequence if logged_session == session else 0

    @property
    def holds_on_disk(self) -> bool:
        """Whether publications are on the disk, or on their way there, that have not reached all who want them."""
        return bool(self._unstored or self._owed) or self.has_more_on_disk or any(map(self._is_on_disk, self._logged))

    @property
    def has_more_on_disk(self) -> bool:
        """Whether publications from the disk have not passed yet."""
        return bool(self._to_come or self._recovered)

    def must_wait_for_disk(self, client: str) -> bool:
        """Whether publications of a client from the disk have not passed yet."""
        is_to_come = any(_origin_of(source)[0] == client for source in self._to_come)
        return is_to_come or any(each.publisher == client for each in self._recovered)

    def hold_behind_disk(self, client: str, held: Held) -> None:
        """The end of a client's stay waits for them."""
        self._behind.append((client, held))

    def _passed_from_disk(self, source: str) -> None:
        self._to_come[source] -= 1
        if self._to_come[source]:
            return
        del self._to_come[source]
        publisher, session = _origin_of(source)
        stay = self._departed.pop((publisher, session), 0)
        if stay:
            end = Complete(client=publisher, session=session, stay=stay, new_broker="")
            self._broker.send_to_others("", end, self._broker.now_s)
        behind, self._behind = self._behind, []
        for client, held in behind:
            if self.must_wait_for_disk(client):
                self._behind.append((client, held))
            else:
                self._broker.later += self._broker.ordering.release([held], self._broker.now_s)
        if not self._to_come:
            self._broker.gaps.disk_passed(self._broker.now_s)
            self._broker.moves.resume_all(self._broker.now_s)

    # ---- advertisements that end before what they announce has arrived ----

    def advertisement_ended(self, peer: Peer, known: KnownAdvertisement, now_s: float) -> None:
        """A client's advertisement ends: after a start what it has published may need its routes again."""
        self._owe(peer, (known,), now_s)

    def gone(self, peer: Peer, now_s: float) -> None:
        """A peer has left for good; what it has published stays on the disk until it has arrived."""
        if peer.role == "client":
            record = peer.left_with or self._broker.records.record_of(peer)
            self._owe(peer, record.advertisements, now_s)
            self._hand_to_disk(peer)
        super().gone(peer, now_s)

    def epoch_began(self, name: str, old: RetainingLink, new: RetainingLink) -> None:
        """A link begins anew: what a client published over the one before is the disk's from now on."""
        peer = self._broker.peers[name]
        if peer.role == "client":
            self._hand_to_disk(peer)
        super().epoch_began(name, old, new)

    def _hand_to_disk(self, peer: Peer) -> None:
        if self._is_on_disk(peer.name):
            source = _source_of(peer.name, peer.session)
            self.retention.rename(peer.name, source)
            self._disk_until[source] = max(self._disk_until.get(source, 0), self._logged[peer.name][1])

    def _owe(self, peer: Peer, advertisements: Sequence[KnownAdvertisement], now_s: float) -> None:
        if advertisements and self._is_on_disk(peer.name):
            until = self._logged[peer.name][1]
            self._owed.setdefault(peer.name, {}).update({each.id: until for each in advertisements})
            self._leaving_for[peer.name] = peer.leaving_for
            self._broker.records.owed(ON_DISK + peer.name, peer, tuple(advertisements), now_s)

    def _is_on_disk(self, publisher: str) -> bool:
        session, sequence = self._logged.get(publisher, ("", 0))
        return sequence > self._forgotten_until.get((publisher, session), 0)

    def _end_owed(self, publisher: str) -> None:
        """Publications have arrived: ended advertisements that announced nothing later are not needed any more."""
        owed = self._owed.get(publisher)
        if owed is None:
            return
        broker, hop = self._broker, ON_DISK + publisher
        session, _ = self._logged.get(publisher, ("", 0))
        forgotten = self._forgotten_until.get((publisher, session), 0)
        ended = tuple(id for id, until in owed.items() if until <= forgotten or not self._is_on_disk(publisher))
        for id in ended:
            del owed[id]
            if hop in broker.peers:
                broker.interests.end_from(hop, id, broker.now_s)
        if owed:
            record = ClientRecord(hop, session, 0, leaving_for=self._leaving_for.get(publisher, 0))
            broker.records.owed_no_more(record, ended, broker.now_s)
            return
        del self._owed[publisher]
        self._leaving_for.pop(publisher, None)
        broker.peers.pop(hop, None)
        broker.records.over(hop, broker.now_s)

    # ---- after a start ----

    def recovered(self, publications: tuple[Publish, ...], records: tuple[ClientRecord, ...], now_s: float) -> None:
        """An earlier incarnation has left publications and records on the disk; the former wait until routes are known.

        Advertisements that have ended are in force again for what was published before.
        """
        broker = self._broker
        self._recovered = publications
        for message in publications:
            self._logged[message.publisher] = (message.session, message.sequence)
            if broker.observer is not None:
                broker.observer.recovered(message)
        for client in broker.peers.values():
            client.last_sequence = client.safe_sequence = self.stored_until(client.name, client.session)
        broker.takeover.recovered(tuple(each for each in records if not each.client.startswith(ON_DISK)), now_s)
        for record in records:
            hop, publisher = record.client, record.client.removeprefix(ON_DISK)
            if hop != publisher:
                until = self._logged.get(publisher, ("", 0))[1]
                self._owed[publisher] = {each.id: until for each in record.advertisements}
                self._leaving_for[publisher] = record.leaving_for
                peer = broker.peers[hop] = Peer(hop, "agent", record.session, Link(broker.config.link), sys.maxsize)
                for advertisement in record.advertisements:
                    broker.interests.restore_advertisement(peer, advertisement, now_s)
        for record in records:
            publisher = record.client.removeprefix(ON_DISK)
            if any((each.publisher, each.session) == (publisher, record.session) for each in publications):
                if record.leaving_for > record.stay:
                    self._departed[publisher, record.session] = record.leaving_for
        if not broker.takeover.is_learning:
            broker.gaps.learned(now_s)
            self.learned(now_s)

    def departed(self) -> list[Passing]:
        """Publishers that have moved on while publications of them were on the disk, which go before later ones."""
        return [
            Passing(client=publisher, session=session, stay=stay, is_for_all=True)
            for (publisher, session), stay in self._departed.items()
        ]

    def learned(self, now_s: float) -> None:
        """All routes are known: what is on the disk goes on, before anything else that waits."""
        recovered, self._recovered = self._recovered, ()
        first: list[tuple[str, Publish]] = []
        for message in recovered:
            source = _source_of(message.publisher, message.session)
            self._disk_until[source] = message.sequence
            self._to_come[source] = self._to_come.get(source, 0) + 1
            first.append((source, message))
        self._broker.input.add_first(first)
        if not first:
            self._broker.gaps.disk_passed(now_s)
        for publisher in list(self._owed):
            self._end_owed(publisher)


def _source_of(publisher: str, session: str) -> str:
    """Where publications of a client's session come from that are on the disk."""
    return f"{ON_DISK}{publisher} {session}"


def _origin_of(source: str) -> tuple[str, str]:
    """Whose publications come from the disk under a source's name, and of which session.

    >>> _origin_of(_source_of("ann", "1"))
    ('ann', '1')
    """
    publisher, _, session = source.removeprefix(ON_DISK).rpartition(" ")
    return publisher, session
