"""Gap notices: what a broker says when publications may be lost, and to whom.

An incarnation that has lost what the one before it held puts a mark (a break) into the streams to all neighbours and
subscribers, when it knows all routes and before it processes data. Then it asks all publishers' brokers what they have
accepted last; the answers follow publications, as markers do, and are stamped where they come through the broker of the
break. What a client makes of both stands in `trimtab.client.gaps`. Nothing is done for this when publications pass.

When is something lost? At `received` whenever an incarnation does not go on with what the one before it has left. At
`safe` only if a neighbour has lost its memory as well: neither has what was under way between the two. At `durable` if
records on the disk were damaged. A client that resumes a session of which nobody has a record is told for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.broker.peers import Peer
from trimtab.language import Filter
from trimtab.protocol.codec import decode_publication
from trimtab.protocol.frames import BATCH_MAX_COUNT, Ack, Hello, Payload, Sendable
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import Gap, GapQuestion, Publish
from trimtab.protocol.versions import FIRST_VERSIONS

if TYPE_CHECKING:
    from trimtab.broker.core import Broker

BREAKS_MAX_COUNT: Final = 64
"""So many breaks of this broker are known, the latest: answers to earlier ones have come long ago."""

FILTERS_MAX_COUNT: Final = 16
"""An answer about a publisher with more advertisements goes to all who want anything."""

ASKED_AGAIN_WITHIN_S: Final = 60.0
"""So long after a neighbour's break its next incarnation is asked again: the first may have died unanswered."""

ANSWERS_MAX_COUNT: Final = 1_000
"""A broker answers for so many publishers of its own; of the others open intervals are told."""


