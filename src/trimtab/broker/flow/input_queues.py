"""What has arrived at a broker and waits for its turn: control first, then data, of which some must wait.

**Holding back.** A queue to a neighbour above its mark, or under the slow policy "block" one to a client, is congested
until half of it is gone. Meanwhile data from every source that could add to it stays in the input, unprocessed; the
source's credit runs out (`Link`), its queue fills, and so on back to the publishers, whose windows fill. Data from A
through this broker B waits only for queues from B to others than A: in a tree no chain of such waiting comes back to
where it began, so that somebody can always go on, and nothing waits for ever. (A client's queue waits for its
application alone, which must not make its reading wait for its own publishing.) Control is never held back.

A broker that does not know its routes yet holds all data back (`is_gated`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from trimtab.broker.peers import Peer
from trimtab.protocol.messages import AnyMessage, Publish, is_control

Item = tuple[str, AnyMessage]
"""A message and who it came from."""


class InputQueues:
    """The input of one broker."""

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        self._peers = peers
        self.control: deque[tuple[str, AnyMessage, int]] = deque()
        """Control messages, each with the epoch of the link over which it was said: in another one it is void."""
        self.data: deque[Item] = deque()
        self.held: deque[Item] = deque()
        """Data that must wait for a congested queue; of each source everything is either here or in `data`."""
        self.congested: dict[str, None] = {}
        """Those whose output queue is congested."""
        self.same_side: dict[str, str] = {}
        """Assistants of neighbours: what comes from them never goes to those neighbours."""
        self.is_gated = False
        """Whether all data must wait."""
        self._stopped: dict[str, None] = {}
        """Clients whose data must wait, for the end of an earlier stream of theirs or for room on the disk."""

    def add(self, source: str, messages: Iterable[AnyMessage], epoch: int) -> int:
        """Messages have arrived in an epoch of their link; returns how many of them are data."""
        control, data = self.control, self.data_from(source)
        data_count = 0
        for message in messages:
            if is_control(message):
                control.append((source, message, epoch))
            else:
                data.append((source, message))
                data_count += 1
        return data_count

    def add_first(self, items: Sequence[Item]) -> None:
        """Data takes its place before all that waits."""
        self.held.extendleft(reversed(items))
        self._sort()

    def data_from(self, source: str) -> deque[Item]:
        """Where data of a source waits now."""
        must_wait = self.is_gated or source in self._stopped or (self.congested and self._must_wait(source))
        return self.held if must_wait else self.data

    def stop(self, source: str, message: AnyMessage) -> None:
        """Let the data of a client wait from a message on whose turn has come."""
        self._stopped[source] = None
        self._sort()
        self.held.appendleft((source, message))

    def let_go(self) -> None:
        """Let no client's data wait for an earlier stream or for the disk; whoever must is stopped again."""
        if self._stopped:
            self._stopped.clear()
            self._sort()

    def gate(self, *, is_closed: bool) -> None:
        """Let all data wait, or no more than must wait for congested queues."""
        if self.is_gated != is_closed:
            self.is_gated = is_closed
            self._sort()

    def data_count_from(self, source: str) -> int:
        """Data of a source that waits for its turn."""
        return sum(item[0] == source for queue in (self.data, self.held) for item in queue)

    def remove_data_of(self, source: str) -> None:
        """What a source has said and what waits for its turn is void."""
        for queue in (self.data, self.held):
            _keep(queue, [item for item in queue if item[0] != source])

    def congest(self, peer: Peer) -> None:
        """The output queue of a peer is above its mark."""
        if peer.name not in self.congested:
            self.congested[peer.name] = None
            self._sort()

    def relieve(self, peer: Peer) -> None:
        """Something was sent to a peer: go on with what was held back if half of a congested queue is gone.

        What an assistant is sent was in the queue of the neighbour that it assists.
        """
        for name in (peer.name, self.same_side.get(peer.name, "")):
            congested = self._peers.get(name) if name in self.congested else None
            if congested is not None and len(congested.queue) <= congested.queue_max_count // 2:
                del self.congested[name]
                self._sort()

    def remove(self, peer: Peer) -> None:
        """A peer is gone: what a neighbour passed on stays, and nothing that it said itself."""
        control = [item for item in self.control if item[0] != peer.name]
        self.control.clear()
        self.control.extend(control)
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
