"""Whose message leaves next over the uplink that a broker's peers share: control first, then by a policy.

Both worlds ask here: processes with an enforced bandwidth and simulated brokers. A peer for whom a control message
waits comes before all others, in turn with those like it, so that no backlog of publications delays what keeps the
network together.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Literal, Protocol, TypeAlias

from trimtab.broker.flow.fair_queue import FairScheduler
from trimtab.broker.peers import Peer

Uplink: TypeAlias = Literal["turns", "deadlines"]
"""turns: each peer sends one message, then the next; deadlines: as latency requirements want
(`trimtab.broker.flow.fair_queue`)."""

AnyUplink: TypeAlias = Literal["turns", "deadlines", "fifo"]
"""For comparison, in simulations: fifo, what was queued first leaves first, control or not, as over one line."""


class _Order(Protocol):
    """Peers with something to send, in the order of a policy."""

    def __bool__(self) -> bool: ...

    def waits(self, peer: str, now_s: float) -> None: ...

    def goes_on(self, peer: str, now_s: float) -> None: ...

    def take(self, now_s: float) -> str: ...


class UplinkScheduler:
    """The peers that wait for a broker's uplink.

    >>> from trimtab.protocol.link import Link, LinkConfig
    >>> from trimtab.protocol.messages import Confirmed
    >>> peers = {name: Peer(name, "client", "1", Link(LinkConfig()), 100) for name in ("a", "b", "c")}
    >>> peers["c"].link.enqueue(Confirmed(id="x"), 0.0)
    >>> uplink = UplinkScheduler(peers)
    >>> uplink.add(peers, 0.0)
    >>> uplink.take(0.0), uplink.take(0.0), uplink.take(0.0)
    ('c', 'a', 'b')
    """

    def __init__(self, peers: Mapping[str, Peer], policy: AnyUplink = "turns") -> None:
        self._peers = peers
        self._urgent: OrderedDict[str, None] = OrderedDict()
        """Those for whom control waits."""
        self._turns: OrderedDict[str, None] = OrderedDict()
        """The others where each peer sends once, then the next."""
        self._order: _Order | None = None
        """The others in another order."""
        if policy != "turns":
            self._order = _FirstInFirstOut() if policy == "fifo" else _ByDeadline(peers)
        self._has_urgent = policy != "fifo"

    def __bool__(self) -> bool:
        return bool(self._urgent or self._turns or self._order)

    def add(self, names: Iterable[str], now_s: float) -> None:
        """Something new waits for these peers."""
        peers, urgent, turns, order = self._peers, self._urgent, self._turns, self._order
        for name in names:
            peer = peers.get(name)
            if peer is not None and peer.link.control and self._has_urgent:
                urgent[name] = None
            elif order is None:
                turns[name] = None
            else:
                order.waits(name, now_s)

    def goes_on(self, name: str, now_s: float) -> None:
        """More waits for a peer behind what was sent in its turn."""
        if self._order is None or (self._has_urgent and name in self._peers and self._peers[name].link.control):
            self.add((name,), now_s)
        else:
            self._order.goes_on(name, now_s)

    def take(self, now_s: float) -> str:
        """The peer whose turn it is to send one message, empty if there is none."""
        if self._urgent:
            return self._urgent.popitem(last=False)[0]
        if self._turns:
            return self._turns.popitem(last=False)[0]
        return self._order.take(now_s) if self._order else ""


class _ByDeadline:
    """Peers in the order that their latency requirements want."""

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        self._peers = peers
        self._turns = FairScheduler()

    def __bool__(self) -> bool:
        return bool(self._turns)

    def waits(self, peer: str, now_s: float) -> None:
        known = self._peers.get(peer)
        if known is not None:
            self._turns.waits(peer, known.link.queued_count, known.strictest_within_s(), now_s)

    goes_on = waits

    def take(self, now_s: float) -> str:
        return self._turns.take(now_s)


class _FirstInFirstOut:
    """Peers in the order of their messages: each stands in line as often as something was queued for it."""

    def __init__(self) -> None:
        self._line: deque[str] = deque()
        self._counts: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._line)

    def waits(self, peer: str, now_s: float) -> None:
        self._line.append(peer)
        self._counts[peer] = self._counts.get(peer, 0) + 1

    def goes_on(self, peer: str, now_s: float) -> None:
        if not self._counts.get(peer):
            self.waits(peer, now_s)

    def take(self, now_s: float) -> str:
        peer = self._line.popleft()
        self._counts[peer] -= 1
        return peer