class Gaps:
    """One broker's part in telling of losses."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._breaks: dict[str, dict[str, None] | None] = {}
        """The breaks of this incarnation, and from which neighbours lost publications would have come (None: all; an
        empty name: from clients here)."""
        self._breaks_count = 0
        self._is_successor = False
        """Whether somebody knows an earlier incarnation of this broker."""
        self._goes_on = False
        """Whether the one before has left what it had."""
        self._damage = ""
        """What was found damaged on the disk, if anything was."""
        self._holes: list[tuple[str, str, int, int]] = []
        """Publishers with their sessions, and the numbers that are missing among what was found on a damaged disk."""
        self._strangers: dict[str, None] = {}
        """Neighbours that have no memory of any incarnation of this broker."""
        self._marked: dict[str, None] = {}
        """Peers that were told of the break with which this incarnation began."""
        self._unknown: dict[str, None] = {}
        """Clients that resume a session of which nothing is known here, as far as is known yet."""
        self._owed: dict[str, dict[str, None]] = {}
        """Breaks about which publishers of an earlier incarnation are asked who have yet to say what was accepted."""
        self._narrowed: dict[str, None] = {}
        """Clients here that have ended an advertisement."""
        self._breaks_of: dict[str, dict[str, float]] = {}
        """By neighbour: the breaks that it has told of itself lately, and when."""

    # ---- what is known of the incarnation before ----

    def resumed(self) -> None:
        """The incarnation before has left all that it had."""
        self._goes_on = True

    def damaged(self, damage: str, publications: Sequence[Publish]) -> None:
        """Records on the disk of the incarnation before were damaged: what is missing among those that were found?"""
        self._damage = damage
        last: dict[tuple[str, str], int] = {}
        for each in publications if damage else ():
            before = last.get((each.publisher, each.session), each.sequence - 1)
            if each.sequence > before + 1:
                self._holes.append((each.publisher, each.session, before + 1, each.sequence - 1))
            last[each.publisher, each.session] = each.sequence

    def greeted(self, peer: Peer, hello: Hello, *, is_new: bool) -> None:
        """A peer has greeted: whom does it remember?"""
        own = self._broker.config.session
        if peer.role == "broker":
            if hello.resumes not in ("", own):
                self._is_successor = True
            elif not hello.resumes and is_new:
                self._strangers[peer.name] = None
        elif is_new and hello.resumes:
            self._unknown[peer.name] = None

    def is_known(self, client: str) -> None:
        """A client has a record, so that what comes for it was retained as well as that of others."""
        self._unknown.pop(client, None)

    def is_gone(self, client: str) -> None:
        """A client has left: nobody answers for it."""
        self._unknown.pop(client, None)
        self._owed.pop(client, None)
        self._narrowed.pop(client, None)

    def moves_in(self, client: str) -> None:
        """A client says again that it comes from another broker, which has what it is owed, where that is retained."""
        if self._broker.safe is not None:
            self._unknown.pop(client, None)

    def announces_less(self, client: str) -> None:
        """A publisher has ended an advertisement: what it announces now does not tell who wanted its publications."""
        self._narrowed[client] = None

    # ---- what is told ----

    def learned(self, now_s: float) -> None:
        """All routes are known, and no data was processed: tell of what the incarnation before has lost."""
        name, lossy = self._broker.name, self._lossy_hops()
        if self._damage:
            self._begin_break({"": None}, self._damage, now_s, asks=False)  # until what is on the disk has passed
            self._tell_holes(now_s)
        elif lossy is not None or self._loses_all:
            self._begin_break(lossy, f"{name} was started again without what was under way there", now_s)
        for client in list(self._unknown):
            peer = self._broker.peers.get(client)
            if peer is not None and peer.has_told_all:
                self.told_all(peer, now_s)

    def _tell_holes(self, now_s: float) -> None:
        for publisher, session, first, last in self._holes:
            peer = self._broker.peers.get(publisher)
            filters = () if peer is None else self._filters_of(peer)
            hole = Gap(
                id="",
                publisher=publisher,
                session=session,
                first=first,
                last=last,
                filters=filters,
                reason=self._damage,
            )
            self._send_on("", hole, now_s)
        self._holes.clear()

    def disk_passed(self, now_s: float) -> None:
        """All that was found on the disk has passed; what is missing behind it comes no more."""
        if self._damage:
            self._marked.clear()
            self._begin_break({"": None}, self._damage, now_s)
            self._damage = ""

    @property
    def _loses_all(self) -> bool:
        return self._broker.safe is None and self._is_successor and not self._goes_on

    def _lossy_hops(self) -> dict[str, None] | None:
        """Neighbours over whose link something was lost, if not over all."""
        broker = self._broker
        if broker.config.acknowledges != "safe" or not self._is_successor:
            return None
        expected = broker.config.neighbours
        return {name: None for name in self._strangers if name in expected and name in broker.peers} or None

    def _begin_break(self, lossy: dict[str, None] | None, reason: str, now_s: float, *, asks: bool = True) -> None:
        broker = self._broker
        id = self._new_break(lossy)
        is_wide = broker.config.replica not in ("", "synchronous") or broker.config.order == "any"
        mark = Gap(id=id, reason=reason, is_wide=is_wide)
        for hop in self._hops_of_breaks():
            if hop in self._unknown:
                continue  # it is told for itself
            if hop not in self._marked and (lossy is None or any(name != hop for name in lossy)):
                self._marked[hop] = None
                broker.send(hop, mark, now_s)
        if asks:
            self._ask("", GapQuestion(id=id), now_s)

    def _new_break(self, lossy: dict[str, None] | None) -> str:
        self._breaks_count += 1
        id = f"{self._broker.name} {self._broker.config.session} {self._breaks_count}"
        self._breaks[id] = lossy
        if len(self._breaks) > BREAKS_MAX_COUNT:
            del self._breaks[next(iter(self._breaks))]
        return id

    def told_all(self, peer: Peer, now_s: float) -> None:
        """A client has told all that it wants: if it resumes what nobody knows, it is told that this is lost."""
        broker = self._broker
        for id in self._owed.pop(peer.name, ()):
            self._answer(peer, id, now_s)
        if peer.name not in self._unknown or broker.takeover.is_learning:
            return
        del self._unknown[peer.name]
        if not peer.subscriptions:
            return
        id = self._new_break({})
        broker.send(
            peer.name,
            Gap(id=id, is_own=True, reason=f"{broker.name} has forgotten this client, and with it what it had for it"),
            now_s,
        )
        self._ask("", GapQuestion(id=id), now_s)

    @staticmethod
    def about_to_drop(peer: Peer) -> None:
        """A publication is given up for a slow client, which is told if it understands that."""
        if isinstance(peer.link, DroppingLink):
            peer.link.tells = FIRST_VERSIONS[Gap] <= peer.version

    # ---- messages ----

    def passes(self, source: Peer, message: Gap, now_s: float) -> None:
        """A mark or an answer, whose turn has come, goes on to those who may be concerned."""
        if not message.publisher and self._is_of(message.id, source.name):
            breaks = self._breaks_of.setdefault(source.name, {})
            breaks[message.id] = now_s
            if len(breaks) > BREAKS_MAX_COUNT:
                del breaks[next(iter(breaks))]
        lossy = self._lossy_of(message.id)
        if message.publisher and (lossy is None or source.name in lossy):
            message = _crossed(message)
        self._send_on(source.name, message, now_s)

    def asked(self, source: Peer, message: GapQuestion, now_s: float) -> None:
        """A broker has lost something and asks what publishers have published."""
        self._ask(source.name, message, now_s)

    def neighbour_learned(self, neighbour: str, now_s: float) -> None:
        """A neighbour knows all routes: if it has begun breaks before, it may have died before publishers answered."""
        for id, at_s in self._breaks_of.get(neighbour, {}).items():
            if now_s < at_s + ASKED_AGAIN_WITHIN_S:
                self._broker.send(neighbour, GapQuestion(id=id), now_s)

    def _lossy_of(self, id: str) -> dict[str, None] | None:
        """From which neighbours publications were lost at a break (None: all), as far as this broker began it."""
        if id in self._breaks:
            return self._breaks[id]
        return None if self._is_of(id, self._broker.name) else {}

    @staticmethod
    def _is_of(id: str, broker: str) -> bool:
        """Whether an incarnation of a broker began a break."""
        return id.startswith(f"{broker} ")

    def _ask(self, source: str, message: GapQuestion, now_s: float) -> None:
        """Answer for publishers here, behind what they have published, and ask all brokers behind."""
        broker = self._broker
        broker.send_to_others(source, message, now_s)
        returning = broker.takeover.returning
        clients = [peer for peer in broker.peers.values() if peer.role == "client"]
        publishers = [peer for peer in clients if _publishes(peer) or returning.get(peer.name, 0) is None]
        publishers.sort(key=lambda peer: not peer.advertisements)
        for peer in publishers[:ANSWERS_MAX_COUNT]:
            if returning.get(peer.name, 0) is None:
                owed = self._owed.setdefault(peer.name, {})
                if len(owed) < BREAKS_MAX_COUNT:
                    owed[message.id] = None
            else:
                self._answer(peer, message.id, now_s)

    def _answer(self, peer: Peer, id: str, now_s: float) -> None:
        """Say what was accepted of a publisher here, and to whom that matters."""
        if not _publishes(peer):
            return
        lossy = self._lossy_of(id)
        answer = Gap(
            id=id,
            publisher=peer.name,
            session=peer.session,
            last=_accepted_until(peer),
            filters=self._filters_of(peer),
            has_crossed=lossy is None or "" in lossy,
        )
        if peer.accepted_before and not answer.has_crossed:  # elsewhere, and nobody there may know it any more
            elsewhere = msgspec.structs.replace(answer, last=peer.accepted_before, filters=())
            self._send_on("", _crossed(elsewhere), now_s)
        self._send_on("", answer, now_s)

    def _filters_of(self, peer: Peer) -> tuple[Filter, ...]:
        """What a publisher has announced whenever it published, if that is known: otherwise its answers go to all.

        What one has ended that published at an earlier incarnation, or elsewhere, is not known here.
        """
        if peer.is_leaving or peer.name in self._narrowed or peer.accepted_before:
            return ()
        tables = self._broker.tables
        filters = tuple(tables.advertisements[id].filter for id in peer.advertisements)
        return filters if len(filters) <= FILTERS_MAX_COUNT else ()

    def _send_on(self, source: str, message: Gap, now_s: float) -> None:
        for hop in self._hops_wanting(message.filters) if message.filters else self._hops_of_breaks():
            if hop != source:
                self._broker.send(hop, message, now_s)

    def _hops_of_breaks(self) -> list[str]:
        """All neighbours, and clients who want anything: what a publisher announced that is gone pulls nobody here."""
        peers = self._broker.peers.values()
        return [peer.name for peer in peers if (peer.role == "broker" and not peer.assists) or peer.subscriptions]

    def _hops_wanting(self, filters: Sequence[Filter]) -> list[str]:
        """Neighbours and clients who want something that a filter announces."""
        peers = self._broker.peers
        left = {name: None for name, peer in peers.items() if peer.role != "agent" and not peer.assists}
        found: list[str] = []
        for route in self._broker.tables.subscriptions.values():
            hops = [hop for hop in route.hops if hop in left]
            if hops and any(filter.intersects(route.filter) for filter in filters):
                for hop in hops:
                    del left[hop]
                    found.append(hop)
            if not left:
                break
        return found


class DroppingLink(Link):
    """A link to a client that loses the oldest publications when it is slow, and is told which.

    >>> from trimtab.protocol.link import LinkConfig
    >>> link = DroppingLink(LinkConfig())
    >>> link.connect(1, 0.0)
    >>> for number in (1, 2, 3):
    ...     link.enqueue(Publish(publisher="p", sequence=number, values={}, origin_s=0.0), 0.0)
    >>> dropped = link.drop_oldest_data(), link.drop_oldest_data()
    >>> [(type(each).__name__, getattr(each, "last", 0)) for each in link.take(0.0).messages]
    [('Gap', 2), ('Publish', 0)]
    """

    __slots__ = ("_dropped", "tells")

    def __init__(self, config: LinkConfig) -> None:
        super().__init__(config)
        self._dropped: dict[tuple[str, str], tuple[int, int]] = {}
        """By publisher and session: the first and the last that were given up since something was sent."""
        self.tells = True
        """Whether the peer understands what it is told."""

    def drop_oldest_data(self) -> Sendable | None:
        """Give up the publication that has waited longest, and note its number."""
        dropped = super().drop_oldest_data()
        message = decode_publication(dropped) if isinstance(dropped, bytes) else dropped
        if isinstance(message, Publish) and self.tells:
            key = (message.publisher, message.session)
            first, _ = self._dropped.get(key, (message.sequence, 0))
            self._dropped[key] = (first, message.sequence)
        return dropped

    def _tell_dropped(self) -> None:
        if self._dropped and not (self.data and isinstance(self.data[0], Gap)):
            self.data.extendleft(reversed(self._gaps()))
            self._dropped.clear()

    def _gaps(self) -> list[Sendable]:
        return [
            Gap(id="", publisher=publisher, session=session, first=first, last=last, reason="the client was too slow")
            for (publisher, session), (first, last) in self._dropped.items()
        ]

    @property
    def queued_data_count(self) -> int:
        """Publications that have not been sent yet."""
        return sum(not isinstance(message, Gap) for message in self.data)

    def undelivered_data(self) -> list[Sendable]:
        """The data that the peer has not acknowledged, and what was given up of it."""
        self._tell_dropped()
        return super().undelivered_data()

    def take(self, now_s: float, messages_max_count: int = BATCH_MAX_COUNT) -> Payload | Ack | None:
        """The next frame; what was given up is told before what came after it."""
        if self._dropped and self.connected and self._resend_index is None and self._credit_count:
            self._tell_dropped()
        return super().take(now_s, messages_max_count)

    def take_one(self, now_s: float) -> tuple[Payload | Ack | None, bool]:
        """The same with one message at most, and whether there may be more."""
        frame = self.take(now_s, 1)
        return frame, frame is not None and self.has_frame()


def _accepted_until(peer: Peer) -> int:
    return max(peer.last_sequence, peer.accepted_before)


def _publishes(peer: Peer) -> bool:
    """Whether a client may have publications under way: one that announces nothing any more, or is leaving, may."""
    return bool(peer.advertisements or _accepted_until(peer))


def _crossed(message: Gap) -> Gap:
    return msgspec.structs.replace(message, has_crossed=True)
