"""What a broker must know of its clients to go on with them after its own death, kept elsewhere before it counts.

The session, the stays and the filters of each client stand at a guardian, which is a neighbour, or on disk (`durable`),
before any effect of them can be seen: before a confirmation, before a handover leaves, before a client hears that it
stays. So whoever takes this broker's place knows its clients without waiting for their return, and what they want is
retained for them like everything else. A guardian holds no publications.

Where neither replication nor safe delivery is configured there are no records, and nothing waits for them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from trimtab.broker.moves.streams import Held
from trimtab.broker.peers import Peer
from trimtab.broker.replication.retention import Item
from trimtab.protocol.messages import (
    AnyMessage,
    ClientRecord,
    ClientRecords,
    Guard,
    GuardAll,
    Guarded,
    KnownAdvertisement,
    KnownSubscription,
)

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class RetainedRecords:
    """The records of one broker's clients, as a guardian or a disk keeps them.

    >>> kept = RetainedRecords()
    >>> kept.keep(Guard(version=1, record=ClientRecord("ann", "1", 1)))
    >>> [record.client for record in kept.all()]
    ['ann']
    >>> kept.keep(Guard(version=2, record=ClientRecord("ann", "1", 1), is_over=True))
    >>> kept.all()
    ()
    """

    def __init__(self) -> None:
        self.version = 0
        self._anew: RetainedRecords | None = None
        self._anew_until = 0
        self._heads: dict[str, ClientRecord] = {}
        self._subscriptions: dict[str, dict[str, KnownSubscription]] = {}
        self._advertisements: dict[str, dict[str, KnownAdvertisement]] = {}

    def begin_anew(self, version: int, count: int) -> None:
        """All records come again, so many; what there is counts until then."""
        self._anew = RetainedRecords()
        self._anew_until = version + count
        self._end_anew(version)

    def _end_anew(self, version: int) -> None:
        if self._anew is not None and version >= self._anew_until:
            self._heads = self._anew._heads
            self._subscriptions = self._anew._subscriptions
            self._advertisements = self._anew._advertisements
            self._anew, self.version = None, version

    def keep(self, guard: Guard) -> None:
        """Something has changed in a record."""
        if self._anew is not None:
            self._anew.keep(guard)
            self._end_anew(guard.version)
            return
        self.version = guard.version
        record, client = guard.record, guard.record.client
        known = self._heads.get(client)
        if guard.is_over or (known is not None and known.session != record.session):
            self._heads.pop(client, None)
            self._subscriptions.pop(client, None)
            self._advertisements.pop(client, None)
        if guard.is_over:
            return
        self._heads[client] = msgspec.structs.replace(record, subscriptions=(), advertisements=())
        subscriptions = self._subscriptions.setdefault(client, {})
        advertisements = self._advertisements.setdefault(client, {})
        for id in guard.ended:
            subscriptions.pop(id, None)
            advertisements.pop(id, None)
        subscriptions.update({each.id: each for each in record.subscriptions})
        advertisements.update({each.id: each for each in record.advertisements})

    def all(self) -> tuple[ClientRecord, ...]:
        """The records, each whole."""
        return tuple(
            msgspec.structs.replace(
                head,
                subscriptions=tuple(self._subscriptions[client].values()),
                advertisements=tuple(self._advertisements[client].values()),
            )
            for client, head in self._heads.items()
        )


class Records:
    """The records of a broker's own clients, and those that it keeps for neighbours."""

    def __init__(self, broker: Broker) -> None:
        config = broker.config
        self._broker = broker
        self._on_disk = config.acknowledges == "durable"
        self._is_active = (config.replication is not None or config.acknowledges != "received") and not config.assists
        self._last_version = 0
        self._kept_version = 0
        self._expected: dict[str, None] = dict.fromkeys(config.neighbours)
        """Neighbours by configuration, without those that were taken away."""
        self._guardian = ""
        self._pushed_version = 0
        """Up to here the guardian was told all records, which count only together."""
        self._waiting: deque[tuple[int, str, AnyMessage]] = deque()
        """What may be said when a version is kept, and to whom."""
        self._held: deque[tuple[int, Held]] = deque()
        """Markers whose turn has come and that wait for a version."""
        self._writing: deque[tuple[int, int]] = deque()
        """Versions that are being written to the disk, each with the number of its entry."""
        self._guarded: dict[str, RetainedRecords] = {}
        """What is kept here for neighbours."""

    # ---- what changes for this broker's clients ----

    def changed(self, peer: Peer, now_s: float) -> None:
        """A client's session or its stays have changed."""
        self._write(head_of(peer), now_s)

    def subscribed(self, peer: Peer, known: KnownSubscription, now_s: float) -> None:
        """A client has one more subscription."""
        self._write(msgspec.structs.replace(head_of(peer), subscriptions=(known,)), now_s)

    def advertised(self, peer: Peer, known: KnownAdvertisement, now_s: float) -> None:
        """A client has one more advertisement."""
        self._write(msgspec.structs.replace(head_of(peer), advertisements=(known,)), now_s)

    def ended(self, peer: Peer, id: str, now_s: float) -> None:
        """A client has a filter no more; while it leaves for another broker its record stays as it was."""
        if not peer.is_leaving:
            self._write(head_of(peer), now_s, ended=(id,))

    def owed(self, name: str, peer: Peer, advertisements: tuple[KnownAdvertisement, ...], now_s: float) -> None:
        """Advertisements of a client have ended that publications on the disk may need again."""
        record = ClientRecord(name, peer.session, 0, advertisements=advertisements, leaving_for=peer.leaving_for)
        self._write(record, now_s)

    def owed_no_more(self, record: ClientRecord, ended: tuple[str, ...], now_s: float) -> None:
        """Nothing on the disk needs them any more; what is left of the record stays."""
        if ended:
            self._write(record, now_s, ended=ended)

    def over(self, client: str, now_s: float) -> None:
        """A client is gone for good."""
        self._write(ClientRecord(client, "", 0), now_s, is_over=True)

    def _write(self, record: ClientRecord, now_s: float, *, ended: tuple[str, ...] = (), is_over: bool = False) -> None:
        if not self._is_active:
            return
        self._last_version += 1
        guard = Guard(version=self._last_version, record=record, ended=ended, is_over=is_over)
        if self._on_disk:
            assert self._broker.safe is not None
            self._writing.append((self._last_version, self._broker.safe.to_disk(guard)))
        elif self._guardian:
            self._broker.send(self._guardian, guard, now_s)

    @property
    def version(self) -> int:
        """The number of the last change."""
        return self._last_version

    # ---- what waits for it ----

    def say(self, name: str, message: AnyMessage, now_s: float) -> None:
        """Say something as soon as all that has changed so far is kept."""
        if self.is_kept:
            self._broker.send(name, message, now_s)
        else:
            self._waiting.append((self._last_version, name, message))

    @property
    def is_kept(self) -> bool:
        """Whether all that has changed so far is kept."""
        return not self._is_active or self._kept_version >= self._last_version or self._is_alone

    @property
    def are_guarded(self) -> bool:
        """Whether there is a guardian that has been told all of them, or a disk, so that they outlive this broker."""
        if not self._is_active or self._on_disk or self._is_alone:
            return True
        return bool(self._guardian) and self._kept_version >= self._pushed_version

    def hold(self, source: str, message: AnyMessage, item: Item | None) -> None:
        """A marker goes on as soon as all that has changed so far is kept."""
        self._held.append((self._last_version, (source, message, item)))

    @property
    def _is_alone(self) -> bool:
        """Whether there is nobody who could keep anything."""
        if self._on_disk or self._expected:
            return False
        peers = self._broker.peers
        return all(name in peers and peers[name].assists for name in self._broker.tables.neighbours)

    def stored(self, number: int, now_s: float) -> None:
        """The disk has everything up to a number."""
        while self._writing and self._writing[0][1] <= number:
            self._kept_version = self._writing.popleft()[0]
        self._go_on(now_s)

    def guarded(self, neighbour: str, message: Guarded, now_s: float) -> None:
        """A guardian keeps everything up to a version."""
        if neighbour == self._guardian and message.version >= max(self._pushed_version, self._kept_version + 1):
            self._kept_version = message.version
            self._go_on(now_s)

    def _go_on(self, now_s: float) -> None:
        while self._waiting and self._waiting[0][0] <= self._kept_version:
            _, name, message = self._waiting.popleft()
            self._broker.send(name, message, now_s)
        while self._held and self._held[0][0] <= self._kept_version:
            _, held = self._held.popleft()
            self._broker.later += self._broker.ordering.release([held], now_s)

    # ---- who keeps them ----

    def look_for_guardian(self, now_s: float, *, lost: str = "") -> None:
        """A neighbour has come or gone, or has `lost` its memory: have the records kept where they can be.

        A neighbour that is being told routes learns those first: publications wait for them.
        """
        if lost and lost == self._guardian:
            self._guardian = ""
        takeover = self._broker.takeover
        if not self._is_active or self._on_disk or takeover.is_learning:
            return
        if self._is_alone:
            self._kept_version = self._last_version
            self._go_on(now_s)
        peers = self._broker.peers
        known = peers.get(self._guardian)
        if known is not None and known.link.connected and not known.leaves:
            return
        there = sorted(each.name for each in peers.values() if each.role == "broker" and not each.assists)
        ready = [name for name in there if _can_guard(peers[name]) and not takeover.is_being_told(name)]
        guardian = next(iter(ready), self._guardian if known is not None else "")
        if guardian and guardian != self._guardian:
            self._guardian = guardian
            self._push_all(now_s)

    def await_clients(self) -> None:
        """Clients of an earlier incarnation have yet to become known; then a guardian is told of all."""
        self._guardian = ""

    def _push_all(self, now_s: float) -> None:
        self._last_version += 1
        records = [
            each.left_with or self.record_of(each) for each in self._broker.peers.values() if each.role == "client"
        ]
        self._broker.send(self._guardian, GuardAll(version=self._last_version, count=len(records)), now_s)
        for record in records:
            self._write(record, now_s)
        self._pushed_version = self._last_version

    def record_of(self, peer: Peer) -> ClientRecord:
        """A client's record with all its filters."""
        tables = self._broker.tables
        return msgspec.structs.replace(
            head_of(peer),
            subscriptions=tuple(
                KnownSubscription(id, tables.subscriptions[id].filter, within_s)
                for id, within_s in peer.subscriptions.items()
            ),
            advertisements=tuple(
                KnownAdvertisement(id, tables.advertisements[id].filter) for id in peer.advertisements
            ),
        )

    # ---- what this broker keeps for neighbours ----

    def guard_all(self, neighbour: str, message: GuardAll, now_s: float) -> None:
        """A neighbour is about to tell all its records."""
        self._guarded.setdefault(neighbour, RetainedRecords()).begin_anew(message.version, message.count)
        self._broker.send(neighbour, Guarded(version=message.version), now_s)

    def guard(self, neighbour: str, message: Guard, now_s: float) -> None:
        """A neighbour has a record kept here."""
        self._guarded.setdefault(neighbour, RetainedRecords()).keep(message)
        self._broker.send(neighbour, Guarded(version=message.version), now_s)

    def kept_for(self, neighbour: str) -> ClientRecords:
        """What is kept of a neighbour's clients."""
        kept = self._guarded.get(neighbour)
        return ClientRecords() if kept is None else ClientRecords(version=kept.version, records=kept.all())

    def forget(self, neighbour: str) -> None:
        """A neighbour was taken away for good."""
        self._guarded.pop(neighbour, None)
        self._expected.pop(neighbour, None)
        if neighbour == self._guardian:
            self._guardian = ""

    def go_on_after(self, version: int) -> None:
        """The records of an earlier incarnation had this version; what is later than those has yet to be kept."""
        if version > self._last_version:
            self._last_version = self._kept_version = version


def _can_guard(peer: Peer) -> bool:
    return peer.link.connected and not peer.leaves


def head_of(peer: Peer) -> ClientRecord:
    """A client's record without its filters."""
    return ClientRecord(
        client=peer.name,
        session=peer.session,
        stay=peer.stay,
        burned=peer.burned,
        old_broker=peer.old_broker,
        publishes=peer.publishes,
        leaving_for=peer.leaving_for,
    )
