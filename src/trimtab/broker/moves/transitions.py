"""Clients that come from other brokers and go to them, in stays with numbers that only grow.

A client begins a stay at a new broker while the old one serves it. The new broker installs its filters, which by that
come from two directions along the path between the two, has the stay recorded, and sends a marker to the old broker
(`Handover`). When it comes there, all that went to the old broker alone has come before it: the old broker ends the
stay there (`End` behind all that the client is owed; the ends of its advertisements behind all that it published) and
answers with a second marker (`Complete`), behind which nothing of the old stream comes any more. Until then nothing has
been taken away, so that a stay that fails is burned by saying so to the old broker (`Stay`), which decides.

Both markers may be said again at any time: a stay that is over or burned changes nothing, and is answered again. The
new broker says its marker again until it is answered, since with `received` it may be lost with a broker.

    new broker    MoveIn               filters installed, recorded, then Handover
                  MoveIn again         the same; what is known already counts once
                  Complete             the client may publish (Resume)
                  Complete, lost       no marker can pass (Stranded)
                  no answer for long   Handover again
                  no way any more      Stranded
    path          Handover, Complete   passed on, keeping their place among publications
    old broker    Handover             recorded, then End, the client's filters end, Complete
                  Handover, burned     nothing
                  Handover, over       Complete
                  Stay                 burned, recorded, then Stayed
                  Stay, over           nothing: the End is on its way
                  Stay, after a start  waits until the records of the earlier incarnation are known
                  Stay, recorded       End, behind the marker, which may be on its way or come again

Sources: A. Cheung, thesis (2006), section 3.4.2; A. Cheung, H.-A. Jacobsen, publisher relocation (2009), section 3.3.
Deviation from the latter: routes towards the new broker are added when the update passes, and those to the old one
end with the answer, behind the publications that still need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.broker.peers import Peer
from trimtab.broker.replication.retention import Item
from trimtab.policies.api import ClientCame, ClientLeft, PublisherTurned
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import (
    Complete,
    End,
    Handover,
    MoveIn,
    Resume,
    Stay,
    Stayed,
    Stranded,
    Subscribe,
)

if TYPE_CHECKING:
    from trimtab.broker.core import Broker

AGAIN_AFTER_S: Final = 5.0
"""A marker that is not answered for so long is said again; later at twice that time each. Far above any round trip."""


UNDER_WAY_S: Final = 60.0
"""A publisher's move whose answer has not come back for so long does not keep an assistant waiting any more."""


