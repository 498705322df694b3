"""The links of a broker's process to its neighbours: who calls whom, again and again, and who changes that.

One end of each link calls. In a network file it is the broker that comes first; of a broker and a replica it is the
replica, which alone knows where it is; of two replicas the one that began later. Whoever need not call is refused, so
that there are never two connections for one link, each of which would begin with what the other had not seen.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from trimtab.broker.core import Broker
from trimtab.network.address import Address
from trimtab.network.clock import now_s
from trimtab.network.connection import Connection, ConnectionOwner
from trimtab.network.life import began_later
from trimtab.protocol.frames import Hello

GREETING_WITHIN_S: Final = 5.0
"""A connection that has not greeted by then is closed; an honest peer greets at once."""

LINK_WITHIN_S: Final = 5.0
LOOK_AGAIN_AFTER_S: Final = 0.02
"""A new link must come up so soon, and is looked for so often."""

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 2.0
"""Waiting times between attempts to reach a neighbour, doubled each time, with a random part."""

REPLICA_BACKOFF_MAX_S: Final = 0.2
"""A replica tries more often: its neighbours wait for it."""

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
        self._replicas: dict[str, str] = {}
        """The sessions of neighbours that came as replicas."""
        self._gone_down = asyncio.Event()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those who call, to be ended with the process."""
        return list(self._keepers.values())

    def missing(self) -> tuple[str, ...]:
        """Neighbours to which there is no connection."""
        return tuple(name for name in self.names if name not in self._up)

    # ---- what happens to connections ----

    def went_up(self, name: str, hello: Hello) -> None:
        """A neighbour has greeted and was greeted."""
        self._up[name] = None
        if hello.replica:
            self._replicas[name] = hello.session

    def went_down(self, name: str) -> None:
        """The connection to a neighbour is gone."""
        if self._up.pop(name, 0) is None:
            self._gone_down.set()

    def refused(self, connection: Connection, reason: str) -> None:
        """A connection was closed by one end, for this reason."""
        if connection.dialled:
            self._refusals[connection.dialled] = reason

    def is_out_of_turn(self, connection: Connection, hello: Hello) -> bool:
        """Whether a neighbour called, or was called, by the wrong one of the two; who need not call stops calling."""
        we_call = self._we_call(hello)
        if we_call is None:
            return False
        if not we_call:
            keeper = self._keepers.pop(hello.name, None)
            if keeper is not None:
                log.info("%s: %s calls from now on", self._broker.name, hello.name)
                keeper.cancel()
        return we_call != bool(connection.dialled)

    def _we_call(self, hello: Hello) -> bool | None:
        """Whether this end calls; None where no replica takes part, for then the file has said it."""
        config = self._broker.config
        if not config.replica and not hello.replica:
            return None
        if config.replica and hello.replica:
            return began_later(config.session, hello.session)
        return bool(config.replica)

    def is_second_replica(self, hello: Hello) -> bool:
        """Whether a replica greets while another one, which began before it, has the place and lives.

        Neighbours of a failed broker cannot talk to each other; two of them may have had replicas started.
        """
        peer, replacement = self._broker.peers.get(hello.name), self._broker.replacement
        first = self._replicas.get(hello.name)
        if not hello.replica or peer is None or replacement is None or hello.name not in self._up:
            return False
        is_another = first is not None and first == peer.session != hello.session
        lives = replacement.verdicts().get(hello.name) not in ("crash", "hang")
        return is_another and lives and began_later(hello.session, peer.session)

    # ---- calling ----

    def call(self, neighbour: str, address: Address) -> None:
        """Call a neighbour whenever there is no connection to it."""
        self._keepers[neighbour] = asyncio.get_running_loop().create_task(self._keep(neighbour, address))

    async def _keep(self, neighbour: str, address: Address) -> None:
        loop = asyncio.get_running_loop()
        backoff_max_s = REPLICA_BACKOFF_MAX_S if self._broker.config.replica else BACKOFF_MAX_S
        wait_s = BACKOFF_MIN_S
        while True:
            while neighbour in self._up:
                self._gone_down.clear()
                await self._gone_down.wait()
            connection = Connection(self._owner, neighbour)
            try:
                await loop.create_connection(partial(_same, connection), address.host, address.port)
                opened_s = now_s()
                await connection.wait_closed()
                if now_s() - opened_s > GREETING_WITHIN_S:
                    wait_s = BACKOFF_MIN_S
            except OSError as error:
                log.debug("%s: %s cannot be reached: %s", self._broker.name, neighbour, error)
            finally:
                if not connection.peer:
                    connection.give_up()
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(backoff_max_s, 2 * wait_s)

    # ---- changes while the network runs ----

    async def add(self, neighbour: str, address_text: str) -> str:
        """Call a new neighbour and keep the link; returns why that cannot be."""
        name = self._broker.name
        if neighbour == name or neighbour in self.names or neighbour in self._up:
            return (
                f"{name} has a link to {neighbour} already" if neighbour != name else f"{name} needs no link to itself"
            )
        problem = self._broker.reach.cycle_with(neighbour)
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
        if neighbour not in self.names and (peer is None or peer.role != "broker"):
            return f"{self._broker.name} has no link to {neighbour}"
        keeper = self._keepers.pop(neighbour, None)
        self.names.pop(neighbour, None)
        if keeper is not None:
            keeper.cancel()
        end()
        return ""


def _same(connection: Connection) -> Connection:
    return connection
