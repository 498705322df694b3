"""What a broker does about neighbours that fail: it watches them, and has them replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.broker.peers import Peer
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import AnyMessage, Neighbours
from trimtab.replication.config import ReplicationConfig
from trimtab.replication.detection import Signs, Verdict
from trimtab.replication.watch import NeighbourWatch

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Replacement:
    """One broker's part in the replacement of others."""

    def __init__(self, broker: Broker, config: ReplicationConfig) -> None:
        self._broker = broker
        self.config = config
        self._watch = NeighbourWatch(broker.name, broker.config.address, config)

    # ---- watching ----

    def neighbour_came(self, peer: Peer, now_s: float) -> None:
        """A neighbour is new, or has begun another life."""
        self._watch.came(peer.name, peer.session, now_s)
        self.tell_neighbours(now_s)

    def neighbour_gone(self, name: str, now_s: float) -> None:
        """A link was taken away for good."""
        self._watch.gone(name)
        self.tell_neighbours(now_s)

    def tell_neighbours(self, now_s: float) -> None:
        """Tell each neighbour who the others are."""
        peers = [peer for peer in self._broker.peers.values() if peer.role == "broker"]
        for peer in peers:
            others = {other.name: other.behind.get(other.name, "") for other in peers if other is not peer}
            message = Neighbours(names=tuple(others), addresses=tuple(others.values()))
            self._broker.send(peer.name, message, now_s)

    def neighbours_of(self, name: str) -> dict[str, str]:
        """The neighbours of a neighbour, this broker included, and their addresses."""
        return self._watch.neighbours_of(name)

    def verdicts(self) -> dict[str, Verdict]:
        """How each neighbour is, as far as its link shows."""
        return self._watch.verdicts()

    def retire(self) -> None:
        """Watch no more, for the end of an experiment."""
        self._watch.retire()

    def wake_at_s(self) -> float | None:
        """When there is something to do."""
        return self._watch.wake_at_s()

    def wake(self, now_s: float) -> list[Effect]:
        """Do what is due."""
        return [*self._watch.look(self._signs_of, self._ask, now_s)]

    def _signs_of(self, name: str) -> Signs:
        link = self._broker.peers[name].link
        return Signs(link.connected, link.expects + link.acks_count, link.queued_data_count)

    def _ask(self, name: str) -> None:
        self._broker.peers[name].link.ask()
        self._broker.touch(name)

    # ---- messages ----

    def handle(self, peer: Peer, message: AnyMessage, now_s: float) -> list[Effect]:
        """A message about neighbours and replicas."""
        match message:
            case Neighbours():
                self._watch.told(peer.name, message)
            case _:
                pass  # for replicas and those that they replace
        return []
