"""How the output queues of a simulated broker share its bandwidth: in turns, by deadline, first in, first out ..."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Literal, TypeAlias

from trimtab.broker.core import Broker
from trimtab.broker.turns import Turns
from trimtab.simulation.clock import Clock

Uplink: TypeAlias = Literal["turns", "deadlines", "fifo", "control-first"]
"""turns: each peer with something to send sends one frame, then the next; deadlines: as latency requirements want
(`trimtab.broker.turns`); fifo: what was queued first is sent first, whoever it is for, as over one line with one queue;
control-first: in turns, but whoever is to be told something by control messages comes before those who are not, as in
processes with enforced capacities.
"""


class FirstInFirstOut:
    """Peers in the order of their messages: each stands in line as often as something was queued for it.

    >>> line = FirstInFirstOut()
    >>> for peer in ("a", "b", "a"):
    ...     line[peer] = None
    >>> line.setdefault("b")  # has a place already
    >>> [line.popitem()[0] for _ in range(3)], bool(line)
    (['a', 'b', 'a'], False)
    """

    def __init__(self) -> None:
        self._line: deque[str] = deque()
        self._counts: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._line)

    def __setitem__(self, peer: str, nothing: None) -> None:
        """Something was queued for a peer."""
        self._line.append(peer)
        self._counts[peer] = self._counts.get(peer, 0) + 1

    def setdefault(self, peer: str) -> None:
        """A peer has more to send: it has a place for that, or is given one."""
        if not self._counts.get(peer):
            self[peer] = None

    def popitem(self, last: bool = False) -> tuple[str, None]:
        """The peer whose turn it is."""
        peer = self._line.popleft()
        self._counts[peer] -= 1
        return peer, None


class ControlFirst:
    """Peers for whom a control message waits, in turn, and then the others, in turn."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._urgent: OrderedDict[str, None] = OrderedDict()
        self._others: OrderedDict[str, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._others)

    def __setitem__(self, peer: str, nothing: None) -> None:
        """Something was queued for a peer."""
        known = self._broker.peers.get(peer)
        is_urgent = known is not None and known.link.queued_count > known.link.queued_data_count
        (self._urgent if is_urgent else self._others)[peer] = None

    def setdefault(self, peer: str) -> None:
        """A peer has more to send."""
        self[peer] = None

    def popitem(self, last: bool = False) -> tuple[str, None]:
        """The peer whose turn it is."""
        return (self._urgent or self._others).popitem(last=False)


class ByDeadline:
    """Peers in the order that their latency requirements want."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._turns = Turns()

    def __bool__(self) -> bool:
        return bool(self._turns)

    def __setitem__(self, peer: str, nothing: None) -> None:
        """Something was queued for a peer."""
        known = self._broker.peers.get(peer)
        count = 1 if known is None else known.link.queued_count
        self._turns.waits(peer, count, self._broker.within_of(peer), self._clock.now_s)

    def setdefault(self, peer: str) -> None:
        """A peer has more to send."""
        self[peer] = None

    def popitem(self, last: bool = False) -> tuple[str, None]:
        """The peer whose turn it is."""
        return self._turns.take(self._clock.now_s), None
