"""The links of a broker's process to its neighbours: who calls whom, again and again, and who changes that.

One end of each link calls. In a network file it is the broker that comes first; of a broker and a replica it is the
replica, which alone knows where it is. Of two replicas it may be either, for one of them may not know where the other
is; if both call at once, the call of the one whose name comes first counts. Whoever need not call is refused, so that
there are never two connections for one link, each of which would begin with what the other had not seen. A replica is
called by those whom it does not call: by a broker of which it was not told, or that is linked to it later.

A neighbour accepts each incarnation of a broker once, and only with a higher epoch than those before. One that has been
started anew and does not know its epoch is told it and greets again; one whose place another has is told that, and
ends. Nobody takes the place of an incarnation that is connected and lives (`liveness_probe.py`): who tries is refused
and may greet again, and a replica that is refused so for `GIVE_UP_AFTER_S` ends.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal, TypeAlias

from trimtab.broker.core import Broker
from trimtab.network.clock import now_s
from trimtab.network.failover.process_identity import yields_to
from trimtab.network.links.address import Address
from trimtab.network.links.connection import Connection, ConnectionOwner
from trimtab.network.security import caller
from trimtab.protocol.frames import Hello

GREETING_WITHIN_S: Final = 5.0
"""A connection that has not greeted by then is closed; an honest peer greets at once."""

LINK_WITHIN_S: Final = 5.0
LOOK_AGAIN_AFTER_S: Final = 0.02
"""A new link must come up so soon, and is looked for so often. A call that no host has taken by then is made anew."""

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 2.0
"""Waiting times between attempts to reach a neighbour, doubled each time, with a random part."""

REPLICA_BACKOFF_MAX_S: Final = 0.2
"""A replica tries more often: its neighbours wait for it."""

RETURNS_SOON_S: Final = 10.0
"""A neighbour that was asked to end and returns is called often for so long; a start takes a second or two."""

GIVE_UP_AFTER_S: Final = 10.0
"""A replica ends if a neighbour says for so long that the broker lives: far longer than a probe, or a busy machine's
pause."""

Claim: TypeAlias = Literal["replaced", "contends", "started anew"]
"""What an incarnation is that greets with an epoch that is not later: one that has lost its place to another; a replica
that must wait until it is decided which one of two stays; or one that does not know its epoch."""

log = logging.getLogger("trimtab.broker")


class NeighbourLinks:
    """The neighbours that a broker should have, and those that it calls."""

    def __init__(self, broker: Broker, neighbours: Iterable[str], owner: ConnectionOwner) -> None:
        self._broker = broker
        self._owner = owner
        self.names: dict[str, None] = dict.fromkeys(neighbours)
        """The neighbours that there should be."""
        self._keepers: dict[str, asyncio.Task[None]] = {}
        """By neighbour that is called: who calls it again and again."""
        self._refusals: dict[str, str] = {}
        """Why a neighbour that was called did not want the link, or was not wanted."""
        self._up: dict[str, None] = {}
        self._addresses: dict[str, Address] = {}
        """Where those that are called are, or were, before they called themselves."""
        self._calls: dict[str, Connection] = {}
        """By neighbour that is called: the present call."""
        self._at_once: dict[str, None] = {}
        """Neighbours that are to be called again without delay."""
        self._gone_down = asyncio.Event()
        self._left: dict[str, None] = {}
        """Neighbours that have left for good, and are welcome if they come again."""
        self._returns_s: dict[str, float] = {}
        """Neighbours that have said that they return, and when."""
        self._unwanted_since_s: dict[str, float] = {}
        """Neighbours that say that the broker lives which this process is to replace, and since when."""

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those who call, to be ended with the process."""
        return list(self._keepers.values())

    def missing(self) -> tuple[str, ...]:
        """Neighbours to which there is no connection."""
        return tuple(name for name in self.names if name not in self._up)

    # ---- what happens to connections ----

    def went_up(self, connection: Connection, hello: Hello) -> None:
        """A neighbour has greeted and was greeted; of two that may call, who was called stops calling."""
        self._up[hello.name] = None
        self._unwanted_since_s.pop(hello.name, None)
        if self._left.pop(hello.name, 0) is None:
            self.names[hello.name] = None
        if not connection.dialled and (self._broker.config.replica or hello.replica):
            self._stop_calling(hello.name)

    def went_down(self, name: str) -> None:
        """The connection to a neighbour is gone; if a replica called, the broker itself may be started again."""
        if self._up.pop(name, 0) is None:
            self._gone_down.set()
            if name in self._addresses and name not in self._keepers:
                self.call(name, self._addresses[name])

    def returns(self, name: str) -> None:
        """A neighbour was asked to end, and is about to come again."""
        self._returns_s[name] = now_s()

    def _backoff_max_s(self, neighbour: str) -> float:
        """How long to wait between two calls at most."""
        comes_soon = now_s() - self._returns_s.get(neighbour, 0.0) < RETURNS_SOON_S
        return REPLICA_BACKOFF_MAX_S if self._broker.config.replica or comes_soon else BACKOFF_MAX_S

    def left(self, name: str) -> None:
        """A neighbour has left for good: it is not missed, and called only in case that it is started again."""
        if self.names.pop(name, 0) is None:
            self._left[name] = None

    def refused(self, connection: Connection, reason: str) -> None:
        """A connection was closed by one end, for this reason."""
        if connection.dialled:
            self._refusals[connection.dialled] = reason

    def greets_again(self, connection: Connection) -> None:
        """This broker has learned its epoch over a call: it calls again at once, and greets with that."""
        self._at_once[connection.dialled] = None

    def is_unwanted(self, connection: Connection) -> bool:
        """A called neighbour says that the broker lives that this process is to replace: whether that was for long."""
        since_s = self._unwanted_since_s.setdefault(connection.dialled, now_s())
        return bool(self._broker.config.replica) and now_s() - since_s >= GIVE_UP_AFTER_S

    def is_out_of_turn(self, connection: Connection, hello: Hello) -> bool:
        """Whether a neighbour called, or was called, by the wrong one of the two."""
        is_replica = bool(self._broker.config.replica)
        if not is_replica and not hello.replica:
            return False  # the file has said who calls
        if connection.dialled:
            return False  # it was called and has answered
        return is_replica and ((not hello.replica and hello.name in self._keepers) or self._is_calling(hello))

    def _is_calling(self, hello: Hello) -> bool:
        """Whether this broker has called another replica that calls it now, and its own call is the one that counts."""
        call, peer = self._calls.get(hello.name), self._broker.peers.get(hello.name)
        if call is None or not call.is_made() or hello.name < self._broker.name:
            return False
        return not call.peer or (peer is not None and peer.session == hello.session)

    def _stop_calling(self, name: str) -> None:
        keeper = self._keepers.pop(name, None)
        if keeper is not None:
            log.info("%s: %s calls from now on", self._broker.name, name)
            keeper.cancel()

    # ---- incarnations ----

    def is_not_later(self, hello: Hello) -> bool:
        """Whether a neighbour greets as an incarnation that is not later than the one that is known.

        One that had a link to this process, and whose place another has had since, is not, whatever its epoch.
        """
        peer = self._broker.peers.get(hello.name)
        if hello.role != "broker" or peer is None or peer.role != "broker" or peer.session == hello.session:
            return False
        return hello.epoch <= peer.incarnation or hello.resumes == self._broker.config.session

    def claim_of(self, hello: Hello) -> Claim:
        """What such an incarnation is.

        It has lost its place if it had a link to this broker. A replica has lost it as well if another one has come
        before it and lives: neighbours of a failed broker cannot talk to each other, and two of them may have had one
        started. As long as both learn, the lower nonce makes way, also if the other one came later, for it may have
        come first elsewhere.
        """
        if hello.resumes:
            return "replaced"
        peer, replacement = self._broker.peers[hello.name], self._broker.replacement
        if not hello.replica or hello.name not in self._up:
            return "started anew"
        if replacement is not None and replacement.verdicts().get(hello.name) in ("crash", "hang"):
            return "started anew"
        is_there = not self._broker.takeover.is_being_told(hello.name)
        if hello.epoch < peer.incarnation or is_there or yields_to(hello.session, peer.session):
            return "replaced"
        return "contends"

    def is_to_greet_again(self, connection: Connection, hello: Hello) -> bool:
        """Whether a called neighbour has not taken this broker in but told an epoch, which is known by now."""
        broker = self._broker
        is_another = hello.resumes not in ("", broker.config.session)
        return bool(connection.dialled) and is_another and connection.epoch <= hello.granted < broker.epoch

    def has_replaced_us(self, hello: Hello) -> bool:
        """Whether a neighbour of this incarnation knows another one that is not earlier."""
        broker = self._broker
        is_another = hello.resumes not in ("", broker.config.session)
        return hello.role == "broker" and is_another and hello.granted >= broker.epoch and hello.name in broker.peers

    # ---- calling ----

    def call(self, neighbour: str, address: Address) -> None:
        """Call a neighbour whenever there is no connection to it."""
        self._addresses[neighbour] = address
        self._keepers[neighbour] = asyncio.get_running_loop().create_task(self._keep(neighbour, address))

    async def _keep(self, neighbour: str, address: Address) -> None:
        wait_s = BACKOFF_MIN_S
        while True:
            while neighbour in self._up:
                self._gone_down.clear()
                await self._gone_down.wait()
            connection = self._calls[neighbour] = Connection(self._owner, neighbour)
            try:
                async with asyncio.timeout(LINK_WITHIN_S):
                    await caller.present().dial(partial(_same, connection), address)
                opened_s = now_s()
                await connection.wait_closed()
                if now_s() - opened_s > GREETING_WITHIN_S:
                    wait_s = BACKOFF_MIN_S
            except OSError as error:
                log.debug("%s: %s cannot be reached: %s", self._broker.name, neighbour, error)
            finally:
                if not connection.peer:
                    connection.give_up()
            if self._at_once.pop(neighbour, 0) is not None:
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(self._backoff_max_s(neighbour), 2 * wait_s)

    # ---- changes while the network runs ----

    async def add(self, neighbour: str, address_text: str) -> str:
        """Call a new neighbour and keep the link; returns why that cannot be."""
        name = self._broker.name
        if neighbour == name or neighbour in self.names or neighbour in self._up:
            return (
                f"{name} has a link to {neighbour} already" if neighbour != name else f"{name} needs no link to itself"
            )
        problem = self._broker.topology.cycle_with(neighbour)
        if problem:
            return problem
        try:
            address = Address.parse(address_text)
        except ValueError as error:
            return f"the address of {neighbour}: {error}"
        self.names[neighbour] = None
        self._refusals.pop(neighbour, None)
        self.call(neighbour, address)
        ends_s = now_s() + LINK_WITHIN_S
        while now_s() < ends_s and neighbour not in self._refusals:
            if neighbour in self._up:
                return ""
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        return self._refusals.get(neighbour) or f"{neighbour} cannot be reached at {address}"

    def remove(self, neighbour: str, end: Callable[[], None]) -> str:
        """End the link to a neighbour for good; returns why that cannot be. What is under way on it is lost."""
        peer = self._broker.peers.get(neighbour)
        was_left = self._left.pop(neighbour, 0) is None
        if not was_left and neighbour not in self.names and (peer is None or peer.role != "broker"):
            return f"{self._broker.name} has no link to {neighbour}"
        keeper = self._keepers.pop(neighbour, None)
        self.names.pop(neighbour, None)
        self._addresses.pop(neighbour, None)
        if keeper is not None:
            keeper.cancel()
        end()
        return ""


def _same(connection: Connection) -> Connection:
    return connection
