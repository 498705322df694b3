"""Takes connections, as many and as fast as the limits allow, and encrypts them.

A connection that is too many is closed before anything is done for it. Encrypted ones are taken no faster than their
handshakes may cost; the others wait in the system's queue. Certificates may change while it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from trimtab.broker.flow.rate_limits import Store
from trimtab.network.clock import now_s
from trimtab.network.links.address import Address
from trimtab.network.links.connection import Connection
from trimtab.network.security.caller import SHUTDOWN_WITHIN_S
from trimtab.network.security.settings import LimitSettings, is_loopback
from trimtab.network.server.descriptors import descriptors_max_count

BACKLOG_COUNT: Final = 1024
DESCRIPTORS_RESERVED_COUNT: Final = 64
"""Descriptors that are not for connections of others: files, and connections that this process makes."""

TRY_AGAIN_AFTER_S: Final = 0.2
"""A process without descriptors looks again after so long."""

TOLD_EVERY_S: Final = 60.0

log = logging.getLogger("trimtab.security")


class ContextSource(Protocol):
    """Who knows how connections are encrypted at present."""

    def context(self) -> ssl.SSLContext | None:
        """For the next connection; None if it is not encrypted."""
        ...


class Strangers(Protocol):
    """Who keeps the connections that have not greeted."""

    def make_room(self) -> bool:
        """Close one of them, if there is one; whether there was."""
        ...


class Listener:
    """Listens at one address."""

    def __init__(
        self,
        address: Address,
        connection: Callable[[], Connection],
        limits: LimitSettings,
        contexts: ContextSource,
        strangers: Strangers,
    ) -> None:
        self._address = address
        self._connection = connection
        self._limits = limits
        self._context = contexts.context
        self._make_room = strangers.make_room
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._count = 0
        self._count_by_host: dict[str, int] = {}
        self._handshakes = Store(limits.handshakes_burst_count, now_s())
        self._told_s = -TOLD_EVERY_S
        self.refused_count = 0
        """Connections that were closed at once because they were too many."""

    @property
    def count(self) -> int:
        """Connections that stand, with those that are being made."""
        return self._count

    @property
    def max_count(self) -> int:
        """How many there may be."""
        spare_count = max(DESCRIPTORS_RESERVED_COUNT, descriptors_max_count() - DESCRIPTORS_RESERVED_COUNT)
        return min(self._limits.connections_max_count, spare_count)

    async def begin(self) -> None:
        """Listen from now on; raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
        try:
            for family, kind, protocol, _, where in dict.fromkeys(found):
                listening = socket.socket(family, kind, protocol)
                self._sockets.append(listening)
                listening.setblocking(False)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(where)
                listening.listen(BACKLOG_COUNT)
        except OSError:
            self.close()
            raise
        self._accepting = [loop.create_task(self._accept(listening)) for listening in self._sockets]

    def close(self) -> None:
        """Take no more; connections that stand go on."""
        for task in self._accepting:
            task.cancel()
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wait_for_handshakes()
            try:
                taken, peer = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    loop.call_exception_handler({"message": "no connection can be taken", "exception": error})
                    await asyncio.sleep(TRY_AGAIN_AFTER_S)
                continue
            host = str(peer[0])
            if problem := self._problem(host):
                self.refused_count += 1
                self._tell(problem)
                taken.close()
                continue
            self._count += 1
            self._count_by_host[host] = self._count_by_host.get(host, 0) + 1
            task = loop.create_task(self._serve(taken, host))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _wait_for_handshakes(self) -> None:
        if self._context() is None:
            return
        limits = self._limits
        wait_s = self._handshakes.wait_s(limits.handshakes_per_s, limits.handshakes_burst_count, now_s())
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def _problem(self, host: str) -> str:
        limits = self._limits
        if not is_loopback(host) and self._count_by_host.get(host, 0) >= limits.connections_per_address_max_count:
            return f"{host} has {limits.connections_per_address_max_count:,} connections already (see [limits])"
        if self._count >= self.max_count and not self._make_room():
            return f"there are {self._count:,} connections already (see [limits])"
        return ""

    def _tell(self, problem: str) -> None:
        if now_s() >= self._told_s + TOLD_EVERY_S:
            self._told_s = now_s()
            log.warning("a connection was closed at once: %s", problem)

    async def _serve(self, taken: socket.socket, host: str) -> None:
        connection: Connection | None = None
        try:
            connection = await self._made(taken)
            await connection.wait_closed()
        except (OSError, TimeoutError, ssl.SSLError) as error:
            why = getattr(error, "reason", None) or str(error) or "it fell silent"
            self._tell(f"no encryption could be agreed on with {host}: {why}")
        finally:
            with contextlib.suppress(OSError):
                if connection is None:
                    taken.close()
            self._count -= 1
            left_count = self._count_by_host[host] - 1
            if left_count:
                self._count_by_host[host] = left_count
            else:
                del self._count_by_host[host]

    async def _made(self, taken: socket.socket) -> Connection:
        loop = asyncio.get_running_loop()
        context, connection = self._context(), self._connection()
        if context is None:
            await loop.connect_accepted_socket(lambda: connection, taken)
            return connection
        self._handshakes.spend(1)
        await loop.connect_accepted_socket(
            lambda: connection,
            taken,
            ssl=context,
            ssl_handshake_timeout=self._limits.handshake_within_s,
            ssl_shutdown_timeout=SHUTDOWN_WITHIN_S,
        )
        return connection
