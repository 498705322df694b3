"""Whether a neighbour lives, asked when somebody greets in its name while its connection stands.

A connection that stands is no sign of life: its other end may hang, or its host may be off. A greeting is no proof of
death either, for anybody can greet. So the neighbour is asked over its connection, and the greeting waits for the
answer. One that says anything within `ANSWER_WITHIN_S` keeps its place. If it is silent, or its connection ends, the
newcomer is let in. A replica whose neighbours have seen the death themselves does not wait: the connection is gone, or
the watch has found that the broker hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trimtab.broker.core import Broker
from trimtab.network.clock import now_s
from trimtab.network.links.connection import Connection
from trimtab.protocol.frames import Hello

ANSWER_WITHIN_S: Final = 1.0
"""A broker that runs answers within milliseconds; pauses of a busy machine are shorter."""

LOOK_AGAIN_AFTER_S: Final = 0.02
WAITING_MAX_COUNT: Final = 64
"""Greetings that may wait at a time; others are refused, and an honest peer greets again."""


class LivenessProbes:
    """Neighbours that are being asked whether they live, and greetings that wait for that."""

    def __init__(self, broker: Broker, schedule: Callable[[], None]) -> None:
        self._broker = broker
        self._schedule = schedule
        self._waiting: dict[Connection, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is under way, to be ended with the process."""
        return list(self._waiting.values())

    @property
    def is_full(self) -> bool:
        """Whether no more greetings may wait."""
        return len(self._waiting) >= WAITING_MAX_COUNT

    def is_waiting(self, connection: Connection) -> bool:
        """Whether a greeting over this connection waits."""
        return connection in self._waiting

    def is_needed(self, hello: Hello) -> bool:
        """Whether a connected neighbour must be asked before a greeting in its name counts; not one that has failed."""
        peer, watch = self._broker.peers.get(hello.name), self._broker.replacement
        if hello.role != "broker" or peer is None or peer.role != "broker":
            return False
        return watch is None or watch.verdicts().get(hello.name) not in ("crash", "hang")

    def ask(self, name: str, present: Connection, newcomer: Connection, told: Callable[[bool], None]) -> None:
        """Ask a neighbour over its present connection, and tell whether it lives if the newcomer still waits."""

        async def work() -> None:
            lives = await self._lives(name, present)
            del self._waiting[newcomer]
            if newcomer.is_open():
                told(lives)

        self._waiting[newcomer] = asyncio.get_running_loop().create_task(work())

    async def _lives(self, name: str, present: Connection) -> bool:
        await asyncio.sleep(LOOK_AGAIN_AFTER_S)  # what has arrived already is no answer
        peer = self._broker.peers.get(name)
        if peer is None or not present.is_open():
            return False
        link = peer.link
        heard_count = link.expects + link.acks_count
        link.ask()
        self._broker.output.touch(name)
        self._schedule()
        ends_s = now_s() + ANSWER_WITHIN_S
        while present.is_open() and now_s() < ends_s:
            if link.expects + link.acks_count != heard_count:
                return True
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        return False
