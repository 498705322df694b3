"""What an assistant does besides routing: it keeps publications for late subscriptions, and passes markers on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.broker.assistance import PassedOn
from trimtab.broker.peers import Peer
from trimtab.broker.routing import Entry
from trimtab.protocol.effects import Effect
from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import Progress, Publish, Unclaimed, one_hop_further
from trimtab.replication.config import ReplicationConfig
from trimtab.replication.kept import KeptPublications

if TYPE_CHECKING:
    from trimtab.broker.core import Broker
    from trimtab.language import Filter


class AssistantDuties:
    """An assistant's duties towards the neighbours of the broker that it assists; clients it has none."""

    is_over = True
    """Whether all who may return have had the time for it: nobody was here before."""

    def __init__(self, broker: Broker, config: ReplicationConfig) -> None:
        self._broker = broker
        self._kept = KeptPublications(config.kept_max_count)
        self._passed_on = PassedOn()
        self._markers: list[tuple[str, Progress]] = []
        self.is_complete = False
        """Whether all neighbours have told what they know."""
        self._route = broker.on_publication
        broker.on_publication = self._publication

    def _publication(self, source: str, message: Publish, now_s: float) -> list[Effect]:
        broker = self._broker
        hops = broker.tables.hops_for(message.values)
        effects = self._route(source, message, now_s)
        if not self.is_complete and broker.config.replica == "incremental":
            self._kept.add(message, source, hops)
        if broker.config.reorders:
            self._passed_on.note(source, message)
        return effects

    def neighbour_subscribed(self, peer: Peer, filter: Filter, *, is_claim: bool, now_s: float) -> None:
        """A neighbour's subscription came late: it gets what has passed, if that was promised."""
        for message in self._kept.for_neighbour(peer.name, filter):
            peer.queue.append(one_hop_further(message))
            self._broker.touch(peer.name)

    def completed(self, now_s: float) -> None:
        """All neighbours have told what they know: what has passed is in order up to here."""
        self.is_complete = True
        self._kept = KeptPublications(1)
        for source, marker in self._markers:
            self._pass_on(source, marker)
        self._markers.clear()

    def progress(self, peer: Peer, marker: Progress) -> None:
        """A marker has its turn: it goes on, with what it is about, when nothing can come late any more."""
        sent = self._passed_on.take(peer.name)
        stamped = Progress(origin=marker.origin, number=marker.number, sent=sent)
        if self.is_complete:
            self._pass_on(peer.name, stamped)
        else:
            self._markers.append((peer.name, stamped))

    def _pass_on(self, source: str, marker: Progress) -> None:
        for peer in self._broker.peers.values():
            if peer.role == "broker" and peer.name != source:
                peer.queue.append(marker)
                self._broker.touch(peer.name)

    # ---- what only replicas do ----

    def neighbour_came(self, peer: Peer) -> None:
        """It gets nothing before it says what it wants."""

    def neighbour_told_all(self, name: str) -> None:
        """It does not matter which of them have told all before all have."""

    def unclaimed(self, peer: Peer, message: Unclaimed, now_s: float) -> None:
        """Nobody is absent."""

    def unclaimed_by_none(self, neighbour: str, now_s: float) -> None:
        """Nobody is absent."""

    def claimed(self, id: str, now_s: float) -> bool:
        """Nothing is kept for absent clients."""
        return False

    def holds_back(self, entry: Entry) -> bool:
        """Nothing waits for absent clients."""
        return False

    def client_came(self, peer: Peer, hello: Hello) -> None:
        """Clients do not come here."""

    def client_returned(self, peer: Peer, now_s: float) -> None:
        """Clients do not come here."""

    def wake_at_s(self) -> float | None:
        """Nothing is ever due."""
        return None

    def wake(self, now_s: float) -> None:
        """Nothing is ever due."""
