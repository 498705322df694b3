"""The brokers that a trace session reached, as a tree, with what lies on either side of each link.

Every sum that selection needs at every candidate follows from sums over subtrees: one pass from the leaves to the root,
and one back, instead of one walk over the whole tree for each candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.policies.relocation.grape_tracing import BrokerTrace


class TraceTree:
    """Brokers in an order in which each comes after its parent; the root is the publisher's broker.

    >>> tree = TraceTree("B1", [
    ...     BrokerTrace(broker="B1", neighbours=("B2", "B9"), bits_hex="1"),
    ...     BrokerTrace(broker="B2", neighbours=("B1",), bits_hex="6"),
    ... ], published_count=4)
    >>> tree.names, tree.parents, tree.below, tree.beyond
    (['B1', 'B2'], [-1, 0], [7, 6], [0, 1])
    """

    def __init__(self, root: str, traces: Sequence[BrokerTrace], published_count: int) -> None:
        by_name = {trace.broker: trace for trace in traces}
        if root not in by_name:
            raise ValueError(f"the trace of the publisher's broker {root} is missing")
        self.published_count = published_count
        """Publications of the session, whether anybody wanted them or not."""
        self.names: list[str] = [root]
        self.parents: list[int] = [-1]
        self.children: list[list[int]] = [[]]
        linked = _links(by_name)
        seen = {root}
        place = 0
        while place < len(self.names):
            for name in linked[self.names[place]]:
                if name not in seen:
                    seen.add(name)
                    self.children[place].append(len(self.names))
                    self.names.append(name)
                    self.parents.append(place)
                    self.children.append([])
            place += 1
        self.traces = [by_name[name] for name in self.names]
        self.places = {name: place for place, name in enumerate(self.names)}
        self.links_s = [0.0, *(self._link_s(place) for place in range(1, len(self.names)))]
        """How long the link to the parent takes, one way."""
        self.below = self._below()
        """Publications delivered at each broker or behind it, seen from the root."""
        self.beyond = self._beyond()
        """Publications delivered anywhere but there."""

    def _link_s(self, place: int) -> float:
        """Links take as long in both directions; the shorter of two measurements met less on its way."""
        here, there = self.traces[place], self.traces[self.parents[place]]
        known_s = [one.links_s[two.broker] for one, two in ((here, there), (there, here)) if two.broker in one.links_s]
        return min(known_s, default=0.0)

    def _below(self) -> list[int]:
        below = [trace.bits for trace in self.traces]
        for place in range(len(below) - 1, 0, -1):
            below[self.parents[place]] |= below[place]
        return below

    def _beyond(self) -> list[int]:
        """What lies on the parent's side of each broker: the parent's own, its siblings', and what is beyond it."""
        beyond = [0] * len(self.names)
        for place, children in enumerate(self.children):
            before = self.traces[place].bits | beyond[place]
            for child in children:
                beyond[child] = before
                before |= self.below[child]
            after = 0
            for child in reversed(children):
                beyond[child] |= after
                after |= self.below[child]
        return beyond

    def path_to(self, broker: str) -> list[int]:
        """The brokers from the root to another one, both included."""
        path = [self.places[broker]]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        return path[::-1]


def _links(by_name: Mapping[str, BrokerTrace]) -> dict[str, dict[str, None]]:
    """The links between brokers that have answered, whichever of the two ends names them."""
    linked: dict[str, dict[str, None]] = {name: {} for name in by_name}
    for name, trace in by_name.items():
        for other in trace.neighbours:
            if other in linked and other != name:
                linked[name][other] = None
                linked[other][name] = None
    return linked
