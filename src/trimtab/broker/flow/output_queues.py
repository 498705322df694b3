"""What a broker has to send: who has a frame, what stands in it, and what becomes of a queue that is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.broker.flow.input_queues import InputQueues
from trimtab.broker.peers import Peer, Watch
from trimtab.broker.replication.gaps import DroppingLink
from trimtab.protocol.effects import Close, Effect
from trimtab.protocol.frames import Ack, Payload
from trimtab.protocol.link import Link
from trimtab.protocol.messages import Accepted, Publish

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class OutputQueues:
    """The output of one broker: the queues are those of its peers' links."""

    def __init__(self, broker: Broker, watch: Watch, input: InputQueues) -> None:
        self._broker = broker
        self._peers = broker.peers
        self._watch = watch
        self._watched = watch.planned_s
        self._input = input
        self._congested = input.congested
        self.maybe_sendable: dict[str, None] = {}
        """Peers to whom something has happened since they had nothing to send; asking all of thousands takes long."""
        self.client_queue_is_full = False
        """Whether a client's queue has come to its limit since the present step began."""

    def new_link(self) -> Link:
        """A link to a peer."""
        broker = self._broker
        if broker.safe is not None:
            return broker.safe.new_link()
        is_dropping = broker.config.slow_policy == "drop-oldest"
        return DroppingLink(broker.config.link) if is_dropping else Link(broker.config.link)

    # ---- who has a frame ----

    def touch(self, peer: str) -> None:
        """A peer may have a frame to send."""
        self.maybe_sendable[peer] = None

    def touched(self) -> dict[str, None]:
        """Peers to whom something has happened since this was last asked; no other can have a new frame to send."""
        touched, self.maybe_sendable = self.maybe_sendable, {}
        return touched

    def sendable(self) -> list[str]:
        """Peers with a frame to send."""
        ready: list[str] = []
        for name in list(self.maybe_sendable):
            peer = self._peers.get(name)
            if peer is not None and (peer.link.has_frame() or self._owes_acceptance(peer)):
                ready.append(name)
            else:
                del self.maybe_sendable[name]
        return ready

    def owes_only_ack(self, peer: str) -> bool:
        """Whether all that there is to send to a peer is an acknowledgement, which may wait a little."""
        known = self._peers.get(peer)
        if known is None or known.accepted_owed:
            return False
        return known.link.has_frame() and not known.link.has_more_than_ack()

    # ---- frames ----

    def take_frame(self, peer: str, now_s: float, messages_max_count: int) -> Payload | Ack | None:
        """The next frame for a peer, with up to so many messages; None if there is none now."""
        known = self._peers.get(peer)
        if known is None:
            return None
        self._say_acceptance(known, now_s)
        frame = known.link.take(now_s, messages_max_count)
        self._watch.add(known)
        if self._congested:
            self._input.relieve(known)
        return frame

    def take_frames(self, peer: str, now_s: float) -> list[Payload | Ack]:
        """All frames that can be sent to a peer now."""
        known = self._peers.get(peer)
        if known is None:
            return []
        if known.accepted_owed:
            self._say_acceptance(known, now_s)
        frames = known.link.take_all(now_s)
        if peer not in self._watched:
            self._watch.add(known)
        if self._congested:
            self._input.relieve(known)
        return frames

    def take_in_turn(self, peer: str, now_s: float) -> tuple[Payload | Ack | None, bool]:
        """The next frame for a peer, None if there is none now, and whether there may be another behind it."""
        known = self._peers.get(peer)
        if known is None:
            return None, False
        if known.accepted_owed:
            self._say_acceptance(known, now_s)
        taken = known.link.take_one(now_s)
        if peer not in self._watched:
            self._watch.add(known)
        if self._congested:
            self._input.relieve(known)
        return taken

    def _owes_acceptance(self, peer: Peer) -> bool:
        return peer.accepted_owed and peer.link.connected and not self._broker.fence_problem

    def _say_acceptance(self, peer: Peer, now_s: float) -> None:
        if self._owes_acceptance(peer):
            peer.accepted_owed = False
            until = peer.last_sequence if self._broker.safe is None else peer.safe_sequence
            peer.link.enqueue(Accepted(publisher=peer.name, sequence=until), now_s)

    # ---- queues that are full ----

    def filled(self, peer: Peer) -> list[Effect]:
        """A publication has filled an output queue: hold its sources back, or deal with a slow client."""
        slow_policy, observer = self._broker.config.slow_policy, self._broker.observer
        waiting_count = len(peer.queue)
        if waiting_count == peer.queue_max_count:
            self.client_queue_is_full |= peer.role == "client"
        elif peer.role == "broker" or slow_policy == "block":
            self._input.congest(peer)
        elif slow_policy == "drop-oldest":
            self._drop_oldest(peer)
        else:
            reason = f"too slow: {waiting_count:,} publications waited; read faster or ask for less"
            if observer is not None:
                observer.disconnected_as_slow(peer.name)
            return [Close(peer.name, reason)]
        if observer is not None and peer.role == "client":
            observer.client_queue_full(peer.name, peer.link.queued_data_count)
        return []

    def _drop_oldest(self, peer: Peer) -> None:
        """Give up the publication that has waited longest for a slow client, and count it."""
        broker = self._broker
        broker.gaps.about_to_drop(peer)
        dropped = peer.link.drop_oldest_data()
        if dropped is not None:
            broker.counters.dropped_count += 1
        if broker.observer is not None and isinstance(dropped, Publish):
            broker.observer.dropped(peer.name, dropped)
