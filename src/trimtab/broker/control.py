"""What control messages and markers do: each goes to the part of the broker that it is meant for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trimtab.broker.peers import Peer
from trimtab.language import limits
from trimtab.language.string_sets import shared_budget
from trimtab.policies.api import ClientStayed, RoundTripsTold
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import (
    Accepted,
    Advertise,
    AnyMessage,
    ChannelConfirmed,
    Complete,
    Confirmed,
    ControlPublish,
    End,
    Gap,
    GapQuestion,
    Gone,
    Guard,
    GuardAll,
    Guarded,
    Handover,
    Leaving,
    Measure,
    Measured,
    Members,
    MoveIn,
    Publish,
    Redirect,
    Refused,
    Resume,
    Stay,
    Stayed,
    Stranded,
    Subscribe,
    SubscribeChannel,
    Swept,
    Unadvertise,
    Unsubscribe,
)

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Control:
    """Hands control messages and markers to the parts of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.spent_steps = 0
        """Steps of decisions about filters, since the broker last began to do what is waiting."""

    def take(self, peer: Peer, message: AnyMessage, now_s: float, *, is_stale: bool = False) -> list[Effect]:
        """Hand a message to the part that it is for; what it may ask about filters is limited."""
        with shared_budget(limits.MESSAGE_MAX_STEPS) as budget:
            effects = self._take(peer, message, now_s, is_stale=is_stale)
        self.spent_steps += budget.spent_steps
        return effects

    def _take(self, peer: Peer, message: AnyMessage, now_s: float, *, is_stale: bool = False) -> list[Effect]:
        """A message of a peer whose turn has come; a stale one was said in an earlier epoch of the link."""
        broker, name = self._broker, peer.name
        if peer.assists and broker.replacement is not None:
            return broker.replacement.from_assistant(peer, message, now_s)
        match message:
            case Advertise():
                broker.interests.advertise(peer, message, now_s)
            case Subscribe():
                broker.interests.subscribe(peer, message, now_s)
            case Unadvertise():
                broker.interests.unadvertise(peer, message, now_s, is_stale=is_stale)
            case SubscribeChannel():
                return self._subscribe_channel(peer, message, now_s)
            case Unsubscribe(id=id):
                if broker.channels is None or not broker.channels.unsubscribe(name, id, now_s):
                    broker.interests.unsubscribe(peer, id, now_s)
            case Confirmed():
                broker.interests.confirmed(name, message, now_s)
            case ControlPublish():
                self._pass_on(peer, message, now_s)
            case Members(names=names, addresses=addresses):
                return broker.topology.members_came(peer, names, addresses, now_s)
            case Gone(names=names):
                broker.topology.members_gone(peer, names, now_s)
            case Handover() | Complete() | Guard() | GuardAll() | Guarded() | Leaving() | Gap() | GapQuestion() if (
                peer.role != "broker"
            ):
                broker.refuse(peer, "", "only brokers say this", now_s)
            case Leaving():
                peer.leaves = True
                broker.records.look_for_guardian(now_s)
            case MoveIn():
                broker.gaps.moves_in(name)
                broker.moves.move_in(peer, message, now_s)
            case Gap():
                broker.gaps.passes(peer, message, now_s)
            case GapQuestion():
                broker.gaps.asked(peer, message, now_s)
            case Handover():
                broker.moves.handover(peer, message, now_s)
            case Complete():
                return broker.moves.complete(peer, message, now_s)
            case Stay():
                broker.moves.stay(peer, message, now_s)
            case Guard():
                broker.records.guard(name, message, now_s)
            case GuardAll():
                broker.records.guard_all(name, message, now_s)
            case Guarded():
                broker.records.guarded(name, message, now_s)
            case Refused(about=cause, reason=reason):
                if peer.role == "client":
                    broker.admission.tell_of_move(ClientStayed(name, cause, reason), now_s)
            case Measured(round_trips_s=round_trips_s, cause=cause):
                if peer.role == "client":
                    broker.agents.tell_all(RoundTripsTold(name, round_trips_s, cause), now_s)
            case (
                Publish()
                | End()
                | Accepted()
                | Redirect()
                | Measure()
                | Stayed()
                | ChannelConfirmed()
                | Resume()
                | Stranded()
            ):
                pass  # data comes another way; the rest is for clients
            case _:
                if not self._belongs_to_takeover(peer, message, now_s) and broker.replacement is not None:
                    return broker.replacement.handle(peer, message, now_s)
        return []

    def _belongs_to_takeover(self, peer: Peer, message: AnyMessage, now_s: float) -> bool:
        """Whether a message belongs to what is told when a link begins anew; of clients that is only its end."""
        if peer.role != "broker" and not isinstance(message, Swept):
            return True
        return self._broker.takeover.handle(peer, message, now_s)

    def _pass_on(self, source: Peer, message: ControlPublish, now_s: float) -> None:
        """Pass on what an agent says, to agents here and to brokers behind which there are others; never to clients."""
        broker = self._broker
        if source.role == "client":
            broker.refuse(
                source, f"{message.publisher}:{message.sequence}", "only brokers send control messages", now_s
            )
            return
        onward = msgspec.structs.replace(message, hops=message.hops + 1)
        for hop in broker.tables.hops_for(message.values):
            if hop != source.name and broker.peers[hop].role != "client":
                broker.send(hop, onward, now_s)

    def _subscribe_channel(self, peer: Peer, message: SubscribeChannel, now_s: float) -> list[Effect]:
        broker = self._broker
        if broker.channels is None or peer.role != "client":
            reason = "this broker has no back end" if broker.channels is None else "only clients subscribe to channels"
            broker.refuse(peer, message.id, reason, now_s)
            return []
        if not broker.interests.may_add(peer, message.id, message.id in broker.tables.subscriptions, now_s):
            return []
        if objection := broker.entitlements.objection_to_channel(peer, message):
            broker.refuse(peer, message.id, objection, now_s)
            return []
        return [*broker.channels.subscribe(peer.name, message, now_s)]
