"""What must be true of a world at rest: all delivered, all accepted, all in force, and the right routing tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trimtab.simulation.expected_tables import Placed, table_mistakes
from trimtab.simulation.world import World

_TABLES_SUBSCRIPTIONS_MAX_COUNT: Final = 3_000
"""Comparing tables takes the square of this; larger networks are checked by their deliveries alone."""


def check_rest(world: World, links: Sequence[tuple[str, str]]) -> None:
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
        for client_name in node.broker.clients_asked_to_move():
            checker.violate("intent", f"{client_name} was asked to move by {node.name} and never answered")
        for peer in node.broker.peers.values():
            if peer.link.connected and peer.link.queued_count:
                checker.violate("stalled", f"{peer.link.queued_count} messages wait in {node.name} for {peer.name}")
    sessions = {name: node.session for name, node in world.clients.items()}
    advertisements = [
        Placed(sessions[client].wire_id(id), filter, client, sessions[client].broker)
        for id, (client, filter) in checker.advertisements.items()
    ]
    subscriptions = [
        Placed(sessions[s.client].wire_id(s.id), s.filter, s.client, sessions[s.client].broker)
        for s in checker.subscriptions.values()
        if not s.ended
    ]
    for name, host in world.brokers.items():  # agents ask as clients do
        tables, agents = host.broker.tables, host.broker.agent_names()
        advertisements += [
            Placed(e.id, e.filter, e.hop, name) for e in tables.advertisements.values() if e.hop in agents
        ]
        subscriptions += [Placed(e.id, e.filter, e.hop, name) for e in tables.subscriptions.values() if e.hop in agents]
    if len(subscriptions) > _TABLES_SUBSCRIPTIONS_MAX_COUNT:
        return
    brokers = {name: node.broker for name, node in world.brokers.items() if not node.broker.config.assists}
    for mistake in table_mistakes(brokers, links, advertisements, subscriptions):
        checker.violate("tables", mistake)