class Moves:
    """The moves of clients to, from and through one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._again_s: dict[str, tuple[float, float]] = {}
        """Clients whose old broker has not answered: when to say the marker again, and after how long then."""
        self._publishers_until_s: dict[tuple[str, int], float] = {}
        """Publishers' stays whose marker has passed here and whose answer has not, and until when that counts."""
        self.moved_in_count = 0
        self.moved_out_count = 0
        """Clients that came from another broker, and that went to one."""

    def is_publisher_under_way(self, now_s: float) -> bool:
        """Whether a publisher moves through this broker, to it or from it, and the end of its old stream is to come."""
        until_s = self._publishers_until_s
        self._publishers_until_s = {key: each_s for key, each_s in until_s.items() if each_s > now_s}
        return bool(self._publishers_until_s)

    # ---- the new broker ----

    def move_in(self, peer: Peer, message: MoveIn, now_s: float) -> None:
        """A client begins a stay here, or says so again."""
        broker = self._broker
        reason = self._objection(peer, message)
        if reason:
            broker.refuse(peer, _about(message.stay), reason, now_s)
            return
        is_new = not peer.old_broker
        peer.stay, peer.cause = message.stay, message.cause
        peer.accepted_before = max(message.accepted, peer.accepted_before)
        for known in message.subscriptions:
            request = Subscribe(id=known.id, filter=known.filter, within_s=known.within_s, cause=message.cause)
            broker.interests.subscribe(peer, request, now_s)
        for advertised in message.advertisements:
            filter = broker.entitlements.announced(peer, advertised.filter)
            broker.interests.install_advertisement(peer, advertised.id, filter, now_s)
        peer.old_broker, peer.publishes = message.old_broker, message.publishes
        broker.records.changed(peer, now_s)  # behind the filters: a record that names an old broker is whole
        self._hand_over_to_here(peer, now_s)
        self._again_s[peer.name] = (now_s + AGAIN_AFTER_S, AGAIN_AFTER_S)
        if is_new:
            self.moved_in_count += 1
            broker.admission.tell_of_move(ClientCame(peer.name, message.cause), now_s)

    def _objection(self, peer: Peer, message: MoveIn) -> str:
        broker = self._broker
        if peer.role != "client":
            return "only clients move"
        if broker.topology.towards(message.old_broker) is None and not broker.takeover.is_learning:
            return f"no way leads to {message.old_broker}"
        known = {*peer.subscriptions, *peer.advertisements}
        known.update(each.id for each in message.subscriptions)
        known.update(each.id for each in message.advertisements)
        if objection := broker.entitlements.objection_to_move(peer, message):
            return objection
        if len(known) > broker.config.filters_per_client_max_count:
            return f"a client may have at most {broker.config.filters_per_client_max_count:,} filters here"
        if broker.draining is not None and not (peer.old_broker or peer.subscriptions or peer.advertisements):
            return broker.draining.objection_to_move()
        return broker.agents.objection_to_coming(peer.name) if message.advertisements and not peer.old_broker else ""

    def _hand_over_to_here(self, peer: Peer, now_s: float) -> None:
        """Send the marker as soon as the stay is recorded.

        After a start it goes behind what is on the disk and what is said again (`resume_all`): the client may have got
        what follows that from the earlier incarnation.
        """
        broker, takeover = self._broker, self._broker.takeover
        if takeover.is_learning or takeover.returning or (broker.safe is not None and broker.safe.has_more_on_disk):
            return
        towards = broker.topology.towards(peer.old_broker)
        if towards is None:
            self._strand(peer, now_s)
            return
        self._note_publisher(peer.name, peer.stay, now_s, publishes=peer.publishes)
        marker = Handover(
            client=peer.name,
            session=peer.session,
            stay=peer.stay,
            old_broker=peer.old_broker,
            new_broker=broker.name,
            publishes=peer.publishes,
            cause=peer.cause,
        )
        broker.records.say(towards, marker, now_s)

    def resume_all(self, now_s: float) -> None:
        """This broker knows its routes: markers of clients on their way here may have died with it before."""
        for peer in list(self._broker.peers.values()):
            if peer.old_broker:
                self._again_s[peer.name] = (now_s + AGAIN_AFTER_S, AGAIN_AFTER_S)
                self._hand_over_to_here(peer, now_s)

    def look_for_ways(self, now_s: float) -> None:
        """Brokers can be reached no more: clients on their way from there are told."""
        for name in list(self._again_s):
            peer = self._broker.peers.get(name)
            if peer is not None and peer.old_broker and self._broker.topology.towards(peer.old_broker) is None:
                self._strand(peer, now_s)

    def wake_at_s(self) -> float | None:
        """When a marker is to be said again."""
        return min((at_s for at_s, _ in self._again_s.values()), default=None) if self._again_s else None

    def wake(self, now_s: float) -> None:
        """Say markers again that have not been answered."""
        for name, (at_s, after_s) in list(self._again_s.items()):
            peer = self._broker.peers.get(name)
            if peer is None or not peer.old_broker:
                del self._again_s[name]
            elif now_s >= at_s:
                self._again_s[name] = (now_s + 2 * after_s, 2 * after_s)
                if self._broker.topology.towards(peer.old_broker) is not None:
                    self._hand_over_to_here(peer, now_s)

    # ---- the path and the old broker ----

    def handover(self, source: Peer, message: Handover, now_s: float) -> None:
        """All that went to the old broker alone stands before this marker.

        Where an assistant gives publications another way nothing stands before it: it stops, and the client stays.
        """
        broker = self._broker
        towards = None if message.old_broker == broker.name else broker.topology.towards(message.old_broker)
        if self._may_be_overtaken(source.name) or self._may_be_overtaken(towards):
            broker.send(source.name, _answer(message, is_lost=True), now_s)
        elif message.old_broker == broker.name:
            self._hand_over(source, message, now_s)
        elif towards is not None and towards != source.name:
            self._note_publisher(message.client, message.stay, now_s, publishes=message.publishes)
            broker.send(towards, message, now_s)

    def _note_publisher(self, client: str, stay: int, now_s: float, *, publishes: bool) -> None:
        if publishes and self._broker.replacement is not None:
            self._publishers_until_s[client, stay] = now_s + UNDER_WAY_S

    def _may_be_overtaken(self, neighbour: str | None) -> bool:
        """Whether publications to or from a neighbour take two ways, so that a marker does not stand behind them."""
        replacement = self._broker.replacement
        return replacement is not None and neighbour is not None and replacement.assistance.divides(neighbour)

    def must_wait(self, source: str, message: Handover, item: Item | None, now_s: float) -> bool:
        """Whether the marker waits: for publications that stand before it, and for the record of what it does."""
        broker = self._broker
        if broker.takeover.returning:
            broker.takeover.hold_handover((source, message, item))
            return True
        if broker.takeover.streams.holds_from(source):
            broker.takeover.streams.hold_behind((source, message, item, -1))
            return True
        if message.old_broker != broker.name:
            return False
        if broker.safe is not None and broker.safe.must_wait_for_disk(message.client):
            broker.safe.hold_behind_disk(message.client, (source, message, item))
            return True
        if self._must_record_first(source, message, now_s):
            broker.records.hold(source, message, item)
            return True
        return False

    def _must_record_first(self, source: str, message: Handover, now_s: float) -> bool:
        client = self._broker.peers.get(message.client)
        if self._may_be_overtaken(source):
            return False
        if client is None or client.session != message.session:
            return False
        if client.role != "client" or client.is_leaving or message.stay <= max(client.stay, client.burned):
            return False
        if client.leaving_for < message.stay:
            client.leaving_for = message.stay
            self._broker.records.changed(client, now_s)
        return not self._broker.records.is_kept

    def _hand_over(self, source: Peer, message: Handover, now_s: float) -> None:
        client = self._broker.peers.get(message.client)
        if client is not None and client.role == "client" and client.session == message.session:
            if client.stay < message.stay <= client.burned:
                return  # it stays
            if client.stay < message.stay and not client.is_leaving:
                self._end_stay(client, message.stay, message.cause, now_s)
        self._broker.send(source.name, _answer(message), now_s)

    def _end_stay(self, client: Peer, stay: int, cause: str, now_s: float) -> None:
        broker = self._broker
        client.left_with = broker.records.record_of(client)
        client.left_for = stay
        broker.send(client.name, End(stay=stay, cause=cause), now_s)
        is_publisher = bool(client.advertisements)
        broker.interests.end_all_of(client, now_s)
        self.moved_out_count += 1
        if is_publisher:
            broker.agents.tell_all(PublisherTurned(client.name, cause), now_s)
        broker.admission.tell_of_move(ClientLeft(client.name, cause), now_s)

    def stay(self, peer: Peer, message: Stay, now_s: float) -> None:
        """A client wants to burn a stay elsewhere; if its marker has come, the end is on its way to the client."""
        number = message.stay
        broker = self._broker
        if peer.role != "client" or peer.is_leaving:
            return
        if broker.takeover.awaits_records:
            broker.takeover.hold_client(peer.name, message, peer.epoch)
            return
        if number <= peer.leaving_for:
            if not self._must_wait_to_end(peer, message):
                self._end_stay(peer, number, message.cause, now_s)
            return
        peer.burned = max(peer.burned, number)
        broker.records.changed(peer, now_s)
        broker.records.say(peer.name, Stayed(stay=number), now_s)

    def _must_wait_to_end(self, peer: Peer, message: Stay) -> bool:
        """Whether a stay whose end is recorded does not end yet.

        The marker may be on its way, or come again from who retained it; if it was done and its answer, the end, died
        with the earlier incarnation, nobody says it again.
        """
        broker, held = self._broker, (peer.name, message, None)
        if broker.takeover.is_learning or broker.takeover.returning:
            broker.takeover.hold_handover(held)
        elif broker.safe is not None and broker.safe.must_wait_for_disk(peer.name):
            broker.safe.hold_behind_disk(peer.name, held)
        elif not broker.records.is_kept:
            broker.records.hold(*held)
        else:
            return False
        return True

    def complete(self, source: Peer, message: Complete, now_s: float) -> list[Effect]:
        """The answer of a client's old broker: all that it published there has passed this broker."""
        broker = self._broker
        effects = [] if message.is_lost else broker.ordering.release(broker.takeover.streams.passed(message), now_s)
        if not message.new_broker:
            broker.send_to_others(source.name, message, now_s)
            return effects
        was_under_way = self._publishers_until_s.pop((message.client, message.stay), None) is not None
        if was_under_way and broker.replacement is not None:  # an assistant may have waited for that
            broker.replacement.assistance.begin_if_still(now_s)
        if message.publishes and not message.is_lost:
            broker.agents.tell_all(PublisherTurned(message.client, message.cause), now_s)
        if message.new_broker != broker.name:
            towards = broker.topology.towards(message.new_broker)
            if towards is not None:
                broker.send(towards, message, now_s)
            return effects
        peer = broker.peers.get(message.client)
        if peer is None or (peer.session, peer.stay) != (message.session, message.stay) or not peer.old_broker:
            return effects
        if message.is_lost:
            self._strand(peer, now_s)
        else:
            self._answered(peer, now_s)
            broker.send(peer.name, Resume(stay=peer.stay, cause=peer.cause), now_s)
        return effects

    def _strand(self, peer: Peer, now_s: float) -> None:
        """No marker passes between here and a client's old broker: the client asks that itself what becomes of it."""
        self._answered(peer, now_s)
        self._broker.send(peer.name, Stranded(stay=peer.stay, cause=peer.cause), now_s)

    def _answered(self, peer: Peer, now_s: float) -> None:
        if self._broker.observer is not None:
            self._broker.observer.came(peer.name, peer.old_broker, peer.cause, now_s)
        peer.old_broker, peer.publishes = "", False
        self._again_s.pop(peer.name, None)
        self._broker.records.changed(peer, now_s)


def _about(stay: int) -> str:
    """What a refusal of a move is about."""
    return f"stay {stay}"


def _answer(message: Handover, *, is_lost: bool = False) -> Complete:
    return Complete(
        client=message.client,
        session=message.session,
        stay=message.stay,
        new_broker=message.new_broker,
        publishes=message.publishes,
        is_lost=is_lost,
        cause=message.cause,
    )
