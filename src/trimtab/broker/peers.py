"""The neighbours, clients and agents of a broker, what it has done, and when something is due with whom."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Final, Literal, Protocol

import msgspec

from trimtab.language import Filter
from trimtab.matching.announcements import Announcements
from trimtab.protocol.frames import Role, Sendable
from trimtab.protocol.link import Link
from trimtab.protocol.messages import VERSION, ClientRecord
from trimtab.security.rights import Rights

NEVER_S: Final = float("inf")

ON_DISK: Final = "#disk "
"""Before the name of a publisher whose publications come from the disk; no peer can have such a name."""


class DataQueue(Protocol):
    """Data that waits for a peer, in the order in which it goes out."""

    def append(self, message: Sendable, /) -> None: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sendable]: ...


class Peer:
    """A neighbour, a client or an agent: its link and, for clients, what the broker keeps for them."""

    def __init__(
        self, name: str, role: Role | Literal["agent"], session: str, link: Link, queue_max_count: int
    ) -> None:
        self.name = name
        self.role = role
        self.session = session
        self.incarnation = 1
        """The epoch of a neighbour's incarnation, the highest that is known."""
        self.epoch = 1
        """The epoch of the link: another one begins when either end has lost its memory."""
        self.version = VERSION
        """The version of the wire protocol that is spoken with it, as far as is known."""
        self.link = link
        self.queue: DataQueue = link.data
        """Where data for it is put: the queue of its link, except while that must wait for a replica's routes."""
        self.again_count = 0
        """Data messages that were put into its queue at once: they went out in an earlier link epoch, or come late."""
        self.leaves = False
        """Whether a neighbour has said that it is gone for good when its connection ends."""
        self.assists = ""
        """The broker whose load it shares, if it does."""
        self.queue_max_count = queue_max_count
        """Publications that may wait for it."""
        self.last_sequence = 0
        self.accepted_sequence = 0
        """The publication of the client that is being processed, if it was accepted."""
        self.accepted_before = 0
        """Up to here the client knew its publications to be accepted when it came, elsewhere or here before."""
        self.safe_sequence = 0
        """Up to here the client's publications are safe, where that is promised."""
        self.accepted_owed = False
        self.advertisements: dict[str, None] = {}
        self.announcements: Announcements | None = None
        self.subscriptions: dict[str, float | None] = {}
        """A client's subscriptions, each with the time within which it wants its publications, if it said."""
        self.has_told_all = False
        """Whether a client that knew an earlier incarnation of this broker has told it all."""
        self.lease_ends_s: float | None = None
        self.behind: dict[str, str] = {}
        """Brokers that are reached through this neighbour, itself included, and their addresses."""
        self.told_of: dict[str, Filter] = {}
        """Advertisements whose end a neighbour was told and may not have heard."""
        self.stay = 1
        """The number of the client's stay here."""
        self.burned = 0
        """The client's stays elsewhere up to this one will not happen."""
        self.leaving_for = 0
        """The client's stay elsewhere that is recorded to end this one, if one is."""
        self.left_for = 0
        """The client's stay elsewhere that has ended this one, if one has."""
        self.left_with: ClientRecord | None = None
        """What the client had when that happened; it counts until the client has heard the end."""
        self.old_broker = ""
        """Where the client comes from, as long as its old broker has not answered."""
        self.publishes = False
        """Whether what the client publishes must wait for that answer."""
        self.cause = ""
        """What the client came for."""
        self.rights: Rights | None = None
        """What a client may do; None if everything."""
        self.narrowed: dict[str, Filter] = {}
        """Subscriptions of a client that are in force with a narrower filter than it has asked for, until it knows."""

    @property
    def is_leaving(self) -> bool:
        """Whether a stay of the client elsewhere has ended this one."""
        return self.left_for > self.stay

    def strictest_within_s(self) -> float | None:
        """The shortest of the times within which a client wants its publications."""
        return min((within_s for within_s in self.subscriptions.values() if within_s is not None), default=None)


class Counters(msgspec.Struct):
    """What a broker has done since it began."""

    publications_in_count: int = 0
    publications_out_count: int = 0
    control_in_count: int = 0
    control_out_count: int = 0
    dropped_count: int = 0
    refused_count: int = 0


class Watch:
    """When to look after which peer; asking all of thousands takes long.

    Times are noted when they become known and looked at again when they come, for they may have moved on since.
    """

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        self._peers = peers
        self._times: list[tuple[float, str]] = []
        self.planned_s: dict[str, float] = {}
        """When each of those that are watched is looked at."""

    def add(self, peer: Peer) -> None:
        """Something may become due with a peer."""
        due_s = _due_s(peer)
        if due_s is not None and due_s < self.planned_s.get(peer.name, NEVER_S):
            self.planned_s[peer.name] = due_s
            heapq.heappush(self._times, (due_s, peer.name))

    def forget(self, peer: Peer) -> None:
        """Nothing is due with a peer any more as far as is known."""
        self.planned_s.pop(peer.name, None)

    def next_due_s(self, before_s: float = NEVER_S) -> float | None:
        """When something is due with a peer, before a time."""
        times = self._times
        while times and times[0][0] < before_s:
            planned_s, name = times[0]
            peer = self._peers.get(name)
            due_s = None if peer is None or self.planned_s.get(name) != planned_s else _due_s(peer)
            if due_s is None:
                heapq.heappop(times)
                if self.planned_s.get(name) == planned_s:
                    del self.planned_s[name]
            elif due_s > planned_s:
                heapq.heapreplace(times, (due_s, name))
                self.planned_s[name] = due_s
            else:
                return planned_s
        return None

    def take_due(self, now_s: float) -> Peer | None:
        """A peer with whom something is due; it is watched no more."""
        due_s = self.next_due_s()
        if due_s is None or due_s > now_s:
            return None
        _, name = heapq.heappop(self._times)
        del self.planned_s[name]
        return self._peers[name]


def _due_s(peer: Peer) -> float | None:
    """When to look after a peer: when its link wants to send again, or its lease ends."""
    wake_s, lease_s = peer.link.wake_at_s(), peer.lease_ends_s
    return wake_s if lease_s is None or (wake_s is not None and wake_s < lease_s) else lease_s
