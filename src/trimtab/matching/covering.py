"""The covering subscription set: the most general filters, and for every other filter one that covers it.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 2.1.2.

A broker forwards only filters that no other filter of its own covers; these are the covering set. Each remaining filter
has one witness, a filter that covers it, and each witness lists what it stands for. When a filter leaves, only what it
stood for is looked at again.

Deviation: the thesis keeps all covering relations as a partially ordered set. Here only the witnesses are kept; what
lies below a filter in that order is found by asking the matching engine, which costs less than keeping the order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable

import msgspec

from trimtab.language import Filter
from trimtab.matching.engines import Engine, new_index
from trimtab.matching.index import FilterIndex


class CoveringChange(msgspec.Struct, frozen=True):
    """What an addition or a removal did to the covering set, each in the order in which the filters were added."""

    entered: tuple[Hashable, ...] = ()
    """Keys that `CoveringSet.covering` lists now and did not before."""

    left: tuple[Hashable, ...] = ()
    """Keys that it listed before and does not list now."""

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.entered or self.left)


_UNCHANGED = CoveringChange()


class CoveringSet:
    """Filters under keys, with the set of those that no other covers.

    Of several filters that are equal, or equal in meaning, the one added first stands for all as long as it is there.

    >>> subscriptions = CoveringSet()
    >>> subscriptions.add("all", Filter.parse("[class,eq,'STOCK']"))
    CoveringChange(entered=('all',), left=())
    >>> subscriptions.add("some", Filter.parse("[class,eq,'STOCK'],[volume,>,1000]"))
    CoveringChange(entered=(), left=())
    >>> subscriptions.covering(), subscriptions.covered_by("some"), subscriptions.descendants("all")
    (['all'], 'all', ['some'])
    >>> subscriptions.remove("all")
    CoveringChange(entered=('some',), left=('all',))
    """

    def __init__(self, engine: Engine = "auto") -> None:
        self._nodes: dict[Filter, _Node] = {}
        self._node_by_key: dict[Hashable, _Node] = {}
        self._roots: dict[_Node, None] = {}
        self._all_index: FilterIndex[_Node] = new_index(engine)
        self._root_index: FilterIndex[_Node] = new_index(engine)
        self._filters_added_count = 0

    def add(self, key: Hashable, filter: Filter) -> CoveringChange:
        """Store a filter under a key that is not in use, otherwise raise a KeyError."""
        if key in self._node_by_key:
            raise KeyError(f"the key {key!r} is already in use")
        change = _UNCHANGED
        node = self._nodes.get(filter)
        if node is None:
            witness = self._all_index.find_covering(filter)
            node = _Node(filter, self._filters_added_count)
            self._filters_added_count += 1
            self._all_index.add(node, filter)
            self._nodes[filter] = node
            if witness is not None:
                witness.stand_for(node)
            else:
                demoted = sorted(self._root_index.find_covered(filter), key=_number)
                for root in demoted:
                    self._remove_root(root)
                    node.stand_for(root)
                self._add_root(node)
                change = CoveringChange(entered=(key,), left=tuple(root.first_key for root in demoted))
        node.keys[key] = None
        self._node_by_key[key] = node
        return change

    def remove(self, key: Hashable) -> CoveringChange:
        """Forget the filter under a key, or raise a KeyError if there is none."""
        node = self._node_of(key)
        del self._node_by_key[key]
        was_listed = node.witness is None and node.first_key == key
        del node.keys[key]
        if node.keys:
            return CoveringChange(entered=(node.first_key,), left=(key,)) if was_listed else _UNCHANGED
        del self._nodes[node.filter]
        self._all_index.remove(node)
        if node.witness is not None:
            del node.witness.children[node]
            for child in node.children:
                node.witness.stand_for(child)
            return _UNCHANGED
        self._remove_root(node)
        promoted = self._rehome(sorted(node.children, key=_number))
        return CoveringChange(entered=tuple(root.first_key for root in promoted), left=(key,))

    def covering(self) -> list[Hashable]:
        """The first key of each filter that no other covers, in the order in which the filters were added."""
        return [root.first_key for root in sorted(self._roots, key=_number)]

    def is_covering(self, key: Hashable) -> bool:
        """Whether `covering` lists the key."""
        node = self._node_of(key)
        return node.witness is None and node.first_key == key

    def covered_by(self, key: Hashable) -> Hashable | None:
        """A key whose filter covers this key's filter, None if `covering` lists this key.

        For the second and later keys of one filter that is its first key. Where several filters cover one, which of
        them is named depends on the engine and on history.
        """
        node = self._node_of(key)
        if node.first_key != key:
            return node.first_key
        return None if node.witness is None else node.witness.first_key

    def descendants(self, key: Hashable) -> list[Hashable]:
        """The keys of all other filters that this key's filter covers, in the order in which the filters were added.

        Other keys of the very same filter are not listed; `twins` has them.
        """
        node = self._node_of(key)
        return _keys(self._all_index.find_covered(node.filter, node))

    def twins(self, key: Hashable) -> list[Hashable]:
        """The keys under which this key's filter is stored, this one included, in the order of their addition."""
        return list(self._node_of(key).keys)

    def find_covering(self, filter: Filter) -> Hashable | None:
        """A key whose filter covers the given one, None if the filter would enter the covering set.

        >>> subscriptions = CoveringSet()
        >>> _ = subscriptions.add("all", Filter.parse("[class,eq,'STOCK']"))
        >>> subscriptions.find_covering(Filter.parse("[class,eq,'STOCK'],[volume,>,1000]"))
        'all'
        """
        node = self._nodes.get(filter) or self._all_index.find_covering(filter)
        return None if node is None else node.first_key

    def find_covered(self, filter: Filter) -> list[Hashable]:
        """The keys of all filters that the given one covers, in the order in which the filters were added."""
        return _keys(self._all_index.find_covered(filter))

    def filter_of(self, key: Hashable) -> Filter:
        """The filter under a key, in normal form."""
        return self._node_of(key).filter

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._node_by_key)

    def __contains__(self, key: object) -> bool:
        """Whether a filter is stored under the key."""
        return key in self._node_by_key

    def _node_of(self, key: Hashable) -> _Node:
        node = self._node_by_key.get(key)
        if node is None:
            raise KeyError(f"unknown key {key!r}")
        return node

    def _add_root(self, node: _Node) -> None:
        self._roots[node] = None
        self._root_index.add(node, node.filter)

    def _remove_root(self, node: _Node) -> None:
        del self._roots[node]
        self._root_index.remove(node)

    def _rehome(self, orphans: list[_Node]) -> list[_Node]:
        """Find a witness for each filter whose witness, a member of the covering set, has left; return the new members.

        A new member never covers an old one: what covered the new member covered the old one too.
        """
        for orphan in orphans:
            orphan.witness = None
        promoted: list[_Node] = []
        for orphan in orphans:
            witness = self._find_witness(orphan, orphans)
            if witness is not None:
                witness.stand_for(orphan)
            else:
                self._add_root(orphan)
                promoted.append(orphan)
        return promoted

    def _find_witness(self, orphan: _Node, orphans: list[_Node]) -> _Node | None:
        """A filter that covers the orphan and does not, directly or through others, have it as witness."""
        found = self._all_index.find_covering(orphan.filter, orphan)
        if found is None or _may_stand_for(found, orphan):
            return found
        found = self._root_index.find_covering(orphan.filter)
        if found is not None:
            return found
        others = (other for other in orphans if other is not orphan and other.filter.covers(orphan.filter))
        return next((other for other in others if _may_stand_for(other, orphan)), None)


class _Node:
    """A distinct filter: its number in the order of addition, its keys, its witness, and what it is the witness of."""

    __slots__ = ("children", "filter", "keys", "number", "witness")

    def __init__(self, filter: Filter, number: int) -> None:
        self.filter = filter
        self.number = number
        # The first key must be found quickly however many before it have been removed; a dict does not promise that.
        self.keys: OrderedDict[Hashable, None] = OrderedDict()
        self.witness: _Node | None = None
        self.children: dict[_Node, None] = {}

    @property
    def first_key(self) -> Hashable:
        return next(iter(self.keys))

    def stand_for(self, child: _Node) -> None:
        child.witness = self
        self.children[child] = None


def _number(node: _Node) -> int:
    return node.number


def _keys(nodes: Iterable[_Node]) -> list[Hashable]:
    return [key for node in sorted(nodes, key=_number) for key in node.keys]


def _may_stand_for(witness: _Node, node: _Node) -> bool:
    """Whether the first filter, which covers the second, may become its witness.

    Filters may be equal in meaning without being equal: then the older one stands for the younger, never the reverse.
    """
    above: _Node | None = witness
    while above is not None:
        if above is node:
            return False
        above = above.witness
    return witness.number < node.number or not node.filter.covers(witness.filter)
