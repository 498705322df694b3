"""What an assistant does besides routing: it keeps publications for late subscriptions, and passes markers on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.broker.assistance import PassedOn
from trimtab.broker.peers import Peer
from trimtab.language import Filter
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import Progress, Publish, one_hop_further
from trimtab.replication.kept import KeptPublications

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class AssistantDuties:
    """A stage of an assistant: its duties towards the neighbours of the broker that it assists; clients it has none."""

    def __init__(self, broker: Broker, kept_max_count: int) -> None:
        self._broker = broker
        self._kept = KeptPublications(kept_max_count)
        self._passed_on = PassedOn()
        self._markers: list[tuple[str, Progress]] = []
        broker.add_stage(self)

    def publication(self, source: str, message: Publish, place: int, now_s: float) -> list[Effect]:
        """Route a publication, keep it for late subscriptions, and note it for the next marker."""
        broker = self._broker
        hops = broker.tables.hops_for(message.values)
        effects = broker.after_stage(place, source, message, now_s)
        broker.passed_by_stand_in(message)
        if broker.takeover.is_learning and broker.config.replica == "incremental":
            self._kept.add(message, source, hops)
        if broker.config.reorders:
            self._passed_on.note(source, message)
        return effects

    def choose_hops(self, source: str, hops: list[str]) -> list[str]:
        """It goes to all who want it."""
        return hops

    def neighbour_came(self, peer: Peer) -> None:
        """It gets nothing before it says what it wants."""

    def subscribed(self, peer: Peer, filter: Filter) -> None:
        """A neighbour's subscription came late: it gets what has passed, if that was promised."""
        for message in self._kept.for_neighbour(peer.name, filter):
            peer.queue.append(one_hop_further(message))
            self._broker.touch(peer.name)

    def heard_all_from(self, neighbour: str) -> None:
        """It does not matter which of them have told all before all have."""

    def kept(self) -> list[Publish]:
        """What is kept for late subscriptions."""
        return self._kept.all()

    def end(self) -> None:
        """All neighbours have told what they know: what has passed is in order up to here."""
        self._kept = KeptPublications(1)
        for source, marker in self._markers:
            self._pass_on(source, marker)
        self._markers.clear()

    def progress(self, peer: Peer, marker: Progress) -> None:
        """A marker has its turn: it goes on, with what it is about, when nothing can come late any more."""
        sent = self._passed_on.take(peer.name)
        stamped = Progress(origin=marker.origin, number=marker.number, sent=sent)
        if self._broker.takeover.is_learning:
            self._markers.append((peer.name, stamped))
        else:
            self._pass_on(peer.name, stamped)

    def _pass_on(self, source: str, marker: Progress) -> None:
        for peer in self._broker.peers.values():
            if peer.role == "broker" and peer.name != source:
                peer.queue.append(marker)
                self._broker.touch(peer.name)
