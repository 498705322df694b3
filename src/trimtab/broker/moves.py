"""Clients that come from other brokers and go to them: subscriptions are handed over, advertisements turned.

The old broker decides whether a move has happened: when the handover comes to it, unless the client has undone the move
by then. What is particular to publishers stands in `trimtab.relocation.migration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from trimtab.broker.peers import Peer
from trimtab.broker.routing import Entry
from trimtab.language import Filter
from trimtab.load.agents import ClientCame, ClientLeft, PublisherTurned
from trimtab.matching.announcements import Announcements
from trimtab.protocol.frames import Sendable
from trimtab.protocol.messages import (
    FIRST_LIFE,
    AnyMessage,
    Cancel,
    Complete,
    End,
    Handover,
    MovedAdvertisement,
    MoveIn,
    Refused,
    Resume,
    Stayed,
    Stranded,
    Subscribe,
)
from trimtab.relocation.migration import Migrations, Path, led_id

if TYPE_CHECKING:
    from trimtab.broker.core import Broker

_UNDONE_MOVES_MAX_COUNT: Final = 65_536
"""So many moves that clients have undone are remembered; a marker is not on its way for as long as that many take."""


class Moves:
    """The moves of clients to, from and through one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._migrations = Migrations(self)
        self._undone: dict[tuple[str, str], None] = {}
        """Moves that clients have undone here, by their session: markers of them may come late, more than once, and
        when the client has left and come back."""
        self.moved_in_count = 0
        self.moved_out_count = 0
        """Clients that came from another broker, and that went to one."""

    @property
    def is_publisher_under_way(self) -> bool:
        """Whether a publisher moves through this broker, to it or from it, and its stream has not turned."""
        return self._migrations.are_under_way

    def _path_ended(self) -> None:
        if self._broker.replacement is not None:
            self._broker.replacement.assistance.begin_if_still()

    # ---- the new broker ----

    def move_in(self, peer: Peer, message: MoveIn, now_s: float) -> None:
        """Subscribe for a client that still hears from its old broker, and send a marker there behind that."""
        broker = self._broker
        towards = broker.reach.towards(message.old_broker)
        reason = self._objection(peer, message)
        if reason or towards is None:
            broker.refuse(peer, message.move, reason or f"no way leads to {message.old_broker}", now_s)
            return
        for moved in message.subscriptions:
            request = Subscribe(id=moved.new_id, filter=moved.filter, within_s=moved.within_s, cause=message.move)
            broker.interests.subscribe(peer, request, now_s)
        marker = Handover(
            move=message.move,
            client=peer.name,
            old_broker=message.old_broker,
            old_ids=tuple(moved.old_id for moved in message.subscriptions),
            new_broker=broker.name if message.publishes else "",
            advertisements=message.advertisements,
            old_session=message.old_session,
            has_moved=message.has_moved,
            cause=message.cause,
        )
        if message.publishes:
            self._migrations.prepare(_path(marker, towards, peer.name), now_s)
        broker.send(towards, marker, now_s)
        if not message.publishes:
            self._has_come(peer, message.cause, now_s)

    def _objection(self, peer: Peer, message: MoveIn) -> str:
        broker = self._broker
        known = [moved.new_id for moved in message.subscriptions if moved.new_id in broker.tables.subscriptions]
        if peer.role != "client":
            return "only clients move"
        if broker.reach.towards(message.old_broker) is None:
            return f"no way leads to {message.old_broker}"
        if known:
            return f"the id {known[0]} is already in use"
        if len(message.subscriptions) + len(message.advertisements) > broker.config.filters_per_client_max_count:
            return f"a client may have at most {broker.config.filters_per_client_max_count:,} filters here"
        if self._migrations.expects(peer.name):
            return "the client is on its way here already"
        return broker.objection_to_publisher(peer.name) if message.advertisements else ""

    def _has_come(self, peer: Peer, cause: str, now_s: float) -> None:
        self.moved_in_count += 1
        self._broker.tell_agents_of_move(ClientCame(peer.name, cause), peer.name, now_s)

    def _adopt(self, peer: Peer, path: Path, now_s: float) -> None:
        """The old stream of a publisher has ended here: it may publish."""
        self._broker.send(peer.name, Resume(move=path.move, cause=path.cause), now_s)
        self._has_come(peer, path.cause, now_s)

    # ---- the path and the old broker ----

    def handover(self, source: Peer, message: Handover, now_s: float) -> None:
        """The new subscriptions overtook this marker, so all that went to the old broker alone stands before it.

        Where an assistant gives publications another way nothing stands before it: it stops, and the client stays.
        """
        broker = self._broker
        towards = None if message.old_broker == broker.name else broker.reach.towards(message.old_broker)
        has_one_way = not (self._may_be_overtaken(source.name) or self._may_be_overtaken(towards))
        if message.old_broker == broker.name and has_one_way:
            self._hand_over(source, message, now_s)
        elif has_one_way and towards is not None and towards != source.name:
            if message.new_broker:
                self._migrations.prepare(_path(message, towards, source.name), now_s)
            broker.send(towards, message, now_s)
        elif message.new_broker:
            broker.send(source.name, _lost(message), now_s)

    def _may_be_overtaken(self, neighbour: str | None) -> bool:
        """Whether publications to or from a neighbour take two ways, so that a marker does not stand behind them."""
        replacement = self._broker.replacement
        return replacement is not None and neighbour is not None and replacement.assistance.divides(neighbour)

    def _hand_over(self, source: Peer, message: Handover, now_s: float) -> None:
        broker = self._broker
        if message.has_moved:
            self._say_what_has_passed(source, message, now_s)
            return
        client = broker.peers.get(message.client)
        if client is None or client.role != "client":
            return  # it has left the network
        if not self._is_of_this_life(message) or (client.session, message.move) in self._undone:
            return  # it stays
        broker.send(message.client, End(move=message.move, cause=message.cause), now_s)
        client.moved = message.move
        self.moved_out_count += 1
        for id in message.old_ids:
            entry = broker.tables.subscriptions.get(id)
            if entry is not None and entry.hop == client.name:
                broker.interests.end_subscription(client, id, now_s)
        if message.new_broker:
            self._turn_away(client, source, message, now_s)
        broker.tell_agents_of_move(ClientLeft(client.name, message.cause), client.name, now_s)

    def _say_what_has_passed(self, source: Peer, message: Handover, now_s: float) -> None:
        """A publisher that has left asks for the end of what it said here; some of it may yet come from the disk."""
        safe = self._broker.safe
        if safe is None:
            self._broker.send(source.name, _answer(message, ()), now_s)
        else:
            safe.answer(message.client, source.name, _answer(message, ()), now_s)

    def _is_of_this_life(self, message: Handover) -> bool:
        return (message.old_session or FIRST_LIFE) == self._broker.config.session

    def _turn_away(self, client: Peer, source: Peer, message: Handover, now_s: float) -> None:
        """All that the publisher sent here has been passed on: let the new broker know behind it."""
        broker, tables = self._broker, self._broker.tables
        path = _path(message, client.name, source.name)
        turned = [
            each
            for each in message.advertisements
            if (entry := tables.advertisements.get(each.id)) is not None and entry.hop == client.name
        ]
        for each in turned:
            client.advertisements.pop(each.id, None)
            if client.announcements is not None:
                client.announcements.discard(each.id)
            self.turn(path, each, client.name, now_s)
        self._send_turned(source.name, _answer(message, turned), turned, now_s)
        broker.tell_agents(PublisherTurned(client.name, message.cause), now_s)

    def _send_turned(
        self, towards_new: str, message: Complete, advertisements: Sequence[MovedAdvertisement], now_s: float
    ) -> None:
        """Let the next broker turn advertisements; what stands before the marker needs their routes from here."""
        self._broker.send(towards_new, message, now_s)
        replacement = self._broker.replacement
        if replacement is not None:
            for each in advertisements:
                if each.id in message.advertisements:
                    replacement.withdrew(towards_new, each.id, each.filter)

    def stay(self, peer: Peer, move: str, now_s: float) -> None:
        """Undo a move whose marker has not come; where it has, the end of the move is on its way to the client."""
        if peer.role == "client" and peer.moved != move:
            self._undone[peer.session, move] = None
            if len(self._undone) > _UNDONE_MOVES_MAX_COUNT:
                del self._undone[next(iter(self._undone))]
            self._broker.send(peer.name, Stayed(move=move, cause=move), now_s)

    def complete(self, source: str, message: Complete, now_s: float) -> None:
        """The answer of a publisher's old broker, or of the broker before which the path broke."""
        broker = self._broker
        path = self._migrations.complete(message, source, now_s)
        if path is None:
            return
        client = broker.peers.get(path.towards_new)
        if client is None or client.role == "broker":
            self._send_turned(path.towards_new, message, path.advertisements, now_s)
        elif message.is_lost:
            broker.send(client.name, Stranded(move=path.move, cause=path.cause), now_s)
        else:
            for each in path.advertisements:
                if each.id not in message.advertisements:
                    broker.send(client.name, Refused(about=each.id, reason="the old broker did not have it"), now_s)
            self._adopt(client, path, now_s)
        if not message.is_lost:
            broker.tell_agents(PublisherTurned(path.client, path.cause), now_s)
        self._path_ended()

    def cancel(self, message: Cancel, now_s: float) -> None:
        """A client that was to come along this path has left the new broker."""
        self._migrations.cancel(message, now_s)
        self._pass_on(message, now_s)
        self._path_ended()

    def _pass_on(self, message: Cancel, now_s: float) -> None:
        towards = None if message.old_broker == self._broker.name else self._broker.reach.towards(message.old_broker)
        if towards is not None:
            self._broker.send(towards, message, now_s)

    # ---- peers that go ----

    def gone(self, name: str, now_s: float) -> list[Complete]:
        """A client or neighbour is gone for good; returns markers that come behind all that was received from it."""
        for cancel in self._migrations.cannot_reach(name, now_s):
            self._pass_on(cancel, now_s)
        self._path_ended()
        return self._migrations.lost_with(name)

    def after_loss(self, message: Sendable) -> Sendable:
        """What a replica is told instead of what waits for the broker before it: publishers' moves are told to be lost.

        Each message stays one message, for those who count them.
        """
        if isinstance(message, Handover) and message.new_broker:
            return Cancel(move=message.move, old_broker=message.old_broker, cause=message.cause)
        return message

    # ---- what migrations ask for ----

    def send(self, name: str, message: AnyMessage, now_s: float) -> None:
        """Put a message into a queue."""
        self._broker.send(name, message, now_s)

    def lead(self, id: str, filter: Filter, towards: str, now_s: float) -> None:
        """Lead subscriptions to where a publisher will be."""
        self._broker.interests.say(self._broker.tables.lead(Entry(id, filter, towards)), now_s)

    def unlead(self, id: str, now_s: float) -> None:
        """Lead them there no more."""
        if id in self._broker.tables.advertisements:
            self._broker.interests.say(self._broker.tables.remove_advertisement(id), now_s)

    def turn(self, path: Path, advertisement: MovedAdvertisement, came_from: str, now_s: float) -> None:
        """An advertisement is known from the new side from now on."""
        broker = self._broker
        entry = Entry(advertisement.id, advertisement.filter, path.towards_new)
        broker.interests.say(broker.tables.turn(entry, came_from, led_id(path.move, entry.id)), now_s)
        broker.interests.advertisement_turned(entry, came_from, now_s)
        client = broker.peers.get(path.towards_new)
        if client is not None and client.role == "client":
            client.advertisements[entry.id] = None
            if client.announcements is None:
                client.announcements = Announcements()
            client.announcements.add(entry.id, entry.filter)

    def drop(self, id: str, came_from: str, now_s: float) -> bool:
        """Forget an advertisement that is known from there, if at all; whether nobody else knows its publisher."""
        entry = self._broker.tables.advertisements.get(id)
        if entry is not None and entry.hop == came_from:
            self._broker.interests.end_advertisement(id, now_s)
        return entry is None or entry.hop == came_from


def _path(message: Handover, towards_old: str, towards_new: str) -> Path:
    return Path(
        message.move,
        message.client,
        message.old_broker,
        towards_old,
        towards_new,
        message.advertisements,
        message.cause,
    )


def _answer(message: Handover, turned: Sequence[MovedAdvertisement]) -> Complete:
    return Complete(
        move=message.move,
        client=message.client,
        new_broker=message.new_broker,
        advertisements=tuple(each.id for each in turned),
        cause=message.cause,
    )


def _lost(message: Handover) -> Complete:
    return Complete(
        move=message.move,
        client=message.client,
        new_broker=message.new_broker,
        advertisements=(),
        is_lost=True,
        cause=message.cause,
    )
