"""A broker that leaves the network for good: its clients move, its queues empty, and then it says that it leaves.

    phase      what happens                          what the broker does                            next phase
    ---------  ------------------------------------  ----------------------------------------------  ----------
    moving     a client is there                     ask it to move to the next of the targets       moving
               a client stays, or has not answered   ask it again later, to go to the next target    moving
               a client is away                      wait until it returns or its lease is over      moving
               no client is left                     -                                               emptying
    emptying   something waits, on links or disk     wait                                            emptying
               a client has come meanwhile           ask it to move                                  moving
               nothing waits                         say so to all neighbours (`Leaving`)            leaving
    leaving    a neighbour has come again            say it again                                    leaving
               all neighbours have heard it          end (`Leave`)                                   -

A broker that only `carries` stays in the phase moving: it goes on to link its neighbours, and takes no clients until
that is taken back. Clients that are on their way here from other brokers are refused and stay where they are; new ones
are let in and asked to move like all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from trimtab.broker.peers import Peer
from trimtab.protocol.effects import Effect, Leave
from trimtab.protocol.frames import ClientToMove
from trimtab.protocol.messages import Leaving
from trimtab.protocol.versions import is_known

if TYPE_CHECKING:
    from trimtab.broker.core import Broker

Phase = Literal["moving", "emptying", "leaving"]

LOOK_EVERY_S: Final = 0.05
"""How often it is looked what has become of clients and queues."""

AGAIN_AFTER_S: Final = 1.0
"""A client that stays is asked again after so long; what kept it, a move or a takeover, takes about that."""

LEAVES_AFTER_S: Final = 0.25
"""Neighbours have been told for so long when the broker ends: they look for another guardian meanwhile, and whoever
watches its status sees that all clients have moved."""

MOVING_MAX_COUNT: Final = 64
"""Clients that are on their way at the same time: enough to keep brokers busy, and not so many that moves take long."""


def objection_to_draining(broker: Broker, targets: Sequence[str], *, carries: bool) -> str:
    """Why a broker cannot leave, with its clients going to these others; empty if it can."""
    name = broker.name
    linked = [peer for peer in broker.peers.values() if peer.role == "broker"]
    neighbours = sorted(peer.name for peer in linked if not peer.assists)
    has_clients = any(peer.role == "client" for peer in broker.peers.values())
    if broker.config.assists:
        return f"{name} is an assistant and has no clients; end its process"
    if len(linked) > len(neighbours):
        return f"an assistant shares the load of {name} or of a neighbour; end its process first"
    if broker.draining is not None and broker.draining.phase == "leaving":
        return f"{name} leaves already" if carries else ""
    if len(neighbours) > 1 and not carries:
        return (
            f"{name} links {', '.join(neighbours)}, which would be cut off from each other. With --carry its clients "
            f"move, and {name} stays to carry what those say to each other"
        )
    if has_clients and not neighbours:
        return f"{name} has no link to another broker, so nobody can take its clients"
    if has_clients and not any(broker.topology.towards(target) for target in targets):
        return f"no way leads from {name} to {', '.join(targets) or 'any broker'}, so nobody can take its clients"
    return ""


class Draining:
    """The end of one broker."""

    def __init__(self, broker: Broker, targets: Sequence[str], *, carries: bool, now_s: float) -> None:
        self._broker = broker
        self._targets = tuple(targets)
        self._next_target = 0
        self.carries = carries
        """Whether the broker stays and carries what its neighbours say to each other."""
        self.phase: Phase = "moving"
        self._moved_count = 0
        self._asked: dict[str, str] = {}
        """Clients that were asked to move, each with the cause."""
        self._again_s: dict[str, float] = {}
        self._why: dict[str, str] = {}
        """Why clients have not moved when they were asked last."""
        self._told: dict[str, int] = {}
        """Neighbours that were told that this broker leaves, in which epoch of their link."""
        self._look_s = now_s
        self._leaves_at_s = 0.0

    def go_on(self, targets: Sequence[str], *, carries: bool) -> None:
        """The operator says it again, perhaps with another choice."""
        self._targets, self.carries = tuple(targets), carries
        self._again_s.clear()

    def wake_at_s(self) -> float:
        """When to look again."""
        return self._look_s

    def wake(self, now_s: float) -> list[Effect]:
        """Go on."""
        if now_s < self._look_s:
            return []
        self._look_s = now_s + LOOK_EVERY_S
        clients = self._clients()
        self._hear_of_moves(clients)
        if clients:
            if self.phase != "leaving":
                self.phase = "moving"
            for peer in clients:
                self._ask_to_move(peer, now_s)
        elif self.phase == "moving" and not self.carries:
            self.phase = "emptying"
        if self.phase == "emptying" and self.is_empty():
            self.phase = "leaving"
            self._leaves_at_s = now_s + LEAVES_AFTER_S
        return self._leave(now_s) if self.phase == "leaving" else []

    @property
    def moved_count(self) -> int:
        """Clients that have moved: those that were asked and are gone count before the broker looks again."""
        return self._moved_count + len(self._asked.keys() - {peer.name for peer in self._clients()})

    def clients_left(self) -> tuple[ClientToMove, ...]:
        """The clients that are still here, and why as far as is known."""
        return tuple(ClientToMove(peer.name, self._why_here(peer)) for peer in self._clients())

    def objection_to_client(self) -> str:
        """Why a client that is not known here cannot come any more; empty if it can, and is sent on."""
        return f"{self._broker.name} leaves the network: connect to another broker" if self.phase == "leaving" else ""

    def objection_to_move(self) -> str:
        """Why no client can move here."""
        return f"{self._broker.name} is being drained and takes no clients"

    # ---- clients ----

    def _clients(self) -> list[Peer]:
        return [peer for peer in self._broker.peers.values() if peer.role == "client"]

    def _hear_of_moves(self, clients: Sequence[Peer]) -> None:
        broker = self._broker
        there = {peer.name for peer in clients}
        waiting = set(broker.admission.asked())
        for client, cause in list(self._asked.items()):
            outcome = broker.admission.outcome(cause)
            if client not in there or outcome == "":
                self._moved_count += 1
                self._why.pop(client, None)
            elif client in waiting:
                continue
            else:
                self._why[client] = outcome or "it has not said why"
                self._again_s[client] = broker.now_s + AGAIN_AFTER_S
            del self._asked[client]

    def _ask_to_move(self, peer: Peer, now_s: float) -> None:
        name = peer.name
        is_moving = peer.is_leaving or bool(peer.old_broker)
        if not peer.link.connected or is_moving or name in self._asked or len(self._asked) >= MOVING_MAX_COUNT:
            return
        if now_s < self._again_s.get(name, 0.0) or not self._targets:
            return
        target = self._targets[self._next_target % len(self._targets)]
        self._next_target += 1
        cause, problem = self._broker.admission.move_by_hand(name, target, now_s)
        if problem:
            self._why[name], self._again_s[name] = f"{target}: {problem}", now_s + AGAIN_AFTER_S
        else:
            self._asked[name] = cause

    def _why_here(self, peer: Peer) -> str:
        if not peer.link.connected:
            return "it is away, and waits for its return or the end of its lease"
        if peer.name in self._asked:
            return "it was asked to move and has not answered yet"
        return self._why.get(peer.name, "it has not been asked yet")

    # ---- queues ----

    def is_empty(self) -> bool:
        """Whether nothing is left here that anybody could want."""
        broker = self._broker
        if broker.input_count or broker.held_count or broker.later or broker.takeover.is_learning:
            return False
        if broker.safe is not None and broker.safe.holds_on_disk:
            return False
        return all(peer.link.idle and not peer.link.undelivered_data() for peer in self._neighbours())

    def _neighbours(self) -> list[Peer]:
        return [peer for peer in self._broker.peers.values() if peer.role == "broker"]

    # ---- the end ----

    def _leave(self, now_s: float) -> list[Effect]:
        for peer in self._neighbours():
            if self._told.get(peer.name) != peer.epoch:
                self._told[peer.name] = peer.epoch
                self._broker.send(peer.name, Leaving(), now_s)
        have_heard = all(
            peer.link.connected and (peer.link.idle or not is_known(Leaving(), peer.version))
            for peer in self._neighbours()
        )
        return [Leave()] if have_heard and now_s >= self._leaves_at_s else []
