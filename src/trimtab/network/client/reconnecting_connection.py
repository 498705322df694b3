"""A client's connection to one broker, made again whenever it breaks, wherever the broker is by then.

A broker that fails is replaced at its address, or elsewhere. When it cannot be reached for a while its neighbours,
which its greeting named, are asked where it is. If it stays away for long the client goes to one of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Final

from trimtab.network.admin.status import ask_where
from trimtab.network.clock import now_s
from trimtab.network.links.address import Address
from trimtab.network.links.connection import Connection, ConnectionOwner
from trimtab.network.security.caller import Caller, present

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 0.5
"""Waiting times between attempts to reconnect, doubled each time, with a random part; a replica of a broker that has
failed is there within seconds, and should not wait long for its clients."""

STEADY_AFTER_S: Final = 2.0
"""After a connection that lasted so long the next attempt is made at once."""

ASK_AFTER_S: Final = 1.0
"""Neighbours are asked when the broker has been away for so long; most connections come back sooner."""

ANSWER_WITHIN_S: Final = 1.0

CALL_WITHIN_S: Final = 3.0
"""A call that a host has not taken by then is given up: a host that is off says nothing, and TCP tries for minutes."""

REATTACH_AFTER_S: Final = 30.0
"""A broker that is away for longer is given up, where its neighbours are known; its replica keeps what is for its
clients for so long."""


class ReconnectingConnection:
    """The connection to one broker. A client that moves has two lines for a while."""

    def __init__(
        self,
        owner: ConnectionOwner,
        address: Address,
        broker: str = "",
        reattach_after_s: float = REATTACH_AFTER_S,
        caller: Caller | None = None,
    ) -> None:
        self._owner = owner
        self._caller = caller or present()
        self.address = address
        self.broker = broker
        """The broker's name, empty until it has greeted for the first time."""
        self.connection: Connection | None = None
        self.keeper: asyncio.Task[None] | None = None
        self._reattach_after_s = reattach_after_s
        self._elsewhere: dict[str, str] = {}
        self._away_since_s: float | None = None
        self._unanswered_count = 0
        """Calls that were given up before the broker had greeted."""

    def greeted(self, broker: str, elsewhere: Mapping[str, str]) -> None:
        """The broker has greeted, and told who its neighbours are and where."""
        self.broker = broker
        self._away_since_s = None
        if elsewhere:
            self._elsewhere = dict(elsewhere)

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""
        self.connection = None
        if not connection.peer:
            self._unanswered_count += 1

    def took_own_place(self) -> bool:
        """Whether the connection that has taken this one's place may be ours.

        A call that was given up may reach the broker later than the next one, as when the broker's process was stopped
        for a while. Each such call explains one loss of the place.
        """
        if not self._unanswered_count:
            return False
        self._unanswered_count -= 1
        return True

    async def dial(self) -> None:
        """Connect; whoever waits for the greeting learns of it from the client."""
        connection = self.connection = Connection(self._owner, self.broker)  # the greeting may come before we go on
        try:
            async with asyncio.timeout(CALL_WITHIN_S):
                await self._caller.dial(lambda: connection, self.address)
        except (OSError, asyncio.CancelledError):
            connection.give_up()
            self.connection = None
            raise

    def keep(self) -> None:
        """See to it that there is a connection from now on."""
        self.keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        wait_s = BACKOFF_MIN_S
        while True:
            if self.connection is not None:
                opened_s = now_s()
                await self.connection.wait_closed()
                if now_s() - opened_s > STEADY_AFTER_S:
                    wait_s = BACKOFF_MIN_S
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(BACKOFF_MAX_S, 2 * wait_s)
            if self._away_since_s is None:
                self._away_since_s = now_s()
            elif now_s() - self._away_since_s > ASK_AFTER_S:
                await self._look_elsewhere(now_s() - self._away_since_s)
            try:
                await self.dial()
            except OSError:
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(BACKOFF_MAX_S, 2 * wait_s)

    async def _look_elsewhere(self, away_s: float) -> None:
        """Ask the neighbours where the broker is; if it is away for too long, the next call goes to one of them."""
        for address in self._elsewhere.values():
            try:
                neighbour = Address.parse(address)
                found = await ask_where(neighbour, self.broker, ANSWER_WITHIN_S, self._caller)
                where = Address.parse(found) if found else self.address
            except (OSError, TimeoutError, ValueError):
                continue
            if away_s > self._reattach_after_s:
                self.broker, self.address = "", neighbour
            else:
                self.address = where
            return

    async def close(self, reason: str = "") -> None:
        """Give the connection up; a reason is told to the broker as a goodbye for good."""
        if self.keeper is not None:
            self.keeper.cancel()
            await asyncio.gather(self.keeper, return_exceptions=True)
        connection = self.connection  # it is forgotten as soon as it is gone
        if connection is not None:
            connection.close(reason, leaves=True)
            await connection.wait_closed()
