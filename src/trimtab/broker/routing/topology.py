"""Which brokers are reached through which neighbour, and where clients find them; and that no link closes a cycle."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from trimtab.broker.peers import Peer
from trimtab.policies.api import NeighboursChanged
from trimtab.protocol.effects import Close, Effect
from trimtab.protocol.messages import AnyMessage, Gone, Members

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Topology:
    """The brokers of the network as one of them sees them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def tell_members(self, peer: Peer, now_s: float) -> None:
        """Tell a neighbour which brokers it reaches through this one."""
        others = self.brokers_besides(peer)
        if peer.assists:
            return  # it is reached through nobody, and reaches nobody
        self._broker.send(peer.name, Members(names=tuple(others), addresses=tuple(others.values())), now_s)

    def brokers_besides(self, peer: Peer) -> dict[str, str]:
        """This broker and all that are reached through others than a neighbour, with their addresses."""
        others: dict[str, str] = {self._broker.name: self._broker.config.address}
        for known in self._broker.peers.values():
            if known is not peer:
                others.update(known.behind)
        return others

    def members_came(
        self, peer: Peer, names: tuple[str, ...], addresses: tuple[str, ...], now_s: float
    ) -> list[Effect]:
        """A neighbour tells of brokers that are reached through it, or where they are."""
        here = self._broker.name
        for name in names:
            elsewhere = any(name in other.behind for other in self._broker.peers.values() if other is not peer)
            if name == here or elsewhere:
                self._broker.sessions.remove(peer.name, now_s)
                return [Close(peer.name, f"the link between {here} and {peer.name} closes a cycle through {name}")]
        told = dict(zip_longest(names, addresses[: len(names)], fillvalue=""))
        new = {name: address for name, address in told.items() if peer.behind.get(name) != address}
        peer.behind.update(new)
        if new:
            self.tell_other_brokers(peer, Members(names=tuple(new), addresses=tuple(new.values())), now_s)
            self._broker.agents.tell_all(NeighboursChanged(), now_s)
            if self._broker.replacement is not None and peer.name in new:
                self._broker.replacement.tell_neighbours(now_s)
        return []

    def members_gone(self, peer: Peer, names: tuple[str, ...], now_s: float) -> None:
        """A neighbour tells of brokers that are no longer reached through it."""
        gone = tuple(name for name in names if peer.behind.pop(name, None) is not None)
        if gone:
            self.tell_other_brokers(peer, Gone(names=gone), now_s)
            self._broker.moves.look_for_ways(now_s)
            self._broker.agents.tell_all(NeighboursChanged(), now_s)

    def only_behind(self, peer: Peer, names: tuple[str, ...], now_s: float) -> None:
        """No other brokers than these are reached through a neighbour."""
        self.members_gone(peer, tuple(name for name in peer.behind if name not in names), now_s)

    def tell_other_brokers(self, source: Peer, message: AnyMessage, now_s: float) -> None:
        """Pass something on to all neighbours but the one that it came from."""
        for peer in self._broker.peers.values():
            if peer is not source and peer.role == "broker" and not peer.assists:
                self._broker.send(peer.name, message, now_s)

    def cycle_with(self, name: str) -> str:
        """Why a new link to a broker would close a cycle, empty if it would not.

        >>> from trimtab.broker.config import BrokerConfig
        >>> from trimtab.broker.core import Broker
        >>> Broker(BrokerConfig("B1")).topology.cycle_with("B2")
        ''
        """
        through = next((peer.name for peer in self._broker.peers.values() if name in peer.behind), None)
        if through is None:
            return ""
        return f"a link between {self._broker.name} and {name} would close a cycle: {name} is reached through {through}"

    def address_of(self, broker: str) -> str:
        """Where clients find a broker."""
        return next((peer.behind[broker] for peer in self._broker.peers.values() if broker in peer.behind), "")

    def towards(self, broker: str) -> str | None:
        """The neighbour through which a broker is reached."""
        return next((peer.name for peer in self._broker.peers.values() if broker in peer.behind), None)
