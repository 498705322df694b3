"""What an assistant does besides routing: it keeps publications for late subscriptions, passes markers on, and leaves.

It leaves when it has had nothing to do for a while. All neighbours are told, and when all have said that nothing comes
any more, and all that it had is done, it says so to them and is dismissed (`divisions.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.broker.peers import Peer
from trimtab.broker.replication.assistance import PassedOn
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.broker.replication.publication_store import PublicationStore
from trimtab.language import Filter
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import OneWay, Progress, Publish, Relieved, one_hop_further

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class AssistantDuties:
    """A stage of an assistant: its duties towards the neighbours of the broker that it assists; clients it has none."""

    def __init__(self, broker: Broker, config: ReplicationConfig) -> None:
        self._broker = broker
        self._config = config
        self._kept = PublicationStore(config.kept_max_count)
        self._passed_on = PassedOn()
        self._markers: list[tuple[str, Progress]] = []
        self._due_s: float | None = None
        """When to look whether it is still needed, or what it had is done."""
        self._is_leaving = False
        self._ended: dict[str, None] = {}
        """Neighbours that send nothing more."""
        broker.add_stage(self)

    def publication(self, source: str, message: Publish, place: int, now_s: float) -> list[Effect]:
        """Route a publication, keep it for late subscriptions, and note it for the next marker."""
        broker = self._broker
        if not self._is_leaving:
            self._due_s = now_s + self._config.relieved_after_s
        hops = broker.tables.hops_for(message.values)
        effects = broker.after_stage(place, source, message, now_s)
        if broker.observer is not None:
            broker.observer.passed_by_stand_in(message)
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
            self._broker.output.touch(peer.name)

    def heard_all_from(self, neighbour: str) -> None:
        """It does not matter which of them have told all before all have."""

    def kept(self) -> list[Publish]:
        """What is kept for late subscriptions."""
        return self._kept.all()

    def end(self) -> None:
        """All neighbours have told what they know: what has passed is in order up to here."""
        self._kept = PublicationStore(1)
        self._due_s = self._broker.now_s + self._config.relieved_after_s
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
                self._broker.output.touch(peer.name)

    # ---- leaving ----

    def wake_at_s(self) -> float | None:
        """When to look again."""
        return self._due_s

    def wake(self, now_s: float) -> None:
        """Leave if there was nothing to do for long; not while somebody could not hear of it."""
        if self._due_s is None or now_s < self._due_s:
            return
        neighbours = self._neighbours()
        if not self._is_leaving:
            self._due_s = now_s + self._config.relieved_after_s
            if all(peer.link.connected for peer in neighbours) and not self._broker.takeover.is_learning:
                self._is_leaving = True
                self._due_s = None
                for peer in neighbours:
                    self._broker.send(peer.name, Relieved(), now_s)
        elif self._broker.data_count or any(peer.link.undelivered_data() for peer in neighbours):
            self._due_s = now_s + self._config.progress_every_s
        else:
            self._due_s = None
            for peer in neighbours:
                self._broker.send(peer.name, OneWay(), now_s)

    def one_way(self, source: str) -> None:
        """A neighbour sends nothing more."""
        self._ended[source] = None
        if self._is_leaving and all(peer.name in self._ended for peer in self._neighbours()):
            self._due_s = self._broker.now_s

    def _neighbours(self) -> list[Peer]:
        return [peer for peer in self._broker.peers.values() if peer.role == "broker"]
