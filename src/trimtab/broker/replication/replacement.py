"""What a broker does about neighbours that fail: it watches them and has them replaced, or has them assisted.

A replica has the name of the broker that it replaces, so that routes towards it stay what they are and nobody beyond
its neighbours notices. How it learns its routes stands in `takeover.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimtab.broker.peers import Peer
from trimtab.broker.replication.assistance import Assistance
from trimtab.broker.replication.assistant import AssistantDuties
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.broker.replication.detection import Signs, Verdict
from trimtab.broker.replication.late_subscriptions import LateRoutes
from trimtab.broker.replication.watch import NeighbourWatch
from trimtab.language import Filter
from trimtab.protocol.effects import Assist, Close, Effect, Replace
from trimtab.protocol.frames import Hello
from trimtab.protocol.messages import AnyMessage, Neighbours, OneWay, Progress, Publish, TwoWays

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Replacement:
    """One broker's watch over its neighbours, and its part where replicas do not wait or brokers are assisted."""

    def __init__(self, broker: Broker, config: ReplicationConfig) -> None:
        self._broker = broker
        self.config = config
        self._watch = NeighbourWatch(broker.name, broker.config.address, config)
        if broker.config.replica and not broker.config.assists:
            for name in broker.config.neighbours:
                self._watch.expect(name, broker.now_s)
        self.assistance = Assistance(broker, config)
        """Brokers that share the load of neighbours, or of this one."""
        self.divisions = self.assistance.divisions
        self._duties: LateRoutes | AssistantDuties | None = None
        """What a replica that does not wait does until it knows all routes, or an assistant does besides."""
        if broker.config.assists:
            self._duties = AssistantDuties(broker, config)
        elif broker.config.replica in ("basic", "incremental", "incremental-ordered"):
            self._duties = LateRoutes(broker, config.kept_max_count)

    # ---- watching ----

    def neighbour_came(self, peer: Peer, now_s: float) -> None:
        """A neighbour is there, or a later incarnation of it."""
        self._watch.came(peer.name, peer.session, now_s, peer.incarnation)
        self.tell_neighbours(now_s)
        if self._duties is not None:
            self._duties.neighbour_came(peer)

    def neighbour_away(self, peer: Peer, now_s: float) -> None:
        """A neighbour was asked to end, and returns; an assistant does not."""
        if peer.assists:
            self._broker.sessions.remove(peer.name, now_s)
            return
        self._watch.away(peer.name, now_s)

    def assistant_came(self, peer: Peer, hello: Hello, now_s: float) -> None:
        """A broker that shares the load of a neighbour, or of this one, greets."""
        self.assistance.came(peer, hello, now_s)
        self._watch.came(peer.name, peer.session, now_s, peer.incarnation)
        self._watch.told(peer.name, Neighbours(names=()))
        self._broker.takeover.assistant_came(peer, now_s)

    def neighbour_gone(self, peer: Peer, now_s: float) -> None:
        """A link was taken away for good."""
        self.divisions.gone(peer)
        self._watch.gone(peer.name)
        self.tell_neighbours(now_s)

    def tell_neighbours(self, now_s: float) -> None:
        """Tell each neighbour who the others are."""
        for peer in self._broker.peers.values():
            if peer.role == "broker" and not peer.assists:
                self._tell_neighbours_to(peer, now_s)

    def _tell_neighbours_to(self, peer: Peer, now_s: float) -> None:
        others = dict.fromkeys(self._broker.takeover.expected(), "")  # whoever replaces this one waits for them, too
        others.update(
            {
                other.name: other.behind.get(other.name, "")
                for other in self._broker.peers.values()
                if other.role == "broker" and other is not peer and not other.assists
            }
        )
        self._broker.send(peer.name, Neighbours(names=tuple(others), addresses=tuple(others.values())), now_s)

    def neighbours_of(self, name: str) -> dict[str, str]:
        """The neighbours of a neighbour, this broker included, and their addresses."""
        return self._watch.neighbours_of(name)

    def verdicts(self) -> dict[str, Verdict]:
        """How each neighbour is, as far as its link shows."""
        return self._watch.verdicts()

    def retire(self) -> None:
        """Watch no more, for the end of an experiment."""
        self._watch.retire()

    def wake_at_s(self) -> float | None:
        """When there is something to do."""
        times_s = [self._watch.wake_at_s(), self.assistance.wake_at_s()]
        if isinstance(self._duties, AssistantDuties):
            times_s.append(self._duties.wake_at_s())
        return min((time_s for time_s in times_s if time_s is not None), default=None)

    def wake(self, now_s: float) -> list[Effect]:
        """Do what is due."""
        self.assistance.wake(now_s)
        if isinstance(self._duties, AssistantDuties):
            self._duties.wake(now_s)
        effects: list[Effect] = []
        for wanted in self._watch.look(self._signs_of, self._ask, now_s):
            if self.assistance.is_assistant(wanted.broker):
                if isinstance(wanted, Replace):
                    self._broker.sessions.remove(wanted.broker, now_s)
                    effects.append(Close(wanted.broker, f"it seems to have failed: {wanted.why}"))
            elif self.assistance.has_assistant(wanted.broker) and isinstance(wanted, Assist):
                pass
            elif not self._broker.config.assists:
                effects.append(wanted)
        return effects

    def _signs_of(self, name: str) -> Signs:
        peer = self._broker.peers.get(name)
        if peer is None:
            return Signs(False, 0, 0)
        return Signs(peer.link.connected, peer.link.expects + peer.link.acks_count, len(peer.queue))

    def _ask(self, name: str) -> None:
        self._broker.peers[name].link.ask()
        self._broker.output.touch(name)

    def held(self) -> list[Publish]:
        """Publications that are kept for late subscriptions, or wait until those before them have come."""
        kept = [] if self._duties is None else self._duties.kept()
        return [*kept, *(message for _, message in self.divisions.held())]

    # ---- protocols that do not wait ----

    def learned(self, now_s: float) -> None:
        """All routes are known."""
        if self._duties is not None:
            self._duties.end()
            if isinstance(self._duties, LateRoutes):
                self._duties = None
        self.divisions.settle()

    def heard_all_from(self, neighbour: str) -> None:
        """A neighbour has told all its subscriptions."""
        if self._duties is not None:
            self._duties.heard_all_from(neighbour)

    def client_known(self, peer: Peer, filters: Sequence[Filter]) -> None:
        """A client of an earlier incarnation is known."""
        if isinstance(self._duties, LateRoutes):
            self._duties.client_known(peer, filters)

    def late_subscription(self, peer: Peer, filter: Filter) -> None:
        """A neighbour's subscription is known."""
        if self._duties is not None:
            self._duties.subscribed(peer, filter)

    # ---- messages ----

    def handle(self, peer: Peer, message: AnyMessage, now_s: float) -> list[Effect]:
        """A message about neighbours and assistants."""
        match message:
            case Neighbours():
                self._watch.told(peer.name, message)
            case Progress() if isinstance(self._duties, AssistantDuties):
                self._duties.progress(peer, message)
            case Progress():
                self.assistance.progress(peer, message, now_s)
            case TwoWays():
                self.divisions.two_ways(peer, message)
            case _:
                pass  # not about neighbours
        return []

    def from_assistant(self, peer: Peer, message: AnyMessage, now_s: float) -> list[Effect]:
        """A message of a broker that shares the load of a neighbour, or of this one."""
        self._broker.takeover.from_assistant(peer, message, now_s)
        self.assistance.handle(peer, message, now_s)
        return []

    def one_way(self, source: str, marker: OneWay) -> None:
        """The marker has its turn behind which what comes from a neighbour takes one way."""
        if isinstance(self._duties, AssistantDuties):
            self._duties.one_way(source)
        else:
            self.divisions.one_way(source, marker)
