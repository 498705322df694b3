"""What has arrived at a broker and waits for its turn: control first, then data, of which some must wait.

**Holding back.** A queue to a neighbour above its mark, or under the slow policy "block" one to a client, is congested
until half of it is gone. Meanwhile data from every source that could add to it stays in the input, unprocessed; the
source's credit runs out (`Link`), its queue fills, and so on back to the publishers, whose windows fill. Data from A
through this broker B waits only for queues from B to others than A: in a tree no chain of such waiting comes back to
where it began, so that somebody can always go on, and nothing waits for ever. (A client's queue waits for its
application alone, which must not make its reading wait for its own publishing.) Control is never held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from trimtab.broker.peers import Peer
from trimtab.protocol.messages import AnyMessage, Publish, is_control

Item = tuple[str, AnyMessage]
"""A message and who it came from."""


class InputQueues:
    """The input of one broker."""

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        self._peers = peers
        self.control: deque[Item] = deque()
        self.data: deque[Item] = deque()
        self.held: deque[Item] = deque()
        """Data that must wait for a congested queue; of each source everything is either here or in `data`."""
        self.congested: dict[str, None] = {}
        """Those whose output queue is congested."""
        self.same_side: dict[str, str] = {}
        """Assistants of neighbours: what comes from them never goes to those neighbours."""

    def add(self, source: str, messages: Iterable[AnyMessage]) -> int:
        """Messages have arrived; returns how many of them are data."""
        control, data = self.control, self.data_from(source)
        data_count = 0
        for message in messages:
            if is_control(message):
                control.append((source, message))
            else:
                data.append((source, message))
                data_count += 1
        return data_count

    def data_from(self, source: str) -> deque[Item]:
        """Where data of a source waits now."""
        return self.held if self.congested and self._must_wait(source) else self.data

    def congest(self, peer: Peer) -> None:
        """The output queue of a peer is above its mark."""
        if peer.name not in self.congested:
            self.congested[peer.name] = None
            self._sort()

    def relieve(self, peer: Peer) -> None:
        """Go on with what was held back if half of a congested queue is gone."""
        if len(peer.queue) <= peer.queue_max_count // 2:
            del self.congested[peer.name]
            self._sort()

    def void_control(self, source: str) -> None:
        """What a source has said and what waits is void, its data aside."""
        _keep(self.control, (item for item in self.control if item[0] != source))

    def remove(self, peer: Peer) -> None:
        """A peer is gone: what a neighbour passed on stays, and nothing that it said itself."""
        self.void_control(peer.name)
        stays = Publish if peer.role == "broker" else ()
        for queue in (self.data, self.held):
            _keep(queue, (item for item in queue if item[0] != peer.name or isinstance(item[1], stays)))
        if peer.name in self.congested:
            del self.congested[peer.name]
            self._sort()

    def _must_wait(self, source: str) -> bool:
        """Whether data of a source could add to a congested queue: it never goes back to a neighbour it came from."""
        source = self.same_side.get(source, source)
        return any(name != source or self._peers[name].role == "client" for name in self.congested)

    def _sort(self) -> None:
        """Congestion has changed: data of each source may be processed or must wait, in its old order."""
        waiting = [*self.held, *self.data]
        self.held.clear()
        self.data.clear()
        queues: dict[str, deque[Item]] = {}
        for item in waiting:
            source = item[0]
            if source not in queues:
                queues[source] = self.data_from(source)
            queues[source].append(item)


def _keep(queue: deque[Item], items: Iterable[Item]) -> None:
    kept = list(items)
    queue.clear()
    queue.extend(kept)
