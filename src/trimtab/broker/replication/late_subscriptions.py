"""Publications at a replica that does not wait until it knows all routes, for subscriptions that come late.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, algorithm 5.

With the protocol `basic` what finds no route is lost. With `incremental` what has passed is kept until all routes are
known, and a neighbour's subscription that comes late gets it yet. With `incremental-ordered` neighbours that have not
told all their subscriptions get everything: they know who wants what behind them. Clients of the earlier incarnation
get what has passed when their records come, which is before anything that they say themselves is heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimtab.broker.peers import Peer
from trimtab.broker.replication.publication_store import PublicationStore
from trimtab.language import Filter
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import Publish, one_hop_further

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class LateRoutes:
    """A stage of a replica, until it knows all routes."""

    def __init__(self, broker: Broker, kept_max_count: int) -> None:
        self._broker = broker
        self._kept = PublicationStore(0 if broker.config.replica == "basic" else kept_max_count)
        self._sends_all = broker.config.replica == "incremental-ordered"
        self._told_all: dict[str, None] = {}
        """Neighbours that have told all their subscriptions."""
        broker.add_stage(self)

    def publication(self, source: str, message: Publish, place: int, now_s: float) -> list[Effect]:
        """Route a publication as ever, and keep it."""
        broker = self._broker
        before_count = broker.counters.publications_in_count
        hops = self.choose_hops(source, broker.tables.hops_for(message.values))
        effects = broker.after_stage(place, source, message, now_s)
        if broker.observer is not None:
            broker.observer.passed_by_stand_in(message)
        if broker.counters.publications_in_count > before_count:
            self._kept.add(message, source, hops)
        return effects

    def choose_hops(self, source: str, hops: list[str]) -> list[str]:
        """A neighbour that has not told all its subscriptions gets everything, if that is the protocol."""
        if not self._sends_all:
            return hops
        others = [name for name in self._broker.tables.neighbours if name not in self._told_all]
        return [*hops, *(name for name in others if name != source and name not in hops)]

    def neighbour_came(self, peer: Peer) -> None:
        """A neighbour is there: if it gets everything, it gets what has passed before it came."""
        if self._sends_all:
            self._give(peer, self._kept.for_neighbour_all(peer.name))

    def subscribed(self, peer: Peer, filter: Filter) -> None:
        """A neighbour's subscription came late: it gets what has passed."""
        if not self._sends_all:
            self._give(peer, self._kept.for_neighbour(peer.name, filter))

    def client_known(self, peer: Peer, filters: Sequence[Filter]) -> None:
        """A client of the earlier incarnation is known now, with all it wants: it gets what has passed."""
        self._give(peer, self._kept.for_client(filters))

    def heard_all_from(self, neighbour: str) -> None:
        """A neighbour has told all its subscriptions."""
        self._told_all[neighbour] = None

    def kept(self) -> list[Publish]:
        """What is kept."""
        return self._kept.all()

    def end(self) -> None:
        """All routes are known."""
        self._broker.remove_stage(self)

    def _give(self, peer: Peer, missed: list[Publish]) -> None:
        peer.again_count += len(missed)
        for message in missed:
            peer.queue.append(one_hop_further(message))
            self._broker.output.touch(peer.name)
