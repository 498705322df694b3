"""What must be true of a world at rest: all delivered, all accepted, all in force, and the right routing tables."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from trimtab.broker.core import Broker
from trimtab.client.session import ClientSession
from trimtab.language import Publication
from trimtab.protocol.effects import Close
from trimtab.simulation.checkers.deliveries import DeliveryChecker
from trimtab.simulation.checkers.expected_tables import Placed, table_mistakes

_TABLES_SUBSCRIPTIONS_MAX_COUNT: Final = 3_000
"""Comparing tables takes the square of this; larger networks are checked by their deliveries alone."""


class RestingBroker(Protocol):
    """A broker of a world at rest."""

    @property
    def name(self) -> str: ...

    @property
    def broker(self) -> Broker: ...

    @property
    def is_dead(self) -> bool: ...


class RestingClient(Protocol):
    """A client of a world at rest."""

    @property
    def name(self) -> str: ...

    @property
    def session(self) -> ClientSession: ...

    @property
    def dismissed_because(self) -> str: ...

    @property
    def held_back(self) -> deque[Publication]: ...


class RestingWorld(Protocol):
    """What is looked at of a world at rest."""

    @property
    def now_s(self) -> float: ...

    @property
    def is_at_rest(self) -> bool: ...

    @property
    def checker(self) -> DeliveryChecker: ...

    @property
    def closed(self) -> list[Close]: ...

    @property
    def brokers(self) -> Mapping[str, RestingBroker]: ...

    @property
    def clients(self) -> Mapping[str, RestingClient]: ...


def check_rest(world: RestingWorld, links: Sequence[tuple[str, str]]) -> None:
    """Tell the world's checker what is wrong."""
    checker = world.checker
    if not world.is_at_rest:
        checker.violate("no rest", f"something still happens at {world.now_s:.0f} s")
    checker.check_at_rest()
    for close in world.closed:
        if close.peer.endswith("~"):
            continue  # an assistant that is no longer needed
        client = world.clients.get(close.peer)
        if client is None or not close.reason.startswith("too slow: ") or client.dismissed_because != close.reason:
            checker.violate("closed", f"{close.peer}: {close.reason}")
    counted_count = sum(node.broker.counters.dropped_count for node in world.brokers.values())
    if counted_count != checker.dropped_count:
        checker.violate("drops", f"brokers count {counted_count} publications, but gave up {checker.dropped_count}")
    for client in world.clients.values():
        if client.dismissed_because or client.name in checker.misbehaving:
            continue
        waiting_count = client.session.waiting_count + len(client.held_back)
        if waiting_count:
            checker.violate("never accepted", f"{waiting_count} publications of {client.name} wait")
    for node in world.brokers.values():
        if node.is_dead and node.broker.config.assists:
            continue  # its broker goes on alone
        if node.is_dead:
            checker.violate("not replaced", f"{node.name} is dead, and nobody has taken its place")
            continue
        if node.broker.held_count:
            checker.violate("stalled", f"{node.broker.held_count} messages are held back in {node.name}")
        for client_name in node.broker.admission.asked():
            checker.violate("intent", f"{client_name} was asked to move by {node.name} and never answered")
        for peer in node.broker.peers.values():
            if peer.link.connected and peer.link.queued_count:
                checker.violate("stalled", f"{peer.link.queued_count} messages wait in {node.name} for {peer.name}")
    sessions = {name: node.session for name, node in world.clients.items()}
    advertisements = [
        Placed(id, filter, client, sessions[client].broker) for id, (client, filter) in checker.advertisements.items()
    ]
    subscriptions = [
        Placed(s.id, s.filter, s.client, sessions[s.client].broker)
        for s in checker.subscriptions.values()
        if not s.ended
    ]
    for name, host in world.brokers.items():  # agents ask as clients do
        tables, agents = host.broker.tables, list(host.broker.agents.inboxes)
        for agent in agents:
            advertisements += [
                Placed(e.id, e.filter, agent, name) for e in tables.advertisements.values() if agent in e.hops
            ]
            subscriptions += [
                Placed(e.id, e.filter, agent, name) for e in tables.subscriptions.values() if agent in e.hops
            ]
    if len(subscriptions) > _TABLES_SUBSCRIPTIONS_MAX_COUNT:
        return
    brokers = {name: node.broker for name, node in world.brokers.items() if not node.broker.config.assists}
    for mistake in table_mistakes(brokers, links, advertisements, subscriptions):
        checker.violate("tables", mistake)
