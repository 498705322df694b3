"""What clients may do at a broker: their rights, as the world has told them, against what they ask for.

A filter that a permission covers is accepted; one that is permitted in part is refused with what is missing, or
narrowed to the permitted part where the role says so, and the client is told the filter that is in force. When rights
change, what they no longer cover ends. Clients without rights are those of a network that asks nobody who they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trimtab.broker.peers import Peer
from trimtab.language import Filter
from trimtab.protocol.messages import Advertise, MoveIn, Subscribe, SubscribeChannel
from trimtab.security.identities import SEPARATOR
from trimtab.security.rights import Decision, Rights

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Entitlements:
    """The rights of a broker's clients."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def granted(self, name: str, rights: Rights, now_s: float) -> None:
        """A client has these rights from now on; what they do not cover ends, and it is told."""
        peer = self._broker.peers.get(name)
        if peer is None or peer.role != "client" or peer.rights == rights:
            return
        peer.rights = rights
        tables, interests = self._broker.tables, self._broker.interests
        for id in list(peer.subscriptions):
            route = tables.subscriptions.get(id)
            if route is None:
                continue
            decision = rights.subscription(route.filter)
            if decision.accepted is None or decision.is_narrowed:
                interests.end_subscription(peer, id, now_s)
                self._broker.refuse(peer, id, f"ended: {decision.reason}", now_s)
        for id in list(peer.advertisements):
            route = tables.advertisements.get(id)
            if route is None:
                continue
            decision = rights.advertisement(route.filter)
            if decision.accepted is None or decision.is_narrowed:
                interests.end_advertisement(peer, id, now_s)
                self._broker.refuse(peer, id, f"ended: {decision.reason}", now_s)
        if self._broker.channels is not None:
            self._broker.channels.end_unless(name, rights.channel_objection, now_s)

    def permitted_subscription(self, peer: Peer, message: Subscribe, now_s: float) -> Subscribe | None:
        """What of a subscription is permitted, None if nothing is; the client is told of that."""
        if peer.rights is None:
            return message
        filter = self._accepted(peer, message.id, peer.rights.subscription(message.filter), now_s)
        return None if filter is None else msgspec.structs.replace(message, filter=filter)

    def permitted_advertisement(self, peer: Peer, message: Advertise, now_s: float) -> Advertise | None:
        """What of an advertisement is permitted, None if nothing is; the client is told of that."""
        if peer.rights is None:
            return message
        filter = self._accepted(peer, message.id, peer.rights.advertisement(message.filter), now_s)
        return None if filter is None else msgspec.structs.replace(message, filter=filter)

    def _accepted(self, peer: Peer, id: str, decision: Decision, now_s: float) -> Filter | None:
        problem = self._objection_to_id(peer, id)
        if problem or decision.accepted is None:
            self._broker.refuse(peer, id, problem or decision.reason, now_s)
            return None
        if decision.is_narrowed:
            peer.narrowed[id] = decision.accepted
        return decision.accepted

    def announced(self, peer: Peer, filter: Filter) -> Filter:
        """What of an advertisement is in force of a client that has come with it."""
        return filter if peer.rights is None else peer.rights.advertisement(filter).accepted or filter

    def objection_to_channel(self, peer: Peer, message: SubscribeChannel) -> str:
        """Why a client may not subscribe to a channel, empty if it may."""
        if peer.rights is None:
            return ""
        problem = self._objection_to_id(peer, message.id)
        return problem or peer.rights.channel_objection(message.channel, message.arguments)

    def objection_to_move(self, peer: Peer, message: MoveIn) -> str:
        """Why a client may not come with all that it has, empty if it may."""
        if peer.rights is None:
            return ""
        for known in message.subscriptions:
            decision = peer.rights.subscription(known.filter)
            if decision.accepted is None or (problem := self._objection_to_id(peer, known.id)):
                return decision.reason or problem
        for announced in message.advertisements:
            decision = peer.rights.advertisement(announced.filter)
            if decision.accepted is None or (problem := self._objection_to_id(peer, announced.id)):
                return decision.reason or problem
        return ""

    def _objection_to_id(self, peer: Peer, id: str) -> str:
        """Ids belong to names, so that nobody can take another one's first."""
        if id.startswith(peer.name + SEPARATOR):
            return ""
        return f"ids of {peer.name} begin with {peer.name}{SEPARATOR}"
